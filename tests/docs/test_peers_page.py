"""The page beside other packages says what the benchmark measured."""

import json
import runpy

import pytest


@pytest.fixture(scope="module")
def maker(root):
    return runpy.run_path(str(root / "docs" / "make_peers.py"))


def test_that_the_page_is_up_to_date(maker, root):
    record = json.loads((root / "tests" / "benchmarks" / "peers.json").read_text(encoding="utf-8"))
    assert (root / "docs" / "peers.md").read_text(encoding="utf-8") == maker["page"](record)


def test_that_the_page_holds_what_the_benchmark_writes(maker, root, tmp_path):
    tables = runpy.run_path(str(root / "tests" / "benchmarks" / "tables.py"))
    table = tables["Table"]("Runs", "Of one.", ("way", "ms"), (("ours", "1.5"),), {"invgp": "0.1"}, ("Ours is alone.",))
    tables["write"](tmp_path / "peers.json", "two cores", [table])
    page = maker["page"](json.loads((tmp_path / "peers.json").read_text(encoding="utf-8")))
    assert "Machine: two cores.\n\n## Runs\nOf one.\n\n| way | ms |\n| --- | --- |\n| ours | 1.5 |\n\n" in page
    assert page.endswith("- Ours is alone.\n\nWith invgp 0.1.\n")
