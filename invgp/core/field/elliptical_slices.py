"""Elliptical slice sampling of a nearly Gaussian density with many chains, and its mean and covariance.

An approximating Gaussian replaces the prior of the sampler, so that the likelihood of the sampler is the ratio of the
two densities.

References
----------
Murray, Adams and MacKay (2010); Nishihara, Murray and Adams (2014), for the approximating Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of, cholesky, to_numpy
from invgp.core.field.field_gaussian import Gaussian, LowRankGaussian


@dataclass(frozen=True)
class SliceOptions:
    """Tuning of elliptical slice sampling.

    Attributes
    ----------
    widening_cost : float, nats
        Cost of the wider prior of the sampler in the ratio; without it, the ratio could grow without bound.
    burn_in_share : float
        Fraction of the steps that is discarded.
    steps_per_sample : float
        Steps of a chain that count as one independent sample.
    most_reductions : int
        Most reductions of the interval of angles. Each about halves it; after so many, only the rounding of the density
        is left.
    """

    widening_cost: float = 1.0
    burn_in_share: float = 0.25
    steps_per_sample: float = 4.0
    most_reductions: int = 500


class Density(NamedTuple):
    """Log density with an expensive part that is linear, so that three points determine it on an ellipse.

    Attributes
    ----------
    image : callable
        Linear function of w (S, R) to (S, n).
    value : callable
        Function of w (S, R) and its image (S, n) to the log density (S,), up to a constant.
    """

    image: Callable[[Array], Array]
    value: Callable[[Array, Array], Array]

    @staticmethod
    def from_function(log_density: Callable[[Array], Array]) -> Density:
        """Wrap any log density (S, R) -> (S,)."""
        return Density(lambda w: w[:, :1], lambda w, _: log_density(w))


def estimate_moments(
    density: Density,
    near: LowRankGaussian,
    rng: np.random.Generator,
    chains: int,
    steps: int,
    options: SliceOptions = SliceOptions(),
) -> Gaussian:
    """Estimate mean and covariance of a density by slice sampling.

    The sample covariance is shrunk towards that of `near`, the more the fewer samples there are per variable.

    Parameters
    ----------
    density : Density
        Log density of R variables.
    near : LowRankGaussian
        Approximation of the density.
    rng : numpy.random.Generator
        Random numbers.
    chains, steps : int
        Number of chains, and of steps of each.
    options : SliceOptions
    """
    xp, backend = array_namespace(near.mean), backend_of(near.mean)
    size = near.mean.shape[0]
    kept = run_slice_chains(density, near, rng, chains, steps, options=options)
    kept = kept[round(options.burn_in_share * steps) :]
    samples = kept.reshape(-1, size)
    mean, covariance = samples.mean(axis=0), np.cov(samples.T).reshape(size, size)
    trust = 1.0 / (1.0 + size * options.steps_per_sample / len(samples))
    covariance = trust * covariance + (1.0 - trust) * np.eye(size)
    root = near.samples(backend.asarray(np.linalg.cholesky(covariance).T)) - near.mean
    covariance = xp.matrix_transpose(root) @ root
    return Gaussian(near.samples(backend.asarray(mean)[None, :])[0, :], covariance, cholesky(covariance))


def run_slice_chains(
    density: Density | Callable[[Array], Array],
    near: LowRankGaussian | Gaussian,
    rng: np.random.Generator,
    chains: int,
    steps: int,
    start: np.ndarray | None = None,
    options: SliceOptions = SliceOptions(),
) -> np.ndarray:
    """Run chains of elliptical slice sampling.

    Parameters
    ----------
    density : Density or callable
        Log density of w, of R variables.
    near : LowRankGaussian or Gaussian
        Approximation of the density.
    rng : numpy.random.Generator
        Random numbers.
    chains, steps : int
        Number of chains, and of steps of each.
    start : array, shape (chains, R), optional
        First points, in coordinates in which `near` is standard normal; drawn from `near` by default.
    options : SliceOptions

    Returns
    -------
    array, shape (steps, chains, R)
        Samples in the same coordinates: ``near.samples`` converts them to w.
    """
    density = density if isinstance(density, Density) else Density.from_function(density)
    backend = backend_of(near.mean)
    size = near.mean.shape[0]
    ratio = _DensityRatio(density, near.mean, density.image(near.mean[None, :]), prior_width(size, options))
    z = rng.standard_normal((chains, size)) if start is None else start
    here = ratio.point(near, backend.asarray(z))
    level = ratio.log_ratio(z, here)
    visited = []
    for _ in range(steps):
        z, here, level = _move_chains(ratio, near, z, here, level, rng, options.most_reductions)
        visited.append(z)
    return np.stack(visited)


def prior_width(size: int, options: SliceOptions = SliceOptions()) -> float:
    """Compute the standard deviation of the sampler's prior in units of the approximating Gaussian, for R variables.

    The ratio at a sample of N(0, (1 + e)^2 I) is 2 e^2 R nats lower than at a sample of N(0, I). If e did not decrease
    with the number of variables R, all steps would be very short.
    """
    return 1.0 + math.sqrt(0.5 * options.widening_cost / size)


class _Point(NamedTuple):
    """Offsets (S, R) from the mean of the approximation, and their images (S, n)."""

    offset: Array
    image: Array

    def rotate(self, other: _Point, rows: Array, cosine: Array, sine: Array) -> _Point:
        """Compute the points on the ellipses to another point, for the chains with the indices `rows`."""
        xp = array_namespace(self.offset)
        parts = ((a, b) for a, b in zip(self, other, strict=True))
        return _Point(
            *(cosine[:, None] * xp.take(a, rows, axis=0) + sine[:, None] * xp.take(b, rows, axis=0) for a, b in parts)
        )


class _DensityRatio(NamedTuple):
    """Ratio of a density to the sampler's prior.

    Attributes
    ----------
    density : Density
        Log density to sample.
    centre : Array, shape (R,)
        Mean of the approximating Gaussian.
    image : Array, shape (1, n)
        Image of the centre.
    prior_width : float
        Standard deviation of the sampler's prior, in units of the approximating Gaussian.
    """

    density: Density
    centre: Array
    image: Array
    prior_width: float

    def point(self, near: LowRankGaussian | Gaussian, z: Array) -> _Point:
        """Compute offsets and images from normals (S, R)."""
        offset = near.samples(z) - near.mean
        return _Point(offset, self.density.image(offset))

    def log_ratio(self, z: np.ndarray, point: _Point) -> np.ndarray:
        """Compute the log density (S,) minus that of the sampler's prior; -inf where the density is not finite."""
        values = to_numpy(self.density.value(self.centre + point.offset, self.image + point.image))
        return np.asarray(
            np.where(np.isfinite(values), values, -np.inf) + 0.5 * np.sum(z**2, axis=1) / self.prior_width**2
        )


