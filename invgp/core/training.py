"""Learning every parameter where the likelihood runs in this process: block by block, or on mini-batches.

The block loop is the paper's: L-BFGS with common random numbers on one block after the other, for a few evaluations,
round after round, until the bound settles. A single full Gaussian is found anew for every trial of other
blocks (`invgp.core.profile`); what that leaves is learnt by all blocks of the group together, in whitened form. With
other families kernels or inducing inputs alone are learnt with the distribution of the inducing variables held fixed,
so that in the dense case their gradient needs no samples at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np

from invgp.core.adaptive import AdaDelta, Adam
from invgp.core.backend import Array, place_of
from invgp.core.bound import BLOCKS, Bound, Frame, Ground, Parameters, Sum, Terms
from invgp.core.checks import whole, within
from invgp.core.data import Data
from invgp.core.estimators import fewest_unbiased_samples
from invgp.core.finite import NotFiniteError, check_start, finite
from invgp.core.natural import natural_step
from invgp.core.optimisers import GAVE_UP, LBFGS, SETTLED
from invgp.core.posteriors import Full, Sites
from invgp.core.profile import Profile, Trial
from invgp.core.sampling import Points

TOGETHER = (("posterior", "kernels", "likelihood", "inducing"),)
PAPER_ORDER = (("kernels",), ("posterior",), ("kernels",), ("likelihood",), ("inducing",))


@dataclass(frozen=True)
class Progress:
    """What a round, or an epoch, came to: all that is needed to go on after it.

    Attributes
    ----------
    round : its number, or the epoch's, from 1.
    elbo : the bound.
    settled : whether the bound has stopped rising, and no search gave up.
    status : why no round follows; empty while the fit goes on, or has used up its rounds.
    optimiser : of mini-batches, where it stands.
    """

    round: int
    elbo: float
    parameters: Parameters
    settled: bool = False
    status: str = ""
    optimiser: Any = None


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Blocks:
    """The paper's block loop.

    Parameters
    ----------
    learn : blocks that may move at all.
    order : what is learnt in a round, one group of blocks after the other: `TOGETHER` or `PAPER_ORDER`, or your own.
    evaluations : trials, at the most, for a group in a round.
    rounds : at the most.
    tolerance : settled when a round improves the bound by less, relative to it (at least 1).
    anew : whether a single full Gaussian that is learnt is found anew for every trial of other blocks, also of those
        that have a group to themselves; otherwise these see it as it is, as in the authors' own code.
    optimiser : `LBFGS`, or one of your own with the same `init` and `tell` (`invgp.core.optimisers`).
    """

    learn: tuple[str, ...] = ("posterior", "kernels", "likelihood")
    order: tuple[tuple[str, ...], ...] = TOGETHER
    evaluations: int = 50
    rounds: int = 200
    tolerance: float = 1e-5
    anew: bool = True
    optimiser: LBFGS = field(default_factory=lambda: LBFGS(tolerance=1e-7))

    def __post_init__(self) -> None:
        _check_blocks("learn", self.learn)
        for group in self.order:
            _check_blocks("a group of order", group)
        whole("evaluations", self.evaluations, 1)
        whole("rounds", self.rounds, 1)
        within("tolerance", self.tolerance, 0.0)
        _check_optimiser(self.optimiser, "value", "Blocks", "LBFGS")

    @staticmethod
    def of_the_paper(
        learn: tuple[str, ...] = ("posterior", "kernels", "likelihood", "inducing"), *, anew: bool = True
    ) -> Blocks:
        """The order, and the evaluations a block, of the authors' own runs; with `anew=False` their very scheme."""
        return Blocks(learn=learn, order=PAPER_ORDER, evaluations=25, anew=anew)

    def fit(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        points: Points,
        report: Report | None = None,
        after: Progress | None = None,
    ) -> Parameters:
        """Learn.

        Parameters
        ----------
        report : told after each round; it may raise to stop.
        after : go on after this round of an earlier fit, to the same numbers as if that had gone on itself.
        """
        movable = _movable(self.learn, bound, parameters)
        order = [group for names in self.order if (group := [name for name in names if name in movable])]
        progress = after or Progress(0, -np.inf, parameters)
        if after is None:
            check_start(bound, parameters, data, points)
        while progress.round < self.rounds and not progress.status:
            parameters, status = progress.parameters, SETTLED
            for group in order if progress.round else self._first_round(order, bound):
                parameters, finished = self.fit_group(group, bound, parameters, data, points)
                status = finished if finished in GAVE_UP else status
            value = float(evaluate(bound, parameters, data, points, ()).elbo)
            over = abs(value - progress.elbo) <= self.tolerance * max(1.0, abs(value)) or not order
            progress = Progress(
                progress.round + 1, value, parameters, over and status == SETTLED, status if over else ""
            )
            if report is not None:
                report(progress)
        return progress.parameters

    def fit_group(
        self, group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
    ) -> tuple[Parameters, str]:
        """A few trials of L-BFGS on a group of blocks; and why they ended, empty if they were used up."""
        found = ""
        if self._finds_anew(bound) and "posterior" in self.learn:
            group = ["posterior", *(name for name in group if name != "posterior")]
            parameters, found = self._fit_profile(group, bound, parameters, data, points)
        objective = _objective(group, bound, parameters, data, points)
        state = self.optimiser.init(parameters.flat(group))
        for _ in range(self.evaluations):
            if state.finished:
                break
            value, gradient = objective(state.trial)
            state = self.optimiser.tell(state, -value, -gradient)
        learnt = parameters.updated(group, state.point)
        # What the best posteriors have settled already, a last search need not confirm.
        finished = found if found == SETTLED else state.finished
        return _follow(bound, parameters, learnt) if _holds_u(group, bound) else learnt, finished

    def _finds_anew(self, bound: Bound) -> bool:
        return self.anew and isinstance(bound.posterior, Full | Sites) and bound.posterior.components == 1

    def _first_round(self, order: list[list[str]], bound: Bound) -> list[list[str]]:
        """The groups of a first round.

        Beside a posterior that is still the prior, or ahead of it, kernels learn that there is nothing to learn. Unless
        the posterior is found anew for every trial of the others, it goes ahead of them once.
        """
        learnt = any("posterior" in group for group in order)
        return [["posterior"], *order] if learnt and not self._finds_anew(bound) else order

    def _fit_profile(
        self, group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
    ) -> tuple[Parameters, str]:
        """The best posterior for every trial of the rest of the group; the parameters given if they are better.

        And why the search ended, empty if its trials were used up or there was no start for it.
        """
        rest = [name for name in group if name != "posterior"]
        profile = Profile(bound, data, points, self.optimiser.tolerance)
        best = profile.start(parameters)
        if best is None:
            return parameters, ""
        finished = SETTLED
        if rest:
            best, finished = self._search(profile, parameters, best, rest)
        before = float(evaluate(bound, parameters, data, points, ()).elbo)
        return (profile.parameters(best) if best.elbo >= before else parameters), finished

    def _search(
        self, profile: Profile, parameters: Parameters, best: Trial, blocks: Sequence[str]
    ) -> tuple[Trial, str]:
        """The best trial of some blocks, each with the posterior that goes with it."""
        state = self.optimiser.init(parameters.flat(blocks))
        state = self.optimiser.tell(state, -best.elbo, -profile.gradient(best, blocks))
        for _ in range(self.evaluations):
            if state.finished:
                break
            trial = profile.at(parameters.updated(blocks, state.trial), best)
            if trial is None:
                state = self.optimiser.tell(state, np.inf, state.gradient)
                continue
            state = self.optimiser.tell(state, -trial.elbo, -profile.gradient(trial, blocks))
            if state.accepted:
                best = trial
        return best, state.finished


