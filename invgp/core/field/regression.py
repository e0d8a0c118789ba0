"""Gaussian process regression of the outputs on the whitened variables, from few runs, with its uncertainty.

The kernel has a linear and a smooth part. With fewer runs than variables the regression is still well posed, and its
variance shows what the runs do not determine. The outputs depend on the field, in which strong modes have a larger
influence. The weights of the variables in the kernel therefore decrease with the variances of the modes, at a rate that
maximises the evidence. The smooth part represents nonlinearity, so that runs from earlier steps are useful as far as
the forward model is smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from invgp.core.backend import (
    Array,
    array_namespace,
    cholesky,
    clip_negative,
    exp_in_place,
    identity,
    solve_triangular,
    sum_of_squares,
    to_numpy,
)
from invgp.core.field.field_gaussian import LowRankGaussian
from invgp.core.field.grid_basis import index_array
from invgp.core.field.jacobians import JacobianOptions, VirtualRuns, place_virtual_runs

KernelParameters = NDArray[np.float64]
Prior = tuple[float, float, float]  # mean, standard deviation and first step of the search
# Derivatives (m, k) of a number with respect to expectation and variance of z -> its derivative (m, R) by w.
ChainRule = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class RegressionOptions:
    """Tuning of the fit of the regression.

    The prior of each hyperparameter is normal and wide: its mean, its standard deviation, and the first step of the
    search.

    Attributes
    ----------
    evidence_threshold : float, standard deviations of the noise
        Directions of the outputs that vary by less do not enter the evidence.
    constant_threshold : float, standard deviations of the noise
        Directions that vary by less are constant.
    nugget_margin : float
        Logarithm of the smallest ratio of nugget to machine precision.
    first_evaluations, later_evaluations : int
        Evaluations of the evidence in the first search and in later ones.
    decay_prior : tuple of float
        Exponent of the decay with the variances of the modes.
    smooth_variance_prior, smooth_length_prior : tuple of float
        Logarithms of the variance and of the length of the smooth part.
    nugget_prior : tuple of float
        Logarithm of the variance of the nugget.
    amplitude_prior : tuple of float
        Logarithm of the amplitude of a latent relative to the first one.
    search_starts : tuple of tuple of float
        Starts of the first search: a nonlinear and a nearly linear regression.
    jacobians : JacobianOptions
        Use of Jacobians.
    """

    evidence_threshold: float = 0.1
    constant_threshold: float = 1e-6
    nugget_margin: float = 9.0
    first_evaluations: int = 150
    later_evaluations: int = 80
    decay_prior: Prior = (1.0, 1.0, 0.5)
    smooth_variance_prior: Prior = (-3.0, 4.0, 1.5)
    smooth_length_prior: Prior = (1.0, 1.0, 0.7)
    nugget_prior: Prior = (-14.0, 8.0, 3.0)
    amplitude_prior: Prior = (0.0, 2.0, 0.7)
    search_starts: tuple[tuple[float, float, float, float], ...] = ((1.0, -2.0, 1.0, -10.0), (1.0, -8.0, 1.0, -18.0))
    jacobians: JacobianOptions = field(default_factory=JacobianOptions)


@dataclass(frozen=True)
class Modes:
    """Modes of the prior.

    Parameters
    ----------
    variances : Array, shape (R,)
        Variance of each mode.
    groups : tuple of int
        Number of variables of each latent, in order.
    """

    variances: Array
    groups: tuple[int, ...]

    def default_hyperparameters(self, options: RegressionOptions = RegressionOptions()) -> KernelParameters:
        """Return the hyperparameters before the first fit.

        Parameters
        ----------
        options : RegressionOptions
            Tuning of the fit.

        Returns
        -------
        array, shape (4 + number of latents - 1,)
        """
        return np.asarray([*options.search_starts[0], *[options.amplitude_prior[0]] * (len(self.groups) - 1)])

    def weights(self, hyper: KernelParameters) -> Array:
        """Compute the weights (R,) of the variables in the kernel, with sum 1.

        Parameters
        ----------
        hyper : array, shape (4 + number of latents - 1,)
            Hyperparameters; see `Regression`.

        Returns
        -------
        array, shape (R,)
        """
        xp = array_namespace(self.variances)
        ends = np.cumsum([0, *self.groups]).tolist()
        amplitudes = [0.0, *hyper[4:]]
        parts = []
        for a, b, amplitude in zip(ends[:-1], ends[1:], amplitudes, strict=True):
            part = (self.variances[a:b] / self.variances[a]) ** float(hyper[0])
            parts.append(part / xp.sum(part) * float(np.exp(amplitude)))
        weights = xp.concat(parts)
        return weights / xp.sum(weights)


class Trend(Protocol):
    """Part of z, a function of the variables w, that is known: the process describes what it leaves."""

    def inner_products(self, w: Array) -> Array:
        """Compute numbers (m, p) for predictions at w (m, R) that are linear in w."""

    def mean(self, w: Array, inner_products: Array) -> Array:
        """Compute the trend (m, k) at w (m, R), given its `inner_products`."""

    def mean_with_derivatives(self, w: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Compute the trend (m, k) at w (m, R), and the chain rule from derivatives by it (m, k) to those by w."""

    def average_over(self, q: LowRankGaussian) -> tuple[Array, Array]:
        """Compute value (k,) and slope (k, R) of the trend, averaged over w ~ q."""


