"""Hermite bases and polynomials with their derivatives, on every array library."""

import math

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermeval

from invgp.core.backend import to_numpy
from invgp.emulation.hermite_basis import Basis, bases
from invgp.emulation.polynomial import Polynomial, fit_polynomial

CASES = [(1, 1), (2, 2), (3, 2), (4, 1), (4, 2), (4, 3), (7, 2), (7, 3)]


def products(basis, x):
    """Evaluate the products of a basis one by one, with NumPy's Hermite polynomials."""
    return np.asarray(
        [
            np.prod(
                [hermeval(x[:, i], np.eye(power + 1)[power]) / math.sqrt(math.factorial(power)) for i, power in row],
                axis=0,
            )
            for row in (list(enumerate(powers)) for powers in basis.powers.tolist())
        ]
    )


@pytest.mark.parametrize(("degree", "interaction"), CASES)
def test_that_a_basis_is_the_products_of_hermite_polynomials(degree, interaction, rng, backend):
    basis = Basis(3, degree, interaction)
    x, rounding = rng.standard_normal((5, 3)), 1e-10 if backend.dtype == "float64" else 1e-3
    assert len(basis) == len(basis.powers)
    assert len({tuple(row) for row in basis.powers.tolist()}) == len(basis)
    np.testing.assert_allclose(to_numpy(basis(backend.asarray(x))), products(basis, x), rtol=rounding, atol=rounding)


@pytest.mark.parametrize(("degree", "interaction"), CASES)
def test_that_the_gradients_of_a_polynomial_agree_with_differences(degree, interaction, rng, backend):
    basis = Basis(3, degree, interaction)
    coefficients, cotangents = rng.standard_normal((len(basis), 2)), rng.standard_normal((5, 2))
    surface = Polynomial(basis, np.ones(3), np.full(3, 2.0), coefficients, np.eye(len(basis)), 1.0)
    x, rounding = rng.standard_normal((5, 3)), 1e-10 if backend.dtype == "float64" else 1e-3
    y, pull_back = surface.linearise(backend.asarray(x), np.zeros(5, dtype=np.intp))
    np.testing.assert_allclose(to_numpy(y), surface(x, np.zeros(5, dtype=np.intp)), rtol=rounding, atol=rounding)
    gradient, step = to_numpy(pull_back(backend.asarray(cotangents))), 1e-6
    features = backend.asarray(basis((x - 1.0) / 2.0))
    weights = backend.asarray(coefficients @ cotangents.T)
    np.testing.assert_allclose(
        to_numpy(basis.pull_back(features, weights)) / 2.0, gradient, rtol=rounding, atol=10.0 * rounding
    )
    for i in range(3):
        both = [surface(x + sign * step * np.eye(3)[i], np.zeros(5, dtype=np.intp)) for sign in (1.0, -1.0)]
        slope = np.sum(cotangents * (both[0] - both[1]), axis=1) / (2.0 * step)
        np.testing.assert_allclose(gradient[:, i], slope, rtol=rounding + 1e-6, atol=rounding + 1e-6)


def test_that_a_polynomial_of_degree_eight_is_recovered_to_rounding(rng):
    """The features of normal inputs are nearly orthonormal, so that a fit of a high degree loses few digits."""
    x, basis = rng.standard_normal((2000, 4)), Basis(4, 8, 2)
    truth = Polynomial(basis, np.zeros(4), np.ones(4), rng.standard_normal((len(basis), 2)), np.eye(len(basis)), 1.0)
    sites = np.zeros(len(x), dtype=np.intp)
    fitted, errors = fit_polynomial(basis, x, truth(x, sites), np.arange(len(x)) % 200)
    new = rng.standard_normal((500, 4))
    scale = np.std(truth(new, sites[:500]), axis=0)
    assert np.abs((fitted(new, sites[:500]) - truth(new, sites[:500])) / scale).max() < 1e-8
    assert np.abs(errors / scale).max() < 1e-6


def test_that_large_bases_are_left_out_before_they_are_built():
    """Of 40 inputs there are 377 million products of degree eight."""
    found = bases(40, 640, highest_degree=8)
    assert [(basis.degree, basis.interaction) for basis in found] == [(1, 1)]
    sizes = [len(basis) for basis in bases(4, 640, highest_degree=8)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 495
