"""What the page about the config says of keys that are hard to guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from invgp.core.estimators import features_needed, fewest_samples

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def rows(key: str) -> list[list[str]]:
    """Kind, default and description of each key of that name."""
    lines = [line for line in PAGE.read_text().split("\n") if line.startswith(f"| `{key}` |")]
    return [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines]


def test_that_every_kind_is_spelt_out() -> None:
    assert "see right" not in PAGE.read_text()
    [mean], [quantiles] = rows("mean"), rows("quantiles")
    assert (mean[0], quantiles[0]) == ("number or list of numbers", "list of numbers")


def test_that_all_forms_of_a_spread_are_named() -> None:
    latent, noise = rows("std")
    assert latent[0] == "number, list of numbers or percentage"
    assert noise[0].endswith("a number, list of numbers, percentage, column name or list of column names")
    for form in ("a positive number", "a list with one for each label", "'5%'", "column, or list of columns"):
        assert form in noise[2]


def test_that_no_timeout_is_the_default() -> None:
    [timeout] = rows("timeout")
    assert timeout[:2] == ["number", "none"]


@pytest.mark.parametrize("Q", [1, 2, 5])
def test_that_the_fewest_samples_are_those_of_the_estimator(Q: int) -> None:
    [samples] = rows("samples")
    assert "at least 2 (2 Q + 1); from (Q + 1) (Q + 2) on" in samples[2]
    assert fewest_samples(Q) == 2 * (2 * Q + 1)
    cross = (Q + 1) * (Q + 2)
    assert features_needed(Q, cross) == cross // 2
    assert Q == 1 or features_needed(Q, cross - 1) == 2 * Q + 1


def test_that_the_readers_and_endings_are_described() -> None:
    assert "Fortran's exponents are read (`1.0D+03`)" in PAGE.read_text()
    survey, _ = rows("file")
    assert "with any other ending, a CSV file" in survey[2]
