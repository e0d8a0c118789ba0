"""An unknown scale of the noise with an inverse-gamma prior, against sums over a grid and independent chains."""

import numpy as np
import pytest
from scipy import stats

import invgp
from helpers.linear_priors import condition, matern52
from invgp.errors import ConfigError
from invgp.latent_model.learnt_parameters import LearntParameters, log_scale_density
from invgp.validation.simulated_surveys import with_drawn_hyperparameters

SITES, NOISE, DEGREES = 12, 0.2, 4.0
X = np.linspace(0.0, 5.0, SITES)
KERNEL = {"kind": "matern 5/2", "length_scale": 1.5}
SLOPES = {"near": 1.0, "far": 2.0}
GRID = np.linspace(-1.5, 2.5, 161)  # logarithms of the scale


def outputs(a):
    """Two observations of one source, whose noise has the same unknown factor."""
    return {name: slope * a for name, slope in SLOPES.items()}


def bent(a):
    return {name: slope * a + 0.2 * a**2 for name, slope in SLOPES.items()}


def data(forward=outputs, scale=1.8):
    rng = np.random.default_rng(4)
    truth = 0.5 + np.sin(X)
    return {name: y + scale * NOISE * rng.standard_normal(SITES) for name, y in forward(truth).items()}


def problem(y, forward=outputs, *, degrees=DEGREES, **inference):
    return invgp.define(
        {"x": X, **y},
        coordinates={"x": "km"},
        observations={"near": "1", "far": "1"},
        latents={"a": {"unit": "m", "mean": 0.5, "std": 1.0, "kernel": KERNEL}},
        noise={"std": dict.fromkeys(SLOPES, NOISE), "scale_degrees": degrees},
        forward=forward,
        inference={"posterior": "sampled", **inference},
    )


def average(logits, means, variances):
    """Mean, standard deviation and weights of a mixture of Gaussians."""
    weights = np.exp(logits - np.max(logits))
    weights /= weights.sum()
    mean = weights @ means
    return mean, np.sqrt(weights @ (variances + (means - mean) ** 2)), weights


def inverse_gamma(logs):
    """Log density of the logarithm of a factor whose square is inverse-gamma, by SciPy."""
    squares = np.exp(2.0 * logs)
    return stats.invgamma.logpdf(squares, 0.5 * DEGREES, scale=0.5 * DEGREES) + np.log(2.0 * squares)


def exact(y):
    """Moments of the latent, of the log scale, and the log evidence, by a sum over a grid of the scale."""
    rows = np.concatenate([slope * np.eye(SITES) for slope in SLOPES.values()])
    known = np.concatenate(list(y.values()))
    prior = matern52(X[:, None], X[:, None], KERNEL["length_scale"])
    parts = []
    for log in GRID:
        noise = NOISE * np.exp(log)
        gram = rows @ prior @ rows.T + noise**2 * np.eye(len(known))
        density = stats.multivariate_normal(rows @ np.full(SITES, 0.5), gram).logpdf(known)
        mean, covariance = condition(np.full(SITES, 0.5), prior, rows, known, noise)
        parts.append((density + inverse_gamma(log), mean, np.diagonal(covariance)))
    logits, means, variances = (np.asarray(part) for part in zip(*parts, strict=True))
    mean, std, weights = average(logits, means, variances)
    evidence = np.log(np.sum(np.exp(logits - logits.max())) * (GRID[1] - GRID[0])) + logits.max()
    centre = weights @ GRID
    return mean, std, centre, np.sqrt(weights @ (GRID - centre) ** 2), evidence


def test_that_the_posterior_of_a_linear_simulator_is_integrated_over_the_scale():
    y = data()
    found = invgp.invert(problem(y), seed=1)
    mean, std, centre, spread, evidence = exact(y)
    assert np.abs((found["a"].values - mean) / std).max() < 0.12
    np.testing.assert_allclose(found["a_std"].values / std, 1.0, atol=0.08)
    assert np.median(found["a_std"].values / std) == pytest.approx(1.0, abs=0.03)
    drawn = found["near_far_noise_factor_sample"]
    assert np.log(drawn.values).mean() == pytest.approx(centre, abs=0.15 * spread)
    assert np.log(drawn.values).std() == pytest.approx(spread, rel=0.1)
    assert drawn.attrs["prior_degrees"] == DEGREES
    assert found.attrs["invgp_log_evidence"] == pytest.approx(evidence, abs=0.1)
    # A Gaussian posterior uses the most probable scale.
    point = invgp.invert(problem(y, posterior="coupled gaussian"), seed=1)
    assert float(point["near_noise_std"].values[0] / NOISE) == pytest.approx(drawn.attrs["most_probable"], rel=0.02)


