"""Posteriors with several modes: saddle points, restarts and mixtures."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from helpers.curve import POSTERIOR_ONLY, X
from invgp.core.backend import select_backend
from invgp.core.hyperpriors import Hyperprior
from invgp.core.kernels import Matern52, White
from invgp.core.training import Blocks, MiniBatches
from invgp.core.training.reflections import region_factors
from invgp.core.training.restarts import shorten_length_scales
from invgp.estimator import SAVIGP
from invgp.estimator.initialisation import initialise
from invgp.likelihoods import GPRN, BlackBox, Gaussian, Poisson, StudentT

NOISE = 0.1


def normal(residual):
    return -0.5 * (residual / NOISE) ** 2 - np.log(NOISE) - 0.5 * np.log(2 * np.pi)


def squares(y, f):
    return normal(y[:, 0] - f[..., 0] ** 2)


def squares_or_values(y, f):
    """Observations of f^2 in the first column, and of f in the second."""
    parts = normal(y[:, 0] - f[..., 0] ** 2), normal(y[:, 1] - f[..., 0])
    return sum(np.where(np.isnan(y[:, p]), 0.0, part) for p, part in enumerate(parts))


SQUARES = BlackBox(squares, latents=1, outputs=1)


def observed_squares(curve, seed):
    return curve(X[:, 0]) ** 2 + NOISE * np.random.default_rng(seed).standard_normal(len(X))


@pytest.mark.slow
@pytest.mark.parametrize("inducing", [None, 15])
@pytest.mark.parametrize("curve", [lambda x: np.sin(1.5 * x), lambda x: 1 + 0.5 * np.sin(1.5 * x)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_that_an_even_likelihood_does_not_stay_at_the_prior_mean(curve, inducing, seed):
    y = observed_squares(curve, seed)
    model = SAVIGP(SQUARES, inducing=inducing, random_state=seed).fit(X, y)
    stuck = SAVIGP(SQUARES, inducing=inducing, random_state=seed, method=Blocks(restarts=0, rounds=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert stuck.fit(X, y).bound_ < -100
    assert model.bound_ > 0
    assert np.sqrt(np.mean((model.predict_latent(X)[0][:, 0] ** 2 - curve(X[:, 0]) ** 2) ** 2)) < NOISE


def noisy_squares(y, f, parameters):
    residual = (y[:, 0] - f[..., 0] ** 2) * np.exp(-parameters[0])
    return -0.5 * residual**2 - parameters[0] - 0.5 * np.log(2 * np.pi)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_that_signs_and_noise_of_a_square_are_learnt_together(seed):
    """From a noise level ten times too large, with zeros of the latent at which a search may keep the wrong sign."""
    x = np.sort(np.random.default_rng(seed).uniform(0, 10, (300, 1)), axis=0)
    truth = np.sin(1.5 * x[:, 0]) + 0.5 * np.cos(0.7 * x[:, 0])
    y = truth**2 + NOISE * np.random.default_rng(seed + 10).standard_normal(300)
    box = BlackBox(noisy_squares, latents=1, outputs=1, parameters=[0.0])
    model = SAVIGP(box, inducing=20, random_state=seed).fit(x, y)
    known = SAVIGP(Gaussian(NOISE), inducing=20, random_state=seed).fit(x, truth)
    assert np.exp(np.asarray(model.likelihood_.parameters)[0]) == pytest.approx(NOISE, rel=0.15)
    assert model.kernels_[0].length_scale[0] > 0.5 * known.kernels_[0].length_scale[0]  # kinks would shorten it
    latent = model.predict_latent(x)[0][:, 0]
    clear = np.abs(truth) > 0.3
    signs = np.sign(latent * truth)[clear]
    assert abs(signs.mean()) == 1.0  # all equal or all reflected


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_that_signs_do_not_depend_on_the_places_of_few_inducing_inputs(seed):
    """Random inducing inputs lie between the zeros; a smooth latent through reflected values there would overshoot."""
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(-3, 3, (120, 1)), axis=0)
    truth = 1.5 * np.cos(1.3 * x[:, 0])
    y = np.cosh(truth) + NOISE * np.random.default_rng(0).standard_normal(120)
    box = BlackBox(lambda y, f: normal(y[:, 0] - np.cosh(f[..., 0])), latents=1, outputs=1)
    latent = SAVIGP(box, inducing=15, random_state=seed).fit(x, y).predict_latent(x)[0][:, 0]
    assert abs(np.sign(latent * truth)[np.abs(truth) > 0.4].mean()) == 1.0


def noisy_absolute_values(y, f, parameters):
    residual = (y[:, 0] - np.abs(f[..., 0])) * np.exp(-parameters[0])
    return -0.5 * residual**2 - parameters[0] - 0.5 * np.log(2 * np.pi)


EVEN = {"f^2": (noisy_squares, np.square), "|f|": (noisy_absolute_values, np.abs)}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EVEN))
@pytest.mark.parametrize(
    ("frequency", "inducing", "seed"), [(1.0, 20, 0), (2.0, 20, 1), (2.0, None, 0), (2.5, 20, 0), (3.0, 20, 2)]
)
def test_that_noise_to_learn_does_not_hide_a_saddle_point(name, frequency, inducing, seed):
    """From a noise of 1, which explains all data, however fast the latent varies."""
    density, even = EVEN[name]
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 6, (200, 1))
    truth = np.sin(frequency * x[:, 0])
    y = even(truth) + NOISE * rng.standard_normal(200)
    box = BlackBox(density, latents=1, outputs=1, parameters=[0.0])
    model = SAVIGP(box, inducing=inducing, random_state=seed).fit(x, y)
    Z = model.inducing_inputs_[0]
    near = BlackBox(density, latents=1, outputs=1, parameters=[np.log(NOISE)])
    settings = {"inducing": Z, "length_scale": 1.5 / frequency, "initial_mean": np.sin(frequency * Z[:, 0])}
    best = SAVIGP(near, **settings).fit(x, y)
    assert model.bound_ > best.bound_ - 0.1
    assert np.exp(np.asarray(model.likelihood_.parameters)[0]) == pytest.approx(NOISE, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EVEN))
def test_that_saddle_points_are_left_in_two_dimensions(name):
    density, even = EVEN[name]
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 6, (200, 2))
    truth = np.sin(x[:, 0]) * np.cos(x[:, 1])
    y = even(truth) + NOISE * rng.standard_normal(200)
    box = BlackBox(density, latents=1, outputs=1, parameters=[0.0])
    latent = SAVIGP(box, inducing=40).fit(x, y).predict_latent(x)[0][:, 0]
    assert np.sqrt(np.mean((even(latent) - even(truth)) ** 2)) < NOISE


@pytest.mark.parametrize("start", [0.1, 1.0])
def test_that_a_fit_with_kinks_ends(start):
    """The search for the posterior may end lower than the fit; a reflection must be compared with the fit."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 6, (200, 1))
    y = np.abs(np.sin(x[:, 0])) + NOISE * rng.standard_normal(200)
    box = BlackBox(noisy_absolute_values, latents=1, outputs=1, parameters=[np.log(start)])
    model = SAVIGP(box, inducing=20, length_scale=0.6).fit(x, y)
    assert model.converged_
    assert len(model.trace_) < 20


