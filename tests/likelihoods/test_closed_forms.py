"""Log densities and moments against scipy.stats, at the ends of the range, and in the limits."""

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from invgp.core.backend import to_numpy
from invgp.forward_models.seismic import two_way_times
from invgp.likelihoods import (
    GPRN,
    Beta,
    Gamma,
    Gaussian,
    Laplace,
    Logistic,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
    Seismic,
    Softmax,
    StudentT,
    Warped,
)

S, N = 6, 4
STD = np.array([0.3, 2.0])
WARP = {"a": [0.8, 0.3], "b": [1.5, 4.0], "c": [0.2, -0.4]}


@pytest.fixture
def latents(rng):
    return rng.standard_normal((S, N, 2))


@pytest.fixture
def targets(rng):
    return rng.standard_normal((N, 2))


@pytest.mark.parametrize(
    ("likelihood", "distribution"),
    [
        (Gaussian(STD), lambda f: stats.norm(f, STD)),
        (Laplace(STD), lambda f: stats.laplace(f, STD)),
        (StudentT(STD, dof=5.0), lambda f: stats.t(5.0, f, STD)),
    ],
)
def test_additive_noise_against_scipy(likelihood, distribution, latents, targets, backend, tolerance):
    y, f = backend.asarray(targets), backend.asarray(latents)
    known = distribution(latents)
    rtol = tolerance(backend, 1e-12)
    np.testing.assert_allclose(to_numpy(likelihood.log_density(y, f)), known.logpdf(targets).sum(-1), rtol=rtol)
    mean, variance = likelihood.moments(f)
    np.testing.assert_allclose(to_numpy(mean), known.mean(), rtol=rtol)
    np.testing.assert_allclose(to_numpy(variance), known.var(), rtol=rtol)


def test_known_noise_of_each_datum_against_scipy(latents, targets, rng):
    std = 0.1 + rng.random((N, 2))
    likelihood = Gaussian(std)
    assert likelihood.parameters.shape == (0,)
    assert likelihood.outputs == 2
    expected = stats.norm(latents, std).logpdf(targets).sum(-1)
    np.testing.assert_allclose(likelihood.log_density(targets, latents), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="numbers for 4 sites, f has 3"):
        likelihood.log_density(targets[:3], latents[:, :3])


def test_poisson_against_scipy(latents, rng, backend, tolerance):
    counts = rng.integers(0, 30, (N, 2)).astype(float)
    offset = np.array([0.4, -1.0])
    density = Poisson(offset).log_density(backend.asarray(counts), backend.asarray(latents))
    known = stats.poisson(np.exp(latents + offset))
    np.testing.assert_allclose(to_numpy(density), known.logpmf(counts).sum(-1), rtol=tolerance(backend, 1e-12))
    mean, variance = Poisson(offset).moments(backend.asarray(latents))
    np.testing.assert_allclose(to_numpy(mean), known.mean(), rtol=tolerance(backend, 1e-12))
    np.testing.assert_allclose(to_numpy(variance), known.var(), rtol=tolerance(backend, 1e-12))


def test_logistic_against_scipy(latents, backend, tolerance):
    f, labels = latents[..., :1], np.array([[1.0], [-1.0], [1.0], [-1.0]])
    expected = special.log_expit(labels[:, 0] * f[..., 0])
    rtol = tolerance(backend, 1e-12)
    for y in (labels, 0.5 * (labels + 1.0)):
        density = Logistic().log_density(backend.asarray(y), backend.asarray(f))
        np.testing.assert_allclose(to_numpy(density), expected, rtol=rtol)
    mean, variance = Logistic().moments(backend.asarray(f))
    np.testing.assert_allclose(to_numpy(mean), special.expit(f), rtol=rtol)
    np.testing.assert_allclose(to_numpy(variance), special.expit(f) * special.expit(-f), rtol=rtol)


def test_softmax_against_scipy(rng, backend, tolerance):
    f, classes = rng.standard_normal((S, N, 3)), np.array([0, 2, 1, 2])
    density = Softmax(3).log_density(backend.asarray(np.eye(3)[classes]), backend.asarray(f))
    expected = special.log_softmax(f, axis=-1)[:, np.arange(N), classes]
    np.testing.assert_allclose(to_numpy(density), expected, rtol=tolerance(backend, 1e-12))
    mean, _ = Softmax(3).moments(backend.asarray(f))
    np.testing.assert_allclose(to_numpy(mean), special.softmax(f, axis=-1), rtol=tolerance(backend, 1e-12))


