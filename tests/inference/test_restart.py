"""A second search around sites whose data are not explained: where it starts, and which posterior is kept."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.inversions import inversion_on, sites_on_a_line
from invgp.errors import RunsFailedError
from invgp.inference.inversion import BudgetSpent, SearchResult
from invgp.inference.restart import RESET_PRECISION, reset_sites, restart_around


@pytest.fixture
def under_way(tmp_path):
    """An inversion of two sites with a posterior, its bound, and another posterior."""
    line = sites_on_a_line([0.0, 100.0])
    survey = replace(line.survey, observations=(replace(line.survey.observations[0], values=np.ones((2, 1))),))
    inversion, converged = inversion_on(np.square, replace(line, survey=survey), tmp_path)
    inversion.candidate, inversion.direct = converged(1.0), np.asarray([False, False])
    inversion.record(-10.0, accepted=True)
    inversion.bound_of = lambda algorithm, posterior: -10.0
    inversion.use_simulator_at = lambda sites, start: setattr(inversion, "direct", inversion.direct | sites)
    return inversion, inversion.candidate, converged(-1.0)


@pytest.mark.parametrize(("bound", "kept"), [(-9.0, "second"), (-11.0, "first")])
def test_that_the_better_of_two_searches_is_kept(bound, kept, under_way):
    inversion, first, second = under_way

    def optimise(algorithm, state, evaluate):
        inversion.candidate = second
        inversion.record(bound, accepted=True)
        return SearchResult("searched again", converged=True)

    inversion.optimise = optimise
    before = SearchResult("first", converged=False)
    verdict = restart_around(inversion, np.asarray([True, False]), before)
    assert inversion.candidate is (second if kept == "second" else first)
    assert verdict == (SearchResult("searched again", converged=True) if kept == "second" else before)
    np.testing.assert_array_equal(inversion.direct, [kept == "second", False])
    assert inversion.trace[-1][0] == max(bound, -10.0)


@pytest.mark.parametrize("error", [BudgetSpent(1), RunsFailedError("all failed"), np.linalg.LinAlgError("indefinite")])
def test_that_a_second_search_that_breaks_off_leaves_the_first(error, under_way):
    inversion, first, _ = under_way

    def optimise(algorithm, state, evaluate):
        raise error

    inversion.optimise = optimise
    before = SearchResult("first", converged=True)
    assert restart_around(inversion, np.asarray([True, False]), before) == before
    assert inversion.candidate is first
    assert not inversion.direct.any()


def test_that_a_restart_resets_the_site_factors_of_its_sites_only(under_way):
    inversion, first, _ = under_way
    algorithm = inversion.algorithm(inversion.stages())
    start = reset_sites(inversion, algorithm, first.posterior, np.asarray([True, False]))
    np.testing.assert_allclose(start.sites.precision[0], [[RESET_PRECISION]])  # of a prior of variance 1
    assert RESET_PRECISION == 0.1
    np.testing.assert_array_equal(start.sites.precision[1], first.posterior.sites.precision[1])
    np.testing.assert_array_equal(start.sites.shift[1], first.posterior.sites.shift[1])