def evaluate(bound: Bound, parameters: Parameters, data: Data, points: Points, learn: Sequence[str]) -> Terms:
    """The bound and its gradient with respect to the blocks to learn, at the whitened posterior."""
    density = data.log_density(parameters.likelihood, derivatives="likelihood" in learn)
    return bound.frame(parameters).evaluate(density, points, learn)


def _movable(learn: Sequence[str], bound: Bound, parameters: Parameters) -> list[str]:
    """The blocks of `learn` that this model has: dense inducing inputs do not move, some likelihoods have nothing."""
    absent = {"inducing"} if bound.dense else set()
    if not parameters.likelihood.shape[0]:
        absent.add("likelihood")
    return [name for name in learn if name not in absent]


def _holds_u(group: Sequence[str], bound: Bound) -> bool:
    """Whether a group is learnt with the distribution of the inducing variables held fixed."""
    return set(group) <= {"kernels", "inducing"} and not isinstance(bound.posterior, Sites)


def _objective(
    group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
) -> Callable[[Array], tuple[float, Array]]:
    """The bound and its gradient as a function of a group of blocks alone."""
    ground = bound.ground(parameters) if set(group) <= {"posterior", "likelihood"} else None
    held = bound.frame(parameters) if _holds_u(group, bound) else None
    # In the dense case the likelihood sees the same marginals whatever the kernels: only the KL term moves.
    without_samples = bound.dense and held is not None

    def objective(vector: Array) -> tuple[float, Array]:
        trial = parameters.updated(group, vector)
        frame = _frame(bound, trial, ground, held)
        if frame is None:
            return -np.inf, vector
        if without_samples:
            terms = frame.finish(Sum.nothing(frame), group)
        else:
            density = finite(data.log_density(trial.likelihood, derivatives="likelihood" in group))
            try:
                terms = frame.evaluate(density, points, group)
            except NotFiniteError:
                return -np.inf, vector
        return float(terms.elbo), terms.gradient.flat(group)

    return objective