def test_that_softmax_of_two_classes_is_logistic(latents):
    labels = np.array([0, 1, 1, 0])
    two = Softmax(2).log_density(np.eye(2)[labels], latents)
    one = Logistic().log_density(labels[:, None].astype(float), latents[..., 1:] - latents[..., :1])
    np.testing.assert_allclose(two, one, rtol=1e-12)


def test_seismic_times_are_those_of_the_forward_model(rng, backend, tolerance):
    depth = np.array([200.0, 500.0, 1600.0]) * (1 + 0.1 * rng.standard_normal((S, N, 3)))
    velocity = np.array([1950.0, 2300.0, 2750.0]) * (1 + 0.1 * rng.standard_normal((S, N, 3)))
    y, std = 1.0 + 0.1 * rng.standard_normal((N, 3)), [0.025, 0.05, 0.075]
    likelihood = Seismic(std)
    f = backend.asarray(np.concatenate([depth, velocity], axis=-1))
    times = two_way_times(depth, velocity)
    np.testing.assert_allclose(to_numpy(likelihood.moments(f)[0]), times, rtol=tolerance(backend, 1e-12))
    density = to_numpy(likelihood.log_density(backend.asarray(y), f))
    np.testing.assert_allclose(density, stats.norm(times, std).logpdf(y).sum(-1), rtol=tolerance(backend, 1e-12, 1e-3))


def test_gprn_against_a_matrix_product(rng, backend, tolerance):
    P, R = 3, 2
    weights, nodes, y = rng.standard_normal((S, N, P, R)), rng.standard_normal((S, N, R)), rng.standard_normal((N, P))
    f = np.concatenate([weights.reshape(S, N, P * R), nodes], axis=-1)
    expected = stats.norm(np.einsum("snpr,snr->snp", weights, nodes), [0.5, 1.0, 2.0]).logpdf(y).sum(-1)
    density = GPRN([0.5, 1.0, 2.0], nodes=R).log_density(backend.asarray(y), backend.asarray(f))
    np.testing.assert_allclose(to_numpy(density), expected, rtol=tolerance(backend, 1e-12, 1e-3))


