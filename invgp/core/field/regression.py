"""Outputs regressed on the whitened variables, from few runs, with an honest account of what the runs leave open.

A Gaussian process with a linear kernel and a smooth one stands for the forward model: with fewer runs than variables
the regression stays well posed, and its own uncertainty says what the runs have not shown. The outputs depend on the
field, in which a mode has the variance that the prior gives it: so the kernel gives the variables variances that fall
with those of the modes, at a rate that the evidence chooses. The smooth part bends what the linear one says, and lets
runs from earlier steps inform the present one as far as the forward model is smooth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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

TELLING = 0.1  # noise standard deviations: outputs that vary by less have no say in the evidence
NEGLIGIBLE = 1e-6  # noise standard deviations: outputs that vary by less are constants
SAFE = 9.0  # log of how far the nugget stays above what the arithmetic resolves
FIRST_EVALUATIONS, LATER_EVALUATIONS = 150, 80  # of the evidence
# Of each hyperparameter: its mean and standard deviation beforehand, wide, and a first step of the search.
DECAY, BEND, REACH, NUGGET = (1.0, 1.0, 0.5), (-3.0, 4.0, 1.5), (1.0, 1.0, 0.7), (-14.0, 8.0, 3.0)
AMPLITUDE = (0.0, 2.0, 0.7)
STARTS = ((1.0, -2.0, 1.0, -10.0), (1.0, -8.0, 1.0, -18.0))  # bent, and nearly straight

Hyperparameters = NDArray[np.float64]


@dataclass(frozen=True)
class Modes:
    """What is known of the variables beforehand.

    Parameters
    ----------
    variances : (R,), of the modes of the prior.
    groups : how many of the variables belong to each latent, in order.
    """

    variances: Array
    groups: tuple[int, ...]

    @property
    def usual(self) -> Hyperparameters:
        """Where nothing is known of the outputs yet."""
        return np.asarray([*STARTS[0], *[AMPLITUDE[0]] * (len(self.groups) - 1)])

    def weights(self, hyper: Hyperparameters) -> Array:
        """(R,), of the variables in the kernel; they add up to 1."""
        xp = array_namespace(self.variances)
        ends = np.cumsum([0, *self.groups]).tolist()
        amplitudes = [0.0, *hyper[4:]]
        parts = []
        for a, b, amplitude in zip(ends[:-1], ends[1:], amplitudes, strict=True):
            part = (self.variances[a:b] / self.variances[a]) ** float(hyper[0])
            parts.append(part / xp.sum(part) * float(np.exp(amplitude)))
        weights = xp.concat(parts)
        return weights / xp.sum(weights)


@dataclass(frozen=True)
class Regression:
    """A forward model as the runs tell it.

    Attributes
    ----------
    modes, hyper : of the kernel: its decay with the modes, and the logarithms of the smooth part's variance and reach,
        of the nugget, and of the amplitude of each latent but the first.
    w : (n, R), of the runs.
    scale : (D,), of the outputs: data that are less certain, since runs lack them, count as if their noise were larger.
    centre, directions : (D,) and (k, D): outputs times their scale are centre + directions^T z, with independent z.
    coefficients : (n, k).
    factor : lower triangular (n, n), of the runs' covariance.
    variances : (k,), of each z in units of the kernel.
    """

    modes: Modes
    hyper: Hyperparameters
    w: Array
    scale: Array
    centre: Array
    directions: Array
    coefficients: Array
    factor: Array
    variances: Array

    @cached_property
    def weights(self) -> Array:
        """(R,), of the variables in the kernel."""
        return self.modes.weights(self.hyper)

    @cached_property
    def own(self) -> Array:
        """(n,), of each run its inner product with itself."""
        return array_namespace(self.w).square(self.w) @ self.weights

    def inner(self, w: Array) -> Array:
        """Inner products (m, n) of w (m, R) with the runs: linear in w, and all that is dear of a prediction."""
        return (w * self.weights) @ array_namespace(w).matrix_transpose(self.w)

    @property
    def parts(self) -> tuple[Regression]:
        """Itself: it has no blocks."""
        return (self,)

    @property
    def covariance(self) -> Array:
        """(n, n), of the runs."""
        return self.factor @ array_namespace(self.factor).matrix_transpose(self.factor)

    def mean(self, w: Array) -> Array:
        """Outputs (m, D) expected at w (m, R)."""
        return (self.centre + self.predictions(w)[0] @ self.directions) / self.scale

    def predictions(self, w: Array, inner: Array | None = None) -> tuple[Array, Array]:
        """Expected z (m, k) at w (m, R), and the variance (m, k) of what the runs leave open there.

        Parameters
        ----------
        inner : (m, n), `inner` of w, where it is known already.
        """
        xp = array_namespace(w)
        own = xp.square(w) @ self.weights
        across = kernel(self.hyper, self.inner(w) if inner is None else inner, own, self.own)
        known = solve_triangular(self.factor, xp.matrix_transpose(across))
        left = 1.0 + own + float(np.exp(self.hyper[1])) - sum_of_squares(known)
        left = xp.where(left > 0.0, left, xp.zeros_like(left)) + float(np.exp(self.hyper[3]))
        return across @ self.coefficients, left[:, None] * self.variances

    def run_weights(self, w: Array) -> list[Array]:
        """How much each run counts at w (m, R) in what is expected of outputs less their average: one of (m, n)."""
        xp = array_namespace(w)
        across = across_runs(self.modes, self.hyper, w, self.w)
        half = solve_triangular(self.factor, xp.matrix_transpose(across))
        return [xp.matrix_transpose(solve_triangular(self.factor, half, transposed=True))]

    def average_over(self, q: LowRankGaussian) -> tuple[Array, Array]:
        """Value (k,) and slope (k, R) of z, averaged over w ~ q, in closed form."""
        xp = array_namespace(q.mean)
        scaled = xp.sqrt(self.weights) / float(np.exp(self.hyper[2]))
        # With scales s and a covariance C = (I + V V^T)^-1, (I + s C s)^-1 is 1 / d + Y Y^T, with d = 1 + s^2.
        d = 1.0 + xp.square(scaled)
        weighed = q.added / d[:, None]
        capacity = xp.matrix_transpose(q.added) @ weighed
        capacity = cholesky(identity(capacity) + capacity)
        Y = xp.matrix_transpose(solve_triangular(capacity, xp.matrix_transpose(weighed * scaled[:, None])))
        log_det = xp.sum(xp.log(d)) + 2.0 * xp.sum(
            xp.log(xp.linalg.diagonal(capacity)) - xp.log(xp.linalg.diagonal(q.capacity))
        )
        off = (self.w - q.mean) * scaled
        along = off @ Y
        squares = xp.sum(xp.square(off) / d, axis=1) + xp.sum(xp.square(along), axis=1)
        smooth = xp.exp(float(self.hyper[1]) - 0.5 * (squares + log_det))
        slope = (off / d + along @ xp.matrix_transpose(Y)) * scaled * smooth[:, None]
        straight = self.w * self.weights
        value = (1.0 + (straight @ q.mean[:, None])[:, 0] + smooth) @ self.coefficients
        return value, xp.matrix_transpose(self.coefficients) @ (straight + slope)


def kernel(hyper: Hyperparameters, inner: Array, own1: Array, own2: Array) -> Array:
    """A constant, a linear and a smooth part, (n, m), from inner products (n, m), and (n,) and (m,) with themselves."""
    xp = array_namespace(inner)
    apart = own1[:, None] + own2 - 2.0 * inner
    apart = clip_negative(apart)
    apart *= -0.5 * float(np.exp(-2.0 * hyper[2]))
    apart += float(hyper[1])
    smooth = exp_in_place(apart)
    smooth += inner
    smooth += xp.ones_like(own2)
    return smooth


def fit(
    modes: Modes,
    w: Array,
    outputs: Array,
    hyper: Hyperparameters | None = None,
    drawn: Array | None = None,
    scale: Array | None = None,
) -> Regression:
    """The regression of outputs (n, D), in standard deviations of the noise, on w (n, R).

    Parameters
    ----------
    hyper : where the search for the hyperparameters starts; None for a search from afresh.
    drawn : (n, D), outputs to learn from how well runs predict each other; None for the same.
    scale : (D,), of the outputs; None for 1.
    """
    xp = array_namespace(w, outputs)
    n = w.shape[0]
    scale = xp.ones_like(outputs[0, :]) if scale is None else scale
    outputs = outputs * scale
    centre = xp.mean(outputs, axis=0)
    left, spreads, directions = xp.linalg.svd(outputs - centre, full_matrices=False)
    kept = max(int(np.count_nonzero(to_numpy(spreads) > NEGLIGIBLE * n**0.5)), 1)
    telling = max(int(np.count_nonzero(to_numpy(spreads) > TELLING * n**0.5)), 1)
    directions = directions[:kept, :]
    z = left[:, :kept] * spreads[:kept]
    told = z if drawn is None else (drawn * scale - centre) @ xp.matrix_transpose(directions)
    if float(spreads[0]) > 0.0:
        hyper = _likeliest(modes, w, told[:, :telling], hyper)
    elif hyper is None:  # constants tell nothing
        hyper = modes.usual
    factor = cholesky(covariance_of_runs(modes, hyper, w))
    variances = sum_of_squares(solve_triangular(factor, told)) / n
    coefficients = solve_triangular(factor, solve_triangular(factor, z), transposed=True)
    return Regression(modes, hyper, w, scale, centre, directions, coefficients, factor, variances)


def covariance_of_runs(modes: Modes, hyper: Hyperparameters, w: Array) -> Array:
    """Of the runs at w (n, R), with the nugget."""
    xp = array_namespace(w)
    scaled = w * xp.sqrt(modes.weights(hyper))
    gram = scaled @ xp.matrix_transpose(scaled)
    own = xp.linalg.diagonal(gram)
    return kernel(hyper, gram, own, own) + float(np.exp(hyper[3])) * identity(gram)


def across_runs(modes: Modes, hyper: Hyperparameters, points: Array, w: Array) -> Array:
    """Covariance (m, n) of points (m, R) with runs at w (n, R)."""
    xp = array_namespace(w)
    weights = modes.weights(hyper)
    inner = (points * weights) @ xp.matrix_transpose(w)
    return kernel(hyper, inner, xp.square(points) @ weights, xp.square(w) @ weights)


def _likeliest(modes: Modes, w: Array, z: Array, start: Hyperparameters | None) -> Hyperparameters:
    """The hyperparameters under which the runs are likeliest; the variance of each output is profiled out."""
    xp = array_namespace(w, z)
    n, outputs = z.shape
    about = np.asarray([DECAY, BEND, REACH, NUGGET, *[AMPLITUDE] * (len(modes.groups) - 1)])

    least = float(np.log(xp.finfo(w.dtype).eps)) + SAFE

    def cost(hyper: Hyperparameters) -> float:
        far = float(np.sum(np.square((hyper - about[:, 0]) / about[:, 1])))
        if hyper[3] < least or np.abs(hyper).max() > 50.0:
            return 1e10 + far
        try:
            factor = cholesky(covariance_of_runs(modes, hyper, w), jitter=False)
        except np.linalg.LinAlgError:
            return 1e10 + far
        half = solve_triangular(factor, z)
        fitted = 0.5 * n * xp.sum(xp.log(xp.sum(xp.square(half), axis=0))) / outputs
        return float(xp.sum(xp.log(xp.linalg.diagonal(factor))) + fitted) + 0.5 * far

    extra = [AMPLITUDE[0]] * (len(modes.groups) - 1)
    starts = [np.asarray([*s[:3], max(s[3], least + 1.0), *extra]) for s in STARTS] if start is None else [start]
    evaluations = FIRST_EVALUATIONS if start is None else LATER_EVALUATIONS
    found = [
        minimize(
            cost,
            first,
            method="Nelder-Mead",
            options={"maxfev": evaluations, "initial_simplex": np.vstack([first, first + np.diag(about[:, 2])])},
        )
        for first in starts
    ]
    return np.asarray(min(found, key=lambda result: result.fun).x)