def chain(y, forward, steps, seed):
    """Elliptical slices of the latent given the scale, and exact draws of the scale given the residuals."""
    rng = np.random.default_rng(seed)
    factor = np.linalg.cholesky(matern52(X[:, None], X[:, None], KERNEL["length_scale"]) + 1e-10 * np.eye(SITES))
    known = np.concatenate(list(y.values()))

    def squares(f):
        return np.sum((known - np.concatenate(list(forward(0.5 + f).values()))) ** 2) / NOISE**2

    f, scale, draws, scales = np.zeros(SITES), 1.0, [], []
    for _ in range(steps):
        ellipse, level = factor @ rng.standard_normal(SITES), -0.5 * squares(f) / scale**2 + np.log(rng.random())
        angle = rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while -0.5 * squares(trial := f * np.cos(angle) + ellipse * np.sin(angle)) / scale**2 <= level:
            low, high = (angle, high) if angle < 0.0 else (low, angle)
            angle = rng.uniform(low, high)
        f = trial
        # The conditional distribution of the squared scale is inverse-gamma, too.
        scale = np.sqrt((DEGREES + squares(f)) / rng.chisquare(DEGREES + len(known)))
        draws.append(0.5 + f)
        scales.append(scale)
    return np.asarray(draws)[steps // 10 :], np.log(np.asarray(scales)[steps // 10 :])


@pytest.mark.slow
def test_that_the_posterior_of_a_nonlinear_simulator_is_that_of_chains_that_sample_the_scale():
    y = data(bent)
    found = invgp.invert(problem(y, bent), seed=2)
    draws, logs = (
        np.concatenate(part) for part in zip(*(chain(y, bent, 12_000, seed) for seed in (1, 2)), strict=True)
    )
    std = draws.std(axis=0)
    assert np.abs((found["a"].values - draws.mean(axis=0)) / std).max() < 0.15
    assert np.median(found["a_std"].values / std) == pytest.approx(1.0, abs=0.05)
    drawn = np.log(found["near_far_noise_factor_sample"].values)
    assert drawn.mean() == pytest.approx(logs.mean(), abs=0.15 * logs.std())
    assert drawn.std() == pytest.approx(logs.std(), rel=0.1)


@pytest.mark.slow
def test_that_a_field_model_is_integrated_over_the_scale():
    nodes = np.linspace(0.0, 5.0, SITES)
    y = data()
    found = invgp.invert(
        invgp.define(
            {"x": nodes, **y},
            coordinates={"x": "km"},
            observations={"near": "1", "far": "1"},
            grid={"x": {"unit": "km", "start": 0.0, "stop": 5.0, "step": 5.0 / (SITES - 1)}},
            latents={"a": {"unit": "m", "mean": 0.5, "std": 1.0, "kernel": KERNEL}},
            noise={"std": dict.fromkeys(SLOPES, NOISE), "scale_degrees": DEGREES},
            forward=outputs,
            inference={"kept_variance": 0.999999},
        ),
        seed=3,
    )
    mean, std, centre, spread, _ = exact(y)
    assert np.abs((found["a"].values - mean) / std).max() < 0.15
    np.testing.assert_allclose(found["a_std"].values / std, 1.0, atol=0.08)
    drawn = np.log(found["near_far_noise_factor_sample"].values)
    assert drawn.mean() == pytest.approx(centre, abs=0.2 * spread)
    assert drawn.std() == pytest.approx(spread, rel=0.15)


def test_that_the_prior_is_inverse_gamma_and_a_datum_without_a_latent_is_student_t():
    np.testing.assert_allclose(log_scale_density(GRID, np.full_like(GRID, DEGREES)), inverse_gamma(GRID), rtol=1e-12)
    own = problem(data())
    parameters = LearntParameters(own)
    assert parameters.log_prior(np.asarray([0.3])) == pytest.approx(inverse_gamma(0.3))
    fine = np.linspace(-4.0, 12.0, 40_001)
    prior = np.exp(inverse_gamma(fine))
    residual = 2.3
    mixture = np.trapezoid(prior * stats.norm.pdf(residual, scale=np.exp(fine)), fine)
    assert mixture == pytest.approx(stats.t.pdf(residual, DEGREES), rel=1e-5)
    moments = np.trapezoid(prior * fine, fine), np.trapezoid(prior * fine**2, fine)
    assert parameters.spreads[0] == pytest.approx(np.sqrt(moments[1] - moments[0] ** 2), rel=1e-4)


def test_that_simulated_surveys_draw_the_scale_from_its_prior():
    own, rng = problem(data()), np.random.default_rng(0)
    drawn = [with_drawn_hyperparameters(own, rng).noise.std for _ in range(4000)]
    assert all(np.array_equal(one["near"], one["far"]) for one in drawn)
    squares = np.asarray([one["near"][0, 0] / NOISE for one in drawn]) ** 2
    assert stats.kstest(squares, stats.invgamma(0.5 * DEGREES, scale=0.5 * DEGREES).cdf).pvalue > 0.01


def test_that_each_source_has_a_scale_of_its_own():
    y = data()
    first = problem(y, posterior="coupled gaussian")
    second = invgp.define(
        {"x": X + 0.2, "other": y["near"]},
        coordinates={"x": "km"},
        observations={"other": "1"},
        latents={"a": {"unit": "m", "mean": 0.5, "std": 1.0, "kernel": KERNEL}},
        noise={"std": {"other": 0.1}, "scale_degrees": 10},
        forward=lambda a: a,
    )
    joint = first.join({"second": second})
    assert [scale.name for scale in joint.noise.scales] == ["near_far", "other"]
    assert [part.problem.noise.scale_degrees for part in joint.parts] == [{("near", "far"): 4.0}, {("other",): 10.0}]
    found = invgp.invert(joint, seed=1)
    near, other = (found[f"{name}_noise_std"].values for name in ("near", "other"))
    assert np.nanmax(near) / NOISE > 1.2
    assert np.nanmax(other) / 0.1 > 1.2


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"scale_degrees": -1}, "noise.scale_degrees: must be a positive number"),
        ({"scale_degrees": 3, "kind": "laplace"}, "must be left out where noise.kind is not 'gaussian'"),
        ({"scale_degrees": 3, "learn": {"y": 2}}, "noise.learn: must be left out with noise.scale_degrees"),
    ],
)
def test_that_mistakes_are_named(keys, sentence):
    with pytest.raises(ConfigError) as error:
        invgp.define(
            {"x": X, "y": X},
            coordinates={"x": "km"},
            observations={"y": "1"},
            latents={"a": {"unit": "m", "mean": 0.5, "std": 1.0, "kernel": KERNEL}},
            forward=lambda a: a,
            noise={"std": {"y": 0.1}, **keys},
        )
    assert sentence in str(error.value)