def test_that_a_gprn_with_unit_weights_is_gaussian_regression(latents, targets):
    f = np.concatenate([np.broadcast_to(np.eye(2).ravel(), (S, N, 4)), latents], axis=-1)
    network, plain = GPRN(STD, nodes=2), Gaussian(STD)
    np.testing.assert_allclose(network.log_density(targets, f), plain.log_density(targets, latents), rtol=1e-12)
    np.testing.assert_allclose(
        network.parameter_gradient(targets, f), plain.parameter_gradient(targets, latents), rtol=1e-12
    )
    for ours, theirs in zip(network.moments(f), plain.moments(latents), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_that_student_t_tends_to_the_gaussian(latents, targets):
    many, plain = StudentT(STD, dof=1e10), Gaussian(STD)
    np.testing.assert_allclose(many.log_density(targets, latents), plain.log_density(targets, latents), rtol=1e-7)
    for ours, theirs in zip(many.moments(latents), plain.moments(latents), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_that_a_student_t_without_variance_is_reported(latents):
    assert np.all(StudentT(STD, dof=2.0).moments(latents)[1] == math.inf)


@pytest.mark.parametrize("warp", [{}, {"a": [0.0], "b": [2.0], "c": [0.3]}])
def test_that_a_flat_warp_is_gaussian(warp, latents, targets):
    y, f = targets[:, :1], latents[..., :1]
    warped, plain = Warped(0.4, **warp), Gaussian(0.4)
    np.testing.assert_allclose(warped.log_density(y, f), plain.log_density(y, f), rtol=1e-12)
    np.testing.assert_allclose(warped.parameter_gradient(y, f), plain.parameter_gradient(y, f), rtol=1e-12)
    for ours, theirs in zip(warped.moments(f), plain.moments(f), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_warped_against_the_change_of_variables(latents, targets, backend, tolerance):
    y, f = targets[:, :1], latents[..., :1]
    a, b, c = (np.asarray(WARP[key]) for key in "abc")
    value = y + np.sum(a * np.tanh(b * (y + c)), -1, keepdims=True)
    slope = 1.0 + np.sum(a * b / np.cosh(b * (y + c)) ** 2, -1)
    expected = stats.norm(f, 0.4).logpdf(value)[..., 0] + np.log(slope)
    density = Warped(0.4, **WARP).log_density(backend.asarray(y), backend.asarray(f))
    np.testing.assert_allclose(to_numpy(density), expected, rtol=tolerance(backend, 1e-12))


@pytest.mark.parametrize("f", [-1.0, 0.3, 2.5])
def test_the_moments_of_a_warped_gaussian_against_integration(f):
    likelihood = Warped(0.4, **WARP)

    def density(y):
        return math.exp(float(likelihood.log_density(np.full((1, 1), y), np.full((1, 1, 1), f))[0, 0]))

    mean = integrate.quad(lambda y: y * density(y), -8, 8, limit=500)[0]
    variance = integrate.quad(lambda y: (y - mean) ** 2 * density(y), -8, 8, limit=500)[0]
    ours = likelihood.moments(np.full((1, 1, 1), f))
    np.testing.assert_allclose([ours[0][0, 0, 0], ours[1][0, 0, 0]], [mean, variance], rtol=1e-6)


@pytest.mark.parametrize("variance", [0.0, 0.2, 1.5])
def test_the_predictive_moments_of_a_warped_gaussian_against_integration(variance):
    likelihood = Warped(0.4, **WARP)
    latent = np.full((1, 1), 0.3), np.full((1, 1), variance)

    def density(y):
        return math.exp(float(likelihood.predictive_log_density(np.full((1, 1), y), *latent)[0]))

    mean = integrate.quad(lambda y: y * density(y), -8, 8, limit=500)[0]
    spread = integrate.quad(lambda y: (y - mean) ** 2 * density(y), -8, 8, limit=500)[0]
    ours = likelihood.predictive_moments(*latent)
    np.testing.assert_allclose([part[0, 0] for part in ours], [mean, spread], rtol=1e-4)


def test_that_the_warp_is_inverted_also_where_it_is_steep(backend, tolerance):
    likelihood = Warped(1e-6, a=[5.0, 30.0], b=[200.0, 0.01], c=[0.5, -3.0])
    f = np.linspace(-60.0, 60.0, 241)[None, :, None]
    y = to_numpy(likelihood.moments(backend.asarray(f))[0]).astype(float)
    value = y + 5.0 * np.tanh(200.0 * (y + 0.5)) + 30.0 * np.tanh(0.01 * (y - 3.0))
    # Where t is steep, the rounding of y is seen magnified.
    slope = 1.0 + 1000.0 / np.cosh(np.clip(200.0 * (y + 0.5), -300.0, 300.0)) ** 2 + 0.3
    assert np.all(np.abs(value - f) / slope < tolerance(backend, 1e-11, 1e-4))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_stability_at_extreme_latents(sign, backend, tolerance):
    f = backend.asarray(np.full((1, 1, 1), sign * 500.0))
    one = backend.asarray([[1.0]])
    rtol = tolerance(backend, 1e-12, 1e-6)

    def value(density):
        return float(to_numpy(density)[0, 0])

    for likelihood in (Gaussian(0.1), StudentT(0.1), Laplace(0.1), Warped(0.1, **WARP)):
        assert math.isfinite(value(likelihood.log_density(one, f)))
        assert np.isfinite(to_numpy(likelihood.parameter_gradient(one, f))).all()
        assert all(np.isfinite(to_numpy(part)).all() for part in likelihood.moments(f))
    np.testing.assert_allclose(value(Logistic().log_density(-sign * one, f)), -500.0, rtol=rtol)
    assert -1e-100 <= value(Logistic().log_density(sign * one, f)) <= 0.0
    mean, variance = Logistic().moments(f)
    assert 0.0 <= float(to_numpy(mean)[0, 0, 0]) <= 1.0
    assert float(to_numpy(variance)[0, 0, 0]) >= 0.0


@pytest.mark.filterwarnings("error")
def test_stability_of_softmax_and_poisson_at_extreme_latents():
    f = np.array([[[500.0, -500.0, 0.0]]])
    np.testing.assert_allclose(Softmax(3).log_density(np.array([[0.0, 1.0, 0.0]]), f), [[-1000.0]], rtol=1e-12)
    np.testing.assert_allclose(Softmax(3).log_density(np.array([[1.0, 0.0, 0.0]]), f), [[0.0]], atol=1e-200)
    np.testing.assert_allclose(Softmax(3).moments(f)[0], [[[1.0, 0.0, 0.0]]], atol=1e-200)
    quiet = Poisson(learn=False).log_density(np.array([[0.0]]), np.full((1, 1, 1), -500.0))
    np.testing.assert_allclose(quiet, [[0.0]], atol=1e-200)
    loud = Poisson(learn=False).log_density(np.array([[3.0]]), np.full((1, 1, 1), 500.0))
    np.testing.assert_allclose(loud, [[-math.exp(500.0)]], rtol=1e-12)
    np.testing.assert_allclose(Logistic().log_density(np.ones((1, 1)), np.full((1, 1, 1), -500.0)), [[-500.0]])


def test_counts_fractions_and_positive_values_against_scipy(latents, rng, backend, tolerance):
    shape = np.array([0.7, 5.0])
    mean, share = np.exp(latents), special.expit(latents)
    counts, values, fractions = rng.integers(0, 30, (N, 2)) * 1.0, rng.gamma(2.0, size=(N, 2)), rng.random((N, 2))
    for likelihood, y, known in (
        (NegativeBinomial(shape), counts, stats.nbinom(shape, shape / (shape + mean)).logpmf(counts)),
        (Gamma(shape), values, stats.gamma(shape, scale=mean / shape).logpdf(values)),
        (Beta(shape), fractions, stats.beta(share * shape, (1 - share) * shape).logpdf(fractions)),
    ):
        found = likelihood.log_density(backend.asarray(y), backend.asarray(latents))
        np.testing.assert_allclose(to_numpy(found), known.sum(-1), rtol=tolerance(backend, 1e-10), atol=1e-5)


def test_probit_and_ordered_classes_against_scipy(rng, backend, tolerance):
    f, labels = rng.standard_normal((S, N, 1)), np.array([[0.0], [1.0], [1.0], [0.0]])
    rtol = tolerance(backend, 1e-10)
    found = to_numpy(Probit().log_density(backend.asarray(labels), backend.asarray(f)))
    np.testing.assert_allclose(found, stats.norm.logcdf((2 * labels - 1) * f)[..., 0], rtol=rtol)
    mean, variance = rng.standard_normal((N, 1)), rng.random((N, 1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    average = stats.norm.cdf(mean + np.sqrt(variance) * nodes) @ weights / weights.sum()
    np.testing.assert_allclose(Probit().predictive_moments(mean, variance)[0][:, 0], average, rtol=1e-8)
    density = Probit().predictive_log_density(np.ones((N, 1)), mean, variance)
    np.testing.assert_allclose(density, np.log(average), rtol=1e-8)
    cuts = np.array([-1.0, 0.2, 3.0])
    for c in range(4):
        lower, upper = np.append(-np.inf, cuts)[c], np.append(cuts, np.inf)[c]
        known = np.log(special.expit(upper - f) - special.expit(lower - f))[..., 0]
        found = Ordinal(4, cuts).log_density(backend.asarray(np.full((N, 1), float(c))), backend.asarray(f))
        np.testing.assert_allclose(to_numpy(found), known, rtol=tolerance(backend, 1e-9))


def test_extreme_latents_have_finite_log_densities():
    f = np.array([[[-700.0]], [[700.0]], [[-40.0]], [[40.0]]])
    for likelihood, y in ((NegativeBinomial(2.0), 3.0), (Ordinal(4), 1.0), (Probit(), 1.0), (Beta(3.0), 0.4)):
        assert np.all(np.isfinite(likelihood.log_density(np.array([[y]]), f)))


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (NegativeBinomial(), -1.0, "y must be counts, .*, for NegativeBinomial, had -1$"),
        (Gamma(), 0.0, "y must be positive for Gamma, had 0$"),
        (Beta(), 1.0, "y must be greater than 0 and less than 1 for Beta, had 1$"),
        (Ordinal(3), 3.0, "y must be numbers of classes from 0 to 2 for Ordinal, had 3$"),
        (Probit(), 2.0, "y must be labels, 0 and 1 or -1 and 1, for Probit, had 2"),
    ],
)
def test_impossible_observations_are_refused(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check(np.array([[y]]))
    likelihood.check(np.array([[np.nan]]))


def test_cuts_must_increase():
    with pytest.raises(ValueError, match="cuts must be 2 increasing numbers for 3 classes, was"):
        Ordinal(3, [1.0, 0.0])
    np.testing.assert_allclose(Ordinal(4, [-1.0, 0.5, 2.0]).cuts, [-1.0, 0.5, 2.0])
