"""Piecewise polynomials: maxima and minima of polynomials, for simulators with kinks."""

import numpy as np
import pytest

from invgp.emulation.hermite_basis import Basis, bases
from invgp.emulation.piecewise import fit_pieces
from invgp.emulation.polynomial import fit_polynomial


def melt(x):
    """Nothing below a threshold."""
    return np.exp(0.3 * x[:, 1]) * np.maximum(x[:, 0] + 0.2, 0.0)


def earliest(x):
    """The earlier of two arrivals."""
    return np.minimum(1.0 + 0.5 * x[:, 0] ** 2, 1.5 + 0.3 * x[:, 1])


def limited(x):
    """A signal between two limits of an instrument."""
    return np.clip(np.exp(0.6 * x[:, 0]) + 0.2 * x[:, 1], 0.6, 2.0)


def fit(function, runs=120, noise=0.05):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((runs, 2))
    y = np.stack([x[:, 0] - x[:, 1], function(x)], axis=1) / noise
    folds = np.arange(runs)
    polynomial, errors = fit_polynomial(Basis(2, 3, 2), x, y, folds)
    found = fit_pieces(polynomial, bases(2, 100, 6), x, y, errors, folds, np.asarray([1]))
    assert found is not None
    return polynomial, errors, *found


@pytest.mark.parametrize("function", [melt, earliest, limited])
def test_that_an_output_with_kinks_is_represented_by_pieces(function):
    polynomial, errors, surface, left_out = fit(function)
    x = np.random.default_rng(2).standard_normal((500, 2))
    sites = np.zeros(500, dtype=int)
    truth = np.stack([x[:, 0] - x[:, 1], function(x)], axis=1) / 0.05
    before, after = (np.median(np.abs(each(x, sites) - truth)[:, 1]) for each in (polynomial, surface))
    assert after < 0.2 * before
    assert np.sqrt(np.mean(left_out[:, 1] ** 2)) < 0.3 * np.sqrt(np.mean(errors[:, 1] ** 2))
    assert np.array_equal(left_out[:, 0], errors[:, 0])
    assert np.array_equal(surface(x, sites)[:, 0], polynomial(x, sites)[:, 0])


def test_that_left_out_errors_of_pieces_are_those_of_fits_without_the_run():
    """The division of the runs changes so little that a fit without one run has the same pieces."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 1))
    y = np.maximum(x + 0.3, 0.0) + 1e-3 * rng.standard_normal((60, 1))
    folds, candidates = np.arange(60), bases(1, 10, 2)
    polynomial, errors = fit_polynomial(candidates[0], x, y, folds)
    _, left_out = fit_pieces(polynomial, candidates, x, y, errors, folds, np.asarray([0]))
    for run in (0, 7, 20):
        kept = np.arange(60) != run
        surface, _ = fit_pieces(polynomial, candidates, x[kept], y[kept], errors[kept], folds[kept], np.asarray([0]))
        expected = y[run] - surface(x[run : run + 1], np.zeros(1, dtype=int))[0]
        np.testing.assert_allclose(left_out[run], expected, atol=2e-4)


def test_that_derivatives_are_those_of_the_piece_that_is_active():
    _, _, surface, _ = fit(limited)
    rng = np.random.default_rng(4)
    x, sites = rng.standard_normal((40, 2)), np.zeros(40, dtype=int)
    y, pull_back = surface.linearise(x, sites)
    np.testing.assert_allclose(y, surface(x, sites), atol=1e-9)
    cotangents, step = rng.standard_normal(y.shape), 1e-6 * rng.standard_normal(x.shape)
    change = np.sum((surface(x + step, sites) - surface(x - step, sites)) * cotangents, axis=1) / 2.0
    np.testing.assert_allclose(np.sum(pull_back(cotangents) * step, axis=1), change, atol=1e-9, rtol=1e-3)


def test_that_a_smooth_output_gets_no_pieces_that_are_worse():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((60, 2))
    y = (x[:, :1] + x[:, 1:] ** 2) / 0.05
    polynomial, errors = fit_polynomial(Basis(2, 2, 2), x, y, np.arange(60))
    assert fit_pieces(polynomial, bases(2, 100, 4), x, y, errors, np.arange(60), np.asarray([0])) is None


def test_that_inputs_far_from_all_runs_are_outside():
    _, _, surface, _ = fit(melt)
    x, sites = np.asarray([[0.5, 0.1], [9.0, -8.0]]), np.zeros(2, dtype=int)
    assert surface.is_outside(x, sites).tolist() == [False, True]
