"""The synthetic Otway line: its columns, its truth, and its noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from invgp.forward_models import two_way_times

SCRIPT = Path(__file__).resolve().parents[2] / "case_studies" / "otway" / "make_survey.py"


def make(path: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Write a survey and return its table (113, 5) and that of its truth (113, 9)."""
    command = [sys.executable, str(SCRIPT), "--seed", str(seed), "--output", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    truth = path.with_name(f"{path.stem}_truth.csv")
    return np.loadtxt(path, delimiter=",", skiprows=1), np.loadtxt(truth, delimiter=",", skiprows=1)


@pytest.mark.slow
def test_that_the_columns_are_those_of_the_real_survey(tmp_path: Path) -> None:
    table, _ = make(tmp_path / "line.csv", seed=1)
    header = (tmp_path / "line.csv").read_text().splitlines()[0]
    assert header == "position_m,twt_1_s,twt_2_s,twt_3_s,twt_4_s"
    np.testing.assert_array_equal(table[:, 0], 400.0 * np.arange(113))


@pytest.mark.slow
def test_that_depths_increase_and_residuals_are_the_noise(tmp_path: Path) -> None:
    scores = []
    for seed in range(1, 5):
        table, truth = make(tmp_path / f"{seed}.csv", seed)
        depth, velocity = truth[:, 1:5], truth[:, 5:]
        assert np.all(np.diff(depth, axis=1, prepend=0.0) > 0.0)
        scores.append((table[:, 1:] - two_way_times(depth, velocity)) / [0.025, 0.05, 0.075, 0.1])
    spread = np.std(np.concatenate(scores), axis=0)
    np.testing.assert_allclose(spread, 1.0, atol=5.0 / np.sqrt(2 * 4 * 113))


@pytest.mark.slow
def test_that_a_seed_gives_one_survey(tmp_path: Path) -> None:
    first, _ = make(tmp_path / "a.csv", seed=7)
    again, _ = make(tmp_path / "b.csv", seed=7)
    other, _ = make(tmp_path / "c.csv", seed=8)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
