"""Learning every parameter where the likelihood runs in this process: block by block, or on mini-batches.

The block loop is the paper's: L-BFGS with common random numbers on one block after the other, for a few evaluations,
round after round, until the bound settles. Kernels or inducing inputs alone are learnt with the distribution of the
inducing variables held fixed, so that in the dense case their gradient needs no samples at all. Several blocks
together are learnt in whitened form, which needs far fewer rounds where they depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from invgp.core.adaptive import AdaDelta, Adam
from invgp.core.backend import Array, array_namespace, device_of, place_of
from invgp.core.bound import Bound, Frame, Ground, LogDensity, Parameters, Sum, Terms
from invgp.core.natural import natural_step
from invgp.core.optimisers import LBFGS
from invgp.core.posteriors import Full, Sites
from invgp.core.sampling import Points

TOGETHER = (("posterior", "kernels", "likelihood", "inducing"),)
PAPER_ORDER = (("kernels",), ("posterior",), ("kernels",), ("likelihood",), ("inducing",))
DIFFERENCE = 1e-4


class Likelihood(Protocol):
    """What the core needs of a likelihood."""

    @property
    def parameters(self) -> Array:
        """Free parameters, (P,)."""

    def with_parameters(self, parameters: Array) -> Any:
        """A copy with other free parameters."""

    def log_density(self, y: Array, f: Array) -> Array:
        """(S, N) for y (N, P) and f (S, N, Q)."""

    def parameter_gradient(self, y: Array, f: Array) -> Array | None:
        """(S, N, P), or None where there is none."""


@dataclass(frozen=True)
class Progress:
    """What a round, or a stretch of mini-batches, came to."""

    round: int
    elbo: float
    parameters: Parameters


@dataclass(frozen=True)
class Data:
    """A likelihood with its observations y (N, P)."""

    likelihood: Likelihood
    y: Array

    def log_density(self, parameters: Array, *, derivatives: bool) -> LogDensity:
        """The log density at the likelihood's free parameters, by sites; with derivatives if they are wanted."""
        likelihood = self.likelihood.with_parameters(parameters) if parameters.shape[0] else self.likelihood
        wanted = derivatives and parameters.shape[0] > 0

        def evaluate(f: Array, start: int, stop: int) -> tuple[Array, Array | None]:
            y, here = self.y[start:stop, ...], _at_sites(likelihood, slice(start, stop))
            slopes = here.parameter_gradient(y, f) if wanted else None
            if wanted and slopes is None:
                slopes = self._differences(parameters, y, f)
            return here.log_density(y, f), slopes

        return evaluate

    def _differences(self, parameters: Array, y: Array, f: Array) -> Array:
        """Central differences at the same samples, for a black box without derivatives."""
        xp = array_namespace(parameters)
        slopes = []
        for i in range(parameters.shape[0]):
            one = xp.arange(parameters.shape[0], device=device_of(parameters)) == i
            step = DIFFERENCE * xp.astype(one, parameters.dtype)
            up, down = (self.likelihood.with_parameters(parameters + s).log_density(y, f) for s in (step, -step))
            slopes.append((up - down) / (2.0 * DIFFERENCE))
        return xp.stack(slopes, axis=-1)

    def rows(self, index: Array) -> Data:
        """The observations of some sites."""
        y = array_namespace(self.y).take(self.y, index, axis=0)
        return replace(self, y=y, likelihood=_at_sites(self.likelihood, index))


def _at_sites(likelihood: Likelihood, rows: slice | Array) -> Likelihood:
    """The likelihood of some sites; most are the same everywhere."""
    return likelihood.at_sites(rows) if hasattr(likelihood, "at_sites") else likelihood


@dataclass(frozen=True)
class Blocks:
    """The paper's block loop.

    Parameters
    ----------
    order : what is learnt in a round, one group of blocks after the other: `TOGETHER` or `PAPER_ORDER`, or your own.
    learn : blocks that may move at all.
    evaluations : of the bound, at the most, for a block in a round.
    rounds : at the most.
    tolerance : settled when a round improves the bound by less, relative to it (at least 1).
    """

    learn: tuple[str, ...] = ("posterior", "kernels", "likelihood")
    order: tuple[tuple[str, ...], ...] = TOGETHER
    evaluations: int = 200
    rounds: int = 200
    tolerance: float = 1e-5
    optimiser: LBFGS = field(default_factory=lambda: LBFGS(tolerance=1e-7))

    @staticmethod
    def of_the_paper(learn: tuple[str, ...] = ("posterior", "kernels", "likelihood", "inducing")) -> Blocks:
        """The order, and the evaluations a block, of the authors' own runs."""
        return Blocks(learn=learn, order=PAPER_ORDER, evaluations=25)

    def fit(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        points: Points,
        report: Callable[[Progress], None] | None = None,
    ) -> Parameters:
        """Learn; `report` is told after each round and may raise to stop."""
        movable = _movable(self.learn, bound, parameters)
        order = [group for names in self.order if (group := [name for name in names if name in movable])]
        last = -np.inf
        for number in range(1, self.rounds + 1):
            for group in order:
                parameters = self.fit_group(group, bound, parameters, data, points)
            value = float(evaluate(bound, parameters, data, points, ()).elbo)
            if report is not None:
                report(Progress(number, value, parameters))
            if abs(value - last) <= self.tolerance * max(1.0, abs(value)) or not order:
                break
            last = value
        return parameters

    def fit_group(
        self, group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
    ) -> Parameters:
        """A few evaluations of L-BFGS on a group of blocks."""
        objective = _objective(group, bound, parameters, data, points)
        state = self.optimiser.init(parameters.flat(group))
        for _ in range(self.evaluations):
            if state.finished:
                break
            value, gradient = objective(state.trial)
            state = self.optimiser.tell(state, -value, -gradient)
        learnt = parameters.updated(group, state.point)
        return _follow(bound, parameters, learnt) if _holds_u(group, bound) else learnt


