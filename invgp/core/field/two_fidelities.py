"""Regression of a fine model from that of a coarse model and a correction, which few fine runs determine.

The outputs of the fine model are those of the coarse regression, times a factor, plus a Gaussian process (Kennedy &
O'Hagan 2000). The coarse regression is a fixed function, so that its own error is a part of what the fine runs correct,
and the variance of the correction is the whole uncertainty. The factor is 1, that of least squares, or 0 if the coarse
model does not help: whichever predicts left-out fine runs best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from invgp.core.backend import Array, array_namespace, identity, solve_triangular, sum_of_squares
from invgp.core.field.field_gaussian import LowRankGaussian
from invgp.core.field.regression import (
    KernelParameters,
    Modes,
    Regression,
    RegressionOptions,
    add_directions,
    fit_regression,
)

# Two models differ by a smooth function: without a narrow prior, few runs could pass for noise (nugget).
CORRECTION = RegressionOptions(nugget_prior=(-14.0, 3.0, 3.0), smooth_variance_prior=(-3.0, 2.0, 1.5))


@dataclass(frozen=True)
class CoarseTrend:
    """The regression of the coarse model as a trend of that of the fine model; see `Trend`.

    Attributes
    ----------
    coarse : Regression
        Regression of the outputs of the coarse model.
    factor : float
        Factor of its outputs.
    turn : Array, shape (k_c, k)
        Change of the k numbers z of the fine model with those of the coarse one.
    errors : dict of float to float
        Error at left-out fine runs with each factor that was tried, in standard deviations of the noise.
    """

    coarse: Regression
    factor: float
    turn: Array
    errors: dict[float, float]

    def inner_products(self, w: Array) -> Array:
        """Compute the inner products (m, n_c) of w (m, R) with the coarse runs."""
        return self.coarse.inner_products(w)

    def mean(self, w: Array, inner_products: Array) -> Array:
        """Compute the trend (m, k) at w (m, R)."""
        return self.coarse.predictions(w, inner_products)[0] @ self.turn

    def mean_with_derivatives(self, w: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Compute the trend (m, k) at w (m, R), and its chain rule."""
        xp = array_namespace(w)
        expected, variance, chain_rule = self.coarse.predictions_with_derivatives(w)
        back = xp.matrix_transpose(self.turn)
        return expected @ self.turn, lambda by_trend: chain_rule(by_trend @ back, xp.zeros_like(variance))

    def average_over(self, q: LowRankGaussian) -> tuple[Array, Array]:
        """Compute value (k,) and slope (k, R) of the trend, averaged over w ~ q."""
        value, slope = self.coarse.average_over(q)
        return value @ self.turn, array_namespace(slope).matrix_transpose(self.turn) @ slope


def fit_correction(
    modes: Modes, w: Array, outputs: Array, coarse: Regression, hyper: KernelParameters | None = None
) -> Regression:
    """Fit the regression of a fine model to few runs, given that of a coarse model.

    Parameters
    ----------
    modes : Modes
        Modes of the variables.
    w : Array, shape (n, R)
        Variables of the fine runs.
    outputs : Array, shape (n, D), standard deviations of the noise
        Outputs of the fine runs, without missing values.
    coarse : Regression
        Regression of the coarse model.
    hyper : KernelParameters or None
        Start of the search for the hyperparameters of the correction; None for the default starts.

    Returns
    -------
    Regression
        With a `CoarseTrend`.
    """
    xp = array_namespace(w, outputs)
    expected = coarse.mean(w)
    varying = expected - xp.mean(expected, axis=0)
    size = float(xp.sum(xp.square(varying)))
    fitted = float(xp.sum(varying * outputs)) / size if size > 0.0 else 0.0
    found = {
        factor: fit_regression(modes, w, outputs - factor * expected, hyper, options=CORRECTION)
        for factor in (1.0, fitted, 0.0)
    }
    errors = {factor: left_out_error(regression) for factor, regression in found.items()}
    best = min(errors, key=errors.__getitem__)
    scaled = best * xp.matrix_transpose(coarse.directions)
    process = add_directions(found[best], scaled, _unseen_variance(found[best]))
    turn = xp.matrix_transpose(process.directions @ scaled)
    return replace(process, centre=process.centre + best * coarse.centre, trend=CoarseTrend(coarse, best, turn, errors))


def _unseen_variance(correction: Regression) -> float:
    """Return the variance of the correction in directions of the outputs that its n runs do not show.

    If the correction varies in all n - 1 directions that n runs can show, it may vary in others too, at most as much as
    in the weakest of these. If it varies in fewer, there are no others.
    """
    shown = int(correction.variances.shape[0])
    rank_limited = shown >= int(correction.w.shape[0]) - 1
    return float(array_namespace(correction.w).min(correction.variances)) if rank_limited else 0.0


def left_out_error(regression: Regression) -> float:
    """Return the root mean square error of a regression at each run, fitted to the other runs, in closed form.

    Parameters
    ----------
    regression : Regression
        Regression without a trend.

    Returns
    -------
    float
        In standard deviations of the noise, of the sum of squares over all data.
    """
    xp, factor = array_namespace(regression.w), regression.factor
    precision = sum_of_squares(solve_triangular(factor, identity(factor)))  # diagonal of the inverse
    off = regression.coefficients / precision[:, None]
    return float(np.sqrt(float(xp.sum(xp.square(off))) / off.shape[0]))
