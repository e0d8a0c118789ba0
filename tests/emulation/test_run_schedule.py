"""Numbers of runs of an emulator."""

import numpy as np
import pytest

from helpers.inversions import sites_on_a_line
from invgp.emulation.run_schedule import can_emulate, run_budget, runs_of_steps


@pytest.mark.parametrize("runs_per_site", [0.2, 0.5, 3.0])
def test_that_the_runs_per_site_may_be_below_one(runs_per_site):
    problem = sites_on_a_line(np.arange(2000), (1.0, 1.0), runs_per_site=runs_per_site, posterior="coupled gaussian")
    assert run_budget(problem) == 2000 * runs_per_site
    assert can_emulate(problem)
    assert sum(runs_of_steps(problem)) <= 2000 * runs_per_site


def test_that_too_small_a_share_is_not_enough_for_an_emulator():
    problem = sites_on_a_line(np.arange(50), (1.0, 1.0), runs_per_site=0.1, posterior="coupled gaussian")
    assert not can_emulate(problem)
