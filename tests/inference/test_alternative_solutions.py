"""Second solutions of the whole field: where they are looked for, whether they are found, and what is said of them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import invgp
from helpers.inversions import inversion_on, sites_on_a_line
from helpers.line_problems import NOISE, line_problem, one_site, smooth
from invgp.adapters import CallableModel, Quantity
from invgp.emulation.run_schedule import can_emulate, effective_neighbours, runs_of_steps
from invgp.errors import RunsFailedError
from invgp.inference import alternative_modes as other_solutions
from invgp.inference.inversion import BudgetSpent, SearchResult
from invgp.inference.multistart import Multistart, are_distinct, subset_of_sites
from invgp.inference.restart import sites_within_length_scale
from invgp.problem import Column, InferenceSettings, Latent, Noise, Observation, Problem, SimulatorVariable, Survey

CONVERGED = SearchResult("converged", converged=True)


def mirrored_problem(prior_mean, truth_side, **inference):
    """A line whose data are the same for a field and for its mirror image about 300 m; and the field."""
    rng, x = np.random.default_rng(0), np.linspace(0.0, 100.0, 40)
    covariance = np.exp(-0.5 * ((x[:, None] - x) / 30.0) ** 2) + 1e-8 * np.eye(40)
    h = 300.0 + truth_side * 60.0 + 18.0 * np.linalg.cholesky(covariance) @ rng.standard_normal(40)

    def squared(h):
        return {"t": ((h - 300.0) / 60.0) ** 2}

    y = squared(h)["t"] + NOISE * rng.standard_normal(40)
    problem = Problem(
        title="",
        survey=Survey((Column("x", "m", x),), (Observation("t", "s", y[:, None]),)),
        latents=(
            Latent("h", "m", np.full(1, prior_mean), np.full(1, 60.0), "squared exponential", np.asarray([30.0])),
        ),
        noise=Noise("gaussian", {"t": np.full((40, 1), NOISE)}),
        forward=CallableModel(function=squared, inputs=(Quantity("h", "m"),), outputs=(Quantity("t", "s"),)),
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
    said = posterior.attrs["invgp_diagnostics"]
    assert "Another solution explains the data about as well" in said
    assert odds in said
    assert "it differs at 40 of 40 sites" in said
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
    said = posterior.attrs["invgp_diagnostics"]
    assert "though this one is 12 times as probable" in said
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
        posterior = invgp.invert(line_problem(smooth, seed=seed)[0], seed=seed)
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
    inversion, _ = inversion_on(np.square, replace(line, latents=(prior,)), tmp_path)
    starts = Multistart(inversion, np.arange(len(x)), inversion.start.trial).starts()
    means = np.asarray([start.marginals.mean[:, 0] - 5.0 for start in starts])
    assert len(means) == 8
    np.testing.assert_allclose(means[::2], -means[1::2])  # each with its mirror image about the prior's mean
    # A precision three times the prior's, which neighbours share, leads three quarters of the way.
    np.testing.assert_allclose(np.abs(means[:4]), np.outer([1.5, 1.5, 3.0, 3.0], np.ones(len(x))), rtol=0.01)
    assert 0.0 < np.abs(means[4:]).max() < 6.0  # those that are drawn


def test_that_many_sites_have_half_the_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("invgp.inference.multistart.MANY_SITES", 2)
    inversion, _ = inversion_on(np.square, sites_on_a_line([0.0, 1.0, 2.0]), tmp_path)
    assert len(list(Multistart(inversion, np.arange(3), inversion.start.trial).starts())) == 4


def test_that_the_emulator_error_is_added_to_the_noise_in_searches_for_alternatives(tmp_path):
    inversion, _ = inversion_on(np.square, sites_on_a_line([0.0, 100.0]), tmp_path)
    inversion.emulator = SimpleNamespace(output_error=lambda _: np.asarray([[0.0], [2.0]]))
    search = Multistart(inversion, np.arange(2), inversion.start.trial)
    np.testing.assert_allclose(search.optimiser.problem.noise_std, [[1.0], [np.sqrt(5.0)]])


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
    inversion, converged = inversion_on(np.square, problem, tmp_path)
    first = converged(1.0)
    np.testing.assert_allclose(first.posterior.marginals.mean, 1.0, atol=0.01)
    inversion.asked_of.clear()
    alternatives = list(Multistart(inversion, np.asarray(sites), first.posterior).alternatives())
    assert inversion.asked_of == set(sites)
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
    posterior, _ = looked_at(lead, tmp_path, monkeypatch, sure=sure)
    assert (words is None) == (posterior.notes == [])
    if words is not None:
        assert words in posterior.notes[0]
        assert "it differs at 1 of 1 site, and" in posterior.notes[0]


def test_that_solutions_differ_where_any_latent_does_by_more_than_its_spread():
    def explored(mean):
        marginals = SimpleNamespace(mean=np.asarray(mean), covariance=np.stack([np.diag([1.0, 0.04])] * 3))
        candidate = SimpleNamespace(posterior=SimpleNamespace(marginals=marginals))
        return SimpleNamespace(candidate=candidate, elbo=0.0, sure=True)

    best, other = explored(np.zeros((3, 2))), explored([[0.9, 0.1], [0.1, 0.3], [-1.1, -0.1]])
    assert "it differs at 2 of 3 sites, and" in other_solutions.describe_alternative(best, other)


def looked_at(lead, tmp_path, monkeypatch, *, sure=True, error=None, slides_back=False):
    """An inversion after the look for others, whose one rival is behind by `lead`, and both solutions."""
    inversion, converged = inversion_on(np.square, one_site(lambda a: {"t": a**2}, 0.05), tmp_path)
    first, rival = converged(1.0), converged(-1.0)
    emulators = [SimpleNamespace(name=name, output_error=lambda _: np.zeros((1, 1))) for name in ("first", "second")]
    inversion.candidate, inversion.emulator = first, emulators[0]
    inversion.steps.append((1, 1))
    bounds = {id(first.posterior): 0.0, id(rival.posterior): -lead}
    monkeypatch.setattr(Multistart, "alternatives", lambda self: iter([(-min(lead, 4.0), rival)]))
    monkeypatch.setattr(inversion, "emulated_bound", lambda posterior: bounds[id(posterior)])

    def explored(posterior):
        inversion.emulator = emulators[1]
        if error is not None:
            raise error
        if not sure:
            raise BudgetSpent(1)
        if slides_back:
            inversion.candidate = first
        return SearchResult("explored", converged=True)

    monkeypatch.setattr(inversion, "search_on_emulator", explored)
    if not sure:  # what is known of a rival without runs is how far it is behind on the emulator
        monkeypatch.setattr(Multistart, "alternatives", lambda self: iter([(-lead, rival)]))
    try:
        verdict = other_solutions.search_alternative_modes(inversion, CONVERGED)
    except KeyboardInterrupt:
        verdict = None
    return inversion, SimpleNamespace(first=first, rival=rival, verdict=verdict)


@pytest.mark.parametrize(
    ("lead", "sure", "kept"), [(1.0, True, "first"), (-1.0, True, "rival"), (-1.0, False, "first")]
)
def test_that_the_better_solution_is_kept_with_its_emulator_if_runs_make_sure_of_it(
    lead, sure, kept, tmp_path, monkeypatch
):
    inversion, both = looked_at(lead, tmp_path, monkeypatch, sure=sure)
    assert inversion.candidate is getattr(both, kept)
    assert inversion.emulator.name == ("second" if kept == "rival" else "first")
    assert both.verdict == (SearchResult("explored", converged=True) if kept == "rival" else CONVERGED)
    assert inversion.trace[-1][0] == (-lead if kept == "rival" else 0.0)


@pytest.mark.parametrize("error", [RunsFailedError("all failed"), KeyboardInterrupt()])
def test_that_a_search_that_comes_to_nothing_leaves_the_first_solution(error, tmp_path, monkeypatch):
    inversion, both = looked_at(-1.0, tmp_path, monkeypatch, error=error)
    assert inversion.candidate is both.first
    assert inversion.emulator.name == "first"
    assert inversion.notes == []
    assert inversion.trace == []


def test_that_a_rival_whose_runs_lead_back_to_the_first_solution_is_none(tmp_path, monkeypatch):
    inversion, _ = looked_at(1.0, tmp_path, monkeypatch, slides_back=True)
    assert inversion.notes == []


def test_that_only_the_best_alternatives_get_runs_and_the_best_is_reported(tmp_path, monkeypatch):
    inversion, converged = inversion_on(np.square, one_site(lambda a: {"t": a**2}, 0.05), tmp_path)
    inversion.candidate = converged(1.0)
    inversion.emulator = SimpleNamespace(output_error=lambda _: np.zeros((1, 1)))
    inversion.steps.append((1, 1))
    mirrored = converged(-1.0)
    alternatives = {lead: replace(mirrored, posterior=replace(mirrored.posterior)) for lead in (-2.0, -0.7, -1.4, -5.0)}
    leads = {id(rival.posterior): lead for lead, rival in alternatives.items()}
    explored = []
    monkeypatch.setattr(Multistart, "alternatives", lambda self: iter(alternatives.items()))
    monkeypatch.setattr(inversion, "emulated_bound", lambda posterior: leads.get(id(posterior), 0.0))
    monkeypatch.setattr(inversion, "search_on_emulator", lambda p: explored.append(leads[id(p)]) or CONVERGED)
    other_solutions.search_alternative_modes(inversion, CONVERGED)
    assert explored == [-0.7, -1.4]
    assert len(inversion.notes) == 1
    assert "though this one is 2 times as probable" in inversion.notes[0]
    alternatives = {-5.0: alternatives[-5.0]}
    other_solutions.search_alternative_modes(inversion, CONVERGED)
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
    inversion, converged = inversion_on(lambda f: f, problem, tmp_path)
    inversion.candidate = candidate = converged(0.1)
    inversion.candidate = replace(candidate, predicted=candidate.predicted + misfit)
    inversion.emulator = SimpleNamespace(output_error=lambda sites: np.zeros((len(sites), 1)))
    sizes = []

    def alternatives(self):
        sizes.append(len(self.sites))
        return iter([(lead_in_part, candidate)] if len(self.sites) < 40 and lead_in_part is not None else [])

    monkeypatch.setattr(Multistart, "alternatives", alternatives)
    first = SearchResult("", converged=converged_well)
    assert other_solutions.search_alternative_modes(inversion, first) == first
    assert sizes == searched
