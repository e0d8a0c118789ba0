"""Mean and covariance of a density that is nearly Gaussian, by elliptical slice sampling of many chains at once.

The Gaussian that comes near stands where the sampler's prior does, so that only the ratio of the two densities has to
be followed (Murray, Adams and MacKay 2010).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from invgp.core.backend import Array, array_namespace, place_of, to_numpy
from invgp.core.field.gaussian import Gaussian

WIDER = 1.3  # than the Gaussian: the ratio must not grow without bound in the tails
BURNED = 0.25  # of the steps
CORRELATED = 4.0  # steps that count as one


def slice_sampled(
    log_density: Callable[[Array], Array], near: Gaussian, rng: np.random.Generator, chains: int, steps: int
) -> Gaussian:
    """The Gaussian with the mean and covariance of the density of w (S, R) -> (S,).

    The covariance is drawn towards that of `near` as far as the samples are too few for one of its size.
    """
    xp, where = array_namespace(near.mean), place_of(near.mean)
    size = near.mean.shape[0]
    kept = slice_chains(log_density, near, rng, chains, steps)[round(BURNED * steps) :]
    samples = kept.reshape(-1, size)
    mean, covariance = samples.mean(axis=0), np.cov(samples.T).reshape(size, size)
    trust = 1.0 / (1.0 + size * CORRELATED / len(samples))
    covariance = trust * covariance + (1.0 - trust) * np.eye(size)
    factor = near.factor @ where.asarray(np.linalg.cholesky(covariance))
    return Gaussian(near.samples(where.asarray(mean)[None, :])[0, :], factor @ xp.matrix_transpose(factor), factor)


def slice_chains(
    log_density: Callable[[Array], Array], near: Gaussian, rng: np.random.Generator, chains: int, steps: int
) -> np.ndarray:
    """Samples (steps, chains, R), as normals that `near` takes to w."""
    where = place_of(near.mean)

    def rest(z: np.ndarray) -> np.ndarray:
        found = to_numpy(log_density(near.samples(where.asarray(WIDER * z))))
        return np.asarray(np.where(np.isfinite(found), found, -np.inf) + 0.5 * np.sum(z**2, axis=1))

    z = rng.standard_normal((chains, near.mean.shape[0])) / WIDER
    level = rest(z)
    visited = []
    for _ in range(steps):
        z, level = _moved(rest, z, level, rng)
        visited.append(WIDER * z)
    return np.stack(visited)


def _moved(
    rest: Callable[[np.ndarray], np.ndarray], z: np.ndarray, level: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One step of every chain: along an ellipse through z (S, R), to where the rest is above a random level."""
    other = rng.standard_normal(z.shape)
    threshold = level + np.log(rng.random(len(z)))
    angle = 2.0 * np.pi * rng.random(len(z))
    low, high = angle - 2.0 * np.pi, angle.copy()
    new, new_level = z.copy(), level.copy()
    going = np.arange(len(z))
    while going.size:
        turned = np.cos(angle[going])[:, None] * z[going] + np.sin(angle[going])[:, None] * other[going]
        found = rest(turned)
        above = found > threshold[going]
        there = going[above]
        new[there], new_level[there] = turned[above], found[above]
        going = going[~above]
        back = angle[going] < 0.0
        low[going[back]], high[going[~back]] = angle[going[back]], angle[going[~back]]
        angle[going] = low[going] + rng.random(going.size) * (high[going] - low[going])
    return new, new_level
