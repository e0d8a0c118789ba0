"""Learning every parameter block by block, on all data: the paper's loop.

L-BFGS with common random numbers on one block after the other, for a few evaluations, round after round, until the
bound settles. A single Gaussian is found anew for every trial of other blocks (`invgp.core.profiled_bound`); what that
leaves is learnt by all blocks of the group together, in whitened form. With mixtures kernels or inducing inputs
alone are learnt with the distribution of the inducing variables held fixed, so that in the dense case their gradient
needs no samples at all. A mixture is sought from where it is given and from around the best single Gaussian
(`invgp.core.training.mixtures`), once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from invgp.core.backend import Array, array_namespace
from invgp.core.batch_sums import BatchSum
from invgp.core.bound import Bound, BoundState, KernelCache
from invgp.core.checks import check_boolean, check_integer, check_number
from invgp.core.expectations import NotFiniteError
from invgp.core.observed_likelihood import Data
from invgp.core.optimisers import CONVERGED, GAVE_UP, LBFGS, NO_START
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Sites
from invgp.core.profiled_bound import Profile, Trial
from invgp.core.training.common import (
    Progress,
    Report,
    check_blocks,
    check_optimiser,
    check_start,
    evaluate,
    select_blocks,
)
from invgp.core.training.mixtures import surround_best_gaussian

TOGETHER = (("posterior", "kernels", "likelihood", "inducing"),)
MAX_LOG_STEP = 3.0  # step of the log of a variance or length-scale: beyond, nothing may show the way back
FINAL_EVALUATIONS = 8  # trials of all blocks together where a search over the best posteriors has settled
PAPER_ORDER = (("kernels",), ("posterior",), ("kernels",), ("likelihood",), ("inducing",))


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
    anew : whether a single Gaussian that is learnt is found anew for every trial of other blocks, also of those
        that have a group to themselves, and a mixture is also sought around the best one; otherwise these see it as it
        is, and a mixture is sought from where it starts, as in the authors' own code.
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
        check_blocks("learn", self.learn)
        for group in self.order:
            check_blocks("a group of order", group)
        check_integer("evaluations", self.evaluations, 1)
        check_integer("rounds", self.rounds, 1)
        check_number("tolerance", self.tolerance, 0.0)
        check_boolean("anew", self.anew)
        check_optimiser(self.optimiser, "value", "Blocks", "LBFGS")

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
        learnt = select_blocks(self.learn, bound, parameters)
        order = [group for names in self.order if (group := [name for name in names if name in learnt])]
        progress = after or Progress(0, -np.inf, parameters)
        if after is None:
            check_start(bound, parameters, data, points)
        while progress.round < self.rounds and not progress.status:
            parameters, status = progress.parameters, CONVERGED
            if progress.round == 0 and any("posterior" in group for group in order):
                parameters = self._fit_posterior_first(bound, parameters, data, points)
            for group in order:
                parameters, finished = self.fit_group(group, bound, parameters, data, points)
                status = finished if finished in GAVE_UP else status
            value = float(evaluate(bound, parameters, data, points, ()).elbo)
            over = abs(value - progress.elbo) <= self.tolerance * max(1.0, abs(value)) or not order
            progress = Progress(
                progress.round + 1, value, parameters, over and status == CONVERGED, status if over else ""
            )
            if report is not None:
                report(progress)
        return progress.parameters

    def fit_group(
        self, group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
    ) -> tuple[Parameters, str]:
        """A few trials of L-BFGS on a group of blocks; and why they ended, empty if they were used up."""
        found = ""
        if self._profiles_posterior(bound) and "posterior" in self.learn:
            group = ["posterior", *(name for name in group if name != "posterior")]
            parameters, found = self._fit_profile(group, bound, parameters, data, points)
        objective = _objective(group, bound, parameters, data, points)
        state = self.optimiser.init(parameters.flat(group))
        # The best posteriors leave little to learn; if it is more than that, there will be another round.
        few = found == CONVERGED and len(group) > 1
        for _ in range(min(FINAL_EVALUATIONS, self.evaluations) if few else self.evaluations):
            if state.finished:
                break
            value, gradient = objective(state.trial)
            state = self.optimiser.tell(state, -value, -gradient)
        learnt = parameters.updated(group, state.point)
        # What the best posteriors have settled already, a last search need not confirm.
        finished = found if found == CONVERGED else state.finished
        return _keep_distribution(bound, parameters, learnt) if _holds_u(group, bound) else learnt, finished

    def _profiles_posterior(self, bound: Bound) -> bool:
        return self.anew and bound.posterior.components == 1

    def _fit_posterior_first(self, bound: Bound, parameters: Parameters, data: Data, points: Points) -> Parameters:
        """The parameters with a posterior that has gone ahead, once.

        Beside a posterior that is still the prior, or ahead of it, kernels learn that there is nothing to learn; unless
        it is found anew for every trial of the others.
        """
        if self._profiles_posterior(bound):
            return parameters
        starts = [parameters]
        if self.anew:
            around = surround_best_gaussian(bound, parameters, data, points, self.optimiser.tolerance)
            starts += [around] if around is not None else []
        found = [self.fit_group(["posterior"], bound, start, data, points) for start in starts]
        valid = [one for one, status in found if status != NO_START] or [parameters]
        return max(valid, key=lambda one: float(evaluate(bound, one, data, points, ()).elbo))

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
        finished = CONVERGED
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
            tried = parameters.updated(blocks, state.trial)
            trial = profile.at(tried, best) if _is_near(tried, best.bound_state.parameters) else None
            if trial is None:
                state = self.optimiser.tell(state, np.inf, state.gradient)
                continue
            state = self.optimiser.tell(state, -trial.elbo, -profile.gradient(trial, blocks))
            if state.accepted:
                best = trial
        return best, state.finished


def _is_near(tried: Parameters, best: Parameters) -> bool:
    """Whether kernels are near enough to the best so far to go there in one step."""
    xp = array_namespace(tried.kernels)
    return bool(xp.all(xp.abs(tried.kernels - best.kernels) <= MAX_LOG_STEP))


def _holds_u(group: Sequence[str], bound: Bound) -> bool:
    """Whether a group is learnt with the distribution of the inducing variables held fixed."""
    return set(group) <= {"kernels", "inducing"} and not isinstance(bound.posterior, Sites)


def _objective(
    group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
) -> Callable[[Array], tuple[float, Array]]:
    """The bound and its gradient as a function of a group of blocks alone."""
    kernel_cache = bound.kernel_cache(parameters) if set(group) <= {"posterior", "likelihood"} else None
    held = bound.bound_state(parameters) if _holds_u(group, bound) else None
    # In the dense case the likelihood sees the same marginals whatever the kernels: only the KL term moves.
    without_samples = bound.dense and held is not None

    def objective(vector: Array) -> tuple[float, Array]:
        trial = parameters.updated(group, vector)
        bound_state = _try_bound_state(bound, trial, kernel_cache, held)
        if bound_state is None:
            return -np.inf, vector
        if without_samples:
            terms = bound_state.finish(BatchSum.zero(bound_state), group)
        else:
            density = data.log_density(trial.likelihood, derivatives="likelihood" in group)
            try:
                terms = bound_state.evaluate(density, points, group, strict=True)
            except NotFiniteError:
                return -np.inf, vector
        return float(terms.elbo), terms.gradient.flat(group)

    return objective


def _try_bound_state(
    bound: Bound, parameters: Parameters, kernel_cache: KernelCache | None, held: BoundState | None
) -> BoundState | None:
    """The frame, or None where a line search has gone to kernels whose covariance cannot be factorised."""
    try:
        return bound.bound_state(parameters, kernel_cache=kernel_cache, held=held)
    except np.linalg.LinAlgError:
        return None


def _keep_distribution(bound: Bound, old: Parameters, new: Parameters) -> Parameters:
    """Let the whitened posterior follow kernels and inducing inputs, so that the distribution of u stays."""
    family = bound.posterior
    if isinstance(family, Sites):  # whose Lambda stays instead
        return new
    moved = bound.bound_state(new, held=bound.bound_state(old))
    return replace(new, posterior=family.pack(moved.q))
