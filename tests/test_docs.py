"""Documentation that can be wrong is run."""

import re
import runpy
import subprocess
import sys

import pytest

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/calibration.md",
    "docs/compare.md",
    "docs/design.md",
    "docs/inference.md",
    "docs/ledger.md",
    "docs/models.md",
    "docs/plots.md",
    "docs/report.md",
    "docs/result.md",
    "docs/simulators.md",
    "docs/umbridge.md",
    "case_studies/otway/README.md",
]


def test_that_the_config_reference_is_made_from_the_schema(root):
    page = runpy.run_path(str(root / "docs" / "make_config_reference.py"))["page"]()
    assert (root / "docs" / "config.md").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("name", PAGES)
def test_that_links_between_files_lead_somewhere(name, root):
    page = root / name
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_that_the_python_example_of_the_readme_runs(root, otway):
    [example] = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    outcome = subprocess.run(
        [sys.executable, "-c", example], cwd=otway.parent.parent, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    depth = float(outcome.stdout.split()[0])
    assert 1000 < depth < 2200


def test_that_the_examples_of_the_models_page_run(root):
    examples = re.findall(r"```python\n(.*?)```", (root / "docs" / "models.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 4
    for example in examples:
        outcome = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, outcome.stderr
