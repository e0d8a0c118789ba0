"""The page on PEST files states what the benchmark counted."""

import json
import runpy

import pytest

COUNTS = {"files": 0, "same": 0, "different": 0, "only invgp reads": 0, "only pyEMU reads": 0, "both refuse": 0}


@pytest.fixture(scope="module")
def maker(root):
    return runpy.run_path(str(root / "docs" / "make_pest_files.py"))


def test_that_the_page_is_up_to_date(maker, root):
    record = json.loads(maker["RECORD"].read_text(encoding="utf-8"))
    assert (root / "docs" / "pest_files.md").read_text(encoding="utf-8") == maker["page"](record)


def test_that_the_page_has_the_counts_and_the_differences(maker):
    sources = {"one": COUNTS | {"files": 3, "same": 2, "different": 1}, "two": COUNTS | {"files": 1, "same": 1}}
    record = {"sources": sources | {"three": COUNTS}, "not downloaded": ["four"], "differences": ["one: k.tpl"]}
    page = maker["page"](record)
    assert "| one | 3 | 2 | 1 | 0 | 0 | 0 |\n| two | 1 | 1 | 0 | 0 | 0 | 0 |\n| all | 4 | 3 | 1 | 0 | 0 | 0 |\n" in page
    assert "No such files are in: three.\n" in page
    assert "not built from source here: four.\n" in page
    assert "\n- one: k.tpl\n" in page
