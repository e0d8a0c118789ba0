"""One Gaussian found anew for every trial of the other parameters, so that the search is over those alone.

Where the bound is stationary every site acts as a pseudo-observation with precision -h_n and pull g_n - h_n b_n, in the
terms of `invgp.core.natural_gradients`: Theorem 2 of the paper. A full Gaussian is the posterior of these. So is the
mean of a diagonal one, and its variances are 1 / ((K_zz^-1)_mm - sum_n h_n a_nm^2), the conditional ones. Steps from
one set of pseudo-observations towards the next, guarded by the bound, find them. They hardly depend on the kernels
(with Gaussian noise not at all), so those of one trial are a fine start for the next; and at the best posterior the
gradient with respect to everything else is that of the bound with the posterior held fixed.
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

MAX_SHORTFALL = 0.01  # of the bound: a start that falls further behind what is known already is not worth going on from


class SearchLimits(NamedTuple):
    """How long a posterior is sought.

    Attributes
    ----------
    steps : at the most.
    smallest : step that is still tried.
    share : of what the steps have gained; another that gains less can wait for the next trial.
    """

    steps: int
    smallest: float
    share: float


FIRST_SEARCH = SearchLimits(100, 2.0**-14, 0.0)  # it may lie far away, and all others are sought from there
NEXT_SEARCH = SearchLimits(30, 2.0**-2, 0.01)


class PseudoObservations(NamedTuple):
    """What the sites come to for the posterior.

    Attributes
    ----------
    precision : Lambda, (Q, N).
    pull : precision times what is observed, less the prior mean, (Q, N).
    """

    precision: Array
    pull: Array

    def step_towards(self, other: PseudoObservations, step: float) -> PseudoObservations:
        """A step, between 0 and 1, on the way to others."""
        return PseudoObservations(*(a + step * (b - a) for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Trial:
    """A posterior with its bound.

    Attributes
    ----------
    frame : of a `Full` or `Diagonal` posterior.
    pseudo : what the posterior is made of.
    target : what it would be made of after a whole natural-gradient step.
    """

    bound_state: BoundState
    pseudo: PseudoObservations
    target: PseudoObservations
    elbo: float


@dataclass(frozen=True)
class Profile:
    """The bound as a function of everything but the posterior.

    Parameters
    ----------
    bound : of one Gaussian: a full one, held as `Full` or as `Sites`, or a `Diagonal` one.
    tolerance : the posterior is found when a step changes the bound by less, relative to it (at least 1).
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
        """The best posterior, sought from that of the parameters; None where natural gradients do not lead near it."""
        given = self.bound.bound_state(parameters)
        seen = self._evaluate(given)
        if seen is None:
            return None
        elbo, target = seen
        nothing = PseudoObservations(*(zeros_like(part) for part in target))
        tried = [self._trial(parameters, given.kernel_cache, pseudo) for pseudo in (target, nothing)]
        first = max((trial for trial in tried if trial is not None), key=lambda trial: trial.elbo, default=None)
        if first is None:
            return None
        found = self._optimise(first, FIRST_SEARCH)
        return found if found.elbo >= elbo - MAX_SHORTFALL * max(1.0, abs(elbo)) else None

    def at(self, parameters: Parameters, near: Trial) -> Trial | None:
        """The best posterior at other parameters; None where their covariance cannot be factorised."""
        try:
            kernel_cache = self.bound.kernel_cache(parameters)
        except np.linalg.LinAlgError:
            return None
        trial = self._trial(parameters, kernel_cache, near.pseudo)
        return None if trial is None else self._optimise(trial, NEXT_SEARCH)

    def gradient(self, trial: Trial, blocks: Sequence[str]) -> Array:
        """Gradient of the bound with respect to some blocks, flat."""
        density = self.data.log_density(trial.bound_state.parameters.likelihood, derivatives="likelihood" in blocks)
        return trial.bound_state.evaluate(density, self.points, blocks).gradient.flat(blocks)

    def parameters(self, trial: Trial) -> Parameters:
        """The parameters of a trial, the posterior as the bound's own family holds it."""
        xp, family, bound_state = array_namespace(trial.bound_state.factor), self.bound.posterior, trial.bound_state
        if isinstance(family, Sites):
            parts = (bound_state.q.mean, xp.asinh(trial.pseudo.precision / family.scale))
            return replace(bound_state.parameters, posterior=xp.concat([xp.reshape(part, (-1,)) for part in parts]))
        return replace(bound_state.parameters, posterior=self.family.pack(bound_state.q))

    def _optimise(self, trial: Trial, limits: SearchLimits) -> Trial:
        """After natural-gradient steps, none smaller than patience has it, until the bound no longer rises."""
        first, step = trial.elbo, 1.0
        for _ in range(limits.steps):
            pseudo = trial.pseudo.step_towards(trial.target, step)
            following = self._trial(trial.bound_state.parameters, trial.bound_state.kernel_cache, pseudo)
            gain = following.elbo - trial.elbo if following is not None else -math.inf
            if following is not None and gain >= 0.0:
                trial, step = following, min(1.0, 2.0 * step)
            else:
                step *= 0.5
            small = max(self.tolerance * max(1.0, abs(trial.elbo)), limits.share * (trial.elbo - first))
            if abs(gain) <= small or step < limits.smallest:
                break
        return trial

    def _trial(self, parameters: Parameters, kernel_cache: KernelCache, pseudo: PseudoObservations) -> Trial | None:
        """The posterior of some pseudo-observations.

        None where their precisions, less than nothing, leave none, or where it takes the likelihood out of bounds.
        """
        try:
            q = self._posterior(kernel_cache, pseudo)
        except np.linalg.LinAlgError:
            return None
        bound_state = BoundState(
            replace(self.bound, posterior=self.family), self.family, parameters, kernel_cache, q, held=False
        )
        seen = self._evaluate(bound_state)
        return None if seen is None else Trial(bound_state, pseudo, seen[1], seen[0])

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
        spread = self.family.conditional(kernel_cache.factor, diagonal) if isinstance(self.family, Diagonal) else R
        return Mixture(xp.ones_like(mean[:, 0, 0]), mean, spread[None, ...])

    def _mean_precisions(self, precision: Array) -> Array:
        """Precisions (Q, N) of what the sites pull the mean to.

        A diagonal Gaussian is so narrow that it sees the log density all but at one point, where it may curve upwards.
        For its mean, precisions only say how long a step is, so that they may as well be none.
        """
        xp = array_namespace(precision)
        return xp.maximum(precision, xp.zeros_like(precision)) if isinstance(self.family, Diagonal) else precision

    def _evaluate(self, bound_state: BoundState) -> tuple[float, PseudoObservations] | None:
        """The bound at a posterior, and what its sites ask for; None where a log density is not finite."""
        xp = array_namespace(bound_state.factor)
        density = self.data.log_density(bound_state.parameters.likelihood, derivatives=False)
        elbo, precisions, pulls = bound_state.family.negative_kl(bound_state.q, bound_state.factor), [], []
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
            centred = (mean[0, ...] - self.bound.prior_mean).T
            precisions.append(precision)
            pulls.append(terms.gradient.T + self._mean_precisions(precision) * centred)
        return float(elbo), PseudoObservations(xp.concat(precisions, axis=1), xp.concat(pulls, axis=1))
