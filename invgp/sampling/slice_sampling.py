"""Elliptical slice sampling (Murray, Adams and MacKay, 2010): exact posterior samples without gradients.

In whitened coordinates v the prior is standard normal. A step moves along an ellipse through the current point and a
draw from the prior. If the data are much more precise than the prior, only a small part of this ellipse is acceptable.
Ellipses of any other Gaussian N(m, S) are exact too (Nishihara, Murray and Adams, 2014), with prior x likelihood /
N(m, S) in place of the likelihood. If N(m, S) is close to the posterior, nearly every point of an ellipse is accepted.

Random numbers depend only on the seed, the walker, the iteration and the attempt. Chains that are stopped at any time
and resumed are therefore bit-identical to uninterrupted chains.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import SupportsInt

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.errors import RunsFailedError
from invgp.problem import Floats, Problem
from invgp.sampling.chains import Chains, Schedule, State
from invgp.sampling.chains_file import ChainsFile, fingerprint, read_chains
from invgp.sampling.proposal import Proposal, multiply_by_site
from invgp.sampling.target_density import Run
from invgp.sampling.walkers import Walkers, walkers_of

WIDENING = 1.1  # factor on the proposal's spread: too wide costs little, too narrow misses the tails
PRIOR_EVERY = 10  # iterations between ellipses of the prior, which can reach other modes than the proposal's
# Chains start dispersed, so that agreement between them shows convergence. For the starting points the
# proposal is widened by START_WIDENING, and by a factor START_NEARER less for each attempt at which runs fail.
START_WIDENING, START_NEARER = 100.0, 0.8
START_ATTEMPTS = 50  # most attempts to find starting points at which the simulator runs
NARROWEST = 1e-9  # radians: a narrower bracket is given up (a non-deterministic simulator could shrink it forever)
SECONDS_BETWEEN_CHECKPOINTS = 30.0


def sample(
    problem: Problem,
    run: Run,
    proposal: Proposal,
    *,
    chains: int = 4,
    draws: int = 1000,
    burn_in: int = 200,
    thin: int = 1,
    seed: int = 0,
    simulated: NDArray[np.bool_] | None = None,
    checkpoint: Path | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Chains:
    """Sample the posterior of a problem.

    Parameters
    ----------
    problem : Problem
    run : callable
        The simulator or an emulator. A failed run has likelihood 0.
    proposal : Proposal
        Gaussian close to the posterior. Any Gaussian is exact in the limit; a good one converges faster.
    chains : int
        Number of chains, C.
    draws : int
        Fewest samples of each chain; a checkpoint with more returns all of them.
    burn_in : int
        Number of first iterations of each chain that are discarded.
    thin : int
        Number of iterations per stored sample.
    seed : int
        Random seed.
    simulated : array of bool, shape (N,), optional
        Sites whose evaluations count as simulator runs, by default all; evaluations of an emulator do not count.
    checkpoint : Path, optional
        File with the chains so far. If it exists the chains are resumed, bit-identical to uninterrupted chains; with
        more `draws` than before they are extended.
    report : callable, optional
        Called after each step with the completed iterations of the slowest chain and their final number.

    Returns
    -------
    Chains

    Raises
    ------
    ConfigError
        The checkpoint is of another problem, or of chains with other settings.
    RunsFailedError
        The simulator fails at all attempted starting points.

    References
    ----------
    Murray, Adams and MacKay (2010), Elliptical slice sampling, AISTATS 9. Nishihara, Murray and Adams (2014), Parallel
    MCMC with generalized elliptical slice sampling, JMLR 15.
    """
    # The number of threads changes the rounding of BLAS, and threads do not speed up such small products.
    with threadpool_limits(1):
        walkers = walkers_of(problem, run, proposal, chains, simulated)
        sampler = _Sampler(walkers, seed)
        made = (chains, burn_in, thin, seed), walkers.shape, WIDENING, PRIOR_EVERY, START_WIDENING, START_NEARER
        mark = fingerprint(problem, proposal, made)
        count, sites = walkers.shape
        state, before = read_chains(checkpoint, mark) or (None, np.empty((count, 0, sites, problem.latent_count)))
        kept = np.zeros((count, max(draws, before.shape[1]), *before.shape[2:]))
        kept[:, : before.shape[1]] = before
        schedule = Schedule(burn_in, thin, goal=burn_in + draws * thin)
        file = None if checkpoint is None else ChainsFile(checkpoint, mark, proposal, kept, schedule)
        if state is None:
            if file is not None:
                file.save(None)  # stores the proposal, so that it is not computed again
            state = sampler.start()
        if (state.iteration < schedule.goal).any():
            state = _run(sampler, state, file, kept, schedule, report)
    whole = kept[:, : schedule.draws(state.iteration.min())]
    return Chains(walkers.by_chain(whole), state.evaluations + proposal.runs)


def _run(
    sampler: _Sampler,
    state: State,
    file: ChainsFile | None,
    kept: Floats,
    schedule: Schedule,
    report: Callable[[int, int], None] | None,
) -> State:
    """Step until every chain has reached the goal; the checkpoint is written also after an exception."""
    saved = time.monotonic()
    try:
        while (active := state.iteration < schedule.goal).any():
            state = sampler.step(state, active, kept, schedule)
            if file is not None and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                file.save(state)
                saved = time.monotonic()
            if report is not None:
                report(int(state.iteration.min()), schedule.goal)
    finally:
        if file is not None:
            file.save(state)
    return state


class _Sampler:
    """Elliptical slice sampler of all walkers."""

    def __init__(self, walkers: Walkers, seed: int) -> None:
        self.walkers, self.seed = walkers, seed
        self.proposal = walkers.proposal
        self.root, self.to_units = self.proposal.root(WIDENING), self.proposal.to_units(WIDENING)
        D = self.proposal.mean.shape[-1]
        self.mean = np.resize(self.proposal.mean, (walkers.shape[0], D))

    def start(self) -> State:
        """Return dispersed starting points at which the simulator runs."""
        count, D = self.mean.shape
        v, log_likelihood, evaluations = np.zeros((count, D)), np.full(count, -np.inf), 0
        for attempt in range(START_ATTEMPTS):
            again = ~np.isfinite(log_likelihood)
            if not again.any():
                break
            normals = np.stack([self._random(walker, 0, attempt).standard_normal(D) for walker in range(count)])
            root = self.proposal.root(max(START_WIDENING * START_NEARER**attempt, WIDENING))
            v = np.where(again[:, None], self.mean + multiply_by_site(root, normals), v)
            values, runs = self.walkers.log_likelihood(self.walkers.field(v), again)
            log_likelihood = np.where(again, values, log_likelihood)
            evaluations += runs
        if not np.isfinite(log_likelihood).all():
            raise RunsFailedError(
                f"the chains could not start: a run failed at each of {START_ATTEMPTS} starting points"
            )
        empty, nothing, none = np.zeros((count, D)), np.zeros(count), np.zeros(count, dtype=np.int64)
        state = State(v, log_likelihood, empty, empty, nothing, nothing, nothing, nothing, none, none, evaluations)
        return self._begin(state, np.ones(count, dtype=bool))

    def step(self, state: State, active: NDArray[np.bool_], kept: Floats, schedule: Schedule) -> State:
        """Make one attempt of each active walker, and store accepted samples of the schedule in `kept`."""
        stuck = state.upper - state.lower < NARROWEST
        angle = np.where(stuck, 0.0, state.angle)[:, None]
        point = state.point * np.cos(angle) + state.direction * np.sin(angle)
        v = np.where(_around_prior(state)[:, None], point, self.mean + multiply_by_site(self.root, point))
        f = self.walkers.field(v)  # for all walkers: the shape of a product changes the rounding of BLAS
        log_likelihood, runs = self.walkers.log_likelihood(f, active)
        accepted = active & (stuck | (log_likelihood + _log_ratio(point, v) > state.threshold))
        iteration = state.iteration + accepted
        for walker in np.flatnonzero(accepted):
            before, now = schedule.draws(state.iteration[walker]), schedule.draws(iteration[walker])
            kept[walker, before:now] = f[walker]
        moved = replace(
            state,
            v=np.where(accepted[:, None], v, state.v),
            log_likelihood=np.where(accepted, log_likelihood, state.log_likelihood),
            iteration=iteration,
            evaluations=state.evaluations + runs,
        )
        return self._begin(self._shrink(moved, active & ~accepted), accepted)

    def _begin(self, state: State, which: NDArray[np.bool_]) -> State:
        """Start a new iteration of some walkers: draw the ellipse, the slice level and the first angle."""
        direction, threshold, angle = state.direction.copy(), state.threshold.copy(), state.angle.copy()
        point = np.where(_around_prior(state)[:, None], state.v, multiply_by_site(self.to_units, state.v - self.mean))
        level = state.log_likelihood + _log_ratio(point, state.v)
        for walker in np.flatnonzero(which):
            rng = self._random(walker, state.iteration[walker] + 1, 0)
            direction[walker] = rng.standard_normal(direction.shape[1])
            threshold[walker] = level[walker] - rng.standard_exponential()
            angle[walker] = rng.uniform(0.0, 2.0 * np.pi)
        return replace(
            state,
            point=np.where(which[:, None], point, state.point),
            direction=direction,
            threshold=threshold,
            angle=angle,
            lower=np.where(which, angle - 2.0 * np.pi, state.lower),
            upper=np.where(which, angle, state.upper),
            attempt=np.where(which, 0, state.attempt),
        )

    def _shrink(self, state: State, which: NDArray[np.bool_]) -> State:
        """Shrink the bracket of some walkers to their rejected angle, and draw another angle from it."""
        lower = np.where(which & (state.angle < 0.0), state.angle, state.lower)
        upper = np.where(which & (state.angle >= 0.0), state.angle, state.upper)
        angle, attempt = state.angle.copy(), state.attempt + which
        for walker in np.flatnonzero(which):
            rng = self._random(walker, state.iteration[walker] + 1, attempt[walker])
            angle[walker] = rng.uniform(lower[walker], upper[walker])
        return replace(state, angle=angle, lower=lower, upper=upper, attempt=attempt)

    def _random(self, walker: SupportsInt, iteration: SupportsInt, attempt: SupportsInt) -> np.random.Generator:
        return np.random.default_rng(
            np.random.SeedSequence(self.seed, spawn_key=(int(walker), int(iteration), int(attempt)))
        )


def _around_prior(state: State) -> NDArray[np.bool_]:
    """Return a mask (W,) of the walkers whose current ellipse is that of the prior."""
    return np.asarray((state.iteration + 1) % PRIOR_EVERY == 0)


def _log_ratio(point: Floats, v: Floats) -> Floats:
    """Log ratio (W,) of the prior at v (W, D) to the Gaussian of the ellipse at `point`, up to a constant."""
    return np.asarray(0.5 * (np.sum(point**2, axis=1) - np.sum(v**2, axis=1)))