def evaluate(bound: Bound, parameters: Parameters, data: Data, points: Points, learn: Sequence[str]) -> Terms:
    """The bound and its gradient with respect to the blocks to learn, at the whitened posterior."""
    density = data.log_density(parameters.likelihood, derivatives="likelihood" in learn)
    return bound.frame(parameters).evaluate(density, points.at, learn)


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
            density = data.log_density(trial.likelihood, derivatives="likelihood" in group)
            terms = frame.evaluate(density, points.at, group)
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


def _single_full(bound: Bound) -> Full | None:
    family = bound.posterior
    return family if isinstance(family, Full) and family.components == 1 else None


@dataclass(frozen=True)
class MiniBatches:
    """Stochastic optimisation on mini-batches, shuffled anew for every pass over the data.

    Parameters
    ----------
    learn : blocks that may move.
    optimiser : Adam or AdaDelta, for everything that `natural` does not move.
    natural : step of natural gradients for the posterior (one full Gaussian); 0 leaves it to the optimiser.
    batch, epochs, samples : sites a batch, passes over the data, samples a site.
    """

    learn: tuple[str, ...] = ("posterior", "kernels", "likelihood")
    optimiser: Adam | AdaDelta = field(default_factory=Adam)
    natural: float = 0.0
    batch: int = 256
    epochs: int = 20
    samples: int = 64

    def fit(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        rng: np.random.Generator,
        report: Callable[[Progress], None] | None = None,
    ) -> Parameters:
        """Learn; `report` is told after each epoch, with the mean of its batches' estimates of the bound."""
        if isinstance(bound.posterior, Sites):
            raise ValueError(  # noqa: TRY004 - the combination is wrong, not the type
                "a posterior held at the sites needs all of them at once: use Full with mini-batches"
            )
        if self.natural and _single_full(bound) is None:
            raise ValueError("natural gradients need a single full Gaussian posterior")
        blocks = [b for b in _movable(self.learn, bound, parameters) if not (b == "posterior" and self.natural)]
        N = bound.X.shape[0]
        state = self.optimiser.init(parameters.flat(blocks)) if blocks else None
        for epoch in range(1, self.epochs + 1):
            order, values = rng.permutation(N), []
            for start in range(0, N, self.batch):
                index = np.sort(order[start : start + self.batch])
                small, some, points = self._batch(bound, data, index, rng)
                # Before the step: a batch that the posterior has just been fitted to would flatter the bound.
                terms = evaluate(small, parameters, some, points, blocks)
                values.append(float(terms.elbo))
                if self.natural:
                    parameters = self._natural_step(small, parameters, some, points)
                if state is not None:
                    state = self.optimiser.tell(state, -terms.gradient.flat(blocks) / N)
                    parameters = parameters.updated(blocks, state.trial)
            if report is not None:
                report(Progress(epoch, float(np.mean(values)), parameters))
        return parameters

    def _batch(
        self, bound: Bound, data: Data, index: np.ndarray[Any, Any], rng: np.random.Generator
    ) -> tuple[Bound, Data, Points]:
        where = place_of(bound.X)
        xp = where.namespace
        rows = xp.asarray(index.astype(np.int32), device=where.device)
        small = replace(bound, X=xp.take(bound.X, rows, axis=0), dense=False, weight=bound.X.shape[0] / len(index))
        points = Points.draw(rng, self.samples, len(index), len(bound.kernels), where)
        return small, data.rows(rows), points

    def _natural_step(self, bound: Bound, parameters: Parameters, data: Data, points: Points) -> Parameters:
        density = data.log_density(parameters.likelihood, derivatives=False)
        q = natural_step(bound.frame(parameters), density, points.at, self.natural)
        family = _single_full(bound)
        return parameters if family is None else replace(parameters, posterior=family.pack(q))
