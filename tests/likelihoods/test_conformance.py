"""Every likelihood keeps the contract, in every place."""

import pickle

import numpy as np
import pytest

from invgp.likelihoods import (
    GPRN,
    Beta,
    BlackBox,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    Laplace,
    Likelihood,
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
from invgp.likelihoods.testing import check_likelihood

S, N = 4, 5
KNOWN = 0.3 + np.random.default_rng(1).random((N, 3))
WARP = {"a": [0.8, 0.3], "b": [1.5, 4.0], "c": [0.2, -0.4]}


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def at_sites(y_of, outputs, latents, scale=1.0):
    """y (N, P) and f (S, N, Q)."""
    return y_of(normal((N, outputs))), scale * normal((S, N, latents), 1)


def layers():
    """Depths and velocities of three layers, and their times."""
    depth = np.array([200.0, 500.0, 1600.0]) * (1 + 0.1 * normal((S, N, 3)))
    velocity = np.array([1950.0, 2300.0, 2750.0]) * (1 + 0.1 * normal((S, N, 3), 1))
    return np.array([0.2, 0.46, 1.26]) + 0.05 * normal((N, 3)), np.concatenate([depth, velocity], axis=-1)


def counts(y):
    return np.floor(3 * np.abs(y))


def positive(y):
    return np.abs(y) + 0.1


def fractions(y):
    return 1 / (1 + np.exp(-y))


def grades(y):
    return np.digitize(y, [-0.7, 0.0, 0.7]).astype(float)


def one_hot(y):
    return np.eye(y.shape[1])[y.argmax(axis=1)]


def product_density(y, f, parameters):
    """Two outputs, the second of which is the product of two latents; leaves out what is missing."""
    location = np.stack([f[..., 0], f[..., 0] * f[..., 1]], axis=-1)
    terms = -0.5 * ((y - location) * np.exp(-parameters)) ** 2 - parameters - 0.5 * np.log(2 * np.pi)
    return np.where(np.isnan(y), 0.0, terms).sum(axis=-1)


def product_moments(f, parameters):
    location = np.stack([f[..., 0], f[..., 0] * f[..., 1]], axis=-1)
    return location, np.broadcast_to(np.exp(2 * parameters), location.shape)


def identity(y):
    return y


CASES = {
    "gaussian": (Gaussian(0.5), at_sites(identity, 1, 1), {"grid": np.linspace(-8, 8, 401)}),
    "gaussian-shared": (Gaussian(0.5, outputs=3), at_sites(identity, 3, 3), {}),
    "gaussian-each": (Gaussian([0.5, 1.0, 2.0]), at_sites(identity, 3, 3), {}),
    "gaussian-known": (Gaussian(KNOWN), at_sites(identity, 3, 3), {"site_specific": True}),
    "gaussian-fixed": (Gaussian([0.5, 1.0], learn=False), at_sites(identity, 2, 2), {}),
    "student-t": (StudentT(0.7, dof=12.0), at_sites(identity, 1, 1), {"grid": np.linspace(-60, 60, 1201)}),
    "student-t-each": (StudentT([0.7, 2.0], dof=3.0), at_sites(identity, 2, 2), {}),
    "cauchy": (StudentT(0.7, dof=1.0), at_sites(identity, 1, 1), {}),
    # The density has a kink, so the trapezoidal rule needs a fine grid.
    "laplace": (Laplace(0.7), at_sites(identity, 1, 1), {"grid": np.linspace(-18, 18, 1801), "rtol": 1e-3}),
    "laplace-each": (Laplace([0.7, 2.0]), at_sites(identity, 2, 2), {}),
    "warped": (Warped(0.6, **WARP), at_sites(identity, 1, 1), {"grid": np.linspace(-9, 9, 601), "rtol": 1e-4}),
    "warped-learnt": (Warped(0.6, **WARP, learn="noise and warp"), at_sites(identity, 1, 1), {}),
    "warped-fixed": (Warped(0.6, **WARP, learn="nothing"), at_sites(identity, 1, 1), {}),
    "logistic": (Logistic(), at_sites(np.sign, 1, 1), {"outcomes": [0.0, 1.0]}),
    "softmax": (Softmax(4), at_sites(one_hot, 4, 4), {"outcomes": np.eye(4)}),
    "poisson": (Poisson(-0.3), at_sites(counts, 1, 1), {"outcomes": np.arange(60.0)}),
    "poisson-each": (Poisson([-0.3, 1.0]), at_sites(counts, 2, 2), {}),
    "poisson-known": (Poisson(np.log(KNOWN)), at_sites(counts, 3, 3), {"site_specific": True}),
    "student-t-learnt": (StudentT([0.7, 2.0], dof=3.0, learn_dof=True), at_sites(identity, 2, 2), {}),
    "student-t-only-dof": (StudentT(0.7, dof=12.0, learn=False, learn_dof=True), at_sites(identity, 1, 1), {}),
    "heteroscedastic": (HeteroscedasticGaussian(), at_sites(identity, 1, 2, 0.5), {"grid": np.linspace(-25, 25, 2001)}),
    "probit": (Probit(), at_sites(np.sign, 1, 1), {"outcomes": [0.0, 1.0]}),
    "negative-binomial": (NegativeBinomial(2.5), at_sites(counts, 1, 1, 0.5), {"outcomes": np.arange(200.0)}),
    "negative-binomial-each": (NegativeBinomial([0.7, 20.0]), at_sites(counts, 2, 2), {}),
    "negative-binomial-known": (NegativeBinomial(KNOWN), at_sites(counts, 3, 3), {"site_specific": True}),
    "gamma": (Gamma(6.0), at_sites(positive, 1, 1, 0.3), {"grid": np.linspace(1e-9, 20, 4001), "rtol": 1e-5}),
    "gamma-each": (Gamma([0.7, 3.0], learn=False), at_sites(positive, 2, 2), {}),
    "beta": (Beta(20.0), at_sites(fractions, 1, 1, 0.3), {"grid": np.linspace(1e-9, 1 - 1e-6, 4001), "rtol": 1e-5}),
    "beta-each": (Beta([0.7, 3.0]), at_sites(fractions, 2, 2), {}),
    "ordinal": (Ordinal(4, [-1.0, 0.2, 1.0]), at_sites(grades, 1, 1), {"outcomes": np.arange(4.0)}),
    "ordinal-two": (Ordinal(2), at_sites(lambda y: (y > 0) * 1.0, 1, 1), {"outcomes": [0.0, 1.0]}),
    "ordinal-fixed": (Ordinal(4, learn=False), at_sites(grades, 1, 1), {}),
    "gprn": (GPRN([0.5, 1.0, 2.0], nodes=2), at_sites(identity, 3, 8), {}),
    "gprn-one": (GPRN(0.5, nodes=3), at_sites(identity, 1, 6), {"grid": np.linspace(-12, 12, 601)}),
    "seismic": (Seismic([0.025, 0.05, 0.075]), layers(), {}),
    "seismic-learnt": (Seismic(0.05, layers=3, learn=True), layers(), {}),
    "black-box": (
        BlackBox(product_density, latents=2, outputs=2, parameters=[-0.5, 0.3], moments=product_moments),
        at_sites(identity, 2, 2),
        {},
    ),
    "black-box-bare": (
        BlackBox(lambda y, f: -np.abs(y - f)[..., 0] - np.log(2.0), latents=1, outputs=1),
        at_sites(identity, 1, 1),
        {"grid": np.linspace(-20, 20, 2001), "rtol": 1e-3},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_that_it_keeps_the_contract(name, backend):
    likelihood, (y, f), options = CASES[name]
    assert isinstance(likelihood, Likelihood)
    site_specific = options.get("site_specific", False)
    check_likelihood(likelihood, backend.asarray(y), backend.asarray(f), site_specific=site_specific)


@pytest.mark.parametrize("name", [name for name, (_, _, options) in CASES.items() if {"grid", "outcomes"} & {*options}])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_that_it_is_normalised_and_has_its_moments(name, dtype):
    likelihood, (y, f), options = CASES[name]
    check_likelihood(likelihood, y.astype(dtype), f.astype(dtype), **options)


def test_that_parameters_may_live_where_the_data_live(backend):
    y, f = (backend.asarray(values) for values in at_sites(identity, 3, 3))
    likelihood = Gaussian(backend.asarray([0.5, 1.0, 2.0]))
    check_likelihood(likelihood, y, f)
    assert likelihood.parameters.dtype == f.dtype
    warp = {key: backend.asarray(values) for key, values in WARP.items()}
    check_likelihood(Warped(backend.asarray(0.6), **warp, learn="noise and warp"), y[:, :1], f[:, :, :1])


@pytest.mark.parametrize("name", [name for name, (likelihood, _, _) in CASES.items() if likelihood.outputs == 3])
def test_that_each_missing_output_adds_nothing(name):
    """Given the latents, outputs are independent here: a missing output removes only its own term."""
    likelihood, (y, f), _ = CASES[name]
    alone = []
    for output in range(3):
        only = np.full_like(y, np.nan)
        only[:, output] = y[:, output]
        alone.append(likelihood.log_density(only, f))
    np.testing.assert_allclose(sum(alone), likelihood.log_density(y, f), rtol=1e-12)
    holed = y.copy()
    holed[:, 1] = np.nan
    np.testing.assert_allclose(alone[0] + alone[2], likelihood.log_density(holed, f), rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_that_parameters_and_data_of_a_wrong_shape_are_refused(name):
    likelihood, (y, f), _ = CASES[name]
    K = likelihood.parameters.shape[0]
    with pytest.raises(ValueError, match=rf"parameters must have shape \({K},\), was \({K + 1},\)"):
        likelihood.with_parameters(np.zeros(K + 1))
    with pytest.raises(ValueError, match="f must have shape"):
        likelihood.log_density(y, f[..., None])
    with pytest.raises(ValueError, match="f must have shape"):
        likelihood.moments(f[..., None])
    with pytest.raises(ValueError, match="y must have shape"):
        likelihood.log_density(y[:-1], f)


@pytest.mark.parametrize("name", [name for name in CASES if name != "black-box-bare"])
def test_that_it_survives_pickling(name):
    likelihood, (y, f), _ = CASES[name]
    again = pickle.loads(pickle.dumps(likelihood))
    np.testing.assert_array_equal(again.log_density(y, f), likelihood.log_density(y, f))


@pytest.mark.parametrize("name", CASES)
def test_that_it_cannot_be_changed(name):
    likelihood, _, _ = CASES[name]
    for field in ("parameters", "outputs"):
        with pytest.raises(AttributeError):
            setattr(likelihood, field, 1)


@pytest.mark.parametrize("name", [name for name, (likelihood, _, _) in CASES.items() if "black" not in name])
def test_that_a_line_search_gone_too_far_raises_nothing(name):
    likelihood, (y, f), _ = CASES[name]
    for far in (-2000.0, 2000.0):
        moved = likelihood.with_parameters(np.full(likelihood.parameters.shape, far))
        with np.errstate(all="ignore"):
            assert moved.log_density(y, f).shape == (S, N)
        np.testing.assert_array_equal(moved.parameters, np.full(likelihood.parameters.shape, far))
