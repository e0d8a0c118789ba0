"""The Otway case study: the same line through the Python function and through the C program."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import invgp


def short_run(otway, name, sites, **inference):
    """Some sites of the line, with one worker: the C program starts a process for every run."""
    line = pd.read_csv(otway / "data" / "synthetic.csv")
    line.iloc[sites].to_csv(otway / "data" / "short.csv", index=False)
    problem = invgp.load(otway / name, data=otway / "data" / "short.csv")
    return invgp.invert(problem.with_inference(workers=1, seed=1, **inference))


@pytest.mark.parametrize(
    ("sites", "inference", "rtol"),
    [
        # An emulator that is fitted to the runs may magnify a difference in their last digit.
        (slice(None, None, 4), {}, 1e-5),
        (
            slice(None, None, 25),
            {"posterior": "full gaussian", "emulator": False, "samples": 68, "max_evaluations": 2},
            1e-9,
        ),
    ],
    ids=["default", "full gaussian"],
)
def test_that_the_python_and_the_c_model_give_the_same_posterior(sites, inference, rtol, otway):
    python, c = (short_run(otway, name, sites, **inference) for name in ("otway.toml", "otway_c.toml"))
    for name in python.data_vars:
        np.testing.assert_allclose(c[name], python[name], rtol=rtol, atol=1e-3 * rtol, err_msg=name)
    assert c.attrs["invgp_runs"] == python.attrs["invgp_runs"]
    assert c.attrs["invgp_runs_failed"] == 0
    assert c.attrs["invgp_simulator_digest"] != python.attrs["invgp_simulator_digest"]
    assert (c.attrs["invgp_emulator"] == "none") == bool(inference)
    assert (c.attrs["invgp_converged"] == "yes") == (not inference)


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
    assert "the draws have converged" in outcome.stdout
    made = {path.name for path in (with_environment / "results").iterdir()}
    assert {"otway.nc", "otway.png", "otway_fit.png"} <= made
    # The last lines are files, relative to where the command was called.
    assert [Path("/", line).name for line in outcome.stdout.splitlines()[-2:]] == ["otway.png", "otway_fit.png"]
    assert all(Path("/", line).is_file() for line in outcome.stdout.splitlines()[-2:])
    printed = re.search(r"ELBO ([\d.]+) nats, (\d+) runs, 0 failed", outcome.stdout)
    page = (with_environment / "README.md").read_text(encoding="utf-8")
    reported = re.search(r"^coupled, emulator +(\d+) +[\d.]+ +[\d.]+ +([\d.]+) ", page, re.MULTILINE)
    assert int(printed[2]) == 113 * int(reported[1])
    # Where the inference converges differs a little from one BLAS to another.
    assert float(printed[1]) == pytest.approx(float(reported[2]), abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "nowhere.csv"], "run.sh: the file 'nowhere.csv' does not exist."),
        (
            ["--model", "fortran"],
            "run.sh: --model must be 'python', 'c', 'c_persistent' or 'c_batched', was 'fortran'.",
        ),
        (["--speed"], "run.sh: '--speed' is not an option; run.sh --help lists them."),
    ],
)
def test_that_a_wrong_option_of_the_command_is_reported_in_one_sentence(arguments, sentence, otway):
    outcome = subprocess.run(["bash", str(otway / "run.sh"), *arguments], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr.strip()) == (2, sentence)
