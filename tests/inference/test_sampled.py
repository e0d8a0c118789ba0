"""Draws from the exact posterior on the emulator, against sums over a grid and closed forms."""

from types import SimpleNamespace

import numpy as np
import pytest

import invgp
from invgp.emulation import Runs
from invgp.inference import draw_checks, sampled
from invgp.inference.draw_checks import change_by_weights, extreme_draws
from invgp.inference.importance_draws import smooth_weights
from invgp.inference.runner import Runner
from invgp.inference.tempered_draws import independent_groups
from invgp.latent_model.problem_prior import prior_of
from invgp.progress import SilentMonitor

SITES = 6


def product(a, b):
    return a * b


def square(a):
    return a**2


def weighted_sum(a, b):
    return 0.7 * a + 0.3 * b


def problem(function, latents, y, noise, length_scale=0.001, **inference):
    """Sites one unit apart; with the default length-scale they are independent."""
    return invgp.define(
        {"x": np.arange(float(len(y))), "y": y},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={
            name: {"unit": "1", "mean": mean, "std": std, "kernel": {"length_scale": length_scale}}
            for name, (mean, std) in latents.items()
        },
        noise={"std": {"y": noise}},
        forward=function,
        inference={"posterior": "sampled", **inference},
    )


def exact_moments(log_likelihood, priors):
    """Mean and standard deviation of each unknown of one site, by a sum over a grid."""
    axes = [mean + std * np.linspace(-5.0, 5.0, 801) for mean, std in priors]
    mesh = np.meshgrid(*axes, indexing="ij")
    log_density = log_likelihood(*mesh) - sum(0.5 * ((m - p) / s) ** 2 for m, (p, s) in zip(mesh, priors, strict=True))
    weight = np.exp(log_density - log_density.max())
    means = [float(np.sum(weight * m) / weight.sum()) for m in mesh]
    stds = [float(np.sqrt(np.sum(weight * (m - c) ** 2) / weight.sum())) for m, c in zip(mesh, means, strict=True)]
    return means, stds


def test_that_a_ridge_has_its_exact_spread():
    """Only the product of two unknowns is known; the Gaussian approximation is half as wide."""
    y, noise, priors = np.linspace(0.8, 1.2, SITES), 0.02, {"a": (1.0, 0.3), "b": (1.0, 0.3)}
    posterior = invgp.invert(problem(product, priors, y, noise))
    for site in range(SITES):
        means, stds = exact_moments(lambda a, b, y=y[site]: -0.5 * ((y - a * b) / noise) ** 2, [*priors.values()])
        for name, mean, std in zip(priors, means, stds, strict=True):
            assert posterior[name].values[site] == pytest.approx(mean, abs=0.2 * std)
            assert posterior[f"{name}_std"].values[site] == pytest.approx(std, rel=0.12)
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior["gaussian_error"].max() > 0.3
    assert posterior["y_predicted_std"].max() < 2.0 * noise  # the draws fit the data


