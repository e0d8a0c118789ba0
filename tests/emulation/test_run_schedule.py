"""Numbers of runs of an emulator."""

import numpy as np
import pytest

from helpers.inversions import sites_on_a_line
from invgp.emulation import run_schedule
from invgp.emulation.run_schedule import (
    can_emulate,
    effective_neighbours,
    run_budget,
    runs_of_steps,
    shares_runs,
    source_runs_in_a_check,
)


@pytest.mark.parametrize("runs_per_site", [0.2, 0.5, 3.0])
def test_that_the_runs_per_site_may_be_below_one(runs_per_site):
    problem = sites_on_a_line(np.arange(2000), (1.0, 1.0), runs_per_site=runs_per_site, posterior="coupled gaussian")
    assert run_budget(problem) == 2000 * runs_per_site
    assert can_emulate(problem)
    assert sum(runs_of_steps(problem)) <= 2000 * runs_per_site


def test_that_too_small_a_share_is_not_enough_for_an_emulator():
    problem = sites_on_a_line(np.arange(50), (1.0, 1.0), runs_per_site=0.1, posterior="coupled gaussian")
    assert not can_emulate(problem)


@pytest.mark.parametrize(("latents", "most"), [(2, 1000), (6, 1344)])  # 4 x 84 runs, twice doubled
def test_that_many_sites_share_runs(latents, most):
    small, large = (sites_on_a_line(np.arange(count), (1.0,) * latents) for count in (most, most + 1))
    assert not shares_runs(small)
    assert shares_runs(large)


def test_that_the_runs_of_a_check_do_not_depend_on_the_number_of_sites():
    sizes = [source_runs_in_a_check(sites_on_a_line(np.arange(count), (1.0, 1.0))) for count in (60, 1000, 100_000)]
    assert sizes == [(60,), (100,), (100,)]


def test_that_neighbours_are_counted_in_blocks(monkeypatch):
    problem = sites_on_a_line(np.sqrt(np.arange(300)), (1.0, 2.0))
    together = effective_neighbours(problem, np.random.default_rng(0))
    monkeypatch.setattr(run_schedule, "PAIRS_AT_ONCE", 1000)
    np.testing.assert_array_equal(effective_neighbours(problem, np.random.default_rng(0)), together)
