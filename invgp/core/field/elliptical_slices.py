"""Mean and covariance of a density that is nearly Gaussian, by elliptical slice sampling of many chains at once.

The Gaussian that comes near stands where the sampler's prior does, so that only the ratio of the two densities has to
be followed (Murray, Adams and MacKay 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of, cholesky, to_numpy
from invgp.core.field.field_gaussian import Gaussian, LowRankGaussian

TAILS = 1.0  # nats: how much wider than the Gaussian the sampler's prior is; the ratio must not grow without bound
BURNED = 0.25  # of the steps
CORRELATED = 4.0  # steps that count as one


class Density(NamedTuple):
    """A log density of which the dear part is linear: along an ellipse it is known from three points.

    Attributes
    ----------
    image : w (S, R) -> (S, n), linear.
    value : w (S, R) and its image -> (S,), up to a constant.
    """

    image: Callable[[Array], Array]
    value: Callable[[Array, Array], Array]

    @staticmethod
    def of(log_density: Callable[[Array], Array]) -> Density:
        """Of any function (S, R) -> (S,)."""
        return Density(lambda w: w[:, :1], lambda w, _: log_density(w))


def estimate_moments(
    density: Density, near: LowRankGaussian, rng: np.random.Generator, chains: int, steps: int
) -> Gaussian:
    """The Gaussian with the mean and covariance of a density.

    The covariance is drawn towards that of `near` as far as the samples are too few for one of its size.
    """
    xp, backend = array_namespace(near.mean), backend_of(near.mean)
    size = near.mean.shape[0]
    kept = slice_chains(density, near, rng, chains, steps)[round(BURNED * steps) :]
    samples = kept.reshape(-1, size)
    mean, covariance = samples.mean(axis=0), np.cov(samples.T).reshape(size, size)
    trust = 1.0 / (1.0 + size * CORRELATED / len(samples))
    covariance = trust * covariance + (1.0 - trust) * np.eye(size)
    root = near.samples(backend.asarray(np.linalg.cholesky(covariance).T)) - near.mean
    covariance = xp.matrix_transpose(root) @ root
    return Gaussian(near.samples(backend.asarray(mean)[None, :])[0, :], covariance, cholesky(covariance))


def slice_chains(
    density: Density | Callable[[Array], Array],
    near: LowRankGaussian | Gaussian,
    rng: np.random.Generator,
    chains: int,
    steps: int,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Samples (steps, chains, R), as normals that `near` takes to w.

    Parameters
    ----------
    start : (chains, R), such normals; by default drawn.
    """
    density = density if isinstance(density, Density) else Density.of(density)
    backend = backend_of(near.mean)
    size = near.mean.shape[0]
    ellipses = _Ellipses(density, near.mean, density.image(near.mean[None, :]), widening(size))
    z = rng.standard_normal((chains, size)) if start is None else start
    here = ellipses.point(near, backend.asarray(z))
    level = ellipses.rest(z, here)
    visited = []
    for _ in range(steps):
        z, here, level = _moved(ellipses, near, z, here, level, rng)
        visited.append(z)
    return np.stack(visited)


def widening(size: int) -> float:
    """How much wider than the Gaussian the sampler's prior is, for so many variables.

    A draw of N(0, (1 + e)^2 I) lies 2 e^2 R nats lower in the ratio than one of N(0, I): with an e that does not fall
    with the number of variables R, every step would end near where it began.
    """
    return 1.0 + math.sqrt(0.5 * TAILS / size)


class _Point(NamedTuple):
    """Offsets (S, R) from the middle, and their image (S, n)."""

    off: Array
    image: Array

    def turned(self, other: _Point, rows: Array, cosine: Array, sine: Array) -> _Point:
        """A part of the way along the ellipse to another, of the chains with these numbers."""
        xp = array_namespace(self.off)
        parts = ((a, b) for a, b in zip(self, other, strict=True))
        return _Point(
            *(cosine[:, None] * xp.take(a, rows, axis=0) + sine[:, None] * xp.take(b, rows, axis=0) for a, b in parts)
        )


class _Ellipses(NamedTuple):
    """Where the density is looked at: about a middle (R,), whose image is (1, n).

    `widening` is the standard deviation of the sampler's prior, in that of the Gaussian.
    """

    density: Density
    middle: Array
    image: Array
    widening: float

    def point(self, near: LowRankGaussian | Gaussian, z: Array) -> _Point:
        """From normals (S, R)."""
        off = near.samples(z) - near.mean
        return _Point(off, self.density.image(off))

    def rest(self, z: np.ndarray, point: _Point) -> np.ndarray:
        """The log density (S,) less that of the wider Gaussian."""
        found = to_numpy(self.density.value(self.middle + point.off, self.image + point.image))
        return np.asarray(np.where(np.isfinite(found), found, -np.inf) + 0.5 * np.sum(z**2, axis=1) / self.widening**2)


def _moved(
    ellipses: _Ellipses,
    near: LowRankGaussian | Gaussian,
    z: np.ndarray,
    here: _Point,
    level: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, _Point, np.ndarray]:
    """One step of every chain: along an ellipse through z (S, R), to where the rest is above a random level."""
    backend = backend_of(near.mean)
    other = ellipses.widening * rng.standard_normal(z.shape)
    there = ellipses.point(near, backend.asarray(other))
    threshold = level + np.log(rng.random(len(z)))
    angle = 2.0 * np.pi * rng.random(len(z))
    low, high = angle - 2.0 * np.pi, angle.copy()
    new_level, kept = level.copy(), angle.copy()
    going = np.arange(len(z))
    while going.size:
        cosine, sine = np.cos(angle[going]), np.sin(angle[going])
        turned = cosine[:, None] * z[going] + sine[:, None] * other[going]
        rows = backend.namespace.asarray(going.astype(np.int32), device=backend.device)
        found = ellipses.rest(turned, here.turned(there, rows, backend.asarray(cosine), backend.asarray(sine)))
        above = found > threshold[going]
        new_level[going[above]], kept[going[above]] = found[above], angle[going[above]]
        going = going[~above]
        back = angle[going] < 0.0
        low[going[back]], high[going[~back]] = angle[going[back]], angle[going[~back]]
        angle[going] = low[going] + rng.random(going.size) * (high[going] - low[going])
    cosine, sine = np.cos(kept), np.sin(kept)
    everyone = backend.namespace.asarray(np.arange(len(z), dtype=np.int32), device=backend.device)
    here = here.turned(there, everyone, backend.asarray(cosine), backend.asarray(sine))
    return cosine[:, None] * z + sine[:, None] * other, here, new_level
