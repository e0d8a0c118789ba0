"""The page beside other packages says what the benchmark measured."""

import json
import runpy

import pytest

ROW = {"problem": "sine", "mean": 0.05, "spread": 0.02, "joint": 0.03}
CURVES = {
    "versions": {"invgp": "0.1"},
    "rows": [
        {**ROW, "method": "invgp", "runs": 20.0},
        {**ROW, "method": "other", "runs": 100.0, "mean": 0.4},
        {**ROW, "method": "other", "runs": 400.0, "mean": 0.01},
    ],
}


@pytest.fixture(scope="module")
def maker(root):
    return runpy.run_path(str(root / "docs" / "make_peers.py"))


def test_that_the_page_is_up_to_date(maker, root):
    assert (root / "docs" / "peers.md").read_text(encoding="utf-8") == maker["page"](
        maker["read_records"](), json.loads(maker["CURVES"].read_text(encoding="utf-8"))
    )


def test_that_the_page_holds_what_the_benchmark_writes(maker, root, tmp_path):
    tables = runpy.run_path(str(root / "tests" / "benchmarks" / "tables.py"))
    table = tables["Table"]("Runs", "Of one.", ("way", "ms"), (("ours", "1.5"),), {"invgp": "0.1"}, ("Ours is alone.",))
    tables["write"](tmp_path / "peers.json", "two cores", [table])
    page = maker["page"]({"measure runs": json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))}, CURVES)
    assert "\n\n## Runs\nOf one.\n\n| way | ms |\n| --- | --- |\n| ours | 1.5 |\n\n- Ours is alone.\n\n" in page
    assert page.endswith("Command: `measure runs`. Machine: two cores. With invgp 0.1.\n")
    assert "| sine | 20 | 400 |" in page
    assert "- sine: other, mean 0.010 after 400 runs (invgp, 20 runs: mean 0.050, spread 0.020, joint 0.030)." in page
    maker["draw_curves"](CURVES, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
