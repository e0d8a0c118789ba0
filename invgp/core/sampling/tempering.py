"""Sequential Monte Carlo from the prior to the posterior: all modes with their weights, and the evidence.

The likelihood is raised to a power that grows from 0 to 1. At each power the particles are weighted, resampled and
moved by Hamiltonian Monte Carlo. Several populations are independent of each other except for the powers and the
tuning, so that their differences show the Monte Carlo error.

References
----------
Del Moral, Doucet and Jasra (2006); Chopin and Papaspiliopoulos (2020), Chapter 17; Margossian et al. (2024), for the
comparison of populations.
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
    HamiltonianOptions,
    LogDensity,
    Tuning,
    covariance_factor,
    evaluate,
    fractions,
    harmonic_mean,
    move,
    transforms_of,
)

Floats = NDArray[np.float64]
# Power of the likelihood -> factor (D, D) of a covariance that approximates the tempered posterior.
Scale = Callable[[float], Array]


@dataclass(frozen=True)
class TemperingOptions:
    """Tuning of the tempering.

    Parameters
    ----------
    effective : float
        Effective share of the particles after a change of the power.
    moves : int
        Trajectories of every particle at each power.
    final_moves : int
        Trajectories at power 1, which are all kept.
    acceptance : float
        Acceptance rate that the step size is adapted to.
    length : float
        Length of the trajectories, in standard deviations; each has a random factor with a mean of 0.7.
    max_leapfrogs : int
        Largest number of leapfrog steps of a trajectory.
    max_powers : int
        Largest number of powers.
    tempered_power : float
        Power at which the particles are kept, to see beyond the posterior.
    """

    effective: float = 0.6
    moves: int = 3
    final_moves: int = 12
    acceptance: float = 0.8
    length: float = math.pi / 1.4
    max_leapfrogs: int = 24
    max_powers: int = 300
    tempered_power: float = 0.2


class Population(NamedTuple):
    """Particles of the posterior.

    Attributes
    ----------
    v : array, shape (iterations, K, n, D)
        Positions of n particles in K populations, after each of the last moves.
    tempered : array, shape (K n, D)
        Positions at the power that is nearest to `TemperingOptions.tempered_power` from above.
    log_evidence : array, shape (K,)
        Logarithm of the evidence by each population.
    powers : int
        Number of powers.
    acceptance : float
        Mean acceptance rate at power 1.
    """

    v: Floats
    tempered: Floats
    log_evidence: Floats
    powers: int
    acceptance: float


def temper(
    log_likelihood: LogDensity,
    scale: Scale,
    start: Array,
    rng: np.random.Generator,
    options: TemperingOptions | None = None,
    report: Callable[[float], None] | None = None,
) -> Population:
    """Sample the posterior of a standard normal prior times a likelihood.

    Parameters
    ----------
    log_likelihood : callable
        Positions (C, D) -> log likelihood (C,) and its gradient (C, D).
    scale : callable
        Power -> upper or lower triangular matrix T (D, D), such that T^T T approximates the covariance at this power.
    start : Array, shape (K, n, D)
        Draws from the prior.
    rng : numpy.random.Generator
    options : TemperingOptions, optional
    report : callable, optional
        Receives each power before the particles are moved.
    """
    options = options or TemperingOptions()
    leapfrog = HamiltonianOptions(max_leapfrogs=options.max_leapfrogs)
    backend = backend_of(start)
    xp = array_namespace(start)
    K, n, D = start.shape
    here = evaluate(log_likelihood, xp.reshape(start, (K * n, D)))
    power, step = 0.0, 0.5 * D**-0.25
    log_evidence, tempered, powers = np.zeros(K), None, 0
    visited: list[Floats] = []
    rates: list[float] = []
    while power < 1.0:
        levels = to_numpy(here.value).reshape(K, n)
        left = 1.0 - power
        change = left if powers >= options.max_powers - 1 else next_change(levels, left, options.effective)
        power = 1.0 if change == left else power + change
        if report is not None:
            report(power)
        weights = change * levels
        log_evidence += logsumexp(weights, axis=1) - math.log(n)
        chosen = np.concatenate([k * n + resample(weights[k], rng) for k in range(K)])
        index = xp.asarray(chosen.astype(np.int32), device=backend.device)
        z = xp.take(here.z, index, axis=0)
        root = _whitening_root(z, scale(power), len(np.unique(chosen)))
        target = transforms_of(_temper_density(log_likelihood, power))(root)
        position = xp.matrix_transpose(xp.linalg.solve(xp.matrix_transpose(root), xp.matrix_transpose(z)))
        points = evaluate(target, position)
        last = power >= 1.0
        for fraction in fractions(options.final_moves if last else options.moves):
            moved = move(target, points, Tuning(step, options.length), float(fraction), rng, leapfrog)
            # The harmonic mean: particles in narrow parts of the posterior must be able to move, and others to get
            # there.
            points, rate = moved.points, harmonic_mean(moved.acceptance[moved.possible])
            step *= math.exp(0.5 * (rate - options.acceptance))
            if last:
                visited.append(to_numpy(points.z @ root).reshape(K, n, D))
                rates.append(rate)
        here = evaluate(log_likelihood, points.z @ root) if not last else points
        if tempered is None and power >= options.tempered_power:
            tempered = to_numpy(points.z @ root)
        powers += 1
    return Population(
        np.stack(visited),
        to_numpy(here.z) if tempered is None else tempered,
        log_evidence,
        powers,
        float(np.mean(rates)),
    )


def _temper_density(log_likelihood: LogDensity, power: float) -> LogDensity:
    """Return the log density of the prior times a power of the likelihood."""

    def log_density(v: Array) -> tuple[Array, Array]:
        xp = array_namespace(v)
        value, gradient = log_likelihood(v)
        return power * value - 0.5 * xp.sum(xp.square(v), axis=1), power * gradient - v

    return log_density


def _whitening_root(v: Array, root: Array, different: int) -> Array:
    """Return a root (D, D) of the covariance of particles v (C, D), regularised in the coordinates of a first root.

    So many of the particles are different; the others are copies.
    """
    xp = array_namespace(v)
    whitened = to_numpy(xp.linalg.solve(xp.matrix_transpose(root), xp.matrix_transpose(v))).T
    factor = backend_of(v).asarray(covariance_factor(whitened, different).T)
    return factor @ root


def next_change(levels: Floats, most: float, effective: float) -> float:
    """Return the largest change of the power, up to `most`, that keeps the effective share in every population.

    Parameters
    ----------
    levels : array, shape (K, n)
        Log likelihoods of the n particles of each of K populations, in nats.
    most : float
        Largest change of the power.
    effective : float
        Smallest effective share of the particles of a population after the change.

    Returns
    -------
    float
    """
    offset = levels - levels.max(axis=1, keepdims=True)

    def share(change: float) -> float:
        weights = np.exp(change * offset)
        return float((weights.sum(axis=1) ** 2 / (weights**2).sum(axis=1)).min() / levels.shape[1])

    if share(most) >= effective:
        return most
    low, high = -60.0, math.log(most)
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(math.exp(middle)) >= effective else (low, middle)
    return math.exp(low)


def resample(log_weights: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the numbers (n,) of the particles that systematic resampling selects.

    Parameters
    ----------
    log_weights : array, shape (n,)
        Unnormalised, in nats.
    rng : numpy.random.Generator

    Returns
    -------
    array of int, shape (n,)
        Numbers of the selected particles.
    """
    shares = np.cumsum(np.exp(log_weights - logsumexp(log_weights)))
    places = (rng.random() + np.arange(len(shares))) / len(shares)
    return np.minimum(np.searchsorted(shares / shares[-1], places), len(shares) - 1)
