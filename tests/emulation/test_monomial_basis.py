"""Monomials and polynomials with their derivatives, on every array library."""

import numpy as np
import pytest

from invgp.core.backend import to_numpy
from invgp.emulation.monomial_basis import Basis
from invgp.emulation.polynomial import Polynomial


@pytest.mark.parametrize(("degree", "interaction"), [(1, 1), (2, 2), (3, 2), (4, 1), (4, 2), (4, 3)])
def test_that_a_polynomial_and_its_gradient_agree_with_the_features_and_differences(degree, interaction, rng, backend):
    basis = Basis(3, degree, interaction)
    coefficients, cotangents = rng.standard_normal((len(basis), 2)), rng.standard_normal((5, 2))
    surface = Polynomial(basis, np.ones(3), np.full(3, 2.0), coefficients, np.eye(len(basis)), 1.0)
    x, rounding = rng.standard_normal((5, 3)), 1e-10 if backend.dtype == "float64" else 1e-3
    np.testing.assert_allclose(to_numpy(basis.evaluate(backend.asarray(x))), basis(x), rtol=rounding, atol=rounding)
    y, pull_back = surface.linearise(backend.asarray(x), np.zeros(5, dtype=np.intp))
    np.testing.assert_allclose(to_numpy(y), surface(x, np.zeros(5, dtype=np.intp)), rtol=rounding, atol=rounding)
    gradient, step = to_numpy(pull_back(backend.asarray(cotangents))), 1e-6
    for i in range(3):
        both = [surface(x + sign * step * np.eye(3)[i], np.zeros(5, dtype=np.intp)) for sign in (1.0, -1.0)]
        slope = np.sum(cotangents * (both[0] - both[1]), axis=1) / (2.0 * step)
        np.testing.assert_allclose(gradient[:, i], slope, rtol=rounding + 1e-6, atol=rounding + 1e-6)
