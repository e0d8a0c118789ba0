"""Documentation that can be wrong is run."""

import re
import runpy
import subprocess
import sys

import pytest

from invgp import cli, errors
from invgp.cli import calibrate

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/calibration.md",
    "docs/cli.md",
    "docs/compare.md",
    "docs/design.md",
    "docs/export.md",
    "docs/inference.md",
    "docs/ledger.md",
    "docs/maps.md",
    "docs/models.md",
    "docs/python.md",
    "docs/plots.md",
    "docs/report.md",
    "docs/result.md",
    "docs/simulators.md",
    "docs/umbridge.md",
    "case_studies/em_survey/README.md",
    "case_studies/gmt_valley/README.md",
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
    assert len(examples) == 5
    for example in examples:
        outcome = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, outcome.stderr


def test_that_the_page_about_python_runs(root, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)
    outcome = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "A reflection line: 5 sites, 9 observations, 4 latent processes, simulator 'two_way_times'" in outcome.stdout
    for key in ("noise.std.tim", "survey.observations.time.columns", "forward.inputs[1]"):
        assert f"\n{key}: must " in outcome.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"posterior.nc", "posterior.png", "posterior_fit.png"}


def test_that_the_page_about_the_command_line_tells_every_exit_code(root):
    page = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    named = {kind.exit_code for kind in (errors.InvgpError, *errors.InvgpError.__subclasses__())}
    assert told == {0, *named, calibrate.NOT_CALIBRATED, cli.INTERRUPTED}