def test_that_a_saddle_point_at_the_end_is_told():
    y = observed_squares(lambda x: np.sin(1.5 * x), 0)
    for method in (Blocks(restarts=0, rounds=3), MiniBatches(("posterior",), start_sites=0, epochs=20)):
        with pytest.warns(ConvergenceWarning, match="is convex at the posterior mean, .* start elsewhere"):
            SAVIGP(SQUARES, inducing=15, method=method).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "batch"), [(0, None), (1, 40)])
def test_that_mini_batches_leave_a_saddle_point(seed, batch):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 6, (120, 1))
    y = np.sin(2 * x[:, 0]) ** 2 + NOISE * rng.standard_normal(120)
    box = BlackBox(noisy_squares, latents=1, outputs=1, parameters=[0.0])
    best = SAVIGP(box, inducing=15).fit(x, y).bound_
    model = SAVIGP(box, inducing=15, method=MiniBatches(batch=batch, epochs=100), random_state=seed).fit(x, y)
    assert model.bound_ > best - (1.0 if batch is None else 5.0)


def test_that_length_scales_of_restarts_keep_to_their_bounds():
    kernel = Matern52(variance=2.0, length_scale=[1.0, 4.0]) + White(0.1)
    bound, parameters = initialise(
        SAVIGP(Gaussian(1.0), kernel=kernel, hyperpriors={"length_scale": Hyperprior(low=0.8, high=10.0)}),
        np.random.default_rng(0).uniform(0, 6, (9, 2)),
        select_backend("cpu"),
        *np.random.default_rng(0).spawn(2),
    )
    shorter = bound.kernel_cache(shorten_length_scales(bound, parameters, 0.5)).kernels[0].parameters
    expected = dict(zip(kernel.qualified_names, np.exp(shorter), strict=True))
    np.testing.assert_allclose(np.exp(shorter), [2.0, 0.8, 2.0, 0.1], rtol=1e-6, err_msg=str(expected))


