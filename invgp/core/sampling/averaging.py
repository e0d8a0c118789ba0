"""Draws averaged over hyperparameters, from draws at one value of them.

The hyperparameters of the result are given nodes, draws from an approximate posterior density g of the hyperparameters.
Each particle belongs to a node and starts as a draw from the posterior at the first hyperparameters. On a path from
these hyperparameters to those of its node, the particles are weighted, resampled, and moved by Hamiltonian Monte Carlo
and by Metropolis steps between the nodes.
Coordinates z in which a Gaussian approximation at each value of the hyperparameters is standard normal stay fixed
while the hyperparameters change. If these approximations are exact, all weights are equal. Otherwise the weights
correct both the draws and the density g, so that the result does not depend on the approximation.

References
----------
Del Moral, Doucet and Jasra (2006), for the sequential Monte Carlo; Murray and Adams (2010), for coordinates in which
hyperparameters can change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from invgp.core.backend import Array, array_namespace, backend_of, to_numpy
from invgp.core.sampling.hamiltonian import (
    LONGEST_STEP,
    HamiltonianOptions,
    LogDensity,
    Points,
    Tuning,
    evaluate,
    harmonic_mean,
    move,
)
from invgp.core.sampling.tempering import resample

Floats = NDArray[np.float64]
# Share of the path, and the node (R,) of each particle -> log density of their coordinates z (R, D), up to the evidence
# of the Gaussian approximation at the hyperparameters of each particle, and its gradient.
PathDensity = Callable[[float, NDArray[np.intp]], LogDensity]


@dataclass(frozen=True)
class AveragingOptions:
    """Tuning of the path.

    Parameters
    ----------
    effective : float
        Effective share of the particles of each population after a step along the path.
    most_steps : int
        Most steps.
    shortest : float
        Shortest step. A step of this length is made whatever its effective share.
    moves : int
        Trajectories of every particle after each step, each after a change of its node.
    acceptance : float
        Acceptance rate that the step size is adapted to.
    length : float
        Length of the trajectories.
    max_leapfrogs : int
        Largest number of leapfrog steps of a trajectory.
    """

    effective: float = 0.6
    most_steps: int = 20
    shortest: float = 1.0 / 64.0
    moves: int = 4
    acceptance: float = 0.8
    length: float = 1.5
    max_leapfrogs: int = 16


class AveragedParticles(NamedTuple):
    """Particles at the end of the path.

    Attributes
    ----------
    z : Array, shape (R, D)
        Coordinates.
    node : array of int, shape (R,)
        Node of each particle.
    share : float
        Smallest effective share of the particles of a population after a step; 0 if the path could not be followed.
    log_ratio : float
        Logarithm of the mean density at the end relative to that at the start.
    steps : int
        Number of steps.
    """

    z: Array
    node: NDArray[np.intp]
    share: float
    log_ratio: float
    steps: int


def average_over_nodes(
    density: PathDensity,
    z: Array,
    node: NDArray[np.intp],
    populations: int,
    rng: np.random.Generator,
    options: AveragingOptions | None = None,
) -> AveragedParticles:
    """Move draws at the first hyperparameters to the nodes.

    Parameters
    ----------
    density : callable
        Log density of the coordinates at a share of the path, from 0 to 1.
    z : Array, shape (R, D)
        Draws at the first hyperparameters. Equal parts of them, in order, are populations that are not mixed.
    node : array of int, shape (R,)
        Node of each draw; nodes with similar numbers should have similar hyperparameters.
    populations : int
        Number of populations, a divisor of R.
    rng : numpy.random.Generator
    options : AveragingOptions, optional
    """
    options = options or AveragingOptions()
    leapfrog = HamiltonianOptions(max_leapfrogs=options.max_leapfrogs, harmonic=True)
    xp, backend = array_namespace(z), backend_of(z)
    share, log_ratio, steps, done = 1.0, np.zeros(populations), 0, 0.0
    before = to_numpy(evaluate(density(0.0, node), z).value)
    available = [np.unique(part) for part in node.reshape(populations, -1)]
    step = 0.5
    while done < 1.0:
        end = 1.0
        while True:
            weights = _log_weights(to_numpy(evaluate(density(end, node), z).value), before, populations)
            effective = _effective_share(weights)
            if effective >= options.effective or end - done <= options.shortest or steps == options.most_steps - 1:
                break
            end = 0.5 * (done + end)
        done, steps, share = end, steps + 1, min(share, effective)
        if not share:
            break
        log_ratio += logsumexp(weights, axis=1) - np.log(weights.shape[1])
        chosen = np.concatenate([k * weights.shape[1] + resample(w, rng) for k, w in enumerate(weights)])
        z, node = xp.take(z, xp.asarray(chosen.astype(np.int32), device=backend.device), axis=0), node[chosen]
        points = evaluate(density(done, node), z)
        for k in range(options.moves):
            points, node = _change_nodes(density, done, points, node, available, rng, local=k % 2 == 1)
            target = density(done, node)
            moved = move(target, points, Tuning(step, options.length), 1.0, rng, leapfrog)
            points, rate = moved.points, harmonic_mean(moved.acceptance[moved.possible])
            step = min(step * math.exp(rate - options.acceptance), LONGEST_STEP)
        z, before = points.z, to_numpy(points.value)
    total = float(logsumexp(log_ratio) - np.log(populations))
    return AveragedParticles(z, node, share, total, steps)


def _change_nodes(
    density: PathDensity,
    share: float,
    points: Points,
    node: NDArray[np.intp],
    available: list[NDArray[np.intp]],
    rng: np.random.Generator,
    *,
    local: bool,
) -> tuple[Points, NDArray[np.intp]]:
    """Change the nodes of particles by a Metropolis step with fixed coordinates.

    The proposals are all nodes of the population, or those next to the present one in the order of the nodes.
    """
    xp, backend = array_namespace(points.z), backend_of(points.z)
    proposals = []
    for own, part in zip(available, node.reshape(len(available), -1), strict=True):
        if local:
            steps = rng.integers(1, 4, len(part)) * rng.choice([-1, 1], len(part))
            proposals.append(own[(np.searchsorted(own, part) + steps) % len(own)])
        else:
            proposals.append(rng.choice(own, len(part)))
    proposed = np.concatenate(proposals)
    there = evaluate(density(share, proposed), points.z)
    with np.errstate(invalid="ignore"):
        gain = to_numpy(there.value) - to_numpy(points.value)
    accepted = np.log(rng.random(len(node))) < np.nan_to_num(gain, nan=-np.inf)
    mask = backend.asmask(accepted)
    kept = Points(
        points.z,
        xp.where(mask, there.value, points.value),
        xp.where(mask[:, None], there.gradient, points.gradient),
    )
    return kept, np.where(accepted, proposed, node)


def _log_weights(values: Floats, before: Floats, populations: int) -> Floats:
    """Return the changes (K, n) of log densities (R,); minus infinity where they are not finite."""
    with np.errstate(invalid="ignore"):
        changes = values - before
    return np.where(np.isfinite(changes), changes, -np.inf).reshape(populations, -1)


def _effective_share(weights: Floats) -> float:
    """Return the smallest effective share of the particles over populations with log weights (K, n)."""
    largest = weights.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        return 0.0
    scaled = np.exp(weights - largest)
    return float((scaled.sum(axis=1) ** 2 / (scaled**2).sum(axis=1)).min() / weights.shape[1])
