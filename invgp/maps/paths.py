"""Joint draws of the processes over any number of points, by Matheron's rule.

With g a draw from the prior and v one of the whitened inducing variables, f(x) = mean + g(x) + w(x)^T (v - L^-1 g(Z)) is
a draw from the posterior, one function over all points. Few points: g is exact. Many: g is a sum of waves whose
frequencies are Sobol points of the kernel's spectrum, each with a sine and a cosine, so that the prior variance is exact
everywhere and covariances are off by less than `WAVE_ERROR` of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg
from scipy.special import ndtri
from scipy.stats import chi2, qmc

from invgp.core.kernels import Kernel
from invgp.maps.belief import Belief, Shape
from invgp.problem import Floats

EXACT_POINTS = 2000  # of the map and of the inducing inputs together: beyond, the prior is drawn as waves
WAVES = 2**11
WAVE_ERROR = 0.01  # of the prior variance, at distances of up to ten length-scales
DEGREES = {"matern 3/2": 3.0, "matern 5/2": 5.0}  # of freedom of the spectrum, a Student-t; else it is normal


class PriorDraw(Protocol):
    """Draws (R, ...) from a process of unit variance."""

    def at_inducing(self) -> Floats:
        """(R, M), with the jitter of the inducing inputs' covariance."""

    def at(self, X: Floats, start: int) -> Floats:
        """(R, B) at points X (B, D), which are those from number `start` of all points."""


@dataclass(frozen=True)
class ExactDraw:
    """From the covariance of all points and inducing inputs."""

    values: Floats
    inducing: int

    @staticmethod
    def of(shape: Shape, X: Floats, count: int, rng: np.random.Generator) -> ExactDraw:
        """Draws at points X (N, D) and the inducing inputs."""
        both = np.concatenate([shape.Z, X])
        # Points may coincide with inducing inputs, so that no Cholesky factor without jitter would do.
        values, vectors = scipy.linalg.eigh(shape.kernel(both, both), overwrite_a=True, check_finite=False)
        draws = rng.standard_normal((count, len(both))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        return ExactDraw(draws + _jitter(shape, count, len(both), rng), len(shape.Z))

    def at_inducing(self) -> Floats:
        """(R, M)."""
        return self.values[:, : self.inducing]

    def at(self, X: Floats, start: int) -> Floats:
        """(R, B)."""
        first = self.inducing + start
        return self.values[:, first : first + len(X)]


@dataclass(frozen=True)
class WaveDraw:
    """A sum of waves: F frequencies (F, D) and weights (R, 2 F) of their cosines and sines."""

    shape: Shape
    frequencies: Floats
    weights: Floats
    noise: Floats

    @staticmethod
    def of(shape: Shape, count: int, rng: np.random.Generator) -> WaveDraw:
        """Random weights for the waves of a kernel."""
        waves = frequencies(shape.kernel, WAVES)
        weights = rng.standard_normal((count, 2 * len(waves))) / math.sqrt(len(waves))
        return WaveDraw(shape, waves, weights, _jitter(shape, count, len(shape.Z), rng))

    def at_inducing(self) -> Floats:
        """(R, M)."""
        return self.at(self.shape.Z, 0) + self.noise

    def at(self, X: Floats, start: int) -> Floats:  # noqa: ARG002 - waves go everywhere
        """(R, B)."""
        phase = (X / self.shape.kernel.length_scale) @ self.frequencies.T
        F = len(self.frequencies)
        return self.weights[:, :F] @ np.cos(phase).T + self.weights[:, F:] @ np.sin(phase).T


def frequencies(kernel: Kernel, count: int) -> Floats:
    """Sobol points (F, D) of the kernel's spectrum, for inputs in length-scales."""
    dimensions = len(kernel.length_scale)
    uniforms = qmc.Sobol(dimensions + 1, rng=np.random.default_rng(0)).random(count)
    normals = ndtri(uniforms[:, :dimensions])
    degrees = DEGREES.get(kernel.name)
    if degrees is None:
        return normals
    return normals * np.sqrt(degrees / chi2.ppf(uniforms[:, dimensions:], degrees))


@dataclass(frozen=True)
class Paths:
    """Draws of all processes, each a function over all points.

    Attributes
    ----------
    draws : one for each process.
    corrections : v - L^-1 g(Z), (R, Q, M).
    """

    belief: Belief
    draws: tuple[PriorDraw, ...]
    corrections: Floats

    @staticmethod
    def of(belief: Belief, points: Floats | None, count: int, rng: np.random.Generator) -> Paths:
        """Draw; `points` (N, D) are all points of the map, or None where they are too many for exact draws."""
        inducing, *streams = rng.spawn(1 + len(belief.shape_of))
        v = belief.draw_inducing(inducing, count)
        draws = tuple(_draws(belief, points, count, streams))
        for j, draw in enumerate(draws):
            factor = belief.shapes[belief.shape_of[j]].factor
            v[:, j] -= scipy.linalg.solve_triangular(factor, draw.at_inducing().T, lower=True).T
        return Paths(belief, draws, v)

    def at(self, X: Floats, start: int, projections: dict[int, tuple[Floats, Floats]]) -> Floats:
        """(R, B, Q) at points X (B, D), those from number `start`, given their projections."""
        belief = self.belief
        parts = [
            mean + std * (draw.at(X, start) + self.corrections[:, j] @ projections[belief.shape_of[j]][0])
            for j, (mean, std, draw) in enumerate(zip(belief.mean, belief.std, self.draws, strict=True))
        ]
        return np.stack(parts, axis=-1)


def exact(belief: Belief, points: int) -> bool:
    """Whether draws at so many points are exact."""
    return points + belief.inducing <= EXACT_POINTS


def _draws(
    belief: Belief, points: Floats | None, count: int, streams: list[np.random.Generator]
) -> Iterator[PriorDraw]:
    for number, stream in zip(belief.shape_of, streams, strict=True):
        shape = belief.shapes[number]
        yield WaveDraw.of(shape, count, stream) if points is None else ExactDraw.of(shape, points, count, stream)


def _jitter(shape: Shape, count: int, size: int, rng: np.random.Generator) -> Floats:
    """What the jitter adds to a draw at the inducing inputs, which come first; nothing elsewhere."""
    noise = math.sqrt(shape.jitter) * rng.standard_normal((count, len(shape.Z)))
    return np.pad(noise, ((0, 0), (0, size - len(shape.Z))))