@dataclass(frozen=True)
class LinearTrend:
    """A trend that is linear in the variables.

    Attributes
    ----------
    slope : Array, shape (k, R)
    """

    slope: Array

    def inner_products(self, w: Array) -> Array:
        """Return no numbers (m, 0): the trend itself takes one product."""
        return w[:, :0]

    def mean(self, w: Array, inner_products: Array) -> Array:  # noqa: ARG002 - it is that of a protocol
        """Compute the trend (m, k) at w (m, R)."""
        return w @ array_namespace(w).matrix_transpose(self.slope)

    def mean_with_derivatives(self, w: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Compute the trend (m, k) at w (m, R), and its chain rule."""
        return self.mean(w, w), lambda by_expectation: by_expectation @ self.slope

    def average_over(self, q: LowRankGaussian) -> tuple[Array, Array]:
        """Compute value (k,) and slope (k, R) of the trend, averaged over w ~ q."""
        return self.slope @ q.mean, self.slope


@dataclass(frozen=True)
class Regression:
    """Regression that replaces the forward model.

    Scaled outputs are centre + directions^T z, with k independent Gaussian processes z of the variables w.

    Attributes
    ----------
    modes : Modes
        Modes of the variables.
    hyper : array, shape (4 + number of latents - 1,)
        Hyperparameters of the kernel: exponent of the decay with the mode variances; logarithms of the variance and the
        length of the smooth part, of the nugget, and of the amplitude of each latent except the first.
    w : Array, shape (n, R)
        Variables of the runs.
    scale : Array, shape (D,)
        Scale of the outputs. It is below 1 for data that are less certain because outputs are missing, which is
        equivalent to more noise.
    centre : Array, shape (D,)
        Mean of the scaled outputs.
    directions : Array, shape (k, D)
        Orthonormal directions of the outputs.
    coefficients : Array, shape (n, k)
        Weights of the runs in the expectation of z.
    factor : Array, shape (n, n)
        Lower Cholesky factor of the covariance of the runs.
    variances : Array, shape (k,)
        Variance of each z in units of the kernel.
    trend : Trend or None
        A linear trend of z if the runs have Jacobians, or the regression of a coarse model: z is the process plus the
        trend.
    virtual : VirtualRuns or None
        Points next to runs that follow the runs in `w`, if the runs have Jacobians.
    """

    modes: Modes
    hyper: KernelParameters
    w: Array
    scale: Array
    centre: Array
    directions: Array
    coefficients: Array
    factor: Array
    variances: Array
    trend: Trend | None = None
    virtual: VirtualRuns | None = None

    @cached_property
    def weights(self) -> Array:
        """Weights (R,) of the variables in the kernel."""
        return self.modes.weights(self.hyper)

    @cached_property
    def squared_norms(self) -> Array:
        """Weighted squared norm (n,) of each run."""
        return array_namespace(self.w).square(self.w) @ self.weights

    def inner_products(self, w: Array) -> Array:
        """Compute the weighted inner products (m, n) of w (m, R) with the runs, followed by those of the trend.

        They are linear in w, and the most expensive part of a prediction.

        Parameters
        ----------
        w : array, shape (m, R)
            Variables.

        Returns
        -------
        array, shape (m, n + p)
        """
        own = self._own_inner_products(w)
        return own if self.trend is None else array_namespace(w).concat([own, self.trend.inner_products(w)], axis=1)

    def _own_inner_products(self, w: Array) -> Array:
        return (w * self.weights) @ array_namespace(w).matrix_transpose(self.w)

    @property
    def parts(self) -> tuple[Regression]:
        """The regression itself, as its only block."""
        return (self,)

    @property
    def covariance(self) -> Array:
        """Covariance (n, n) of the runs."""
        return self.factor @ array_namespace(self.factor).matrix_transpose(self.factor)

    def mean(self, w: Array) -> Array:
        """Compute the expected outputs (m, D) at w (m, R).

        Parameters
        ----------
        w : array, shape (m, R)
            Variables.

        Returns
        -------
        array, shape (m, D), in standard deviations of the noise
        """
        return (self.centre + self.predictions(w)[0] @ self.directions) / self.scale

    def predictions(self, w: Array, inner_products: Array | None = None) -> tuple[Array, Array]:
        """Compute the expectation (m, k) and the variance (m, k) of z at w (m, R).

        Parameters
        ----------
        inner_products : Array, shape (m, n + p), or None
            `inner_products` of w, if it has been computed already.
        """
        xp, runs = array_namespace(w), self.w.shape[0]
        squared_norms = xp.square(w) @ self.weights
        inner_products = self.inner_products(w) if inner_products is None else inner_products
        across = regression_kernel(self.hyper, inner_products[:, :runs], squared_norms, self.squared_norms)
        half = solve_triangular(self.factor, xp.matrix_transpose(across))
        variance = 1.0 + squared_norms + float(np.exp(self.hyper[1])) - sum_of_squares(half)
        variance = xp.where(variance > 0.0, variance, xp.zeros_like(variance)) + float(np.exp(self.hyper[3]))
        expected = across @ self.coefficients
        if self.trend is not None:
            expected = expected + self.trend.mean(w, inner_products[:, runs:])
        return expected, variance[:, None] * self.variances

    def predictions_with_derivatives(self, w: Array) -> tuple[Array, Array, ChainRule]:
        """Compute expectation and variance (m, k) of z at w (m, R), and the chain rule for their derivatives.

        Parameters
        ----------
        w : array, shape (m, R)
            Variables.

        Returns
        -------
        tuple of array, array and callable
        """
        xp = array_namespace(w)
        inner_products = self._own_inner_products(w)
        squared_norms = xp.square(w) @ self.weights
        across = regression_kernel(self.hyper, inner_products, squared_norms, self.squared_norms)
        expected, trend_rule = across @ self.coefficients, None
        if self.trend is not None:
            trend, trend_rule = self.trend.mean_with_derivatives(w)
            expected = expected + trend
        smooth = (across - inner_products - 1.0) * float(np.exp(-2.0 * self.hyper[2]))
        half = solve_triangular(self.factor, xp.matrix_transpose(across))
        explained = xp.matrix_transpose(solve_triangular(self.factor, half, transposed=True))
        variance = 1.0 + squared_norms + float(np.exp(self.hyper[1])) - sum_of_squares(half)
        positive = variance > 0.0
        variance = xp.where(positive, variance, xp.zeros_like(variance)) + float(np.exp(self.hyper[3]))

        def chain_rule(by_expectation: Array, by_variance: Array) -> Array:
            by_kernel = by_variance @ self.variances
            by_kernel = xp.where(positive, by_kernel, xp.zeros_like(by_kernel))[:, None]
            by_across = by_expectation @ xp.matrix_transpose(self.coefficients) - 2.0 * by_kernel * explained
            by_smooth = by_across * smooth
            straight = (by_across + by_smooth) @ self.w
            by_w = self.weights * (straight + w * (2.0 * by_kernel - xp.sum(by_smooth, axis=1)[:, None]))
            return by_w if trend_rule is None else by_w + trend_rule(by_expectation)

        return expected, variance[:, None] * self.variances, chain_rule

    def run_weights(self, w: Array) -> list[Array]:
        """Compute the weights (m, n) of the centred runs in the expected outputs at w (m, R), as a list of one.

        Parameters
        ----------
        w : array, shape (m, R)
            Variables.

        Returns
        -------
        list of array, shape (m, n)
        """
        xp = array_namespace(w)
        across = cross_covariance(self.modes, self.hyper, w, self.w)
        half = solve_triangular(self.factor, xp.matrix_transpose(across))
        return [xp.matrix_transpose(solve_triangular(self.factor, half, transposed=True))]

    def average_over(self, q: LowRankGaussian) -> tuple[Array, Array]:
        """Compute value (k,) and slope (k, R) of z, averaged over w ~ q, in closed form.

        Parameters
        ----------
        q : LowRankGaussian
            Distribution of the variables.

        Returns
        -------
        tuple of array, shapes (k,) and (k, R)
        """
        xp = array_namespace(q.mean)
        scaled = xp.sqrt(self.weights) / float(np.exp(self.hyper[2]))
        # With scales s and a covariance C = (I + V V^T)^-1, (I + s C s)^-1 is 1 / d + Y Y^T, with d = 1 + s^2.
        d = 1.0 + xp.square(scaled)
        weighted = q.precision_factor / d[:, None]
        capacitance_factor = xp.matrix_transpose(q.precision_factor) @ weighted
        capacitance_factor = cholesky(identity(capacitance_factor) + capacitance_factor)
        Y = xp.matrix_transpose(solve_triangular(capacitance_factor, xp.matrix_transpose(weighted * scaled[:, None])))
        log_det = xp.sum(xp.log(d)) + 2.0 * xp.sum(
            xp.log(xp.linalg.diagonal(capacitance_factor)) - xp.log(xp.linalg.diagonal(q.capacitance_factor))
        )
        off = (self.w - q.mean) * scaled
        along = off @ Y
        squares = xp.sum(xp.square(off) / d, axis=1) + xp.sum(xp.square(along), axis=1)
        smooth = xp.exp(float(self.hyper[1]) - 0.5 * (squares + log_det))
        slope = (off / d + along @ xp.matrix_transpose(Y)) * scaled * smooth[:, None]
        straight = self.w * self.weights
        value = (1.0 + (straight @ q.mean[:, None])[:, 0] + smooth) @ self.coefficients
        slope = xp.matrix_transpose(self.coefficients) @ (straight + slope)
        if self.trend is None:
            return value, slope
        of_trend = self.trend.average_over(q)
        return value + of_trend[0], slope + of_trend[1]


def regression_kernel(
    hyper: KernelParameters, inner_products: Array, squared_norms1: Array, squared_norms2: Array
) -> Array:
    """Compute the kernel (n, m), the sum of a constant, a linear and a smooth part, without the nugget.

    Parameters
    ----------
    hyper : KernelParameters
        Hyperparameters; see `Regression`.
    inner_products : Array, shape (n, m)
        Weighted inner products of two sets of points.
    squared_norms1, squared_norms2 : Array, shapes (n,) and (m,)
        Weighted squared norms of the points.
    """
    xp = array_namespace(inner_products)
    distances = squared_norms1[:, None] + squared_norms2 - 2.0 * inner_products
    distances = clip_negative(distances)
    distances *= -0.5 * float(np.exp(-2.0 * hyper[2]))
    distances += float(hyper[1])
    smooth = exp_in_place(distances)
    smooth += inner_products
    smooth += xp.ones_like(squared_norms2)
    return smooth


def fit_regression(
    modes: Modes,
    w: Array,
    outputs: Array,
    hyper: KernelParameters | None = None,
    drawn: Array | None = None,
    scale: Array | None = None,
    options: RegressionOptions = RegressionOptions(),
    slopes: Array | None = None,
    latest: int = 0,
) -> Regression:
    """Fit the regression of the outputs on the variables.

    Parameters
    ----------
    modes : Modes
        Modes of the variables.
    w : Array, shape (n, R)
        Variables of the runs.
    outputs : Array, shape (n, D), standard deviations of the noise
        Outputs of the runs, without missing values.
    hyper : KernelParameters or None
        Start of the search for the hyperparameters; None for the default starts.
    drawn : Array, shape (n, D), or None
        Outputs from which hyperparameters and variances are learnt; None for `outputs`.
    scale : Array, shape (D,), or None
        Scale of the outputs; None for 1.
    options : RegressionOptions
    slopes : Array, shape (n, D, R), or None
        Jacobians of the runs, if all outputs have been complete.
    latest : int
        Number of runs of the last batch, which come from the posterior; the trend is the mean of their Jacobians.
    """
    xp = array_namespace(w, outputs)
    virtual = trend = None
    if slopes is not None:
        virtual = place_virtual_runs(
            w, slopes, index_array(np.arange(w.shape[0] - latest, w.shape[0]), w), options.jacobians
        )
        w, outputs, trend = virtual.extend(w, outputs, slopes)
    n = w.shape[0]
    scale = xp.ones_like(outputs[0, :]) if scale is None else scale
    outputs = outputs * scale
    centre = xp.mean(outputs, axis=0)
    left, spreads, directions = xp.linalg.svd(outputs - centre, full_matrices=False)
    kept = max(int(np.count_nonzero(to_numpy(spreads) > options.constant_threshold * n**0.5)), 1)
    informative = max(int(np.count_nonzero(to_numpy(spreads) > options.evidence_threshold * n**0.5)), 1)
    directions = directions[:kept, :]
    z = left[:, :kept] * spreads[:kept]
    training = z if drawn is None else (drawn * scale - centre) @ xp.matrix_transpose(directions)
    if float(spreads[0]) > 0.0:
        hyper = _fit_hyperparameters(modes, w, training[:, :informative], hyper, options)
    elif hyper is None:  # constant outputs contain no information
        hyper = modes.default_hyperparameters(options)
    factor = cholesky(run_covariance(modes, hyper, w))
    variances = sum_of_squares(solve_triangular(factor, training)) / n
    coefficients = solve_triangular(factor, solve_triangular(factor, z), transposed=True)
    if trend is None:
        return Regression(modes, hyper, w, scale, centre, directions, coefficients, factor, variances)
    process = Regression(modes, hyper, w, scale, centre, directions, coefficients, factor, variances)
    process = add_directions(process, trend, options=options)
    return replace(process, trend=LinearTrend(process.directions @ trend), virtual=virtual)


def add_directions(
    regression: Regression, slopes: Array, variance: float = 0.0, options: RegressionOptions = RegressionOptions()
) -> Regression:
    """Add directions of the outputs in which only a trend varies at the runs.

    Parameters
    ----------
    regression : Regression
        Regression without a trend.
    slopes : Array, shape (D, r), standard deviations of the noise
        Changes of the outputs by the trend.
    variance : float
        Variance of the process in these directions, in units of the kernel; its expectation is 0.
    options : RegressionOptions

    Returns
    -------
    Regression
    """
    xp, directions = array_namespace(slopes), regression.directions
    beyond = slopes - xp.matrix_transpose(directions) @ (directions @ slopes)
    _, sizes, more = xp.linalg.svd(xp.matrix_transpose(beyond), full_matrices=False)
    more = more[: int(np.count_nonzero(to_numpy(sizes) > options.constant_threshold)), :]
    nothing = xp.zeros_like(more[:, 0])
    return replace(
        regression,
        directions=xp.concat([directions, more]),
        coefficients=xp.concat([regression.coefficients, xp.zeros_like(regression.w[:, :1]) * nothing], axis=1),
        variances=xp.concat([regression.variances, nothing + variance]),
    )


def run_covariance(modes: Modes, hyper: KernelParameters, w: Array) -> Array:
    """Compute the covariance (n, n) of runs at w (n, R), including the nugget.

    Parameters
    ----------
    modes : Modes
        Modes of the variables.
    hyper : KernelParameters
        Hyperparameters; see `Regression`.
    w : array, shape (n, R)
        Variables of the runs.

    Returns
    -------
    array, shape (n, n)
    """
    xp = array_namespace(w)
    scaled = w * xp.sqrt(modes.weights(hyper))
    gram = scaled @ xp.matrix_transpose(scaled)
    squared_norms = xp.linalg.diagonal(gram)
    return regression_kernel(hyper, gram, squared_norms, squared_norms) + float(np.exp(hyper[3])) * identity(gram)


def cross_covariance(modes: Modes, hyper: KernelParameters, points: Array, w: Array) -> Array:
    """Compute the covariance (m, n) of points (m, R) with runs at w (n, R).

    Parameters
    ----------
    modes : Modes
        Modes of the variables.
    hyper : KernelParameters
        Hyperparameters; see `Regression`.
    points : array, shape (m, R)
        Variables of the points.
    w : array, shape (n, R)
        Variables of the runs.

    Returns
    -------
    array, shape (m, n)
    """
    xp = array_namespace(w)
    weights = modes.weights(hyper)
    inner_products = (points * weights) @ xp.matrix_transpose(w)
    return regression_kernel(hyper, inner_products, xp.square(points) @ weights, xp.square(w) @ weights)


def _fit_hyperparameters(
    modes: Modes, w: Array, z: Array, start: KernelParameters | None, options: RegressionOptions
) -> KernelParameters:
    """Maximise the posterior density of the hyperparameters; the variance of each output is profiled out."""
    xp = array_namespace(w, z)
    n, outputs = z.shape
    priors = np.asarray(
        [
            options.decay_prior,
            options.smooth_variance_prior,
            options.smooth_length_prior,
            options.nugget_prior,
            *[options.amplitude_prior] * (len(modes.groups) - 1),
        ]
    )

    smallest_nugget = float(np.log(xp.finfo(w.dtype).eps)) + options.nugget_margin

    def cost(hyper: KernelParameters) -> float:
        penalty = float(np.sum(np.square((hyper - priors[:, 0]) / priors[:, 1])))
        if hyper[3] < smallest_nugget or np.abs(hyper).max() > 50.0:
            return 1e10 + penalty
        try:
            factor = cholesky(run_covariance(modes, hyper, w), jitter=False)
        except np.linalg.LinAlgError:
            return 1e10 + penalty
        half = solve_triangular(factor, z)
        fitted = 0.5 * n * xp.sum(xp.log(xp.sum(xp.square(half), axis=0))) / outputs
        return float(xp.sum(xp.log(xp.linalg.diagonal(factor))) + fitted) + 0.5 * penalty

    extra = [options.amplitude_prior[0]] * (len(modes.groups) - 1)
    starts = (
        [np.asarray([*s[:3], max(s[3], smallest_nugget + 1.0), *extra]) for s in options.search_starts]
        if start is None
        else [start]
    )
    evaluations = options.first_evaluations if start is None else options.later_evaluations
    found = [
        minimize(
            cost,
            first,
            method="Nelder-Mead",
            options={"maxfev": evaluations, "initial_simplex": np.vstack([first, first + np.diag(priors[:, 2])])},
        )
        for first in starts
    ]
    return np.asarray(min(found, key=lambda result: result.fun).x)