def test_that_a_simulator_that_fails_in_a_part_of_the_prior_gives_the_posterior_of_the_rest():
    """It works below 0.5 only, a third of the prior fails, and data at the limit pull the posterior towards it."""
    y, noise, limit = np.linspace(-0.6, 0.6, SITES), 0.4, 0.5

    def works_below(a):
        return np.where(a > limit, np.nan, a)

    posterior = invgp.invert(problem(works_below, {"a": (0.0, 1.0)}, y, noise))
    for site in range(SITES):
        [mean], [std] = exact_moments(
            lambda a, y=y[site]: np.where(a > limit, -np.inf, -0.5 * ((y - a) / noise) ** 2), [(0.0, 1.0)]
        )
        assert posterior["a"].values[site] == pytest.approx(mean, abs=0.5 * std)
        assert posterior["a_std"].values[site] == pytest.approx(std, rel=0.35)
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_failure_causes"].startswith("not a finite number (")


def test_that_a_posterior_where_the_simulator_fails_has_not_converged():
    """The data are far beyond the limit, so that the emulator alone leads there."""
    y = np.full(SITES, 3.0)

    def works_below(a):
        return np.where(a + 0.3 * np.sin(20.0 * a) > 0.5, np.nan, a)  # no smooth limit

    posterior = invgp.invert(problem(works_below, {"a": (0.0, 1.0)}, y, 0.1))
    assert posterior.attrs["invgp_converged"] == "no"


def test_that_two_modes_have_their_probabilities():
    y, noise = np.full(3, 1.0), 0.1
    posterior = invgp.invert(problem(square, {"a": (0.3, 1.0)}, y, noise))
    axis = np.linspace(-5.0, 5.0, 20_001)
    weight = np.exp(-0.5 * ((1.0 - axis**2) / noise) ** 2 - 0.5 * (axis - 0.3) ** 2)
    positive = weight[axis > 0.0].sum() / weight.sum()
    mean = np.sum(weight * axis) / weight.sum()
    std = np.sqrt(np.sum(weight * (axis - mean) ** 2) / weight.sum())
    np.testing.assert_allclose(posterior["a"].values, mean, atol=0.3 * std)
    np.testing.assert_allclose(posterior["a_std"].values, std, rtol=0.1)
    probabilities = np.atleast_1d(posterior.attrs["invgp_mode_probabilities"])
    assert len(probabilities) == 8  # two signs at each of three sites
    assert probabilities[0] == pytest.approx(positive**3, abs=0.1)
    assert "modes" in posterior.attrs["invgp_diagnostics"]


def test_that_draws_of_a_linear_simulator_are_those_of_the_exact_gaussian():
    y, noise, priors = 0.85 + 0.2 * np.sin(np.arange(8.0)), 0.1, {"a": (1.0, 0.5), "b": (0.5, 0.4)}
    definition = problem(weighted_sum, priors, y, noise, length_scale=2.0)
    posterior = invgp.invert(definition)
    gaussian = invgp.invert(definition.with_inference(posterior="coupled gaussian"))
    for name in priors:
        error = (posterior[name] - gaussian[name]) / gaussian[f"{name}_std"]
        assert abs(error).max() < 0.12
        np.testing.assert_allclose(posterior[f"{name}_std"] / gaussian[f"{name}_std"], 1.0, atol=0.08)
    assert posterior.attrs["invgp_draws"].startswith("importance")
    assert posterior.attrs["invgp_gaussian_k_hat"] < 0.5
    # The evidence of a linear model has a closed form; the bound of the Gaussian is exact.
    assert posterior.attrs["invgp_log_evidence"] == pytest.approx(float(gaussian["elbo"][-1]), abs=0.1)
    assert posterior.sizes["realization"] == posterior["chain"].size == posterior["mode"].size


def test_that_the_same_seed_gives_the_same_draws_and_another_seed_others():
    y = np.linspace(0.9, 1.1, 3)
    one, again, other = (
        invgp.invert(problem(product, {"a": (1.0, 0.3), "b": (1.0, 0.3)}, y, 0.05, seed=seed)) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one["a_sample"], again["a_sample"])
    assert np.abs(one["a_sample"].values - other["a_sample"].values).max() > 1e-3


def test_that_no_more_runs_are_made_than_the_budget():
    y = np.linspace(0.9, 1.1, 3)
    posterior = invgp.invert(problem(product, {"a": (1.0, 0.3), "b": (1.0, 0.3)}, y, 0.05, max_runs=30))
    assert posterior.attrs["invgp_runs"] <= 30


def test_that_the_gaussian_posterior_of_a_ridge_warns():
    y = np.linspace(0.8, 1.2, SITES)
    definition = problem(product, {"a": (1.0, 0.3), "b": (1.0, 0.3)}, y, 0.02, length_scale=3.0)
    posterior = invgp.invert(definition.with_inference(posterior="coupled gaussian"))
    assert "inference.posterior = 'sampled'" in posterior.attrs["invgp_diagnostics"]


def test_that_a_map_has_the_draws_of_the_sites(tmp_path):
    """At the sites a map agrees with the file; far from them it is the prior; two modes stay two modes."""
    y, noise = np.full(4, 1.0), 0.1
    posterior = invgp.invert(problem(square, {"a": (0.3, 1.0)}, y, noise, length_scale=0.7))
    file = tmp_path / "posterior.nc"
    invgp.write(posterior, file)
    with invgp.open_posterior(file) as stored:
        there = invgp.predict(stored, grid="x=0:50:1", draws=30, exceed=["a > 0"])
    np.testing.assert_allclose(there["a"].values[:4], posterior["a"].values, atol=0.15)
    np.testing.assert_allclose(there["a_std"].values[:4], posterior["a_std"].values, rtol=0.1)
    assert there["a"].values[-1] == pytest.approx(0.3, abs=0.15)
    assert there["a_std"].values[-1] == pytest.approx(1.0, rel=0.1)
    positive = (posterior["a_sample"] > 0.0).mean("realization").values
    np.testing.assert_allclose(there["a_exceedance"].values.reshape(-1)[:4], positive, atol=0.3)
    assert np.abs(np.abs(there["a_sample"].values[:, :4]) - 1.0).max() < 0.5


def test_that_draws_far_from_the_others_are_found():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((5000, 4, 2))
    draws[17, 2, 1] = -9.0
    latents, sites = extreme_draws(draws, 6.0)
    assert sites.tolist() == [2]
    np.testing.assert_array_equal(latents, draws[None, 17, [2]])


def test_that_independent_sites_are_tempered_apart_and_coupled_ones_together(numpy_backend):
    def groups(length_scale):
        prior = prior_of(problem(square, {"a": (0.0, 1.0)}, np.ones(4), 0.1, length_scale), numpy_backend)
        return [group.tolist() for group in independent_groups(prior, 1e-4)]

    assert groups(0.01) == [[0], [1], [2], [3]]
    assert groups(2.0) == [[0, 1, 2, 3]]


@pytest.mark.slow
def test_that_draws_of_groups_of_sites_have_the_modes_of_each_and_belong_to_their_sites(numpy_backend):
    """Two pairs of sites far from each other: sites of a pair have the same sign, pairs do not."""
    y, noise = np.asarray([1.0, 1.0, 4.0, 4.0]), 0.1
    definition = invgp.define(
        {"x": np.asarray([0.0, 100.0, 0.5, 100.5]), "y": y[[0, 2, 1, 3]]},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={"a": {"unit": "1", "mean": 0.0, "std": 1.5, "kernel": {"length_scale": 3.0}}},
        noise={"std": {"y": noise}},
        forward=square,
    )
    posterior = invgp.invert(definition)
    assert posterior.attrs["invgp_draws"].startswith("tempered")
    draws = posterior["a_sample"].values
    np.testing.assert_allclose(np.median(np.abs(draws), axis=0), [1.0, 2.0, 1.0, 2.0], atol=0.05)
    signs = np.sign(draws)
    assert np.mean(signs[:, 0] == signs[:, 2]) > 0.95
    assert np.mean(signs[:, 1] == signs[:, 3]) > 0.95
    assert abs(np.mean(signs[:, 0] * signs[:, 1])) < 0.25
    factor = np.asarray(prior_of(definition, numpy_backend).factor)[0]
    whitened = posterior["whitened_sample"].values.reshape(-1, 4).astype(float)
    np.testing.assert_allclose(np.median(np.abs(whitened @ factor.T), axis=0), [1.0, 2.0, 1.0, 2.0], atol=0.05)


def test_that_the_stages_of_the_draws_are_reported():
    class Stages(SilentMonitor):
        seen: list[str] = []  # noqa: RUF012 - of one test

        def report_stage(self, stage):
            self.seen.append(stage)

    invgp.invert(problem(square, {"a": (0.3, 1.0)}, np.ones(3), 0.1), monitor=Stages())
    text = "\n".join(Stages.seen)
    assert "search for modes, group 1 of 3 of sites, likelihood power " in text
    assert "draws for the runs of round 1, group 3 of 3 of sites, likelihood power 1" in text
    assert "draws of the result, group 1 of 3 of sites, likelihood power " in text


def test_that_weights_change_the_draws_as_the_density_does(rng):
    """Weights that turn a standard normal distribution into a narrower one at the first site, and nothing elsewhere."""
    draws = rng.standard_normal((20_000, 2, 1))
    log_weights = np.stack([-1.5 * draws[:, 0, 0] ** 2, np.zeros(len(draws))], axis=1)  # standard deviation 1 / 2
    np.testing.assert_allclose(change_by_weights(draws, log_weights), [np.log(2.0), 0.0], atol=0.03)


@pytest.mark.parametrize("width", [0.9, 1.1, 1.3])
def test_that_smoothed_weights_turn_one_normal_distribution_into_another(rng, width):
    """The weights of a wider distribution have a Pareto tail with k = 1 - 1 / width^2; others have no tail."""
    draws = rng.standard_normal(40_000)
    smoothed, k_hat = smooth_weights(0.5 * draws**2 * (1.0 - width**-2.0))
    weights = np.exp(smoothed - smoothed.max())
    assert np.sqrt(np.sum(weights * draws**2) / weights.sum()) == pytest.approx(width, rel=0.04)
    if width > 1.0:
        assert k_hat == pytest.approx(1.0 - width**-2.0, abs=0.15)
    else:
        assert k_hat < 0.0


@pytest.mark.slow
def test_that_a_part_of_the_posterior_is_found_where_the_emulator_has_no_runs():
    """An instrument that saturates: the posterior of data at the limit reaches into the tail of the prior."""

    def clipped_exponential(a):
        return np.clip(np.exp(1.2 * a), 0.3, 4.0)

    noise, y = 0.08, np.asarray([3.95, 0.5, 2.0, 4.02, 1.0, 0.8, 3.9, 1.5, 0.45, 1.2])
    posterior = invgp.invert(problem(clipped_exponential, {"a": (0.0, 1.0)}, y, noise, seed=2))
    for site in np.flatnonzero(y > 3.85):
        (mean,), (std,) = exact_moments(
            lambda a, y=y[site]: -0.5 * ((y - clipped_exponential(a)) / noise) ** 2, [(0.0, 1.0)]
        )
        assert posterior["a"].values[site] == pytest.approx(mean, abs=0.2 * std)
        assert posterior["a_std"].values[site] == pytest.approx(std, rel=0.2)


def sum_of_eight(a, b, c, d, e, f, g, h):
    return a + b + c + d + e + f + g + h


@pytest.mark.parametrize(("function", "names"), [(weighted_sum, "ab"), (sum_of_eight, "abcdefgh")])
def test_that_runs_are_made_far_from_the_prior_mean(monkeypatch, numpy_backend, rng, function, names):
    """In eight dimensions, only a few of the candidates are at the right distance."""
    survey, count = problem(function, dict.fromkeys(names, (1.0, 2.0)), np.zeros(40), 0.1), len(names)
    made = []

    def verify_at(_model, _runner, state, latents, sites, *_):
        assert latents.shape[1:] == (len(sites), count)
        made.append((latents - 1.0) / 2.0)
        return state, SimpleNamespace(errors=np.zeros(latents.shape[:2]))

    monkeypatch.setattr(draw_checks, "verify_at", verify_at)
    known = Runs.empty(count, 1).append(
        np.ones((1, 1, count)), np.zeros((1, 1, 1)), np.ones((1, 1), dtype=bool), np.zeros(1, dtype=int), 0
    )
    state = SimpleNamespace(posterior=SimpleNamespace(prior=prior_of(survey, numpy_backend)), runs=known)
    runner = SimpleNamespace(simulator=SimpleNamespace(can_afford=lambda _: True))
    draw_checks.run_outskirts(SimpleNamespace(problem=survey), runner, state, rng)
    (z,) = made
    assert np.abs(z).max(axis=-1).min() > 2.0
    assert np.linalg.norm(z, axis=-1).max() <= 3.0 + 1e-9


def nearly_straight(a):
    return a + 0.05 * a**2


def test_that_importance_sampling_makes_enough_draws_for_precise_means():
    """Of 4,000 draws from the Gaussian approximation fewer are effective."""
    y, noise = np.linspace(-1.0, 1.0, SITES), 0.5
    posterior = invgp.invert(problem(nearly_straight, {"a": (0.0, 1.0)}, y, noise))
    assert posterior.attrs["invgp_draws"].startswith("importance sampling")
    assert posterior.attrs["invgp_draws_total"] > 3500
    for site in range(SITES):
        (mean,), (std,) = exact_moments(
            lambda a, y=y[site]: -0.5 * ((y - nearly_straight(a)) / noise) ** 2, [(0.0, 1.0)]
        )
        assert posterior["a"].values[site] == pytest.approx(mean, abs=0.06 * std)
        assert posterior["a_std"].values[site] == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize("failing", [1, SITES])
def test_that_failed_runs_at_extreme_draws_are_reported(monkeypatch, failing):
    sample = Runner.sample

    def fail_at_extremes(self, latents, label, sites):
        batch = sample(self, latents, label, sites)
        if label == "extreme-draws":
            valid = batch.valid & (np.arange(len(sites)) >= failing)
            return batch._replace(valid=valid, outputs=np.where(valid[..., None], batch.outputs, np.nan))
        return batch

    monkeypatch.setattr(Runner, "sample", fail_at_extremes)
    monkeypatch.setattr(sampled, "extreme_draws", lambda draws, _: (draws[:1], np.arange(SITES)))
    y = np.linspace(-1.0, 1.0, SITES)
    posterior = invgp.invert(problem(nearly_straight, {"a": (0.0, 1.0)}, y, 0.5))
    assert f"{failing} of {SITES} runs at them failed" in posterior.attrs["invgp_diagnostics"]
