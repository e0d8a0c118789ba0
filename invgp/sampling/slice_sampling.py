"""Elliptical slice sampling (Murray, Adams and MacKay, 2010): draws from the posterior itself, without gradients.

In whitened coordinates v the prior is standard normal, and a step walks on an ellipse through the present point and a
draw from it. Data much sharper than the prior leave only a sliver of that ellipse. Ellipses around any other Gaussian
N(m, S) are as exact (Nishihara, Murray and Adams, 2014), with prior x likelihood / N(m, S) in the place of the
likelihood; if it fits the posterior, nearly every point of an ellipse will do.

Random numbers depend on the seed, the walker, the iteration and the attempt alone, so that chains stopped anywhere go
on to the bit as if they had not been.
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
from invgp.sampling.chains_file import ChainsFile, fingerprint, resumed
from invgp.sampling.proposal import Proposal, times
from invgp.sampling.target_density import Run
from invgp.sampling.walkers import Walkers, walkers_of

WIDENING = 1.1  # of the Gaussian that the ellipses go around: too wide costs little, too narrow hides the tails
PRIOR_EVERY = 10  # iterations: an ellipse around the prior finds what a Gaussian near one solution would never see
# Chains that start as far apart as the prior has it and meet have forgotten where they started; nearer, attempt by
# attempt, where runs fail so far out.
START_WIDENING, START_NEARER = 100.0, 0.8
START_ATTEMPTS = 50
NARROWEST = 1e-9  # radians: a simulator that does not repeat itself could shrink a bracket for ever
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
    told: Callable[[int, int], None] | None = None,
) -> Chains:
    """Draw from the posterior of a problem.

    Parameters
    ----------
    run : a simulator or an emulator. A failed run makes a likelihood of 0.
    proposal : a Gaussian near the posterior; any is exact in the limit, a good one is fast.
    burn_in : iterations of each chain that are thrown away.
    thin : iterations from one draw to the next.
    draws : of each chain, at the least; a checkpoint that holds more gives them all.
    simulated : (N,), the sites whose evaluations are runs and are counted, None for all: an emulator's are not.
    checkpoint : a file that holds the chains so far. If it is there they go on, to the bit as if they had never been
        stopped; with more draws than before they grow longer.
    told : called now and then with the iterations that the slowest chain has done, and those it has to do.

    Raises
    ------
    ConfigError
        The checkpoint is of another problem, or of chains made otherwise.
    RunsFailedError
        The simulator fails wherever the chains might start.
    """
    # The number of threads decides how BLAS rounds; and threads do not help products as small as these.
    with threadpool_limits(1):
        walkers = walkers_of(problem, run, proposal, chains, simulated)
        sampler = _Sampler(walkers, seed)
        made = (chains, burn_in, thin, seed), walkers.shape, WIDENING, PRIOR_EVERY, START_WIDENING, START_NEARER
        mark = fingerprint(problem, proposal, made)
        count, sites = walkers.shape
        state, before = resumed(checkpoint, mark) or (None, np.empty((count, 0, sites, problem.latent_count)))
        kept = np.zeros((count, max(draws, before.shape[1]), *before.shape[2:]))
        kept[:, : before.shape[1]] = before
        schedule = Schedule(burn_in, thin, goal=burn_in + draws * thin)
        file = None if checkpoint is None else ChainsFile(checkpoint, mark, proposal, kept, schedule)
        if state is None:
            if file is not None:
                file.save(None)  # the proposal need not be found again
            state = sampler.start()
        if (state.iteration < schedule.goal).any():
            state = _run(sampler, state, file, kept, schedule, told)
    whole = kept[:, : schedule.draws(state.iteration.min())]
    return Chains(walkers.by_chain(whole), state.evaluations + proposal.runs)


def _run(
    sampler: _Sampler,
    state: State,
    file: ChainsFile | None,
    kept: Floats,
    schedule: Schedule,
    told: Callable[[int, int], None] | None,
) -> State:
    """Step until every chain has reached the goal; whatever ends it, the file holds how far they came."""
    saved = time.monotonic()
    try:
        while (active := state.iteration < schedule.goal).any():
            state = sampler.step(state, active, kept, schedule)
            if file is not None and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                file.save(state)
                saved = time.monotonic()
            if told is not None:
                told(int(state.iteration.min()), schedule.goal)
    finally:
        if file is not None:
            file.save(state)
    return state


class _Sampler:
    """What does not change while the chains run."""

    def __init__(self, walkers: Walkers, seed: int) -> None:
        self.walkers, self.seed = walkers, seed
        self.proposal = walkers.proposal
        self.root, self.to_units = self.proposal.root(WIDENING), self.proposal.to_units(WIDENING)
        D = self.proposal.mean.shape[-1]
        self.mean = np.resize(self.proposal.mean, (walkers.shape[0], D))

    def start(self) -> State:
        """Points far apart at which the simulator does not fail."""
        count, D = self.mean.shape
        v, log_likelihood, evaluations = np.zeros((count, D)), np.full(count, -np.inf), 0
        for attempt in range(START_ATTEMPTS):
            again = ~np.isfinite(log_likelihood)
            if not again.any():
                break
            normals = np.stack([self._random(walker, 0, attempt).standard_normal(D) for walker in range(count)])
            root = self.proposal.root(max(START_WIDENING * START_NEARER**attempt, WIDENING))
            v = np.where(again[:, None], self.mean + times(root, normals), v)
            values, runs = self.walkers.log_likelihood(self.walkers.field(v), again)
            log_likelihood = np.where(again, values, log_likelihood)
            evaluations += runs
        if not np.isfinite(log_likelihood).all():
            raise RunsFailedError(f"the chains could not start: at each of {START_ATTEMPTS} draws a run failed")
        empty, nothing, none = np.zeros((count, D)), np.zeros(count), np.zeros(count, dtype=np.int64)
        state = State(v, log_likelihood, empty, empty, nothing, nothing, nothing, nothing, none, none, evaluations)
        return self._begin(state, np.ones(count, dtype=bool))

    def step(self, state: State, active: NDArray[np.bool_], kept: Floats, schedule: Schedule) -> State:
        """One attempt of each active walker; draws that are due are written into `kept`."""
        stuck = state.upper - state.lower < NARROWEST
        angle = np.where(stuck, 0.0, state.angle)[:, None]
        point = state.point * np.cos(angle) + state.direction * np.sin(angle)
        v = np.where(_around_prior(state)[:, None], point, self.mean + times(self.root, point))
        f = self.walkers.field(v)  # of all walkers: the shape of a product decides how BLAS rounds
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
        """A new ellipse for some walkers, with the first angle to try."""
        direction, threshold, angle = state.direction.copy(), state.threshold.copy(), state.angle.copy()
        point = np.where(_around_prior(state)[:, None], state.v, times(self.to_units, state.v - self.mean))
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
        """The bracket without what lies beyond an angle that was refused, and another angle within it."""
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
    """Whether the present ellipse of each walker (W,) goes around the prior."""
    return np.asarray((state.iteration + 1) % PRIOR_EVERY == 0)


def _log_ratio(point: Floats, v: Floats) -> Floats:
    """Logarithm (W,) of the prior at v (W, D) over a Gaussian in whose units it is `point`, but for a constant."""
    return np.asarray(0.5 * (np.sum(point**2, axis=1) - np.sum(v**2, axis=1)))
