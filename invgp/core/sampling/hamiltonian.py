"""Hamiltonian Monte Carlo with many chains at once.

All chains share the step size and the length of the trajectories, which are adapted during the warm-up: the step size
to an acceptance rate by dual averaging, the length to the change of the squared distance from the mean, and the
coordinates to the covariance of the draws. The number of leapfrog steps of a trajectory is random and the same for all
chains, so that one call of the log density serves all of them.

References
----------
Neal (2011), MCMC using Hamiltonian dynamics; Hoffman and Gelman (2014), for dual averaging; Hoffman, Radul and Sountsov
(2021), for the length of the trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, backend_of, to_numpy

Floats = NDArray[np.float64]
# Positions (C, D) -> log density (C,) and its gradient (C, D). The log density may be minus infinity or NaN.
LogDensity = Callable[[Array], tuple[Array, Array]]
# Linear map (D, D) -> log density of x with z = x @ map, and its gradient. A density that depends on z by a matrix
# product can include the map in its matrix.
Transform = Callable[[Array], LogDensity]
MOST_WHITENED = 2000  # variables above which the covariance of the draws is not used
SAMPLES_PER_VARIABLE = 10  # below, the covariance of the draws is used only where it is clearly not the identity
LONGEST_STEP = 1.0  # a harmonic step of half a period or more would bring a trajectory back to its start
LOST = 1000.0  # nats below the starting point at which a trajectory ends; it will be rejected


class Points(NamedTuple):
    """Positions of the chains.

    Attributes
    ----------
    z : Array, shape (C, D)
        Positions.
    value : Array, shape (C,)
        Log density there.
    gradient : Array, shape (C, D)
        Its gradient.
    """

    z: Array
    value: Array
    gradient: Array


@dataclass(frozen=True)
class HamiltonianOptions:
    """Tuning of the sampler.

    Parameters
    ----------
    acceptance : float
        Acceptance rate that the step size is adapted to.
    max_leapfrogs : int
        Largest number of leapfrog steps of a trajectory.
    first_length : float
        Smallest length of the trajectories, from which it is adapted. A quarter of the period of a standard normal is
        pi / 2; the random factor of the length has a mean of 0.7.
    length_rate : float
        Rate at which the logarithm of the length is adapted.
    harmonic : bool
        Whether the motion in a standard normal density is computed exactly, and only the difference from it by leapfrog
        steps. The steps can then be long if the density is nearly standard normal, whatever the number of variables.
    """

    acceptance: float = 0.8
    max_leapfrogs: int = 64
    first_length: float = math.pi / 1.4
    length_rate: float = 0.1
    harmonic: bool = False


class Tuning(NamedTuple):
    """Step size and length of the trajectories."""

    step: float
    length: float


class Transition(NamedTuple):
    """Outcome of one trajectory of every chain.

    Attributes
    ----------
    points : Points
        Positions after the trajectory; the previous ones where it was rejected.
    acceptance : array, shape (C,)
        Acceptance probabilities.
    proposal, momentum : Array, shape (C, D)
        Ends of the trajectories, accepted or not.
    possible : array of bool, shape (C,)
        Whether the density at the end is positive. Shorter steps do not help where it is zero.
    """

    points: Points
    acceptance: Floats
    proposal: Array
    momentum: Array
    possible: NDArray[np.bool_]


def evaluate(log_density: LogDensity, z: Array) -> Points:
    """Evaluate a log density; a value or gradient that is not finite becomes minus infinity and zero.

    Parameters
    ----------
    log_density : callable
        Log density and gradient of points (C, D).
    z : Array, shape (C, D)
        Positions of the chains.

    Returns
    -------
    Points
    """
    xp = array_namespace(z)
    with np.errstate(over="ignore", invalid="ignore"):
        value, gradient = log_density(z)
    finite = xp.isfinite(value) & xp.all(xp.isfinite(gradient), axis=1)
    return Points(
        z,
        xp.where(finite, value, xp.full_like(value, -math.inf)),
        xp.where(finite[:, None], gradient, xp.zeros_like(gradient)),
    )


def move(
    log_density: LogDensity,
    points: Points,
    tuning: Tuning,
    fraction: float,
    rng: np.random.Generator,
    options: HamiltonianOptions,
) -> Transition:
    """Make one trajectory of every chain.

    Parameters
    ----------
    log_density : callable
    points : Points
    tuning : Tuning
    fraction : float
        Length of this trajectory, relative to that of `tuning`.
    rng : numpy.random.Generator
    options : HamiltonianOptions
    """
    xp, backend = array_namespace(points.z), backend_of(points.z)
    length = fraction * tuning.length
    leapfrogs = min(max(math.ceil(length / tuning.step), 1), options.max_leapfrogs)
    step = min(length / leapfrogs, tuning.step)
    start = backend.asarray(rng.standard_normal(points.z.shape))
    here, momentum = follow(log_density, points, start, step, leapfrogs, harmonic=options.harmonic)
    gain = here.value - points.value - 0.5 * (xp.sum(xp.square(momentum), axis=1) - xp.sum(xp.square(start), axis=1))
    acceptance = np.exp(np.minimum(np.nan_to_num(to_numpy(gain), nan=-np.inf), 0.0))
    accepted = backend.asmask(rng.random(len(acceptance)) < acceptance)
    kept = Points(
        xp.where(accepted[:, None], here.z, points.z),
        xp.where(accepted, here.value, points.value),
        xp.where(accepted[:, None], here.gradient, points.gradient),
    )
    return Transition(kept, acceptance, here.z, momentum, np.isfinite(to_numpy(here.value)))


def follow(
    log_density: LogDensity, points: Points, momentum: Array, step: float | Array, leapfrogs: int, *, harmonic: bool
) -> tuple[Points, Array]:
    """Follow the trajectory of every chain by leapfrog steps.

    Parameters
    ----------
    log_density : callable
    points : Points
    momentum : Array, shape (C, D)
        Momentum at the start.
    step : float, or Array of shape (C, 1)
        Step size, of all chains or of each.
    leapfrogs : int
        Number of steps.
    harmonic : bool
        As in `HamiltonianOptions`.

    Returns
    -------
    points : Points
        Ends of the trajectories.
    momentum : Array, shape (C, D)
        Momentum there.
    """
    xp = array_namespace(points.z)
    if not harmonic:
        cosine, sine = 1.0, step
    elif isinstance(step, float):
        cosine, sine = math.cos(step), math.sin(step)
    else:
        cosine, sine = xp.cos(step), xp.sin(step)
    here, momentum = points, momentum + 0.5 * step * _force(points, harmonic=harmonic)
    for k in range(leapfrogs):
        z = cosine * here.z + sine * momentum
        if harmonic:
            momentum = cosine * momentum - sine * here.z
        here = evaluate(log_density, z)
        kick = step if k < leapfrogs - 1 else 0.5 * step
        momentum = momentum + kick * _force(here, harmonic=harmonic)
        lost = (here.value < points.value - LOST)[:, None]
        momentum = xp.where(lost, xp.zeros_like(momentum), momentum)
        here = here._replace(gradient=xp.where(lost, xp.zeros_like(momentum), here.gradient))
    return here, momentum


def _force(points: Points, *, harmonic: bool) -> Array:
    """Return the gradient (C, D) of the log density, or of its ratio to a standard normal."""
    return points.gradient + points.z if harmonic else points.gradient


@dataclass(frozen=True)
class StepSizeAdaptation:
    """Dual averaging of the logarithm of the step size (Hoffman and Gelman, 2014, Algorithm 5)."""

    centre: float
    log_step: float
    averaged: float
    error: float = 0.0
    count: int = 0

    @staticmethod
    def start(step: float) -> StepSizeAdaptation:
        """Start at a step size.

        Parameters
        ----------
        step : float
            First step size.

        Returns
        -------
        StepSizeAdaptation
        """
        return StepSizeAdaptation(math.log(2.0 * step), math.log(step), math.log(step))

    def update(self, shortfall: float) -> StepSizeAdaptation:
        """Update with the wanted minus the observed acceptance rate.

        Parameters
        ----------
        shortfall : float
            Wanted minus observed acceptance rate.

        Returns
        -------
        StepSizeAdaptation
        """
        count = self.count + 1
        error = (1.0 - 1.0 / (count + 10)) * self.error + shortfall / (count + 10)
        log_step = self.centre - math.sqrt(count) / 0.05 * error * 0.2
        weight = count**-0.75
        averaged = weight * log_step + (1.0 - weight) * self.averaged
        return StepSizeAdaptation(self.centre, log_step, averaged, error, count)


@dataclass(frozen=True)
class LengthAdaptation:
    """Adam on the logarithm of the trajectory length, with the ChEES criterion (Hoffman et al., 2021)."""

    log_length: float
    rate: float
    shortest: float
    first: float = 0.0
    second: float = 0.0
    count: int = 0

    def update(self, before: Array, moved: Transition, duration: float, longest: float) -> LengthAdaptation:
        """Update with trajectories from `before` (C, D) of this duration.

        Parameters
        ----------
        before : Array, shape (C, D)
            Starts of the trajectories.
        moved : Transition
            Their outcome.
        duration : float
            Length of these trajectories.
        longest : float
            Largest length.

        Returns
        -------
        LengthAdaptation
        """
        xp = array_namespace(before)
        weights = backend_of(before).asarray(moved.acceptance)
        total = float(xp.sum(weights))
        if not math.isfinite(total) or total <= 0.0:
            return self
        weights = weights / total
        possible = (weights > 0.0)[:, None]
        ends = xp.where(possible, moved.proposal, before)
        old = before - xp.mean(before, axis=0)
        new = ends - xp.sum(weights[:, None] * ends, axis=0)
        change = xp.sum(xp.square(new), axis=1) - xp.sum(xp.square(old), axis=1)
        speed = xp.sum(new * xp.where(possible, moved.momentum, xp.zeros_like(new)), axis=1)
        slope = duration * float(xp.sum(weights * change * speed))
        count = self.count + 1
        first = 0.8 * self.first + 0.2 * slope
        second = 0.95 * self.second + 0.05 * slope**2
        scaled = (first / (1.0 - 0.8**count)) / (math.sqrt(second / (1.0 - 0.95**count)) + 1e-30)
        log_length = max(min(self.log_length + self.rate * scaled, math.log(longest)), self.shortest)
        return LengthAdaptation(log_length, self.rate, self.shortest, first, second, count)


def fractions(count: int) -> Floats:
    """Return a low-discrepancy sequence (count,) in (0.4, 1]: factors of the trajectory length.

    Parameters
    ----------
    count : int
        Number of trajectories.

    Returns
    -------
    array, shape (count,)
    """
    return np.asarray([1.0 - 0.6 * ((k * 0.6180339887498949) % 1.0) for k in range(1, count + 1)])


def adapt(
    log_density: LogDensity,
    points: Points,
    tuning: Tuning,
    iterations: int,
    rng: np.random.Generator,
    options: HamiltonianOptions,
) -> tuple[Points, Tuning, Floats]:
    """Move the chains while the tuning is adapted.

    Parameters
    ----------
    log_density : callable
        Log density and gradient of points (C, D).
    points : Points
        Present points of the chains.
    tuning : Tuning
        Step size and trajectory length to start from.
    iterations : int
        Number of trajectories of each chain.
    rng : numpy.random.Generator
        Random stream.
    options : HamiltonianOptions
        Settings of the sampler.

    Returns
    -------
    points : Points
        Positions at the end.
    tuning : Tuning
    visited : array, shape (iterations, C, D)
        All positions.
    """
    steps = StepSizeAdaptation.start(tuning.step)
    lengths = LengthAdaptation(math.log(tuning.length), options.length_rate, math.log(options.first_length))
    visited = []
    for fraction in fractions(iterations):
        here = Tuning(min(math.exp(steps.log_step), LONGEST_STEP), math.exp(lengths.log_length))
        before = points.z
        moved = move(log_density, points, here, float(fraction), rng, options)
        points = moved.points
        steps = steps.update(options.acceptance - harmonic_mean(moved.acceptance[moved.possible]))
        lengths = lengths.update(
            before, moved, float(fraction) * here.length, options.max_leapfrogs * math.exp(steps.averaged)
        )
        visited.append(to_numpy(points.z))
    return points, Tuning(min(math.exp(steps.averaged), LONGEST_STEP), math.exp(lengths.log_length)), np.stack(visited)


def harmonic_mean(acceptance: Floats) -> float:
    """Return the harmonic mean of acceptance probabilities, which the smallest dominate; 0 if there are none.

    Parameters
    ----------
    acceptance : array
        Acceptance probabilities.

    Returns
    -------
    float
    """
    return float(1.0 / np.mean(1.0 / np.maximum(acceptance, 1e-2))) if acceptance.size else 0.0


class Draws(NamedTuple):
    """Draws of the chains.

    Attributes
    ----------
    z : array, shape (iterations, C, D)
        Positions.
    acceptance : float
        Mean acceptance rate.
    tuning : Tuning
    """

    z: Floats
    acceptance: float
    tuning: Tuning


def draw(
    log_density: LogDensity,
    points: Points,
    tuning: Tuning,
    iterations: int,
    rng: np.random.Generator,
    options: HamiltonianOptions,
) -> Draws:
    """Draw with fixed tuning.

    Parameters
    ----------
    log_density : callable
        Log density and gradient of points (C, D).
    points : Points
        Present points of the chains.
    tuning : Tuning
        Step size and trajectory length.
    iterations : int
        Number of trajectories of each chain.
    rng : numpy.random.Generator
        Random stream.
    options : HamiltonianOptions
        Settings of the sampler.
    """
    visited, rates = [], []
    for fraction in fractions(iterations):
        moved = move(log_density, points, tuning, float(fraction), rng, options)
        points = moved.points
        visited.append(to_numpy(points.z))
        rates.append(moved.acceptance.mean())
    return Draws(np.stack(visited), float(np.mean(rates)), tuning)


def covariance_factor(samples: Floats, effective: float) -> Floats:
    """Return a factor A (D, D), with A A^T the regularised covariance of samples that are roughly whitened.

    With many samples per variable the covariance is shrunk towards a multiple of the identity (Ledoit and Wolf, 2004).
    With few, only the eigenvalues that stand out of those of uncorrelated samples are kept, without their bias
    (Donoho, Gavish and Johnstone, 2018); the other directions are taken for whitened already.

    Parameters
    ----------
    samples : array, shape (n, D)
    effective : float
        Number of independent samples that they are worth.
    """
    count, size = samples.shape
    if effective >= SAMPLES_PER_VARIABLE * size:
        from sklearn.covariance import ledoit_wolf  # noqa: PLC0415 - takes a second

        covariance, _ = ledoit_wolf(samples)
        return np.asarray(np.linalg.cholesky(covariance))
    centred = samples - samples.mean(axis=0)
    _, values, vectors = np.linalg.svd(centred / math.sqrt(count), full_matrices=False)
    ratio, squares = size / effective, values**2
    large = squares > (1.0 + math.sqrt(ratio)) ** 2
    small = squares < (1.0 - math.sqrt(ratio)) ** 2 if ratio < 1.0 else np.zeros_like(large)
    shifted = squares + 1.0 - ratio
    root = np.sqrt(np.maximum(shifted**2 - 4.0 * squares, 0.0))
    eigenvalues = 0.5 * np.where(large, shifted + root, shifted - root)
    spiked = large | small
    directions = vectors[spiked]
    return np.asarray(np.eye(size) + (directions.T * (np.sqrt(eigenvalues[spiked]) - 1.0)) @ directions)


def _independent_draws(visited: Floats) -> float:
    """Estimate the number of independent draws in chains (n, C, D), from the correlation of successive ones.

    The estimate is halved: correlated draws have more extreme eigenvalues than so many independent ones.
    """
    centred = visited - visited.mean(axis=(0, 1))
    correlation = float(np.mean(centred[1:] * centred[:-1]) / max(np.mean(centred**2), 1e-300))
    correlation = min(max(correlation, 0.0), 0.99)
    draws = int(centred.shape[0] * centred.shape[1])
    return 0.5 * draws * (1.0 - correlation) / (1.0 + correlation)


def transforms_of(log_density: LogDensity) -> Transform:
    """Return the transforms of any log density, by two matrix products per call.

    Parameters
    ----------
    log_density : callable
        Log density and gradient of points (C, D).

    Returns
    -------
    callable
        Receives a matrix (D, D), and returns the log density of x with z = x @ matrix.
    """

    def transform(root: Array) -> LogDensity:
        transposed = array_namespace(root).matrix_transpose(root)

        def transformed_target(x: Array) -> tuple[Array, Array]:
            value, gradient = log_density(x @ root)
            return value, gradient @ transposed

        return transformed_target

    return transform


def sample(
    log_density: LogDensity,
    transform: Transform,
    start: Array,
    rng: np.random.Generator,
    *,
    warmup: int,
    iterations: int,
    options: HamiltonianOptions | None = None,
    report: Callable[[int], None] | None = None,
) -> Draws:
    """Sample a log density whose coordinates are roughly whitened.

    The first half of the warm-up adapts the tuning. Then the coordinates are whitened by the covariance of the draws so
    far, and the second half adapts the tuning again.

    Parameters
    ----------
    log_density : callable
        Log density of positions (C, D), and its gradient.
    transform : callable
        Its transforms; see `transforms_of`.
    start : Array, shape (C, D)
        Starting points of the C chains.
    rng : numpy.random.Generator
    warmup, iterations : int
        Number of trajectories of every chain that are discarded, and that are kept.
    options : HamiltonianOptions, optional
    report : callable, optional
        Receives the number of finished trajectories at the start of each of the three parts.

    Returns
    -------
    Draws
    """
    report = report or (lambda _: None)
    options = options or HamiltonianOptions()
    backend = backend_of(start)
    points = evaluate(log_density, start)
    tuning = Tuning(start.shape[1] ** -0.25, options.first_length)
    first = warmup // 2
    report(0)
    points, tuning, visited = adapt(log_density, points, tuning, first, rng, options)
    report(first)
    if start.shape[1] > MOST_WHITENED:
        points, tuning, _ = adapt(log_density, points, tuning, warmup - first, rng, options)
        report(warmup)
        return draw(log_density, points, tuning, iterations, rng, options)
    recent = visited[first // 2 :]
    factor = covariance_factor(recent.reshape(-1, start.shape[1]), _independent_draws(recent))
    whitened = transform(backend.asarray(factor.T))
    points = evaluate(whitened, backend.asarray(np.linalg.solve(factor, to_numpy(points.z).T).T))
    # Chains that are held in the narrow parts of a density need a smaller step than the first half found.
    points, tuning, _ = adapt(whitened, points, tuning, warmup - first, rng, options)
    report(warmup)
    drawn = draw(whitened, points, tuning, iterations, rng, options)
    return drawn._replace(z=drawn.z @ factor.T)
