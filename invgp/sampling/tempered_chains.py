"""Tempered chains on the simulator: right for any shape of the posterior, whatever the errors of an emulator.

Several independent populations of chains start at draws from the prior. The likelihood is raised to a power that grows
from 0 to 1. At each power, the chains are weighted by the likelihood of the simulator, resampled, and moved. This finds
all modes with their probabilities. At power 1 the chains go on until they agree and are long enough.

A move follows a Hamiltonian trajectory whose force is the gradient of a surrogate. A trajectory with any force that
depends on the position alone is reversible and preserves volume, so that it is a valid proposal. It is accepted with
the probability that the simulator gives. Errors of the surrogate therefore cost acceptance, not accuracy. One move of
a chain takes one run per site, or one run of a field model. At power 1, every third move is a jump by the difference
of two other chains if enough such jumps are accepted: in few dimensions they lead from mode to mode.

References
----------
Del Moral, Doucet and Jasra (2006), for sequential Monte Carlo; Neal (2011), Section 5.5, for trajectories of an
approximate density; ter Braak (2006), for jumps by differences; Margossian et al. (2024), for the R-hat of populations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.core.sampling.hamiltonian import LONGEST_STEP, LOST, LogDensity, evaluate, follow, fractions
from invgp.core.sampling.statistics import effective_sample_size, split_r_hat
from invgp.core.sampling.tempering import next_change, resample
from invgp.errors import RunsFailedError
from invgp.problem import Floats
from invgp.sampling.exact_target import Chains, ExactTarget, Surrogate, by_iteration

Integers = NDArray[np.intp]


@dataclass(frozen=True)
class TemperedOptions:
    """Tuning of the sampler.

    Parameters
    ----------
    populations : int
        Independent populations, whose differences show the Monte Carlo error.
    share : float
        Effective share of the chains of a population after a change of the power.
    moves : int
        Moves of every chain at each power.
    warmup : int
        Moves at power 1 that adapt the tuning and are discarded.
    batch : int
        Moves between two checks of convergence.
    conserved : float
        Acceptance rate by the energy of the surrogate, that the step size is adapted to.
    accepted : float
        Acceptance rate by the simulator, that the length of the trajectories is adapted to.
    length : float
        Longest trajectory; half a period of a standard normal density is pi.
    shortest : float
        Shortest trajectory, which is a random walk.
    max_leapfrogs : int
        Largest number of leapfrog steps of a trajectory.
    useful : float
        Share of the jumps that must be accepted.
    informed : int
        Chains over which the Fisher information is averaged.
    checked : int
        Most latent values whose convergence is checked between batches.
    most_numbers : int
        Largest number of latent values of all draws together, which determines the memory.
    """

    populations: int = 4
    share: float = 0.5
    moves: int = 2
    warmup: int = 12
    batch: int = 16
    conserved: float = 0.85
    accepted: float = 0.6
    length: float = math.pi
    shortest: float = 1e-3
    max_leapfrogs: int = 64
    useful: float = 0.05
    informed: int = 32
    checked: int = 2000
    most_numbers: int = 50_000_000


class Limits(NamedTuple):
    """When the chains end.

    Attributes
    ----------
    runs : int
        Largest number of simulator runs.
    r_hat : float
        Largest R-hat of populations that agree.
    effective : float
        Fewest effective draws.
    share : float
        Share of the latent values that must meet both limits.
    """

    runs: int
    r_hat: float
    effective: float
    share: float = 0.99


class RunsSpent(Exception):  # noqa: N818 - not an error
    """The runs did not suffice to reach the posterior.

    Attributes
    ----------
    power : float
        Smallest power of the likelihood that was reached.
    needed : int or None
        Number of runs that may suffice, extrapolated from the growth of the power; None if it is not known.
    """

    def __init__(self, power: float, needed: int | None = None) -> None:
        super().__init__(f"the power of the likelihood was {power:g}")
        self.power, self.needed = power, needed


AFTER_TEMPERING = 1.5  # runs in all, relative to those until the power is 1: for the warm-up and a few draws


def extrapolate_runs(path: Sequence[tuple[int, float]]) -> int | None:
    """Extrapolate the number of runs of tempered chains, whose power grows by similar factors at each level.

    Parameters
    ----------
    path : sequence of (int, float)
        Number of runs, and power of the likelihood, after each level.

    Returns
    -------
    int or None
        Number of runs, with two digits; None with fewer than two levels.
    """
    known = [(runs, power) for runs, power in path if power > 0.0]
    if len(known) < 2:
        return None
    (before, low), (runs, power) = known[(len(known) - 1) // 2 if len(known) > 2 else 0], known[-1]
    if power < 1.0:
        if power <= low:
            return None
        runs += math.ceil((runs - before) * math.log(1.0 / power) / math.log(power / low))
    return _round_up(AFTER_TEMPERING * runs)


def _round_up(number: float) -> int:
    """Round a number up to two digits."""
    unit: int = 10 ** max(math.floor(math.log10(number)) - 1, 0)
    return math.ceil(number / unit) * unit


@dataclass(frozen=True)
class _State:
    """Chains at given powers.

    Attributes
    ----------
    v : array, shape (B, C, d)
        Variables.
    value, failed : arrays, shape (B, C)
        Log likelihood of the simulator there, and whether a run failed.
    power : array, shape (B,)
        Power of the likelihood of each block.
    step, length : arrays, shape (B,)
        Step size and longest trajectory of each block.
    """

    v: Floats
    value: Floats
    failed: NDArray[np.bool_]
    power: Floats
    step: Floats
    length: Floats


class _Coordinates(NamedTuple):
    """Coordinates x with v = centre + x root: centre (b, 1, d), root (b, d, d)."""

    centre: Floats
    root: Floats

    def variables(self, x: Floats) -> Floats:
        """Compute v (b, C, d) from x (b, C, d)."""
        return self.centre + x @ self.root

    def standardise(self, v: Floats) -> Floats:
        """Compute x (b, C, d) from v (b, C, d)."""
        return np.asarray(np.linalg.solve(self.root.mT, (v - self.centre).mT).mT)


def sample_chains(
    target: ExactTarget,
    chains: int,
    rng: np.random.Generator,
    limits: Limits,
    *,
    options: TemperedOptions | None = None,
    report: Callable[[float, int], None] | None = None,
) -> Chains:
    """Sample the posterior of a problem on its simulator.

    Parameters
    ----------
    target : ExactTarget
    chains : int
        Number of chains, a multiple of the number of populations.
    rng : numpy.random.Generator
    limits : Limits
    options : TemperedOptions, optional
    report : callable, optional
        Called after each step with the smallest power of the likelihood and the number of draws of each chain.

    Returns
    -------
    Chains

    Raises
    ------
    RunsSpent
        The limit of runs was reached before there were draws from the posterior.
    RunsFailedError
        All runs failed at some site.
    """
    # The number of threads changes the rounding of BLAS.
    with threadpool_limits(1):
        return _Sampler(target, chains, rng, limits, options or TemperedOptions(), report).sample()


class _Sampler:
    def __init__(
        self,
        target: ExactTarget,
        chains: int,
        rng: np.random.Generator,
        limits: Limits,
        options: TemperedOptions,
        report: Callable[[float, int], None] | None,
    ) -> None:
        self.target, self.chains, self.limits, self.options = target, chains, limits, options
        self.report = report or (lambda *_: None)
        self.rng, self.resampling, self.drawing = rng.spawn(3)
        self.fractions = _fractions()
        self.path: list[tuple[int, float]] = []

    def sample(self) -> Chains:
        target, options = self.target, self.options
        everything = np.arange(target.blocks)
        state = self._start(everything)
        while (active := np.flatnonzero(state.power < 1.0)).size:
            state = self._change_power(state, active)
            surrogate = target.fit_surrogate(float(np.median(state.power[active])))
            coordinates = self._coordinates(state, surrogate, active)
            for _ in range(options.moves):
                state, _ = self._move(state, surrogate, coordinates, active, adapt=True)
            self.path.append((target.runs, float(state.power.min())))
            self.report(float(state.power.min()), 0)
        state, jumps = self._without_failures(state), []
        for move in range(options.warmup):
            if move in (0, options.warmup // 2):
                surrogate = target.fit_surrogate(1.0)
                coordinates = self._coordinates(state, surrogate, everything)
            state, _ = self._move(state, surrogate, coordinates, everything, adapt=True)
            if move % 2:
                state, accepted = self._jump(state, state.v, everything)
                jumps.append(accepted)
        useful = np.flatnonzero(np.mean(jumps, axis=0) >= options.useful)
        return self._draw(state, surrogate, coordinates, useful)

    def _start(self, everything: Integers) -> _State:
        target, C = self.target, self.chains
        self._check_runs(everything, 0.0)
        v = self.rng.standard_normal((target.blocks, C, target.size))
        value, failed = target.log_likelihood(v, everything)
        ones = np.ones(target.blocks)
        step, length = min(target.size**-0.25, LONGEST_STEP) * ones, self.options.length * ones
        return _State(v, value, failed, np.zeros(target.blocks), step, length)

    def _change_power(self, state: _State, active: Integers) -> _State:
        """Raise the power of blocks (b,), and resample their chains within each population."""
        K = self.options.populations
        power, chosen = state.power.copy(), np.tile(np.arange(self.chains), (len(state.v), 1))
        for block in active:
            levels = state.value[block].reshape(K, -1)
            left = 1.0 - power[block]
            change = next_change(levels, left, self.options.share)
            power[block] = 1.0 if change == left else power[block] + change
            n = levels.shape[1]
            chosen[block] = np.concatenate([k * n + resample(change * levels[k], self.resampling) for k in range(K)])
        return replace(_select(state, chosen), power=power)

    def _without_failures(self, state: _State) -> _State:
        """Replace chains at failed runs by others, if possible of the same population: failures have no probability."""
        K, chosen = self.options.populations, np.tile(np.arange(self.chains), (len(state.v), 1))
        for block, failed in enumerate(state.failed):
            if failed.all():
                raise RunsFailedError("no values of the latents were found at which the simulator runs at all sites")
            for members in np.split(np.arange(self.chains), K):
                good = members[~failed[members]]
                good = good if good.size else np.flatnonzero(~failed)
                lost = members[failed[members]]
                chosen[block, lost] = self.resampling.choice(good, lost.size)
        return _select(state, chosen)

    def _coordinates(self, state: _State, surrogate: Surrogate | None, blocks: Integers) -> _Coordinates:
        """Whiten by the information of the surrogate, then by the covariance of the chains."""
        v = state.v[blocks]
        information = np.zeros((len(blocks), v.shape[2], v.shape[2]))
        if surrogate is not None:
            some = np.linspace(0, v.shape[1], min(self.options.informed, v.shape[1]), endpoint=False).astype(np.intp)
            information = surrogate.information(v[:, some], blocks)
        precision = np.eye(v.shape[2]) + state.power[blocks, None, None] * information
        factor = np.linalg.cholesky(precision)
        centre = v.mean(axis=1, keepdims=True)
        spread = np.linalg.cholesky(shrunk_covariance((v - centre) @ factor))
        return _Coordinates(centre, np.linalg.solve(factor.mT, spread).mT)

    def _move(
        self, state: _State, surrogate: Surrogate | None, coordinates: _Coordinates, blocks: Integers, *, adapt: bool
    ) -> tuple[_State, float]:
        """Make one trajectory of every chain of blocks (b,), and return the share that was accepted."""
        self._check_runs(blocks, float(state.power.min()))
        options, C, d = self.options, self.chains, self.target.size
        b, power = len(blocks), state.power[blocks, None]
        lengths = max(next(self.fractions), 0.2) * state.length[blocks]
        leapfrogs = int(min(np.ceil(lengths / state.step[blocks]).max(), options.max_leapfrogs))
        steps = np.minimum(lengths / leapfrogs, state.step[blocks])
        density = _temper_surrogate(surrogate, coordinates, blocks, power)
        x = coordinates.standardise(state.v[blocks])
        start = evaluate(density, x.reshape(b * C, d))
        momentum = self.rng.standard_normal((b * C, d))
        end, final = follow(density, start, momentum, np.repeat(steps, C)[:, None], leapfrogs, harmonic=True)
        kinetic = (0.5 * np.sum(momentum**2, axis=1) - 0.5 * np.sum(final**2, axis=1)).reshape(b, C)
        with np.errstate(invalid="ignore"):
            conserved = kinetic + (end.value - start.value).reshape(b, C)
        # Trajectories that get lost are not reversible: they are rejected in both directions, without a run.
        possible = np.abs(conserved) < LOST
        proposed = coordinates.variables(end.z.reshape(b, C, d))
        v = np.where(possible[..., None], proposed, state.v[blocks])
        moved, probability, accepted = self._accept(state, v, blocks, np.where(possible, kinetic, -np.inf))
        if adapt:
            moved = self._adapt(moved, blocks, np.where(possible, np.minimum(conserved, 0.0), -np.inf), probability)
        return moved, float(accepted.mean())

    def _jump(self, state: _State, others: Floats, blocks: Integers) -> tuple[_State, Floats]:
        """Move every chain of blocks (b,) by the difference of two of the points `others` (B, C, d).

        Returns
        -------
        _State
        array, shape (b,)
            Share that was accepted in each block.
        """
        self._check_runs(blocks, 1.0)
        one, two = (others[blocks][:, self.rng.permutation(self.chains)] for _ in range(2))
        proposed, kinetic = state.v[blocks] + one - two, np.zeros((len(blocks), 1))
        moved, _, accepted = self._accept(state, proposed, blocks, kinetic, near=False)
        return moved, accepted.mean(axis=1)

    def _accept(
        self, state: _State, v: Floats, blocks: Integers, kinetic: Floats, *, near: bool = True
    ) -> tuple[_State, Floats, NDArray[np.bool_]]:
        """Run the simulator at proposals v (b, C, d), and accept them with the exact probability.

        Parameters
        ----------
        state : _State
        v : array, shape (b, C, d)
        blocks : array of int, shape (b,)
        kinetic : array, shape (b, C)
            Decrease of the kinetic energy; minus infinity for a proposal that is rejected.
        near : bool
            Whether the proposals lie near the chains, so that surrogates are fitted to them.

        Returns
        -------
        _State
        probability, accepted : arrays, shape (b, C)
        """
        value, failed = self.target.log_likelihood(v, blocks, near=near)
        here = state.v[blocks]
        gain = kinetic + state.power[blocks, None] * (value - state.value[blocks])
        gain = gain - 0.5 * (np.sum(v**2, axis=2) - np.sum(here**2, axis=2))
        probability = np.where(failed & (state.power[blocks, None] == 1.0), 0.0, np.exp(np.minimum(gain, 0.0)))
        accepted = self.rng.random(probability.shape) < probability
        new_v, new_value, new_failed = state.v.copy(), state.value.copy(), state.failed.copy()
        new_v[blocks] = np.where(accepted[..., None], v, here)
        new_value[blocks] = np.where(accepted, value, state.value[blocks])
        new_failed[blocks] = np.where(accepted, failed, state.failed[blocks])
        return replace(state, v=new_v, value=new_value, failed=new_failed), probability, accepted

    def _adapt(self, state: _State, blocks: Integers, conserved: Floats, probability: Floats) -> _State:
        """Adapt step sizes to the energy error of the surrogate, and lengths to the acceptance by the simulator."""
        options = self.options
        step, length = state.step.copy(), state.length.copy()
        step[blocks] *= np.exp(0.5 * (_harmonic_mean(np.exp(conserved)) - options.conserved))
        length[blocks] *= np.exp(0.5 * (_harmonic_mean(probability) - options.accepted))
        length = np.clip(length, options.shortest, options.length)
        return replace(state, step=np.clip(step, options.shortest, LONGEST_STEP), length=length)

    def _draw(self, state: _State, surrogate: Surrogate | None, coordinates: _Coordinates, jumping: Integers) -> Chains:
        """Move the chains at power 1 with fixed tuning, until they have converged or the runs are spent."""
        everything, kept, rates = np.arange(self.target.blocks), list[Floats](), list[float]()
        others = state.v  # fixed, so that the distribution of the jumps does not depend on the chains
        while True:
            try:
                for _ in range(self.options.batch):
                    state, rate = self._move(state, surrogate, coordinates, everything, adapt=False)
                    if jumping.size and len(kept) % 2:
                        state, _ = self._jump(state, others, jumping)
                    kept.append(state.v)
                    rates.append(rate)
                    self.report(1.0, len(kept))
            except RunsSpent:
                if len(kept) < 4:
                    raise
                break
            if self._has_converged(kept):
                break
        return Chains(self._latents(kept), self.target.runs, float(np.mean(rates)))

    def _has_converged(self, kept: list[Floats]) -> bool:
        stride = max(math.ceil(self.target.latents(kept[0]).shape[1] / self.options.checked), 1)
        draws = np.stack([self.target.latents(v)[:, ::stride] for v in kept])
        grouped = draws.reshape(len(draws), self.options.populations, -1, draws[0, 0].size).transpose(1, 2, 0, 3)
        agree = split_r_hat(by_iteration(grouped)) < self.limits.r_hat
        if agree.mean() < self.limits.share:
            return False
        chain_after_chain = grouped.reshape(len(grouped), -1, grouped.shape[-1])
        enough = effective_sample_size(chain_after_chain) > self.limits.effective
        return bool((agree & enough).mean() >= self.limits.share)

    def _latents(self, kept: list[Floats]) -> Floats:
        """Return the draws (K, n, T, M, Q), of fewer iterations if there are too many numbers."""
        numbers = self.target.latents(kept[0]).size
        most = max(self.options.most_numbers // numbers, 4)
        chosen = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), most)).round().astype(np.intp))
        draws = np.stack([self.target.draw_latents(kept[i], self.drawing) for i in chosen])
        T, _, M, Q = draws.shape
        return draws.reshape(T, self.options.populations, -1, M, Q).transpose(1, 2, 0, 3, 4)

    def _check_runs(self, blocks: Integers, power: float) -> None:
        if self.target.runs + self.chains * self.target.cost(blocks) > self.limits.runs:
            raise RunsSpent(power, extrapolate_runs([*self.path, (self.target.runs, power)]))


def _select(state: _State, chosen: Integers) -> _State:
    """Return the chains with the numbers `chosen` (B, C)."""
    v, value, failed = (
        np.stack([of_block[numbers] for of_block, numbers in zip(part, chosen, strict=True)])
        for part in (state.v, state.value, state.failed)
    )
    return replace(state, v=v, value=value, failed=failed)


def _temper_surrogate(
    surrogate: Surrogate | None, coordinates: _Coordinates, blocks: Integers, power: Floats
) -> LogDensity:
    """Return the log density of the surrogate at rows of x (b C, d), and its gradient."""
    b, d = len(blocks), coordinates.root.shape[1]

    def log_density(x: Floats) -> tuple[Floats, Floats]:
        v = coordinates.variables(x.reshape(b, -1, d))
        value, gradient = -0.5 * np.sum(v**2, axis=2), -v
        if surrogate is not None:
            fit, slope = surrogate.linearise(v, blocks)
            value, gradient = value + power * fit, gradient + power[..., None] * slope
        return value.reshape(-1), (gradient @ coordinates.root.mT).reshape(-1, d)

    return log_density


def shrunk_covariance(samples: Floats) -> Floats:
    """Return covariances (b, d, d) of samples (b, n, d), shrunk towards multiples of the identity.

    The shrinkage is that of Ledoit and Wolf (2004).
    """
    _, n, d = samples.shape
    offset = samples - samples.mean(axis=1, keepdims=True)
    covariance = offset.mT @ offset / n
    scale = np.trace(covariance, axis1=1, axis2=2) / d
    squares = np.sum(covariance**2, axis=(1, 2))
    distance = squares - d * scale**2
    error = (np.mean(np.sum(offset**2, axis=2) ** 2, axis=1) - squares) / n
    weight = np.where(distance > 0.0, np.minimum(error / np.where(distance > 0.0, distance, 1.0), 1.0), 1.0)
    weight = np.maximum(weight, 1e-9)[:, None, None]  # chains that coincide after resampling
    scale = np.maximum(scale, 1e-12)[:, None, None]
    return np.asarray((1.0 - weight) * covariance + weight * scale * np.eye(d))


def _harmonic_mean(acceptance: Floats) -> Floats:
    """Return the harmonic means (b,) of acceptance probabilities (b, C), which the smallest dominate."""
    return np.asarray(1.0 / np.mean(1.0 / np.maximum(acceptance, 1e-2), axis=1))


def _fractions() -> Iterator[float]:
    """Yield a low-discrepancy sequence in (0, 1]: factors of the length of the trajectories."""
    while True:
        yield from fractions(1000).tolist()
