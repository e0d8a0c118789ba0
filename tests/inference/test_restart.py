"""A second search around sites whose data are not explained: where it starts, and which posterior is kept."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.inversions import SearchUnderWay, sites_on_a_line
from invgp.errors import RunsFailedError
from invgp.inference import restart
from invgp.inference.restart import reset_sites, restart_around
from invgp.inference.runner import BudgetSpent
from invgp.inference.search_state import SearchResult
from invgp.inference.site_model import simulator_stages

FIRST, SECOND = SearchResult("first", converged=False), SearchResult("searched again", converged=True)


@pytest.fixture
def under_way(tmp_path, monkeypatch):
    """A search of two sites with a posterior and its bound, and another posterior."""
    line = sites_on_a_line([0.0, 100.0])
    survey = replace(line.survey, observations=(replace(line.survey.observations[0], values=np.ones((2, 1))),))
    search = SearchUnderWay(np.square, replace(line, survey=survey), tmp_path)
    search.state = replace(search.state, candidate=search.find(1.0), result=FIRST)
    search.runner.record(-10.0, accepted=True)
    monkeypatch.setattr(type(search.model.optimiser), "bound", lambda self, algorithm, posterior, evaluate: -10.0)
    monkeypatch.setattr(
        restart,
        "use_simulator_at",
        lambda model, runner, state, sites, start: replace(state, direct=state.direct | sites),
    )
    return search, search.find(-1.0)


@pytest.mark.parametrize(("bound", "kept"), [(-9.0, "second"), (-11.0, "first")])
def test_that_the_better_of_two_searches_is_kept(bound, kept, under_way, monkeypatch):
    search, second = under_way

    def optimise(model, runner, state, algorithm, start, evaluate):
        runner.record(bound, accepted=True)
        return runner.keep(replace(state, candidate=second, result=SECOND))

    monkeypatch.setattr(restart, "optimise", optimise)
    found = restart_around(search.model, search.runner, search.state, np.asarray([True, False]))
    assert found.candidate is (second if kept == "second" else search.state.candidate)
    assert found.result == (SECOND if kept == "second" else FIRST)
    np.testing.assert_array_equal(found.direct, [kept == "second", False])
    assert search.runner.bound == max(bound, -10.0)
    assert search.runner.latest is found  # what an interruption would leave


@pytest.mark.parametrize("error", [BudgetSpent(1), RunsFailedError("all failed"), np.linalg.LinAlgError("indefinite")])
def test_that_a_second_search_that_breaks_off_leaves_the_first(error, under_way, monkeypatch):
    search, _ = under_way

    def optimise(*arguments):
        raise error

    monkeypatch.setattr(restart, "optimise", optimise)
    assert restart_around(search.model, search.runner, search.state, np.asarray([True, False])) is search.state


def test_that_the_best_posterior_of_a_second_search_without_runs_is_kept(under_way, monkeypatch):
    search, second = under_way

    def optimise(model, runner, state, algorithm, start, evaluate):
        runner.keep(replace(state, candidate=second))
        runner.record(-9.0, accepted=True)
        raise BudgetSpent(1)

    monkeypatch.setattr(restart, "optimise", optimise)
    found = restart_around(search.model, search.runner, search.state, np.asarray([True, False]))
    assert found.candidate is second
    assert not found.result.converged
    assert "inference.max_runs" in found.result.status


def test_that_a_restart_resets_the_site_factors_of_its_sites_only(under_way):
    search, _ = under_way
    algorithm, first = search.model.algorithm(simulator_stages(search.model, search.runner)), search.state.posterior
    start = reset_sites(search.model, search.state, algorithm, np.asarray([True, False]))
    np.testing.assert_allclose(start.sites.precision[0], [[0.1]])  # of a prior of variance 1
    np.testing.assert_array_equal(start.sites.precision[1], first.sites.precision[1])
    np.testing.assert_array_equal(start.sites.shift[1], first.sites.shift[1])
