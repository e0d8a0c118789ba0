"""Least-squares fits to Hermite polynomials of standard normals, which are orthogonal under the normal distribution.

The coefficients of 1, z_j, z_j^2 - 1 and z_i z_j give the expectation, the mean gradient and the mean Hessian. Those
of higher degrees are not used themselves; fitting them reduces the error of the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations, combinations_with_replacement
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of, identity, product, to_numpy
from invgp.core.memory import BATCH_BUDGET


class Quadratic(NamedTuple):
    """Quadratic functions c + g^T z + (z^T H z - trace H) / 2 of standard normals z.

    Attributes
    ----------
    value : array, shape (...)
        c, the expectation.
    gradient : array, shape (..., Q)
        g.
    curvature : array, shape (..., Q, Q)
        H, symmetric; elements that were not fitted are zero.
    """

    value: Array
    gradient: Array
    curvature: Array


def hermite_features(z: Array, *, cross_terms: bool, degree: int = 2, axis: int = -1) -> Array:
    """Compute 1, z_j, z_j^2 - 1 and optionally z_i z_j with i < j, along the axis of z of length Q.

    With the cross terms, all polynomials of higher degrees up to `degree` follow.

    Parameters
    ----------
    z : Array
        Standard normal variables.
    cross_terms : bool
        Whether products of two variables are included.
    degree : int
        Largest degree of the polynomials.
    axis : int
        Axis of z of length Q.

    Returns
    -------
    Array
        As z, with the features along the axis.
    """
    xp = array_namespace(z)
    each = xp.unstack(z, axis=axis)
    features = [xp.ones_like(each[0]), *each, *(xp.square(one) - 1.0 for one in each)]
    if cross_terms:
        features += [one * other for one, other in combinations(each, 2)]
        features += [_product(each, chosen) for d in range(3, degree + 1) for chosen in _choices(len(each), d)]
    return xp.stack(features, axis=axis)


def _choices(latents: int, degree: int) -> list[Counter[int]]:
    """List the powers of the latents in each polynomial of a degree."""
    return [Counter(chosen) for chosen in combinations_with_replacement(range(latents), degree)]


def _product(each: Sequence[Array], powers: Mapping[int, int]) -> Array:
    """Compute the product over latents j of the Hermite polynomials of degree powers[j]."""
    return reduce(mul, (_polynomial(each[j], power) for j, power in powers.items()))


def _polynomial(z: Array, degree: int) -> Array:
    """Compute He_d(z) by the recurrence He_d = z He_d-1 - (d - 1) He_d-2."""
    before, here = 1.0, z
    for d in range(1, degree):
        before, here = here, z * here - float(d) * before
    return here


def mean_squares(latents: int, degree: int) -> list[float]:
    """Compute E[h^2] under the normal distribution for each of the `hermite_features` h with cross terms.

    Parameters
    ----------
    latents : int
        Number of variables, Q.
    degree : int
        Largest degree of the polynomials.

    Returns
    -------
    list of float
    """
    low = [1.0] * (1 + latents) + [2.0] * latents + [1.0] * math.comb(latents, 2)
    choices = (chosen for d in range(3, degree + 1) for chosen in _choices(latents, d))
    return low + [float(math.prod(math.factorial(power) for power in chosen.values())) for chosen in choices]


def fit_matrix(features: Array) -> Array:
    """Compute the matrix (F, S) from values at the samples to the coefficients of their fit to features (S, F).

    Parameters
    ----------
    features : Array, shape (S, F)

    Returns
    -------
    Array, shape (F, S)
    """
    return array_namespace(features).linalg.pinv(features)


def unbiased_fit_matrix(features: Array, squares: Sequence[float]) -> Array:
    """Compute a matrix like `fit_matrix` whose coefficients are unbiased if the samples are independent.

    A fit to its own samples has a bias of order 1/S. Here the value y_s of each sample is compared with the fit b_s to
    all other samples, which is independent of it. The result is the mean of b_s + h_s (y_s - h_s^T b_s) / E[h^2] over
    s. The residual of an excluded sample is r / (1 - leverage), so that one fit is enough.

    Parameters
    ----------
    features : array, shape (S, F)
        Features h_s of the samples.
    squares : sequence of float, length F
        E[h^2] of each feature.
    """
    xp = array_namespace(features)
    S = features.shape[0]
    fit = fit_matrix(features)
    one_minus_leverage = 1.0 - xp.vecdot(features, fit.T)
    weight = xp.stack([features[:, k] / square for k, square in enumerate(squares)]) - fit
    weight /= S * one_minus_leverage
    return fit + weight - product(product(weight, features), fit)


def coefficients(features: Array, values: Array, valid: Array | None = None, fit: Array | None = None) -> Array:
    """Fit values to features that all sites share.

    Parameters
    ----------
    features : array, shape (S, F)
        Features at the samples.
    values : array, shape (S, N, T)
        Values at the samples.
    valid : array of bool, shape (S, N), optional
        False for samples to ignore. One regression serves all sites without such samples; each other site has its own,
        in batches that fit the memory budget.
    fit : array, shape (F, S), optional
        Used instead of ``fit_matrix(features)`` for sites without ignored samples.

    Returns
    -------
    array, shape (N, T, F)
        Coefficients.
    """
    xp = array_namespace(features, values)
    S, F = features.shape
    if valid is None:
        fitted = product(fit_matrix(features) if fit is None else fit, xp.reshape(values, (S, -1)))
        return xp.permute_dims(xp.reshape(fitted, (F, *values.shape[1:])), (1, 2, 0))
    whole = to_numpy(xp.all(valid, axis=0))
    groups = [np.flatnonzero(whole)] if whole.any() else []
    parts = [coefficients(features, _sites(values, group), fit=fit) for group in groups]
    # Memory per site: its features without the ignored samples, and its normal equations.
    step = max(1, BATCH_BUDGET // (8 * F * (S + 2 * F)))
    some = np.flatnonzero(~whole)
    for group in np.split(some, range(step, len(some), step)):
        if len(group):
            shared = xp.broadcast_to(features.T, (len(group), F, S))
            parts.append(coefficients_by_site(shared, _sites(values, group), _sites(valid, group)))
            groups.append(group)
    return _sites(xp.concat(parts), np.argsort(np.concatenate(groups)), axis=0)


def _sites(array: Array, which: NDArray[np.intp], axis: int = 1) -> Array:
    """Select some sites of an array, in the given order."""
    xp = array_namespace(array)
    return xp.take(array, xp.asarray(which.astype(np.int32), device=device_of(array)), axis=axis)


def coefficients_by_site(features: Array, values: Array, valid: Array | None = None) -> Array:
    """Fit values (S, N, T) to features (N, F, S) of each site; `valid` and result as in `coefficients`."""
    xp = array_namespace(features, values)
    if valid is not None:
        features = features * xp.astype(valid, features.dtype).T[:, None, :]
        values = xp.where(valid[..., None], values, xp.zeros_like(values))
    targets = xp.permute_dims(values, (1, 0, 2))
    return _solve_normal_equations(features @ xp.matrix_transpose(features), features @ targets, values.shape[0])


def _solve_normal_equations(gram: Array, right: Array, samples: int) -> Array:
    """Solve normal equations (N, F, F) and (N, F, T) for coefficients (N, T, F)."""
    xp = array_namespace(gram)
    # The ridge only prevents singular equations at sites with very few valid runs.
    ridge = samples * float(xp.finfo(gram.dtype).eps)
    return xp.matrix_transpose(xp.linalg.solve(gram + ridge * identity(gram), right))


def build_quadratic(fitted: Array, latents: int) -> Quadratic:
    """Build quadratic functions from coefficients (..., F); missing cross terms are 0, higher degrees are ignored.

    Parameters
    ----------
    fitted : Array, shape (..., F)
        Coefficients of the features.
    latents : int
        Number of variables, Q.

    Returns
    -------
    Quadratic
    """
    xp = array_namespace(fitted)
    value, *each = xp.unstack(fitted, axis=-1)
    gradient, squares, products = each[:latents], each[latents : 2 * latents], each[2 * latents :]
    entries = {(j, j): 2.0 * square for j, square in enumerate(squares)}
    entries |= dict(zip(combinations(range(latents), 2), products, strict=False))
    nothing = xp.zeros_like(value)
    rows = [[entries.get((min(i, j), max(i, j)), nothing) for j in range(latents)] for i in range(latents)]
    curvature = xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-1)
    return Quadratic(value, xp.stack(gradient, axis=-1), curvature)
