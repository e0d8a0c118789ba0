"""What the page about the config says of keys that are hard to guess."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from helpers.config_files import WriteSurvey
from invgp.config import load
from invgp.core.coupled.site_estimators import min_fit_samples
from invgp.problem import fewest_samples

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def rows(key: str) -> list[list[str]]:
    """Kind, default and description of each key of that name."""
    lines = [line for line in PAGE.read_text().split("\n") if line.startswith(f"| `{key}` |")]
    return [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines]


def test_that_every_kind_is_spelt_out() -> None:
    assert "see right" not in PAGE.read_text()
    [mean], [quantiles] = rows("mean"), rows("quantiles")
    assert (mean[0], quantiles[0]) == ("number, file name, table or list of them", "list of numbers")


def test_that_all_forms_of_a_spread_are_named() -> None:
    latent, _, _, noise, discrepancy = rows("std")
    assert latent[0] == "number, percentage, file name, table or list of them"
    assert noise[0].endswith("a number, list of numbers, percentage, column name or list of column names")
    for form in ("a positive number", "a list with one for each label", "'5%'", "column, or list of columns"):
        assert form in noise[2]
    assert discrepancy[0] == "number or list of numbers"


def test_that_no_timeout_is_the_default() -> None:
    executable = rows("timeout")[0]
    assert executable[:2] == ["number", "none"]


@pytest.mark.parametrize("Q", [1, 2, 5])
def test_that_the_fewest_samples_are_those_of_the_estimators(Q: int) -> None:
    [samples] = rows("samples")
    assert "linearisation needs at least 3 (Q + 1) / 2, the others 3 (Q + 1) (Q + 2) / 4" in samples[2]
    assert min_fit_samples(Q, quadratic=False) == math.ceil(3 * (Q + 1) / 2)
    assert min_fit_samples(Q, quadratic=True) == math.ceil(3 * (Q + 1) * (Q + 2) / 4)


@pytest.mark.parametrize(
    ("line", "fewest"),
    [
        ('posterior = "full gaussian"', min_fit_samples(3, quadratic=True)),
        ('estimator = "linearisation"', min_fit_samples(3, quadratic=False)),
        ('estimator = "score"', min_fit_samples(3, quadratic=True)),
        ('estimator = "hermite"', min_fit_samples(3, quadratic=True)),
        ("", min_fit_samples(3, quadratic=True)),
    ],
)
def test_that_a_config_may_ask_for_the_fewest_samples(line: str, fewest: int, write_survey: WriteSurvey) -> None:
    problem = load(write_survey({"samples = 16": f"samples = {fewest}\n{line}"}))
    assert problem.inference.samples == fewest == fewest_samples(problem.inference, problem.latent_count)


def test_that_what_is_learnt_has_a_table_of_its_own() -> None:
    assert "## [latents.NAME.learn]" in PAGE.read_text()
    _, learnt = rows("length_scale")
    assert learnt[:2] == ["number or `true`", "none"]


def test_that_the_readers_and_endings_are_described() -> None:
    assert "Fortran's exponents are read (`1.0D+03`)" in PAGE.read_text()
    survey, *_ = rows("file")
    assert "with any other ending, a CSV file" in survey[2]
