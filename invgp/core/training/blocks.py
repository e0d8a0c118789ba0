"""Learning of all parameters by blocks, on all data, as in the paper.

In each round, L-BFGS with common random numbers optimises one group of blocks after the other, for a limited number of
evaluations, until the bound converges. A single Gaussian is optimised for each trial of the other blocks
(`invgp.core.profiled_bound`); then all blocks of the group are optimised together, in whitened form. For mixtures,
kernels or inducing inputs alone are learnt with a fixed distribution of the inducing variables, so that in the dense
case their gradient needs no samples. The search for a mixture starts once from the initial one, and once from a mixture
around the best single Gaussian (`invgp.core.training.mixtures`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from invgp.core.backend import Array, array_namespace
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
    format_settings,
    select_blocks,
)
from invgp.core.training.mixtures import mixture_of_modes, surround_best_gaussian
from invgp.core.training.reflections import is_even, reflect_regions
from invgp.core.training.restarts import (
    LENGTH_SCALES,
    Starts,
    is_convex_at_mean,
    is_suspicious,
    restart,
    shorten_length_scales,
)

TOGETHER = (("posterior", "kernels", "likelihood", "inducing", "prior_mean"),)
MAX_LOG_STEP = 3.0  # largest step of log kernel parameters: beyond, gradients may vanish
FINAL_EVALUATIONS = 8  # evaluations of all blocks together after a search over optimal posteriors has converged
PAPER_ORDER = (("kernels",), ("posterior",), ("kernels",), ("likelihood",), ("inducing",), ("prior_mean",))


@dataclass(frozen=True, repr=False)
class Blocks:
    """Optimisation by blocks of parameters, with L-BFGS on all data.

    Parameters
    ----------
    learn : tuple of str
        Blocks that are learnt, among "posterior", "kernels", "inducing", "likelihood" and "prior_mean".
    order : tuple of tuples of str
        Groups of blocks that are optimised one after the other in a round: `TOGETHER`, `PAPER_ORDER` or another order.
    evaluations : int
        Largest number of evaluations per group and round.
    rounds : int
        Largest number of rounds.
    tolerance : float
        The fit has converged when a round changes the bound by less than this, relative to max(1, abs(bound)).
    profile_posterior : bool
        Whether a single Gaussian is optimised for each trial of other blocks, and the search for a mixture also starts
        around the best single Gaussian. Otherwise the posterior is fixed while other blocks are learnt, and a
        mixture starts from its initial components, as in the code of the authors.
    restarts : int
        Number of further starts of the posterior, from draws of the prior. A single Gaussian is started again only if
        the log density is convex at its mean at many sites, at the start or at the end, or if it has learnt nothing
        (its KL divergence from the prior is almost 0), which indicates a saddle point or a poor local optimum, or if
        the likelihood is even in its only latent. At the end, starts with shorter length-scales are tried too.
        The components of a mixture start at different optima. Not used with ``profile_posterior=False``.
    optimiser : LBFGS
        Or an object with the same `init` and `tell` (`invgp.core.optimisers`).
    """

    learn: tuple[str, ...] = ("posterior", "kernels", "likelihood")
    order: tuple[tuple[str, ...], ...] = TOGETHER
    evaluations: int = 200
    rounds: int = 200
    tolerance: float = 1e-5
    profile_posterior: bool = True
    restarts: int = 8
    optimiser: LBFGS = field(default_factory=lambda: LBFGS(tolerance=1e-7))

    def __repr__(self) -> str:
        return format_settings(self)

    def __post_init__(self) -> None:
        check_blocks("learn", self.learn)
        for group in self.order:
            check_blocks("a group of order", group)
        check_integer("evaluations", self.evaluations, 1)
        check_integer("rounds", self.rounds, 1)
        check_number("tolerance", self.tolerance, 0.0)
        check_boolean("profile_posterior", self.profile_posterior)
        check_integer("restarts", self.restarts, 0)
        check_optimiser(self.optimiser, "value", "Blocks", "LBFGS")

    @staticmethod
    def of_the_paper(
        learn: tuple[str, ...] = ("posterior", "kernels", "likelihood", "inducing"), *, profile_posterior: bool = True
    ) -> Blocks:
        """Return the order and evaluations per block of the authors' runs.

        Parameters
        ----------
        learn : tuple of str
            Blocks to learn.
        profile_posterior : bool
            False for exactly the scheme of the authors, which fixes the posterior while other blocks are learnt.

        Returns
        -------
        Blocks
        """
        return Blocks(learn=learn, order=PAPER_ORDER, evaluations=25, profile_posterior=profile_posterior)

    def fit(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        points: Points,
        report: Report | None = None,
        after: Progress | None = None,
        starts: Starts | None = None,
    ) -> Parameters:
        """Learn the parameters.

        Parameters
        ----------
        bound : Bound
            The model.
        parameters : Parameters
            Initial parameters.
        data : Data
            Likelihood and observations.
        points : Points
            Standard normals, the same in every evaluation.
        report : callable, optional
            Called with a `Progress` after each round; it may raise an exception to stop the fit.
        after : Progress, optional
            Continue after this round of an earlier fit; the results are the same as without the interruption.
        starts : Starts, optional
            Where the posterior is started again, if `restarts` is not 0.

        Returns
        -------
        invgp.core.parameters.Parameters
            The learnt parameters.
        """
        learnt, initial = select_blocks(self.learn, bound, parameters), parameters
        order = [group for names in self.order if (group := [name for name in names if name in learnt])]
        progress = after or Progress(0, -np.inf, parameters)
        if after is None:
            check_start(bound, parameters, data, points)
        while progress.round < self.rounds and not progress.status:
            candidates = [progress.parameters]
            if progress.round == 0 and any("posterior" in group for group in order):
                candidates = self._initial_candidates(bound, progress.parameters, data, points, starts)
            rounds = [self._round(order, bound, one, data, points) for one in candidates]
            parameters, status, value = max(rounds, key=lambda found: found[2])
            over = abs(value - progress.elbo) <= self.tolerance * max(1.0, abs(value)) or not order
            if starts is not None and (over or progress.round == 0):
                first = progress.round == 0
                moved = self._leave_optimum(order, bound, initial, parameters, data, points, starts, first=first)
                if moved is None and over:
                    moved = self._reflect(bound, parameters, value, data, points, starts)
                over, parameters = over and moved is None, parameters if moved is None else moved
            progress = Progress(
                progress.round + 1,
                value,
                parameters,
                over and status == CONVERGED,
                status if over else "",
                samples=points.base.shape[0],
            )
            if report is not None:
                report(progress)
        return progress.parameters

    def _round(
        self, order: Sequence[Sequence[str]], bound: Bound, parameters: Parameters, data: Data, points: Points
    ) -> tuple[Parameters, str, float]:
        """Optimise one group after the other; also return the status of the searches and the bound."""
        status = CONVERGED
        for group in order:
            parameters, finished = self.fit_group(group, bound, parameters, data, points)
            status = finished if finished in GAVE_UP else status
        return parameters, status, float(evaluate(bound, parameters, data, points, ()).elbo)

    def fit_group(
        self, group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
    ) -> tuple[Parameters, str]:
        """Optimise a group of blocks for a limited number of evaluations; also return why the search ended, or "".

        Parameters
        ----------
        group : sequence of str
            Names of the blocks.
        bound : Bound
            The model.
        parameters : Parameters
            Where the search starts.
        data : Data
            Likelihood and observations.
        points : Points
            Standard normal points of all sites.

        Returns
        -------
        parameters : Parameters
            Where the search ended.
        status : str
            Why it ended; empty if the evaluations are used up.
        """
        found = ""
        if self._profiles_posterior(bound) and "posterior" in self.learn:
            group = ["posterior", *(name for name in group if name != "posterior")]
            parameters, found = self._fit_profile(group, bound, parameters, data, points)
        objective = _objective(group, bound, parameters, data, points)
        state = self.optimiser.init(parameters.flatten(group))
        # After the search over optimal posteriors little remains to learn; otherwise another round follows.
        few = found == CONVERGED and len(group) > 1
        for _ in range(min(FINAL_EVALUATIONS, self.evaluations) if few else self.evaluations):
            if state.finished:
                break
            value, gradient = objective(state.trial)
            state = self.optimiser.tell(state, -value, -gradient)
        learnt = parameters.with_blocks(group, state.point)
        # If the search over optimal posteriors has converged, this final search need not converge too.
        finished = found if found == CONVERGED else state.finished
        return _keep_distribution(bound, parameters, learnt) if _holds_u(group, bound) else learnt, finished

    def _profiles_posterior(self, bound: Bound) -> bool:
        return self.profile_posterior and bound.posterior.components == 1

    def _leave_optimum(
        self,
        order: Sequence[Sequence[str]],
        bound: Bound,
        initial: Parameters,
        parameters: Parameters,
        data: Data,
        points: Points,
        starts: Starts,
        *,
        first: bool,
    ) -> Parameters | None:
        """Return better parameters from restarts where a saddle point or several optima are likely; otherwise None.

        After the `first` round, the posterior of an even likelihood of one latent is always started again.
        """
        if not self._may_restart(bound, starts):
            return None
        bound_state = bound.bound_state(parameters)
        even = first and len(bound.kernels) == 1 and is_even(bound_state, data, points)
        if not (even or is_suspicious(bound_state, data, points)):
            return None
        value = float(evaluate(bound, parameters, data, points, ()).elbo)
        begin = replace(initial, likelihood=parameters.likelihood)
        learns_kernels = any("kernels" in group for group in order)
        rounds = [
            self._round(order, bound, candidate, data, points)
            for factor in (LENGTH_SCALES if learns_kernels else (1.0,))
            for candidate in self._restart(bound, shorten_length_scales(bound, begin, factor), data, points, starts)
        ]
        best, _, reached = max(rounds, key=lambda found: found[2], default=(parameters, "", value))
        return best if self._is_better(reached, value) else None

    def _may_restart(self, bound: Bound, starts: Starts) -> bool:
        wanted = "posterior" in self.learn and starts.means.shape[0] > 0 and not starts.chosen
        return wanted and self._profiles_posterior(bound)

    def _is_better(self, value: float, than: float) -> bool:
        """Whether a bound is higher by more than the tolerance."""
        return value > than + self.tolerance * max(1.0, abs(than))

    def _reflect(
        self, bound: Bound, parameters: Parameters, value: float, data: Data, points: Points, starts: Starts
    ) -> Parameters | None:
        """Return parameters with a better posterior after reflections, if the likelihood is even; otherwise None."""
        if not self._may_restart(bound, starts) or len(bound.kernels) > 1:
            return None
        if not is_even(bound.bound_state(parameters), data, points):
            return None
        moved = reflect_regions(Profile(bound, data, points, self.optimiser.tolerance), parameters)
        # The search for the posterior may end lower than the fit where the log density has kinks.
        if moved is None or not self._is_better(float(evaluate(bound, moved, data, points, ()).elbo), value):
            return None
        return moved

    def _initial_candidates(
        self, bound: Bound, parameters: Parameters, data: Data, points: Points, starts: Starts | None
    ) -> list[Parameters]:
        """Return the parameters from which the first round starts, with optimised posteriors.

        If the posterior of a mixture were still near the prior, the kernels would fit to it instead of the data. A
        single Gaussian is optimised for each trial of the kernels; here it is only started again if necessary.
        """
        tolerance = self.optimiser.tolerance
        if self._profiles_posterior(bound):
            if starts is None or not starts.means.shape[0] or "posterior" not in self.learn:
                return [parameters]
            if starts.chosen:
                return self._restart(bound, parameters, data, points, starts) or [parameters]
            profile = Profile(bound, data, points, tolerance)
            first = profile.start(parameters)
            if first is not None and not is_convex_at_mean(first.bound_state, data, points):
                return [profile.parameters(first)]
            return [parameters, *self._restart(bound, parameters, data, points, starts)]
        mixtures = [parameters]
        if self.profile_posterior:
            around = surround_best_gaussian(bound, parameters, data, points, tolerance)
            modes = mixture_of_modes(bound, parameters, data, points, tolerance, starts)
            mixtures += [one for one in (around, modes) if one is not None]
        fitted = [self.fit_group(["posterior"], bound, start, data, points) for start in mixtures]
        valid = [one for one, status in fitted if status != NO_START] or [parameters]
        return [max(valid, key=lambda one: float(evaluate(bound, one, data, points, ()).elbo))]

    def _restart(
        self, bound: Bound, parameters: Parameters, data: Data, points: Points, starts: Starts | None
    ) -> list[Parameters]:
        """Return the parameters with the best posterior of several starts; empty if there is none."""
        if starts is None or not starts.means.shape[0] or not self._profiles_posterior(bound):
            return []
        profile = Profile(bound, data, points, self.optimiser.tolerance)
        return [profile.parameters(trial) for trial in restart(profile, parameters, starts.means)[:1]]

    def _fit_profile(
        self, group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
    ) -> tuple[Parameters, str]:
        """Optimise the other blocks of a group, with the optimal posterior of each trial, if that increases the bound.

        Also return why the search ended; empty if its evaluations were used up or it could not start.
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
        """Search for the best trial of some blocks, each with its optimal posterior."""
        state = self.optimiser.init(parameters.flatten(blocks))
        state = self.optimiser.tell(state, -best.elbo, -profile.gradient(best, blocks))
        for _ in range(self.evaluations):
            if state.finished:
                break
            tried = parameters.with_blocks(blocks, state.trial)
            trial = profile.at(tried, best) if _is_near(tried, best.bound_state.parameters) else None
            if trial is None:
                state = self.optimiser.tell(state, np.inf, state.gradient)
                continue
            state = self.optimiser.tell(state, -trial.elbo, -profile.gradient(trial, blocks))
            if state.accepted:
                best = trial
        return best, state.finished


