"""Joint draws of the processes over any number of points, by Matheron's rule.

With g a draw from the prior and v one of the whitened inducing variables, f(x) = mean + g(x) + w(x)^T (v - L^-1 g(Z))
is a draw from the posterior, one function over all points. Few points: g is exact. Many: g is a sum of waves whose
frequencies are Sobol points of the kernel's spectrum, each with a sine and a cosine, so that the prior variance is
exact everywhere and correlations within ten length-scales are off by at most `WAVE_ERROR`.
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
from invgp.maps.belief import Belief, Projections, Shape
from invgp.problem import Floats

EXACT_POINTS = 2000  # of the map and of the inducing inputs together: beyond, the prior is drawn as waves
WAVES = 2**12
WAVE_ERROR = 0.05  # at worst, in three dimensions; a tenth of it on average
POINTS_AT_ONCE = 512
DEGREES = {"matern 3/2": 3.0, "matern 5/2": 5.0}  # of freedom of the spectrum, a Student-t; else it is normal


class PriorDraw(Protocol):
    """K draws from a process of unit variance."""

    def at_inducing(self) -> Floats:
        """(K, M), with the jitter of the inducing inputs' covariance."""

    def at(self, X: Floats, start: int) -> Floats:
        """(K, B) at points X (B, D), which are those from number `start` of all points."""


@dataclass(frozen=True)
class ExactDraw:
    """From the covariance of all points and inducing inputs: values (K, M + N)."""

    values: Floats
    inducing: int

    @staticmethod
    def of(shape: Shape, X: Floats, count: int, rng: np.random.Generator) -> ExactDraw:
        """Draws at points X (N, D) and the inducing inputs."""
        both = np.concatenate([shape.Z, X])
        # Points may coincide with inducing inputs, so that no Cholesky factor without jitter would do.
        values, vectors = scipy.linalg.eigh(shape.kernel(both, both), overwrite_a=True, check_finite=False)
        draws = rng.standard_normal((count, len(both))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        draws[:, : len(shape.Z)] += _jitter(shape, count, rng)
        return ExactDraw(draws, len(shape.Z))

    def at_inducing(self) -> Floats:
        """(K, M)."""
        return self.values[:, : self.inducing]

    def at(self, X: Floats, start: int) -> Floats:
        """(K, B)."""
        first = self.inducing + start
        return self.values[:, first : first + len(X)]


@dataclass(frozen=True)
class WaveDraw:
    """A sum of waves: F frequencies (F, D), weights (K, F) of their cosines and sines, the jitter (K, M)."""

    shape: Shape
    frequencies: Floats
    cosines: Floats
    sines: Floats
    jitter: Floats

    @staticmethod
    def of(shape: Shape, count: int, rng: np.random.Generator) -> WaveDraw:
        """Random weights for the waves of a kernel."""
        waves = frequencies(shape.kernel, WAVES)
        cosines, sines = rng.standard_normal((2, count, WAVES)) / math.sqrt(WAVES)
        return WaveDraw(shape, waves, cosines, sines, _jitter(shape, count, rng))

    def at_inducing(self) -> Floats:
        """(K, M)."""
        return self.at(self.shape.Z, 0) + self.jitter

    def at(self, X: Floats, start: int) -> Floats:  # noqa: ARG002 - waves go everywhere
        """(K, B)."""
        scaled = (X - self.shape.Z[0]) / self.shape.kernel.length_scale
        parts = []
        for first in range(0, len(X), POINTS_AT_ONCE):
            phase = self.frequencies @ scaled[first : first + POINTS_AT_ONCE].T
            parts.append(self.cosines @ np.cos(phase) + self.sines @ np.sin(phase))
        return np.concatenate(parts, axis=1)


def frequencies(kernel: Kernel, count: int) -> Floats:
    """Sobol points (F, D) of the kernel's spectrum, for inputs in length-scales."""
    dimensions = len(kernel.length_scale)
    uniforms = qmc.Sobol(dimensions + 1, rng=np.random.default_rng(0)).random(count)
    normals = ndtri(uniforms[:, :dimensions])
    degrees = DEGREES.get(kernel.name)
    if degrees is None:
        return np.asarray(normals)
    return np.asarray(normals * np.sqrt(degrees / chi2.ppf(uniforms[:, dimensions:], degrees)))


@dataclass(frozen=True)
class Paths:
    """R draws of all processes, each a function over all points.

    Attributes
    ----------
    draws : for each shape, those of the processes that have it.
    corrections : v - L^-1 g(Z), (Q, R, M).
    """

    belief: Belief
    draws: tuple[PriorDraw, ...]
    corrections: Floats

    @staticmethod
    def of(belief: Belief, points: Floats | None, count: int, rng: np.random.Generator) -> Paths:
        """Draw; `points` (N, D) are all points of the map, or None where they are too many for exact draws."""
        inducing, *streams = rng.spawn(1 + len(belief.shapes))
        corrections = belief.draw_inducing(inducing, count).swapaxes(0, 1)
        draws: list[PriorDraw] = []
        for number, (shape, stream) in enumerate(zip(belief.shapes, streams, strict=True)):
            those = belief.processes_of(number)
            rows = len(those) * count
            draw = WaveDraw.of(shape, rows, stream) if points is None else ExactDraw.of(shape, points, rows, stream)
            known = scipy.linalg.solve_triangular(shape.factor, draw.at_inducing().T, lower=True).T
            corrections[those] -= known.reshape(len(those), count, -1)
            draws.append(draw)
        return Paths(belief, tuple(draws), corrections)

    def at(self, X: Floats, start: int, projections: Projections) -> Floats:
        """(R, B, Q) at points X (B, D), those from number `start`, given the projections of all shapes there."""
        belief, (Q, R, _) = self.belief, self.corrections.shape
        f = np.empty((Q, R, len(X)))
        for number, draw in enumerate(self.draws):
            those = belief.processes_of(number)
            f[those] = (
                draw.at(X, start).reshape(len(those), R, len(X)) + self.corrections[those] @ projections[number][0]
            )
        return belief.mean + belief.std * f.transpose(1, 2, 0)


def exact(belief: Belief, points: int) -> bool:
    """Whether draws at so many points are exact."""
    return points + belief.inducing <= EXACT_POINTS


def draw_bytes(belief: Belief, points: int, count: int) -> int:
    """What draws hold in memory from the first block to the last, in bytes."""
    Q, M = belief.centre.shape
    numbers = M + points if exact(belief, points) else M + 2 * WAVES
    return int(8 * count * Q * (numbers + M))


def _jitter(shape: Shape, count: int, rng: np.random.Generator) -> Floats:
    """What the jitter adds to draws at the inducing inputs, (K, M)."""
    return math.sqrt(shape.jitter) * rng.standard_normal((count, len(shape.Z)))