def _move_chains(
    ratio: _DensityRatio,
    near: LowRankGaussian | Gaussian,
    z: np.ndarray,
    here: _Point,
    level: np.ndarray,
    rng: np.random.Generator,
    most_reductions: int,
) -> tuple[np.ndarray, _Point, np.ndarray]:
    """Move every chain along an ellipse through z (S, R) to a point whose log ratio is above a random threshold."""
    backend = backend_of(near.mean)
    other = ratio.prior_width * rng.standard_normal(z.shape)
    there = ratio.point(near, backend.asarray(other))
    threshold = level + np.log(rng.random(len(z)))
    angle = 2.0 * np.pi * rng.random(len(z))
    low, high = angle - 2.0 * np.pi, angle.copy()
    new_level, kept = level.copy(), angle.copy()
    active = np.arange(len(z))
    for _ in range(most_reductions):
        cosine, sine = np.cos(angle[active]), np.sin(angle[active])
        rotated = cosine[:, None] * z[active] + sine[:, None] * other[active]
        rows = backend.namespace.asarray(active.astype(np.int32), device=backend.device)
        found = ratio.log_ratio(rotated, here.rotate(there, rows, backend.asarray(cosine), backend.asarray(sine)))
        above = found > threshold[active]
        new_level[active[above]], kept[active[above]] = found[above], angle[active[above]]
        active = active[~above]
        if not active.size:
            break
        back = angle[active] < 0.0
        low[active[back]], high[active[~back]] = angle[active[back]], angle[active[~back]]
        angle[active] = low[active] + rng.random(active.size) * (high[active] - low[active])
    kept[active] = 0.0  # these chains stay where they are
    cosine, sine = np.cos(kept), np.sin(kept)
    everyone = backend.namespace.asarray(np.arange(len(z), dtype=np.int32), device=backend.device)
    here = here.rotate(there, everyone, backend.asarray(cosine), backend.asarray(sine))
    return cosine[:, None] * z + sine[:, None] * other, here, new_level