def _is_near(tried: Parameters, best: Parameters) -> bool:
    """Whether the kernels are close enough to the best ones so far for one step."""
    xp = array_namespace(tried.kernels)
    return bool(xp.all(xp.abs(tried.kernels - best.kernels) <= MAX_LOG_STEP))


def _holds_u(group: Sequence[str], bound: Bound) -> bool:
    """Whether a group is learnt with the distribution of the inducing variables held fixed."""
    return set(group) <= {"kernels", "inducing"} and not isinstance(bound.posterior, Sites)


def _objective(
    group: Sequence[str], bound: Bound, parameters: Parameters, data: Data, points: Points
) -> Callable[[Array], tuple[float, Array]]:
    """Return the bound and its gradient as a function of a group of blocks."""
    kernel_cache = bound.kernel_cache(parameters) if set(group) <= {"posterior", "likelihood"} else None
    held = bound.bound_state(parameters) if _holds_u(group, bound) else None
    # In the dense case the marginals do not depend on the kernels: only the KL term changes.
    without_samples = bound.dense and held is not None

    def objective(vector: Array) -> tuple[float, Array]:
        trial = parameters.with_blocks(group, vector)
        bound_state = _try_bound_state(bound, trial, kernel_cache, held)
        if bound_state is None:
            return -np.inf, vector
        if without_samples:
            terms = bound_state.finish(bound_state.zero_sum(), group)
        else:
            density = data.log_density(trial.likelihood, derivatives="likelihood" in group)
            try:
                terms = bound_state.evaluate(density, points, group, strict=True)
            except NotFiniteError:
                return -np.inf, vector
        return float(terms.elbo), terms.gradient.flatten(group)

    return objective


def _try_bound_state(
    bound: Bound, parameters: Parameters, kernel_cache: KernelCache | None, held: BoundState | None
) -> BoundState | None:
    """Compute the bound state; None if the covariance of the kernels cannot be factorised."""
    try:
        return bound.bound_state(parameters, kernel_cache=kernel_cache, held=held)
    except np.linalg.LinAlgError:
        return None


def _keep_distribution(bound: Bound, old: Parameters, new: Parameters) -> Parameters:
    """Adapt the whitened posterior to new kernels and inducing inputs, so that the distribution of u stays the same."""
    family = bound.posterior
    if isinstance(family, Sites):  # here Lambda stays the same instead
        return new
    moved = bound.bound_state(new, held=bound.bound_state(old))
    return replace(new, posterior=family.pack(moved.q))