def _frame(bound: Bound, parameters: Parameters, ground: Ground | None, held: Frame | None) -> Frame | None:
    """The frame, or None where a line search has gone to kernels whose covariance cannot be factorised."""
    try:
        return bound.frame(parameters, ground=ground, held=held)
    except np.linalg.LinAlgError:
        return None


def _follow(bound: Bound, old: Parameters, new: Parameters) -> Parameters:
    """Let the whitened posterior follow kernels and inducing inputs, so that the distribution of u stays."""
    if isinstance(bound.posterior, Sites):
        return new
    moved = bound.frame(new, held=bound.frame(old))
    return replace(new, posterior=bound.posterior.pack(moved.q))


def _check_blocks(argument: str, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in BLOCKS]
    if unknown or isinstance(names, str):
        raise ValueError(f"{argument} must be a tuple of names among {', '.join(BLOCKS)}, was {names!r}")


def _check_optimiser(optimiser: Any, told: str, method: str, choices: str) -> None:
    """Raise unless it has `init(point)` and a `tell` that takes what this method tells it."""
    try:
        names = list(signature(optimiser.tell).parameters)
        fine = callable(optimiser.init) and ("value" in names) == (told == "value") and not isinstance(optimiser, type)
    except (AttributeError, TypeError, ValueError):
        fine = False
    if not fine:
        raise ValueError(f"optimiser of {method} must be {choices}, or have the same methods, was {optimiser!r}")


def _single_full(bound: Bound) -> Full | None:
    family = bound.posterior
    return family if isinstance(family, Full) and family.components == 1 else None


