"""The page beside other packages says what the benchmark measured."""

import json
import runpy

import pytest


@pytest.fixture(scope="module")
def maker(root):
    return runpy.run_path(str(root / "docs" / "make_peers.py"))


def test_that_the_page_is_up_to_date(maker, root):
    assert (root / "docs" / "peers.md").read_text(encoding="utf-8") == maker["page"](maker["read_records"]())


def test_that_the_page_holds_what_the_benchmark_writes(maker, root, tmp_path):
    tables = runpy.run_path(str(root / "tests" / "benchmarks" / "tables.py"))
    table = tables["Table"]("Runs", "Of one.", ("way", "ms"), (("ours", "1.5"),), {"invgp": "0.1"}, ("Ours is alone.",))
    tables["write"](tmp_path / "peers.json", "two cores", [table])
    page = maker["page"]({"measure runs": json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))})
    assert "\n\n## Runs\nOf one.\n\n| way | ms |\n| --- | --- |\n| ours | 1.5 |\n\n- Ours is alone.\n\n" in page
    assert page.endswith("Command: `measure runs`. Machine: two cores. With invgp 0.1.\n")
