"""The page of results says what the case studies found."""

import json
import re
import runpy

import pytest


@pytest.fixture(scope="module")
def maker(root):
    return runpy.run_path(str(root / "docs" / "make_results.py"))


@pytest.fixture(scope="module")
def found(maker, root):
    return maker["findings"](root / "case_studies", root / "tests")


def test_that_the_page_is_up_to_date(maker, found, root):
    paper = maker["experiments"](root / "docs" / "paper_experiments.toml")
    assert (root / "docs" / "results.md").read_text(encoding="utf-8") == maker["page"](paper, found)


def test_that_figures_pages_and_commands_of_results_are_there(found, root):
    for entry in found.values():
        for path in filter(None, (entry.figure and f"figures/{entry.figure}", entry.page)):
            assert (root / "docs" / path).exists(), path
        scripts = re.findall(r"\S+\.(?:sh|py)\b", entry.command)
        assert scripts, entry.command
        for script in scripts:
            assert (root / script).exists(), entry.command


@pytest.mark.parametrize(
    ("better", "ours", "holds"),
    [
        ("lower", 0.8, True),
        ("lower", 1.05, True),
        ("lower", 1.2, False),
        ("higher", 1.2, True),
        ("higher", 0.8, False),
        ("equal", 0.95, True),
        ("equal", 0.8, False),
        ("equal", 1.2, False),
    ],
)
def test_that_a_row_holds_if_it_is_better_or_within_the_spread(better, ours, holds, maker):
    row = maker["Row"](measure="SSE", setting="", ours=ours, spread=0.1, reference=1.0, source="paper", better=better)
    assert row.holds is holds
    status = maker["Finding"](experiment="a", command="a.py", rows=[row]).status
    assert status == ("reproduced" if holds else "in part: 0 of 1 rows hold")
    unfinished = maker["Finding"](experiment="a", command="a.py", still_open="most of it", rows=[row]).status
    assert unfinished == f"in part: {int(holds)} of 1 rows hold, the rest is open"
    our_own = maker["Finding"](experiment="a", title="not in the paper", command="a.py", rows=[row]).status
    assert our_own == f"{int(holds)} of 1 rows hold"


def test_that_a_row_for_information_has_no_verdict(maker):
    row = maker["Row"](measure="s", setting="", ours=2.0, reference=1.0, source="another machine", judged=False)
    assert row.holds is None
    assert maker["table"]([row])[2].endswith("| 2 | 1 (another machine) |  |")
    assert maker["Finding"](experiment="a", command="a.py", rows=[row]).status == "measured; no reference value"


def test_that_an_experiment_has_one_place_and_known_fields(maker, tmp_path):
    entry = {"experiment": "boston", "command": "run.sh", "rows": []}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "results.json").write_text(json.dumps([entry]))
    with pytest.raises(ValueError, match=r"two/results.json: experiment 'boston' has results elsewhere too"):
        maker["findings"](tmp_path)
    (tmp_path / "two" / "results.json").write_text(json.dumps([entry | {"experiment": "abalone", "verdict": "good"}]))
    with pytest.raises(ValueError, match="verdict"):
        maker["findings"](tmp_path)