@dataclass(frozen=True)
class MiniBatches:
    """Stochastic optimisation on mini-batches, shuffled anew for every pass over the data.

    Parameters
    ----------
    learn : blocks that may move.
    optimiser : `Adam`, `AdaDelta` or your own, for everything that `natural` does not move (`invgp.core.adaptive`).
    natural : step of natural gradients for the posterior (one full Gaussian); 0 leaves it to the optimiser.
    settle : passes, the last ones of `epochs`, in which the posterior alone moves, by natural gradients whose steps
        shrink so that all batches count alike. Steps that do not shrink leave it as the last few batches would have it.
    batch, epochs, samples : sites a batch, passes over the data, samples a site.
    unbiased : whether the gradients have no bias at all, at some two to three times the error of each; by default
        their bias is of order 1 / samples.
    """

    learn: tuple[str, ...] = ("posterior", "kernels", "likelihood")
    optimiser: Adam | AdaDelta = field(default_factory=Adam)
    natural: float = 0.0
    settle: int = 0
    batch: int = 256
    epochs: int = 20
    samples: int = 64
    unbiased: bool = False

    def __post_init__(self) -> None:
        _check_blocks("learn", self.learn)
        for name in ("batch", "epochs", "samples"):
            whole(name, getattr(self, name), 1)
        within("natural", self.natural, 0.0, 1.0)
        whole("settle", self.settle, 0)
        if self.settle and not (self.natural and "posterior" in self.learn and self.settle <= self.epochs):
            raise ValueError(
                "settle must be 0 unless natural steps move the posterior, and at most epochs "
                f"(natural = {self.natural}, epochs = {self.epochs}), was {self.settle}"
            )
        if not isinstance(self.unbiased, bool):
            raise ValueError(f"unbiased must be True or False, was {self.unbiased!r}")  # noqa: TRY004 - as the others
        _check_optimiser(self.optimiser, "gradient", "MiniBatches", "Adam or AdaDelta")

    def fit(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        rng: np.random.Generator,
        report: Report | None = None,
        after: Progress | None = None,
    ) -> Parameters:
        """Learn.

        Parameters
        ----------
        rng : every epoch gets a stream of its own from it.
        report : told after each epoch, with the mean of its batches' estimates of the bound; it may raise to stop.
        after : go on after this epoch of an earlier fit that began with the same `rng`, to the same numbers as if that
            had gone on itself.
        """
        self._check(bound)
        blocks = [b for b in _movable(self.learn, bound, parameters) if not (b == "posterior" and self.natural)]
        state = self.optimiser.init(parameters.flat(blocks)) if blocks else None
        progress = after or Progress(0, -np.inf, parameters, optimiser=state)
        for stream in rng.spawn(self.epochs)[progress.round :]:
            progress = self._epoch(progress, blocks, bound, data, stream)
            if report is not None:
                report(progress)
        return progress.parameters

    def _check(self, bound: Bound) -> None:
        if isinstance(bound.posterior, Sites):
            raise ValueError(  # noqa: TRY004 - the combination is wrong, not the type
                "a posterior held at the sites needs all of them at once: use Full with mini-batches"
            )
        if self.natural and _single_full(bound) is None:
            raise ValueError(f"natural must be 0 unless the posterior is a single full Gaussian, was {self.natural}")
        if self.unbiased:
            latents = len(bound.kernels)
            whole("samples", self.samples, fewest_unbiased_samples(latents), f" (Q = {latents}, unbiased)")

    def _epoch(
        self, progress: Progress, blocks: Sequence[str], bound: Bound, data: Data, rng: np.random.Generator
    ) -> Progress:
        """One pass over the data."""
        N, parameters, state = bound.X.shape[0], progress.parameters, progress.optimiser
        order, values = rng.permutation(N), []
        starts = range(0, N, self.batch)
        settled = progress.round - (self.epochs - self.settle)  # passes in which the posterior alone has moved
        if settled >= 0:
            blocks = ()
        for number, start in enumerate(starts):
            index = np.sort(order[start : start + self.batch])
            small, some, points = self._batch(bound, data, index, rng)
            if progress.round == 0:
                check_start(small, parameters, some, points)
            # Before the step: a batch that the posterior has just been fitted to would flatter the bound.
            terms = evaluate(small, parameters, some, points, blocks)
            values.append(float(terms.elbo))
            if self.natural and "posterior" in self.learn:
                step = self._natural_size(settled * len(starts) + number)
                parameters = self._natural_step(small, parameters, some, points, step)
            if state is not None and blocks:
                state = self.optimiser.tell(state, -terms.gradient.flat(blocks) / N)
                parameters = parameters.updated(blocks, state.trial)
        return Progress(progress.round + 1, float(np.mean(values)), parameters, optimiser=state)

    def _batch(
        self, bound: Bound, data: Data, index: np.ndarray[Any, Any], rng: np.random.Generator
    ) -> tuple[Bound, Data, Points]:
        where = place_of(bound.X)
        xp = where.namespace
        rows = xp.asarray(index.astype(np.int32), device=where.device)
        small = replace(bound, X=xp.take(bound.X, rows, axis=0), dense=False, weight=bound.X.shape[0] / len(index))
        points = Points.draw(rng, self.samples, len(index), len(bound.kernels), where, independent=self.unbiased)
        return small, data.rows(rows), points

    def _natural_size(self, settling: int) -> float:
        """The step after so many that were to settle the posterior, less than nothing ahead of them.

        With 1 / (c + t) after t of them, each of these batches has the same weight in what comes out, and what was
        there before has that of c.
        """
        return self.natural / (1.0 + self.natural * max(settling, 0))

    def _natural_step(
        self, bound: Bound, parameters: Parameters, data: Data, points: Points, step: float
    ) -> Parameters:
        density = data.log_density(parameters.likelihood, derivatives=False)
        q = natural_step(bound.frame(parameters), density, points, step)
        family = _single_full(bound)
        return parameters if family is None else replace(parameters, posterior=family.pack(q))
