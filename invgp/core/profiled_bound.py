"""The bound as a function of all parameters except the posterior, which is optimised for each trial of the others.

Where the bound is stationary, every site acts as a pseudo-observation with precision -h_n and shift g_n - h_n b_n, in
the notation of `invgp.core.natural_gradients` (Theorem 2 of the paper). A full Gaussian is the posterior of the
pseudo-observations. A diagonal one has the same mean, and the conditional variances
1 / ((K_zz^-1)_mm - sum_n h_n a_nm^2). They are found by steps from one set of pseudo-observations towards the next,
none of which may decrease the bound. They hardly depend on the kernels (for Gaussian noise, not at all), so those of
one trial are a good start for the next. At the optimal posterior, the gradient with respect to all other parameters
equals the gradient of the bound at fixed posterior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from invgp.core.backend import (
    Array,
    add_weighted_gram,
    array_namespace,
    identity,
    matrix_vector_product,
    symmetrise,
    zeros_like,
)
from invgp.core.bound import Bound, BoundState, KernelCache
from invgp.core.expectations import NotFiniteError, estimate_expectations
from invgp.core.natural_gradients import covariance_factor
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Full, Mixture, Sites

MAX_SHORTFALL = 0.01  # relative to the bound: a search that ends further below the initial posterior has failed


class SearchLimits(NamedTuple):
    """Limits of the search for the optimal posterior.

    Attributes
    ----------
    steps : int
        Largest number of steps.
    smallest : float
        Shortest step that is tried.
    share : float
        The search ends when a step gains less than this fraction of the gain so far.
    """

    steps: int
    smallest: float
    share: float


FIRST_SEARCH = SearchLimits(100, 2.0**-14, 0.0)  # the optimum may be far away, and later searches start from it
NEXT_SEARCH = SearchLimits(30, 2.0**-2, 0.01)
RESTART_SEARCH = SearchLimits(20, 2.0**-10, 0.01)
START_PRECISION = 10.0  # of the pseudo-observations of a restart, relative to that of the prior


class PseudoObservations(NamedTuple):
    """Gaussian pseudo-observations of the latents, one per site and latent.

    Attributes
    ----------
    precision : array, shape (Q, N)
        Lambda of Theorem 2.
    pull : array, shape (Q, N)
        Precision times (observed value minus prior mean).
    """

    precision: Array
    pull: Array

    def step_towards(self, other: PseudoObservations, step: float) -> PseudoObservations:
        """Interpolate linearly to other pseudo-observations, by a step between 0 and 1."""
        return PseudoObservations(*(a + step * (b - a) for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Trial:
    """A posterior with its bound.

    Attributes
    ----------
    bound_state : BoundState
        With a `Full` or `Diagonal` posterior.
    pseudo : PseudoObservations
        Those that define the posterior.
    target : PseudoObservations
        Those after a natural-gradient step of length 1.
    safe_target : PseudoObservations
        Those without negative precisions, which always define a posterior.
    elbo : float
        The bound, in nats.
    """

    bound_state: BoundState
    pseudo: PseudoObservations
    target: PseudoObservations
    safe_target: PseudoObservations
    elbo: float


@dataclass(frozen=True)
class Profile:
    """The bound as a function of all parameters except the posterior.

    Parameters
    ----------
    bound : Bound
        With one Gaussian: `Full`, `Sites` or `Diagonal`.
    data : Data
        Likelihood and observations.
    points : Points
        Standard normals, the same in every evaluation.
    tolerance : float
        The search for the posterior ends when a step changes the bound by less than this, relative to
        max(1, abs(bound)).
    """

    bound: Bound
    data: Data
    points: Points
    tolerance: float
    family: Full | Diagonal = field(init=False)

    def __post_init__(self) -> None:
        family = self.bound.posterior
        full = Full(len(self.bound.kernels), family.inducing)
        object.__setattr__(self, "family", family if isinstance(family, Diagonal) else full)

    def start(self, parameters: Parameters) -> Trial | None:
        """Find the optimal posterior, starting at that of the parameters; None if natural gradients do not find it."""
        given = self.bound.bound_state(parameters)
        seen = self._evaluate(given)
        if seen is None:
            return None
        elbo, target, _ = seen
        nothing = PseudoObservations(*(zeros_like(part) for part in target))
        tried = [self._try_parameters(parameters, given.kernel_cache, pseudo) for pseudo in (target, nothing)]
        first = max((trial for trial in tried if trial is not None), key=lambda trial: trial.elbo, default=None)
        if first is None:
            return None
        found = self._optimise(first, FIRST_SEARCH)
        return found if found.elbo >= elbo - MAX_SHORTFALL * max(1.0, abs(elbo)) else None

    def start_at(self, parameters: Parameters, mean: Array) -> Trial | None:
        """Find the optimal posterior, starting near given values of the latents, minus the prior mean, (Q, N).

        The first steps ignore negative precisions, so that they lead uphill from any start.
        """
        xp = array_namespace(mean)
        kernel_cache = self.bound.kernel_cache(parameters)
        precision = START_PRECISION / xp.stack([k.variance + xp.zeros_like(mean[0, :]) for k in kernel_cache.kernels])
        trial = self._try_parameters(parameters, kernel_cache, PseudoObservations(precision, precision * mean))
        return None if trial is None else self._optimise(trial, RESTART_SEARCH, safe=True)

    def finish(self, trial: Trial) -> Trial:
        """Complete the search that `start_at` began."""
        return self._optimise(trial, FIRST_SEARCH)

    def at(self, parameters: Parameters, near: Trial) -> Trial | None:
        """Find the optimal posterior at other parameters; None if there is none or K_zz cannot be factorised."""
        try:
            kernel_cache = self.bound.kernel_cache(parameters)
        except np.linalg.LinAlgError:
            return None
        moved = near.bound_state.parameters.prior_mean - parameters.prior_mean
        pseudo = near.pseudo._replace(pull=near.pseudo.pull + near.pseudo.precision * moved[:, None])
        trial = self._try_parameters(parameters, kernel_cache, pseudo)
        return None if trial is None else self._optimise(trial, NEXT_SEARCH)

    def gradient(self, trial: Trial, blocks: Sequence[str]) -> Array:
        """Compute the gradient of the bound with respect to some blocks, as one vector."""
        density = self.data.log_density(trial.bound_state.parameters.likelihood, derivatives="likelihood" in blocks)
        return trial.bound_state.evaluate(density, self.points, blocks).gradient.flatten(blocks)

    def parameters(self, trial: Trial) -> Parameters:
        """Return the parameters of a trial, with the posterior in the family of the bound."""
        xp, family, bound_state = array_namespace(trial.bound_state.factor), self.bound.posterior, trial.bound_state
        if isinstance(family, Sites):
            parts = (bound_state.q.mean, xp.asinh(trial.pseudo.precision / family.scale))
            return replace(bound_state.parameters, posterior=xp.concat([xp.reshape(part, (-1,)) for part in parts]))
        return replace(bound_state.parameters, posterior=self.family.pack(bound_state.q))

    def _optimise(self, trial: Trial, limits: SearchLimits, *, safe: bool = False) -> Trial:
        """Take natural-gradient steps within the limits until the bound no longer increases.

        With `safe`, the steps lead to pseudo-observations without negative precisions.
        """
        first, step = trial.elbo, 1.0
        for _ in range(limits.steps):
            pseudo = trial.pseudo.step_towards(trial.safe_target if safe else trial.target, step)
            following = self._try_parameters(trial.bound_state.parameters, trial.bound_state.kernel_cache, pseudo)
            gain = following.elbo - trial.elbo if following is not None else -math.inf
            if following is not None and gain >= 0.0:
                trial, step = following, min(1.0, 2.0 * step)
            else:
                step *= 0.5
            small = max(self.tolerance * max(1.0, abs(trial.elbo)), limits.share * (trial.elbo - first))
            if abs(gain) <= small or step < limits.smallest:
                break
        return trial

    def _try_parameters(
        self, parameters: Parameters, kernel_cache: KernelCache, pseudo: PseudoObservations
    ) -> Trial | None:
        """Compute the posterior of pseudo-observations and its bound.

        None if negative precisions make the covariance indefinite, or if a log density is not finite.
        """
        try:
            q = self._posterior(kernel_cache, pseudo)
        except np.linalg.LinAlgError:
            return None
        bound_state = BoundState(
            replace(self.bound, posterior=self.family), self.family, parameters, kernel_cache, q, held=False
        )
        seen = self._evaluate(bound_state)
        return None if seen is None else Trial(bound_state, pseudo, seen[1], seen[2], seen[0])

    def _posterior(self, kernel_cache: KernelCache, pseudo: PseudoObservations) -> Mixture:
        xp = array_namespace(kernel_cache.factor)
        data, shift = zeros_like(kernel_cache.factor), zeros_like(kernel_cache.factor[..., 0])
        diagonal, precisions = zeros_like(shift), self._mean_precisions(pseudo.precision)
        for start, stop in self.bound.batches():
            geometry = self.bound.geometry(kernel_cache, start, stop)
            W = geometry.projection
            data = add_weighted_gram(data, W, precisions[:, start:stop])
            shift = shift + matrix_vector_product(W, pseudo.pull[:, start:stop])
            if isinstance(self.family, Diagonal):
                diagonal = diagonal + matrix_vector_product(
                    xp.square(geometry.weights), pseudo.precision[:, start:stop]
                )
        R = covariance_factor(identity(data) + symmetrise(data))
        mean = (R @ (xp.matrix_transpose(R) @ shift[..., None]))[None, ..., 0]
        spread = (
            self.family.conditional_variance(kernel_cache.factor, diagonal) if isinstance(self.family, Diagonal) else R
        )
        return Mixture(xp.ones_like(mean[:, 0, 0]), mean, spread[None, ...])

    def _mean_precisions(self, precision: Array) -> Array:
        """Return the precisions (Q, N) that determine the mean; for a diagonal Gaussian, negative ones are set to 0.

        A diagonal Gaussian is so narrow that its precision is almost the curvature at one point, which may have either
        sign. For its mean, the precisions only determine the length of a step, so 0 is allowed.
        """
        return _not_negative(precision) if isinstance(self.family, Diagonal) else precision

    def _evaluate(self, bound_state: BoundState) -> tuple[float, PseudoObservations, PseudoObservations] | None:
        """Compute the bound at a posterior, and the target pseudo-observations with and without negative precisions.

        None if a log density is not finite.
        """
        xp = array_namespace(bound_state.factor)
        density = self.data.log_density(bound_state.parameters.likelihood, derivatives=False)
        elbo, precisions, pulls, safe_pulls = (
            bound_state.family.negative_kl(bound_state.q, bound_state.factor) + bound_state.log_hyperprior,
            [],
            [],
            [],
        )
        for start, stop in self.bound.batches():
            mean, variance = bound_state.marginals(bound_state.geometry(start, stop))
            try:
                found = estimate_expectations(
                    density, self.points.at(start, stop), mean, xp.sqrt(variance), start, strict=True
                )
            except NotFiniteError:
                return None
            terms = found.of_component(0)
            elbo = elbo + xp.sum(terms.value)
            precision = -terms.curvature.T
            centred = (mean[0, ...] - bound_state.parameters.prior_mean).T
            precisions.append(precision)
            pulls.append(terms.gradient.T + self._mean_precisions(precision) * centred)
            safe_pulls.append(terms.gradient.T + _not_negative(precision) * centred)
        precision = xp.concat(precisions, axis=1)
        target = PseudoObservations(precision, xp.concat(pulls, axis=1))
        return float(elbo), target, PseudoObservations(_not_negative(precision), xp.concat(safe_pulls, axis=1))


def _not_negative(precision: Array) -> Array:
    xp = array_namespace(precision)
    return xp.maximum(precision, xp.zeros_like(precision))
