"""Alternative solutions of the whole field: where they are searched for, and how they are reported."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import invgp
from helpers.inversions import ExactEmulator, SearchUnderWay, sites_on_a_line
from helpers.line_problems import NOISE, line_problem, one_site, smooth_outputs
from invgp.adapters import CallableModel, Quantity
from invgp.core.kernels import SquaredExponential
from invgp.emulation.run_schedule import can_emulate, effective_neighbours, runs_of_steps
from invgp.errors import RunsFailedError
from invgp.inference import multistart
from invgp.inference.multistart import (
    Multistart,
    are_distinct,
    describe_alternative,
    find_alternatives,
    search_alternative_modes,
    subset_of_sites,
)
from invgp.inference.restart import sites_within_length_scale
from invgp.inference.runner import BudgetSpent
from invgp.inference.search_options import SearchOptions
from invgp.inference.search_state import SearchResult, Step
from invgp.problem import Column, InferenceSettings, Latent, Noise, Observation, Problem, SimulatorVariable, Survey

CONVERGED, EXPLORED = SearchResult("converged", converged=True), SearchResult("explored", converged=True)


def mirrored_problem(prior_mean, truth_side, **inference):
    """A line whose data are the same for a field and for its mirror image about 300 m; and the field."""
    rng, x = np.random.default_rng(0), np.linspace(0.0, 100.0, 40)
    covariance = np.exp(-0.5 * ((x[:, None] - x) / 30.0) ** 2) + 1e-8 * np.eye(40)
    h = 300.0 + truth_side * 60.0 + 18.0 * np.linalg.cholesky(covariance) @ rng.standard_normal(40)

    def squared_height(h):
        return {"t": ((h - 300.0) / 60.0) ** 2}

    y = squared_height(h)["t"] + NOISE * rng.standard_normal(40)
    problem = Problem(
        title="",
        survey=Survey((Column("x", "m", x),), (Observation("t", "s", y[:, None]),)),
        latents=(
            Latent(
                "h",
                "m",
                np.full(1, prior_mean),
                np.full(1, 60.0),
                SquaredExponential(1.0, np.asarray([30.0])),
            ),
        ),
        noise=Noise("gaussian", {"t": np.full((40, 1), NOISE)}),
        forward=CallableModel(function=squared_height, inputs=(Quantity("h", "m"),), outputs=(Quantity("t", "s"),)),
        inputs=(SimulatorVariable("h"),),
        outputs=(SimulatorVariable("t"),),
        inference=InferenceSettings(**{"posterior": "coupled gaussian", **inference}),
    )
    return problem, h


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("side", "odds"), [(1.0, "and is as probable"), (1.5, "and is as probable")])
def test_that_a_mirrored_solution_of_the_whole_field_is_reported(side, odds, seed):
    problem, h = mirrored_problem(300.0, side)
    posterior = invgp.invert(problem, seed=seed)
    assert posterior.attrs["invgp_converged"] == "yes"
    printed = posterior.attrs["invgp_diagnostics"]
    assert "Another solution explains the data about as well" in printed
    assert odds in printed
    assert "it differs at 40 of 40 sites" in printed
    # One of the two it is, without kinks from the one to the other, and at a price of a few runs a site.
    mean = posterior["h"].values - 300.0
    score = (np.abs(mean) - np.abs(h - 300.0)) / posterior["h_std"].values
    assert np.abs(np.sign(mean).sum()) == 40
    assert np.sqrt((score**2).mean()) < 1.6
    assert posterior.attrs["invgp_runs"] <= 5 * 40


def test_that_of_two_solutions_the_more_probable_is_kept():
    """The prior is nearer to one of them, and says how much more probable it is; the evidence says it too."""
    posterior = invgp.invert(mirrored_problem(330.0, 1.0)[0], seed=1)
    assert (posterior["h"] > 300.0).all()
    printed = posterior.attrs["invgp_diagnostics"]
    assert "though this one is 12 times as probable" in printed
    # Of two narrow solutions the odds are those of the prior at them.
    x = posterior["x"].values
    covariance = 60.0**2 * (np.exp(-0.5 * ((x[:, None] - x) / 30.0) ** 2) + 1e-6 * np.eye(40))
    mean = posterior["h"].values
    here, there = (0.5 * f @ np.linalg.solve(covariance, f) for f in (mean - 330.0, 600.0 - mean - 330.0))
    assert there - here == pytest.approx(np.log(12.0), abs=0.3)


def test_that_without_runs_left_a_second_solution_may_be_one():
    posterior = invgp.invert(mirrored_problem(330.0, 1.0, max_runs=65)[0], seed=1)
    assert posterior.attrs["invgp_runs"] <= 65
    assert "Another solution may explain the data" in posterior.attrs["invgp_diagnostics"]


@pytest.mark.parametrize("budget", [64, 70, 90, 110])
def test_that_failures_and_the_search_for_others_stay_within_the_budget(budget):
    problem, _ = mirrored_problem(330.0, 1.0, max_runs=budget, max_failed_share=0.4)
    made = []

    def fragile(h):
        made.append(len(h))
        t = ((h - 300.0) / 60.0) ** 2
        return {"t": np.where(np.abs(h - 345.0) < 8.0, np.nan, t)}  # a tenth of what the prior has, and of the solution

    forward = replace(problem.forward, function=fragile)
    posterior = invgp.invert(replace(problem, forward=forward), seed=1)
    assert posterior.attrs["invgp_runs_failed"] > 0
    assert sum(made) == posterior.attrs["invgp_runs"] <= budget
    assert "Another solution" in posterior.attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_no_second_solution_is_reported_if_there_is_none():
    """Nor a run spent on one: the smooth line takes as many as its steps and the verification."""
    for seed in (0, 1, 2):
        posterior = invgp.invert(line_problem(smooth_outputs, seed=seed)[0], seed=seed)
        assert "Another solution" not in posterior.attrs["invgp_diagnostics"]
        assert posterior.attrs["invgp_runs"] <= 3 * 40


@pytest.mark.parametrize(
    ("sites", "latents", "runs_per_site", "steps"),
    [
        # Four runs for each of the 4 terms of a cubic polynomial, and twice as many, up to one a site; 16 of the 1,000
        # runs are kept for the verification.
        (100, 1, 10, [16, 32, 64, *[100] * 8]),
        # 1.3 runs for each of the 6 terms of a quadratic polynomial, then one a site, and one is kept.
        (1, 2, 20, [8, *[1] * 11]),
        (1, 2, 10, [8, 1]),
        (1, 2, 9, [8]),
        (3, 2, 4, [9]),
    ],
)
def test_that_steps_of_an_emulator_have_runs_enough_and_leave_some_to_verify_it(sites, latents, runs_per_site, steps):
    problem = sites_on_a_line(np.arange(sites), (1.0,) * latents, runs_per_site=runs_per_site)
    assert runs_of_steps(problem) == steps
    assert can_emulate(problem) == (len(steps) > 1)


def test_that_neighbours_within_a_length_scale_are_counted():
    rng = np.random.default_rng(0)
    problem = sites_on_a_line([0.0, 2.0, 100.0], (1.0, 2.0))
    shared = 1.0 + 0.5 * (np.exp(-2.0) + np.exp(-0.5))
    np.testing.assert_allclose(effective_neighbours(problem, rng), [shared, shared, 1.0])
    crowd = sites_on_a_line(np.zeros(2500))  # of which some are looked at
    np.testing.assert_allclose(effective_neighbours(crowd, rng), 2500.0)


def test_that_a_part_of_a_survey_is_some_sites_that_hold_each_other():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        np.testing.assert_array_equal(subset_of_sites(sites_on_a_line(np.arange(32)), rng), np.arange(32))
        near = subset_of_sites(
            sites_on_a_line(np.arange(200), (2.0,)), rng
        )  # 21 sites within five length-scales: the nearest 32
        assert len(near) == 32
        np.testing.assert_array_equal(np.diff(near), 1)
        wide = subset_of_sites(sites_on_a_line(np.arange(500), (20.0,)), rng)  # 101 to 201 sites, spread out
        assert len(np.unique(wide)) == 32
        assert 90 <= np.ptp(wide) <= 200


def test_that_solutions_differ_by_three_standard_deviations_of_either_at_any_site():
    def posterior(mean, std):
        mean = np.asarray(mean, dtype=float)[:, None]
        return SimpleNamespace(marginals=SimpleNamespace(mean=mean), factor=np.full((len(mean), 1, 1), std))

    assert not are_distinct(posterior([0.0, 0.0], 1.0), posterior([2.9, -2.9], 1.0))
    assert are_distinct(posterior([0.0, 0.0], 1.0), posterior([0.0, -3.1], 1.0))
    for one, other in ((1.0, 0.5), (0.5, 1.0)):
        assert are_distinct(posterior([0.0], one), posterior([1.6], other))
        assert not are_distinct(posterior([0.0], one), posterior([1.4], other))


def test_that_what_is_within_a_length_scale_of_any_latent_is_near():
    problem = sites_on_a_line([0.0, 0.9, 1.9, 2.1, 50.0], (1.0, 2.0))
    near = sites_within_length_scale(problem, np.asarray([True, False, False, False, False]))
    np.testing.assert_array_equal(near, [True, True, True, False, False])
    assert not sites_within_length_scale(problem, np.zeros(5, dtype=bool)).any()


@pytest.mark.parametrize("x", [[0.0], [0.0, 0.05, 0.1]], ids=["one site", "neighbours"])
def test_that_searches_start_on_either_side_of_the_prior_by_one_and_two_standard_deviations(x, tmp_path):
    line = sites_on_a_line(x)
    prior = replace(line.latents[0], mean=np.full(1, 5.0), std=np.full(1, 2.0))
    search = SearchUnderWay(np.square, replace(line, latents=(prior,)), tmp_path)
    starts = Multistart.build(search.model, search.runner, search.state, np.arange(len(x))).starts()
    means = np.asarray([start.marginals.mean[:, 0] - 5.0 for start in starts])
    assert len(means) == 8
    np.testing.assert_allclose(means[::2], -means[1::2])  # each with its mirror image about the prior's mean
    # A precision three times the prior's, which neighbours share, leads three quarters of the way.
    np.testing.assert_allclose(np.abs(means[:4]), np.outer([1.5, 1.5, 3.0, 3.0], np.ones(len(x))), rtol=0.01)
    assert 0.0 < np.abs(means[4:]).max() < 6.0  # those that are drawn


def test_that_many_sites_have_half_the_starts(tmp_path):
    search = SearchUnderWay(np.square, sites_on_a_line([0.0, 1.0, 2.0]), tmp_path)
    model = replace(search.model, options=SearchOptions(many_sites=2))
    assert len(list(Multistart.build(model, search.runner, search.state, np.arange(3)).starts())) == 4


def test_that_the_emulator_error_is_added_to_the_noise_in_searches_for_alternatives(tmp_path):
    search = SearchUnderWay(np.square, sites_on_a_line([0.0, 100.0]), tmp_path)
    state = replace(search.state, emulator=ExactEmulator(np.square, errors=np.asarray([[0.0], [2.0]])))
    multistart = Multistart.build(search.model, search.runner, state, np.arange(2))
    np.testing.assert_allclose(multistart.optimiser.problem.noise_std, [[1.0], [np.sqrt(5.0)]])


@pytest.mark.parametrize("sites", [[5], range(40)], ids=["a part", "the whole"])
def test_that_a_rival_leads_by_the_logarithm_of_its_odds(sites, tmp_path):
    """Two narrow solutions, at 1 and at -1, of forty sites that are independent, or of one of them."""
    line = sites_on_a_line(100.0 * np.arange(40.0))
    observed = replace(line.survey.observations[0], values=np.ones((40, 1)))
    prior_mean = 0.02
    problem = replace(
        line,
        survey=replace(line.survey, observations=(observed,)),
        noise=Noise("gaussian", {"t": np.full((40, 1), 0.05)}),
        latents=(replace(line.latents[0], mean=np.full(1, prior_mean)),),
    )
    search = SearchUnderWay(np.square, problem, tmp_path)
    first = search.find(1.0)
    np.testing.assert_allclose(first.posterior.marginals.mean, 1.0, atol=0.01)
    search.emulator.asked_of.clear()
    state = replace(search.state, candidate=first)
    alternatives = list(find_alternatives(search.model, search.runner, state, np.asarray(sites)))
    assert search.emulator.asked_of == set(sites)
    signs = np.asarray([np.sign(rival.posterior.marginals.mean[:, 0]) for _, rival in alternatives])
    assert len(np.unique(signs, axis=0)) == len(alternatives)  # no solution twice
    assert (signs < 0.0).any(axis=1).all()  # nor the first one
    assert (signs < 0.0).all(axis=1).any()  # and its mirror image
    expected = 0.5 * (signs < 0.0).sum(axis=1) * ((1.0 - prior_mean) ** 2 - (1.0 + prior_mean) ** 2)
    np.testing.assert_allclose([lead for lead, _ in alternatives], expected, atol=0.01)


@pytest.mark.parametrize(
    ("lead", "sure", "words"),
    [
        (0.3, True, "Another solution explains the data about as well, and is as probable"),
        (-0.3, False, "Another solution may explain the data about as well, and is as probable"),
        (2.0, True, "explains the data about as well, though this one is 7 times as probable"),
        (
            -2.0,
            False,
            "may explain the data about as well, and may be the more probable one, but there were too few runs",
        ),
        (4.7, True, None),
    ],
)
def test_that_odds_are_reported_down_to_one_in_a_hundred(lead, sure, words, tmp_path, monkeypatch):
    notes = looked_at(lead, tmp_path, monkeypatch, sure=sure).found.notes
    assert (words is None) == (notes == ())
    if words is not None:
        assert words in notes[0]
        assert "it differs at 1 of 1 site, and" in notes[0]


def test_that_solutions_differ_where_any_latent_does_by_more_than_its_spread():
    def explored_state(mean):
        marginals = SimpleNamespace(mean=np.asarray(mean), covariance=np.stack([np.diag([1.0, 0.04])] * 3))
        state = SimpleNamespace(posterior=SimpleNamespace(marginals=marginals))
        return SimpleNamespace(state=state, elbo=0.0, sure=True)

    best, other = explored_state(np.zeros((3, 2))), explored_state([[0.9, 0.1], [0.1, 0.3], [-1.1, -0.1]])
    assert "it differs at 2 of 3 sites, and" in describe_alternative(best, other)


def one_datum(tmp_path):
    """A search for two solutions, at 1 and at -1, with one step left."""
    search = SearchUnderWay(np.square, one_site(lambda a: {"t": a**2}, 0.05), tmp_path)
    search.state = replace(search.state, candidate=search.find(1.0), steps=(Step(1, 1),), result=CONVERGED)
    return search


def looked_at(lead, tmp_path, monkeypatch, *, sure=True, error=None, slides_back=False):
    """The state after the search for others, whose one rival is behind by `lead`, and both solutions."""
    search = one_datum(tmp_path)
    first, rival, second = search.state.candidate, search.find(-1.0), ExactEmulator(np.square)
    bounds = {id(first.posterior): 0.0, id(rival.posterior): -lead}
    # What is known of a rival without runs is how far it is behind on the emulator.
    alternatives = [(-min(lead, 4.0) if sure else -lead, rival)]
    monkeypatch.setattr(multistart, "find_alternatives", lambda *_: iter(alternatives))
    monkeypatch.setattr(multistart, "emulated_bound", lambda model, state: bounds[id(state.posterior)])

    def explore(model, runner, state):
        if error is not None:
            raise error
        if not sure:
            raise BudgetSpent(1)
        found = replace(state, emulator=second, result=EXPLORED)
        return runner.keep(replace(found, candidate=first) if slides_back else found)

    monkeypatch.setattr(multistart, "search_on_emulator", explore)
    with contextlib.suppress(KeyboardInterrupt):
        search.runner.keep(search_alternative_modes(search.model, search.runner, search.state))
    emulators = {"first": search.emulator, "rival": second}
    return SimpleNamespace(
        first=first, rival=rival, emulators=emulators, found=search.runner.latest, trace=search.runner.trace
    )


@pytest.mark.parametrize(
    ("lead", "sure", "kept"), [(1.0, True, "first"), (-1.0, True, "rival"), (-1.0, False, "first")]
)
def test_that_the_better_solution_is_kept_with_its_emulator_if_runs_make_sure_of_it(
    lead, sure, kept, tmp_path, monkeypatch
):
    after = looked_at(lead, tmp_path, monkeypatch, sure=sure)
    assert after.found.candidate is getattr(after, kept)
    assert after.found.emulator is after.emulators[kept]
    assert after.found.result == (EXPLORED if kept == "rival" else CONVERGED)
    assert after.trace[-1][0] == (-lead if kept == "rival" else 0.0)


@pytest.mark.parametrize("error", [RunsFailedError("all failed"), KeyboardInterrupt()])
def test_that_a_search_that_comes_to_nothing_leaves_the_first_solution(error, tmp_path, monkeypatch):
    after = looked_at(-1.0, tmp_path, monkeypatch, error=error)
    assert after.found.candidate is after.first
    assert after.found.emulator is after.emulators["first"]
    assert after.found.notes == ()
    assert after.trace == []


def test_that_a_rival_whose_runs_lead_back_to_the_first_solution_is_none(tmp_path, monkeypatch):
    assert looked_at(1.0, tmp_path, monkeypatch, slides_back=True).found.notes == ()


def test_that_only_the_best_alternatives_get_runs_and_the_best_is_reported(tmp_path, monkeypatch):
    search = one_datum(tmp_path)
    mirrored = search.find(-1.0)
    alternatives = {lead: replace(mirrored, posterior=replace(mirrored.posterior)) for lead in (-2.0, -0.7, -1.4, -5.0)}
    leads = {id(rival.posterior): lead for lead, rival in alternatives.items()}
    explored = []

    def explore(model, runner, state):
        explored.append(leads[id(state.posterior)])
        return state

    monkeypatch.setattr(multistart, "find_alternatives", lambda *_: iter(alternatives.items()))
    monkeypatch.setattr(multistart, "emulated_bound", lambda model, state: leads.get(id(state.posterior), 0.0))
    monkeypatch.setattr(multistart, "search_on_emulator", explore)
    found = search_alternative_modes(search.model, search.runner, search.state)
    assert explored == [-0.7, -1.4]
    assert len(found.notes) == 1
    assert "though this one is 2 times as probable" in found.notes[0]
    alternatives = {-5.0: alternatives[-5.0]}
    search_alternative_modes(search.model, search.runner, search.state)
    assert explored == [-0.7, -1.4]


@pytest.mark.parametrize(
    ("converged_well", "misfit", "lead_in_part", "searched"),
    [
        (True, 0.0, None, [32]),
        (True, 0.0, -5.0, [32]),
        (True, 0.0, -4.0, [32, 40]),
        (True, 1.0, None, [40]),
        (False, 0.0, None, [40]),
    ],
    ids=["nothing", "a poor rival in the part", "a rival in the part", "data unexplained", "not converged"],
)
def test_that_a_larger_survey_is_searched_as_a_whole_only_for_a_reason(
    converged_well, misfit, lead_in_part, searched, tmp_path, monkeypatch
):
    line = sites_on_a_line(np.arange(40.0))
    problem = replace(line, noise=Noise("gaussian", {"t": np.full((40, 1), 0.05)}))
    search = SearchUnderWay(lambda f: f, problem, tmp_path)
    candidate, sizes = search.find(0.1), []
    poor = replace(candidate, predicted=candidate.predicted + misfit)
    state = replace(search.state, candidate=poor, result=SearchResult("", converged=converged_well))

    def alternatives(model, runner, state, sites):
        sizes.append(len(sites))
        return iter([(lead_in_part, candidate)] if len(sites) < 40 and lead_in_part is not None else [])

    monkeypatch.setattr(multistart, "find_alternatives", alternatives)
    found = search_alternative_modes(search.model, search.runner, state)
    assert (found.candidate, found.result) == (state.candidate, state.result)
    assert sizes == searched
