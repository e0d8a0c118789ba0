"""Draws on an emulator: what they cost, stopped or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.line_problems import NOISE, Counted, line_problem, smooth
from invgp.execution.monitor import SilentMonitor
from invgp.execution.pools import Loop
from invgp.inference.invert import open_recorder
from invgp.sampling.chains import Chains
from invgp.validation.reference_chains import DirectSimulator, emulated_reference


def rippled(a, b):
    """What no emulator learns from a few runs, so that the chains run the simulator."""
    answer = smooth(a, b)
    answer["t"][:, 0] += NOISE * np.sin(30.0 * a)
    return answer


def drawn(counted: Counted, folder: Path, draws: int) -> tuple[Chains, int]:
    """Draws from the problem of a function, with files in a folder, and the runs that were made for them."""
    problem, _ = line_problem(counted, sites=16, max_evaluations=10)
    counted.rows = 0  # of the data
    with open_recorder(problem, folder / "ledger.sqlite") as recorder:
        run = DirectSimulator.of(problem, folder, Loop(), SilentMonitor(), recorder)
        chains = emulated_reference(
            problem, run, chains=2, draws=draws, burn_in=0, checkpoint=folder / "chains.npz", seed=0
        )
    return chains, counted.rows


@pytest.mark.slow
@pytest.mark.parametrize("function", [smooth, rippled])
def test_that_resumed_chains_repeat_no_run_and_count_each_once(function, tmp_path):
    stopped, at_once = tmp_path / "stopped", tmp_path / "at_once"
    for folder in (stopped, at_once):
        folder.mkdir()
    first, made_first = drawn(Counted(function), stopped, 2)
    second, made_second = drawn(Counted(function), stopped, 4)
    whole, made = drawn(Counted(function), at_once, 4)
    np.testing.assert_array_equal(second.draws, whole.draws)
    assert second.runs == whole.runs
    assert made_first + made_second == made
    assert made == whole.runs
    assert second.runs - first.runs == made_second
    assert (made_second > 0) == (function is rippled)