@pytest.mark.slow
def test_that_a_large_initial_noise_does_not_hide_a_saddle_point():
    """With a weight and a node at 0, learnt noise can explain all data."""
    y = np.sin(X[:, 0]) * (1 + 0.3 * np.cos(X[:, 0])) + NOISE * np.random.default_rng(0).standard_normal(len(X))
    model = SAVIGP(GPRN(3.0, nodes=1, outputs=1), inducing=8).fit(X, y)
    assert np.exp(np.asarray(model.likelihood_.parameters)[0]) == pytest.approx(NOISE, rel=0.15)
    assert model.kl() > 10.0


def test_that_regions_are_reflected_at_minima():
    places = np.linspace(1, 5, 25)
    covariance = np.exp(-0.5 * ((places[:, None] - places) / 0.5) ** 2)
    values = np.abs(np.sin(places))  # touches 0 at pi
    factors = region_factors(values, covariance)
    zero = np.argmin(values)
    reflected = [one for one in factors if one[zero] == 0]
    assert any(np.all(one[:zero] == -one[-1]) and np.all(one[zero + 1 :] == one[-1]) for one in reflected)
    assert set(np.unique(factors)) <= {-1.0, 0.0, 1.0}


def test_that_restarts_cost_nothing_where_the_first_start_is_good(noisy_data):
    """Outliers make the density of Student's t convex at a few sites, which does not indicate a saddle point."""
    y = noisy_data.copy()
    y[::20] += 3.0
    with_restarts, without = (
        SAVIGP(StudentT(0.2, dof=3.0), length_scale=1.0, inducing=10, method=Blocks(restarts=count)).fit(X, y)
        for count in (8, 0)
    )
    assert len(with_restarts.trace_) <= len(without.trace_) + 1
    assert with_restarts.bound_ == pytest.approx(without.bound_, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("method", [Blocks(), MiniBatches(batch=20, epochs=200)])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_that_an_initial_mean_selects_the_mode(sign, method):
    y = observed_squares(lambda x: 1 + 0.5 * np.sin(1.5 * x), 0)
    model = SAVIGP(SQUARES, length_scale=1.5, inducing=10, initial_mean=np.full(10, sign), method=method).fit(X, y)
    assert np.all(sign * model.predict_latent(X)[0] > 0)
    with pytest.raises(ValueError, match=r"initial_mean must be one number for each of 10 .*, had shape \(3,\)"):
        SAVIGP(SQUARES, inducing=10, initial_mean=np.ones(3)).fit(X, y)


@pytest.mark.parametrize("settings", [{}, {"inducing": 8}, {"inducing": 8, "posterior": "diagonal"}])
def test_that_a_warm_start_continues(settings, noisy_data):
    model = SAVIGP(StudentT(0.3), warm_start=True, **settings).fit(X, noisy_data)
    first, rounds = model.bound_, len(model.trace_)
    model.fit(X, noisy_data)
    assert model.bound_ == pytest.approx(first, abs=0.01)
    assert len(model.trace_) <= max(2, rounds)
    assert model.trace_[0] > first - 0.01
    if settings:
        with pytest.raises(ValueError, match=r"warm_start must be False if .* change"):
            model.set_params(inducing=9).fit(X, noisy_data)


@pytest.mark.slow
def test_that_two_components_find_two_modes_and_predict_better():
    curve = 1 + 0.5 * np.sin(1.5 * X[:, 0])
    rng = np.random.default_rng(0)
    nothing = np.full(len(X), np.nan)
    train = np.column_stack([curve**2 + NOISE * rng.standard_normal(len(X)), nothing])
    scores, bounds = {1: [], 2: []}, {}
    for K in (1, 2):
        box = BlackBox(squares_or_values, latents=1, outputs=2)
        model = SAVIGP(box, length_scale=1.5, inducing=10, components=K, method=POSTERIOR_ONLY).fit(X, train)
        bounds[K] = model.mixture_bound_, model.mixture_bound_std_error_, model.bound_
        for sign in (-1.0, 1.0):
            held_out = np.column_stack([nothing, sign * curve + NOISE * rng.standard_normal(len(X))])
            scores[K].append(model.score(X, held_out))
    np.testing.assert_allclose(model.weights_, 0.5, atol=0.01)
    # Two equal modes that do not overlap: exactly log 2 more entropy than one of them.
    assert bounds[2][0] == pytest.approx(bounds[1][0] + np.log(2), abs=4 * bounds[2][1])
    assert bounds[2][2] < bounds[1][2]  # the lower bound of the entropy hides this
    assert min(scores[2]) > 0.0 > -100 > min(scores[1])
    assert model.bound(X, train, entropy="monte carlo") == pytest.approx(bounds[2][0], abs=0.2)


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_that_two_components_are_not_worse_than_one(posterior):
    """The posterior has one mode, so the best single Gaussian is kept unless two components are clearly better."""
    y = np.random.default_rng(0).poisson(np.exp(1 + 0.5 * np.sin(1.5 * X[:, 0])))
    one = SAVIGP(Poisson(), inducing=8, posterior=posterior).fit(X, y)
    two = SAVIGP(Poisson(), inducing=8, posterior=posterior, components=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ConvergenceWarning)
        two.fit(X, y)
    assert two.mixture_bound_ >= one.bound_ - 1e-6
    if two.weights_.min() < 0.01:
        assert any("reduce components" in str(one.message) for one in told)
        np.testing.assert_allclose(two.predict(X), one.predict(X), rtol=1e-3)


@pytest.mark.slow
def test_that_mini_batches_find_two_modes():
    curve = 1 + 0.5 * np.sin(1.5 * X[:, 0])
    train = np.column_stack([curve**2 + NOISE * np.random.default_rng(0).standard_normal(60), np.full(60, np.nan)])
    box = BlackBox(squares_or_values, latents=1, outputs=2)
    method = MiniBatches(("posterior",), epochs=100)
    model = SAVIGP(box, length_scale=1.5, inducing=10, components=2, method=method).fit(X, train)
    assert model.weights_.min() > 0.1
    assert np.prod(model.inducing_posterior().mean[:, 0].mean(axis=1)) < 0  # of opposite signs


def test_that_vanishing_weights_are_reported(noisy_data, monkeypatch):
    model = SAVIGP(Gaussian(0.3), inducing=8, posterior="diagonal", components=2, method=POSTERIOR_ONLY)
    monkeypatch.setattr("invgp.estimator.model.MIN_WEIGHT", 1.1)
    with pytest.warns(ConvergenceWarning, match=r"2 of 2 components of the mixture have weights below 1\.1"):
        model.fit(X, noisy_data)
