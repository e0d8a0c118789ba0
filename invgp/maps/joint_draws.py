"""Joint posterior draws of the processes at any number of points, by Matheron's rule.

With a draw g from the prior and a draw v of the whitened inducing variables, f(x) = mean + g(x) + w(x)^T (v - L^-1
g(Z)) is a draw from the posterior, one function of position. For few points, g is exact. For many, g is a sum of waves
whose frequencies are Sobol points of the spectral density of the kernel, each with a sine and a cosine. The prior
variance is then exact everywhere, and the error of correlations within ten length-scales is at most `WAVE_ERROR`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg
from scipy.special import ndtri
from scipy.stats import chi2, qmc

from invgp.core.kernels import Kernel
from invgp.maps.posterior_field import PosteriorField, Projections, SharedKernel
from invgp.problem import Floats

EXACT_POINTS = 2000  # points of the map plus inducing points; for more, prior draws are sums of waves
WAVES = 2**12
WAVE_ERROR = 0.05  # largest error, in three dimensions; the average is a tenth of it
POINTS_AT_ONCE = 512
DEGREES = {"matern 3/2": 3.0, "matern 5/2": 5.0}  # of freedom of the Student-t spectral density; else it is normal


class PriorDraw(Protocol):
    """K prior draws of a process with unit variance."""

    def at_inducing(self) -> Floats:
        """Return the draws at the inducing points, (K, M), with the jitter of their covariance."""

    def at(self, X: Floats, start: int) -> Floats:
        """Return the draws (K, B) at points X (B, D), the first of which has the index `start` among all points."""


@dataclass(frozen=True)
class ExactDraw:
    """Draws from the covariance of all inducing points and points of the map.

    Attributes
    ----------
    values : array, shape (K, M + N)
    inducing : int
        Number of inducing points, M.
    """

    values: Floats
    inducing: int

    @staticmethod
    def sample(kernel: SharedKernel, X: Floats, count: int, rng: np.random.Generator) -> ExactDraw:
        """Draw at points X (N, D) and at the inducing points."""
        both = np.concatenate([kernel.Z, X])
        # Points may coincide with inducing points; the covariance is then singular and has no Cholesky factor.
        values, vectors = scipy.linalg.eigh(kernel.kernel(both, both), overwrite_a=True, check_finite=False)
        draws = rng.standard_normal((count, len(both))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        draws[:, : len(kernel.Z)] += _draw_jitter(kernel, count, rng)
        return ExactDraw(draws, len(kernel.Z))

    def at_inducing(self) -> Floats:
        """Return the draws at the inducing points, (K, M)."""
        return self.values[:, : self.inducing]

    def at(self, X: Floats, start: int) -> Floats:
        """Return the draws (K, B) at points X (B, D)."""
        first = self.inducing + start
        return self.values[:, first : first + len(X)]


@dataclass(frozen=True)
class WaveDraw:
    """Draws that are sums of waves.

    Attributes
    ----------
    kernel : SharedKernel
    frequencies : array, shape (F, D)
        For coordinates in length-scales.
    cosines, sines : array, shape (K, F)
        Weights of the waves.
    jitter : array, shape (K, M)
        Part of the draws at the inducing points that is due to the jitter.
    """

    kernel: SharedKernel
    frequencies: Floats
    cosines: Floats
    sines: Floats
    jitter: Floats

    @staticmethod
    def sample(kernel: SharedKernel, count: int, rng: np.random.Generator) -> WaveDraw:
        """Draw random weights for the waves of a kernel."""
        waves = spectral_frequencies(kernel.kernel, WAVES)
        cosines, sines = rng.standard_normal((2, count, WAVES)) / math.sqrt(WAVES)
        return WaveDraw(kernel, waves, cosines, sines, _draw_jitter(kernel, count, rng))

    def at_inducing(self) -> Floats:
        """Return the draws at the inducing points, (K, M)."""
        return self.at(self.kernel.Z, 0) + self.jitter

    def at(self, X: Floats, start: int) -> Floats:  # noqa: ARG002 - waves need no index
        """Return the draws (K, B) at points X (B, D)."""
        scaled = (X - self.kernel.Z[0]) / self.kernel.kernel.length_scale
        parts = []
        for first in range(0, len(X), POINTS_AT_ONCE):
            phase = self.frequencies @ scaled[first : first + POINTS_AT_ONCE].T
            parts.append(self.cosines @ np.cos(phase) + self.sines @ np.sin(phase))
        return np.concatenate(parts, axis=1)


def spectral_frequencies(kernel: Kernel, count: int) -> Floats:
    """Return Sobol points (F, D) of the spectral density of a kernel, for coordinates in length-scales."""
    dimensions = len(kernel.length_scale)
    uniforms = qmc.Sobol(dimensions + 1, rng=np.random.default_rng(0)).random(count)
    normals = ndtri(uniforms[:, :dimensions])
    degrees = DEGREES.get(kernel.name)
    if degrees is None:
        return np.asarray(normals)
    return np.asarray(normals * np.sqrt(degrees / chi2.ppf(uniforms[:, dimensions:], degrees)))


@dataclass(frozen=True)
class JointDraws:
    """R joint posterior draws of all processes, each a function of position.

    Attributes
    ----------
    field : PosteriorField
    draws : tuple of PriorDraw
        For each kernel, prior draws of the processes that have it.
    corrections : array, shape (Q, R, M)
        v - L^-1 g(Z).
    """

    field: PosteriorField
    draws: tuple[PriorDraw, ...]
    corrections: Floats

    @staticmethod
    def sample(field: PosteriorField, points: Floats | None, count: int, rng: np.random.Generator) -> JointDraws:
        """Draw from the posterior.

        Parameters
        ----------
        field : PosteriorField
        points : array, shape (N, D), or None
            All points of the map; None if they are too many for exact draws.
        count : int
            Number of draws, R.
        rng : Generator

        Returns
        -------
        JointDraws
        """
        inducing, *streams = rng.spawn(1 + len(field.kernels))
        corrections = field.draw_inducing(inducing, count).swapaxes(0, 1)
        draws: list[PriorDraw] = []
        for number, (kernel, stream) in enumerate(zip(field.kernels, streams, strict=True)):
            members = field.processes_with_kernel(number)
            rows = len(members) * count
            draw = (
                WaveDraw.sample(kernel, rows, stream)
                if points is None
                else ExactDraw.sample(kernel, points, rows, stream)
            )
            whitened = scipy.linalg.solve_triangular(kernel.factor, draw.at_inducing().T, lower=True).T
            corrections[members] -= whitened.reshape(len(members), count, -1)
            draws.append(draw)
        return JointDraws(field, tuple(draws), corrections)

    def at(self, X: Floats, start: int, projections: Projections) -> Floats:
        """Return the draws at some points.

        Parameters
        ----------
        X : array, shape (B, D)
        start : int
            Index of the first of these points among all points of the map.
        projections : Projections
            Projections of these points for all kernels.

        Returns
        -------
        array, shape (R, B, Q)
        """
        field, (Q, R, _) = self.field, self.corrections.shape
        f = np.empty((Q, R, len(X)))
        for number, draw in enumerate(self.draws):
            members = field.processes_with_kernel(number)
            f[members] = (
                draw.at(X, start).reshape(len(members), R, len(X)) + self.corrections[members] @ projections[number][0]
            )
        return field.mean + field.std * f.transpose(1, 2, 0)


def draws_are_exact(field: PosteriorField, points: int) -> bool:
    """Return whether draws at this number of points are exact."""
    return points + field.inducing <= EXACT_POINTS


def draw_bytes(field: PosteriorField, points: int, count: int) -> int:
    """Return the memory, in bytes, that draws need from the first block to the last."""
    Q, M = field.centre.shape
    numbers = M + points if draws_are_exact(field, points) else M + 2 * WAVES
    return int(8 * count * Q * (numbers + M))


def _draw_jitter(kernel: SharedKernel, count: int, rng: np.random.Generator) -> Floats:
    """Draw the contribution (K, M) of the jitter at the inducing points."""
    return math.sqrt(kernel.jitter) * rng.standard_normal((count, len(kernel.Z)))
