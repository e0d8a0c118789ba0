"""Expected log densities in closed form, against quadrature and finite differences."""

from itertools import product

import numpy as np
import pytest

from invgp.core.backend import to_numpy
from invgp.core.observed_likelihood import Data
from invgp.core.training import Blocks
from invgp.estimator import SAVIGP
from invgp.likelihoods import GPRN, Gamma, Gaussian, HeteroscedasticGaussian, Poisson

N = 5
CASES = {
    "gaussian": Gaussian([0.3, 2.0]),
    "gaussian, known": Gaussian(np.linspace(0.5, 1.5, 2 * N).reshape(N, 2)),
    "poisson": Poisson([0.4, -1.0]),
    "gamma": Gamma([0.7, 3.0]),
    "heteroscedastic": HeteroscedasticGaussian(),
    "one node": GPRN([0.3, 2.0], nodes=1, outputs=2),
    "two nodes": GPRN(0.7, nodes=2, outputs=1),
}


def case(name, rng):
    likelihood = CASES[name]
    y = rng.standard_normal((N, likelihood.outputs))
    y = rng.integers(0, 9, y.shape).astype(float) if name == "poisson" else y
    y = np.abs(y) + 0.1 if name == "gamma" else y
    y[1, 0], y[2, :] = np.nan, np.nan
    return likelihood, y, rng.standard_normal((N, likelihood.latents)), rng.uniform(0.2, 1.0, (N, likelihood.latents))


def by_quadrature(likelihood, y, mean, variance):
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    z = np.asarray(list(product(nodes, repeat=likelihood.latents)))
    w = np.prod(np.asarray(list(product(weights / weights.sum(), repeat=likelihood.latents))), axis=1)
    return w @ likelihood.log_density(y, mean + np.sqrt(variance) * z[:, None, :])


@pytest.mark.parametrize("name", CASES)
def test_that_closed_forms_are_those_of_quadrature(name, rng, backend, tolerance):
    likelihood, y, mean, variance = case(name, rng)
    found = likelihood.expected_log_density(*(backend.asarray(part) for part in (y, mean, variance)))
    value, gradient, curvature, parameters = (to_numpy(part) for part in found)
    rtol = tolerance(backend, 1e-9)
    np.testing.assert_allclose(value, by_quadrature(likelihood, y, mean, variance), rtol=rtol, atol=rtol)
    step = 1e-5
    for q in range(likelihood.latents):
        move = step * np.eye(likelihood.latents)[q]
        for by, change, factor in ((gradient, (move, 0.0), 1.0), (curvature, (0.0, move), 2.0)):
            up, down = (
                likelihood.expected_log_density(y, mean + sign * change[0], variance + sign * change[1])[0]
                for sign in (1.0, -1.0)
            )
            np.testing.assert_allclose(by[:, q], factor * (up - down) / (2 * step), rtol=1e-4, atol=1e-4)
    for k, one in enumerate(np.eye(len(likelihood.parameters))):
        up, down = (
            likelihood.with_parameters(likelihood.parameters + s * one).expected_log_density(y, mean, variance)[0]
            for s in (step, -step)
        )
        np.testing.assert_allclose(parameters[:, k], (up - down) / (2 * step), rtol=1e-4, atol=1e-4)


def test_that_a_class_with_another_density_does_not_use_the_closed_form_of_its_base():
    class Wider(Gaussian):
        def log_density(self, y, f):
            return 0.5 * super().log_density(y, f)

    def has_closed_form(likelihood):
        return hasattr(Data(likelihood, np.zeros((3, 1))).log_density(np.zeros(1), derivatives=False), "expected")

    assert has_closed_form(Gaussian(0.3))
    assert not has_closed_form(Wider(0.3))


def test_that_a_fit_in_closed_form_is_that_of_samples(rng):
    class Sampled(GPRN):
        def log_density(self, y, f):
            return super().log_density(y, f)

    X = np.sort(rng.uniform(0, 6, (80, 1)), axis=0)
    node = np.sin(2 * X)
    y = np.hstack([1 + X / 12, 0.8 * np.cos(X) - 1]) * node + 0.1 * rng.standard_normal((80, 2))
    settings = {"inducing": 8, "prior_mean": (1, -1, 0), "method": Blocks(learn=("posterior", "likelihood"))}
    exact = SAVIGP(GPRN(0.3, nodes=1, outputs=2), **settings).fit(X, y)
    sampled = SAVIGP(Sampled(0.3, nodes=1, outputs=2), **settings).fit(X, y)
    assert exact.bound_std_error_ < 1e-9  # all sets of points give the same
    assert exact.bound_ == pytest.approx(sampled.bound_, abs=0.05)
