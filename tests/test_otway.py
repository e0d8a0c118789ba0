"""The Otway case study: the same line through the Python function and through the C program."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import invgp


def short_run(otway, name):
    """Five sites of the line and four evaluations of the bound: the C program starts a process for every run."""
    line = pd.read_csv(otway / "data" / "synthetic.csv")
    line.iloc[[0, 20, 40, 60, 80]].to_csv(otway / "data" / "short.csv", index=False)
    problem = invgp.load(otway / name, data=otway / "data" / "short.csv")
    settings = replace(problem.inference, samples=40, max_evaluations=4, workers=1, seed=1)
    return invgp.invert(replace(problem, inference=settings))


def test_that_the_python_and_the_c_model_give_the_same_posterior(otway):
    python, c = short_run(otway, "otway.toml"), short_run(otway, "otway_c.toml")
    for name in python.data_vars:
        np.testing.assert_allclose(c[name], python[name], rtol=1e-9, err_msg=name)
    assert c.attrs["invgp_runs_failed"] == 0
    assert c.attrs["invgp_simulator_digest"] != python.attrs["invgp_simulator_digest"]


@pytest.fixture
def with_environment(otway):
    """The copy with this environment as its .venv, so that its command has nothing to install."""
    link = otway.parent.parent / ".venv"
    if not link.exists():
        link.symlink_to(sys.prefix)
    return otway


def test_that_the_command_of_the_readme_makes_a_posterior_and_figures(with_environment):
    command = ["bash", str(with_environment / "run.sh")]
    outcome = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "the bound has settled" in outcome.stdout
    made = {path.name for path in (with_environment / "results").iterdir()}
    assert {"otway.nc", "otway.png", "otway_fit.png"} <= made
    table = subprocess.run(
        [sys.executable, str(with_environment / "coverage.py")], capture_output=True, text=True, check=True
    )
    page = (with_environment / "README.md").read_text(encoding="utf-8")
    for printed, told in zip(rows(table.stdout), rows(page), strict=True):
        assert printed[:2] == told[:2]
        # Where the inference settles differs a little from one BLAS to another.
        assert printed[2] == pytest.approx(told[2], abs=2)
        assert printed[3] == pytest.approx(told[3], abs=0.05)


def rows(text):
    """The rows of a table of coverage: latent, layer, per cent, error."""
    found = re.findall(r"^ *(depth|velocity) +(\d) +(\d+)% +([\d.]+)$", text, re.MULTILINE)
    return [(latent, int(layer), int(share), float(error)) for latent, layer, share, error in found]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "nowhere.csv"], "run.sh: the file 'nowhere.csv' does not exist."),
        (["--model", "fortran"], "run.sh: --model must be 'python' or 'c', but it is 'fortran'."),
        (["--speed"], "run.sh: '--speed' is not an option; run.sh --help lists them."),
    ],
)
def test_that_a_wrong_option_of_the_command_is_a_sentence(arguments, sentence, otway):
    outcome = subprocess.run(["bash", str(otway / "run.sh"), *arguments], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr.strip()) == (2, sentence)
