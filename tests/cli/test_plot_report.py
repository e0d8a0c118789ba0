"""`invgp plot` and `invgp report`: what they write, and what they say to mistakes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.command_line import Command

Finished = tuple[Path, subprocess.CompletedProcess[str]]


def test_that_all_figures_of_a_posterior_are_written(
    finished_run: Finished, invgp_here: Command, tmp_path: Path
) -> None:
    result = invgp_here("plot", finished_run[0] / "posterior.nc", "--kind", "all", "-o", "line.svg", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    names = ["line.svg", "line_fit.svg", "line_draws.svg", "line_convergence.svg"]  # one latent has no correlation
    assert result.stdout.split() == names
    assert all((tmp_path / name).read_bytes().startswith(b"<?xml") for name in names)


def test_that_a_figure_has_the_requested_size_and_resolution(
    finished_run: Finished, invgp_here: Command, tmp_path: Path
) -> None:
    arguments = ("--kind", "convergence", "--size", "12.7", "7.62", "--dpi", "100", "-o", "bound.png")
    result = invgp_here("plot", finished_run[0] / "posterior.nc", *arguments, cwd=tmp_path)
    assert result.stdout.split() == ["bound.png"], result.stderr
    with Image.open(tmp_path / "bound.png") as image:
        assert image.size == (500, 300)
        assert np.asarray(image).std() > 5.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--latent", "velocity"], "invgp: --latent: must be one of depth, was 'velocity'"),
        (["--layer", "2"], "invgp: --layer: must be left out, was '2'"),
        (["--kind", "map"], "invgp: A map needs sites with 2 coordinates or more, but these have 1: position."),
        (["--kind", "correlation"], "invgp: A correlation needs at least two latents, or two labels of one latent."),
        (
            ["--limits", "depth", "5", "1"],
            "invgp: --limits: the lower must be below the upper, was 5 and 1 for 'depth'",
        ),
        (["--at", "position", "3"], "invgp: --at: must be left out: only a grid can be cut, and these are sites"),
        (["--format", "pdf", "-o", "a.png"], "invgp: --format: must be that of --output, which is 'a.png', was 'pdf'"),
        (["-o", "a.gif"], "invgp: --output: must end in .png, .svg or .pdf, was 'a.gif'"),
    ],
)
def test_that_a_mistake_is_reported_in_one_sentence(
    arguments: list[str], sentence: str, finished_run: Finished, invgp_here: Command, tmp_path: Path
) -> None:
    result = invgp_here("plot", finished_run[0] / "posterior.nc", *arguments, cwd=tmp_path)
    assert result.stderr.strip() == sentence
    assert result.returncode == 2
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_that_a_variable_without_limits_is_named(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    result = invgp_here("plot", finished_run[0] / "posterior.nc", "--limits", "deepth", "0", "1", cwd=tmp_path)
    assert "must be of one of depth, depth_std, depth_difference, depth_information, was 'deepth'" in result.stderr


@pytest.mark.slow
def test_that_a_report_is_written(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    result = invgp_here("report", finished_run[0] / "posterior.nc", "-o", "new/line.html", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["new/line.html"]
    page = (tmp_path / "new" / "line.html").read_text(encoding="utf-8")
    assert "A short line" in page
    assert "invgp run survey.toml --seed 3 -o posterior.nc" in page


def test_that_a_report_of_nothing_is_refused(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    posterior = finished_run[0] / "posterior.nc"
    wrong = invgp_here("report", posterior, "-o", "line.pdf", cwd=tmp_path)
    assert wrong.stderr.strip() == "invgp: --output: must end in .html, was 'line.pdf'"
    missing = invgp_here("report", "none.nc", cwd=tmp_path)
    assert missing.stderr.strip() == "invgp: the posterior 'none.nc' cannot be read: no such file"
    no_ledger = invgp_here("report", posterior, "--ledger", posterior, "-o", "line.html", cwd=tmp_path)
    assert no_ledger.returncode == 2
    assert "ledger" in no_ledger.stderr
    assert not (tmp_path / "line.html").exists()


@pytest.mark.slow
def test_that_few_runs_are_drawn_of_fields_alone(finished_run: Finished, invgp_here: Command, tmp_path: Path) -> None:
    reported = invgp_here(
        "plot", finished_run[0] / "posterior.nc", "--show", "few-runs", "-o", "line.png", cwd=tmp_path
    )
    assert reported.returncode == 2
    assert "--show: must not be 'few-runs' here: only the posterior of a field model has it" in reported.stderr
    done = invgp_here("plot", finished_run[0] / "posterior.nc", "--show", "all", "-o", "line.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
