"""SAVIGP as init / ask / tell: the caller runs the forward model.

Computed once: the factors of the prior, the standard normals (common random numbers: with the same normals at every
evaluation the bound is a deterministic function, which L-BFGS needs). At every evaluation: the marginals, the sites'
terms, the gradient. A single full Gaussian first takes natural-gradient steps, guarded by the bound, which find its
scale however informative the data are; then L-BFGS, in coordinates whitened by what they found, finds the optimum.
Kernels, inducing inputs and noise are held fixed here; `invgp.core.training` learns them where the likelihood runs in
this process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from invgp.core.backend import Array, array_namespace
from invgp.core.batch_sums import BatchSum
from invgp.core.bound import Bound, BoundState, KernelCache
from invgp.core.estimators import SiteTerms, features_needed
from invgp.core.expectations import Expected, estimate_terms
from invgp.core.natural_gradients import NaturalParameters, add_sites, interpolate, prior_parameters
from invgp.core.optimisers import LBFGS, LBFGSState
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Full, Mixture
from invgp.core.whitened_posteriors import Whitening

LEARNT = ("posterior",)
MAX_NATURAL_STEPS = 20  # at the most
SMALLEST_STEP = 1.0 / 64.0
MIN_RELATIVE_GAIN = 1e-3  # of the bound: below this gain, L-BFGS takes over
MIN_SAMPLES_PER_COEFFICIENT = 1.5  # valid runs a site, for each number that is estimated from them


@dataclass(frozen=True)
class NaturalStage:
    """Natural-gradient steps: from q towards a target, as far as `step`."""

    q: Mixture
    target: NaturalParameters
    step: float = 1.0
    steps: int = 0


@dataclass(frozen=True)
class LBFGSStage:
    """L-BFGS, in whitened coordinates where the family has them."""

    optimiser: LBFGSState
    whitening: Whitening | None


@dataclass(frozen=True)
class State:
    """Where the inference stands: immutable, all that is needed to go on.

    Attributes
    ----------
    trial : free parameters of the posterior whose bound is wanted next.
    posterior : of the best posterior so far.
    elbo, gradient : the bound there, and its gradient.
    stage : None before the first evaluation.
    evaluations : how many times the bound has been evaluated.
    finished : why the inference is over; empty while it goes on.
    """

    trial: Array
    posterior: Array
    elbo: float = -math.inf
    gradient: Array = None
    stage: NaturalStage | LBFGSStage | None = None
    evaluations: int = 0
    finished: str = ""


@dataclass(frozen=True)
class Info:
    """What one evaluation found.

    Attributes
    ----------
    elbo, expected_log_likelihood, kl : at the posterior that was asked about, in nats.
    accepted : whether that posterior is now the best one.
    """

    elbo: float
    expected_log_likelihood: float
    kl: float
    accepted: bool


@dataclass(frozen=True)
class Savigp:
    """The algorithm with everything that stays fixed while it runs.

    Parameters
    ----------
    bound : the model.
    parameters : where it starts; only the posterior moves.
    log_density : outputs of the forward model (S, N, P) -> log p(y_n | outputs), (S, N).
    points : standard normals, the same at every evaluation.
    """

    bound: Bound
    parameters: Parameters
    log_density: Callable[[Array], Array]
    points: Points
    optimiser: LBFGS = field(default_factory=LBFGS)
    kernel_cache: KernelCache = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel_cache", self.bound.kernel_cache(self.parameters))

    def init(self) -> State:
        """Start from the posterior of the parameters."""
        start = self.parameters.posterior
        return State(start, start)

    def bound_state(self, posterior: Array) -> BoundState:
        """The bound at a posterior, ready for samples."""
        return self.bound.bound_state(self.parameters.updated(LEARNT, posterior), kernel_cache=self.kernel_cache)

    def ask(self, state: State) -> Array:
        """Latent values (K S, N, Q) at which the forward model is wanted next: S for each of K components."""
        xp = array_namespace(state.posterior)
        mean, scale = self._marginals(self.bound_state(state.trial))
        return xp.concat([self.points.samples(mean[k, ...], scale[k, ...]) for k in range(mean.shape[0])])

    def tell(self, state: State, outputs: Array, valid: Array) -> tuple[State, Info]:
        """Take in the forward model's outputs at the values last asked for.

        Parameters
        ----------
        outputs : (K S, N, P); whatever a failed run holds is ignored.
        valid : (K S, N), False where the run failed.
        """
        xp = array_namespace(outputs)
        bound_state = self.bound_state(state.trial)
        _, scale = self._marginals(bound_state)
        outputs = xp.where(valid[..., None], outputs, xp.zeros_like(outputs))
        densities = self.log_density(outputs)
        densities = xp.where(valid, densities, xp.nan * xp.ones_like(densities))
        S, Q = self.points.base.shape
        fewest = self._fewest_valid(densities)
        by_component = [(densities[k * S : (k + 1) * S, :], None) for k in range(bound_state.family.components)]
        found = estimate_terms(self.points, scale, by_component, complete=fewest == S)
        sites = (0, self.bound.X.shape[0])
        terms = bound_state.finish(
            BatchSum.zero(bound_state).plus(bound_state, bound_state.geometry(*sites), sites, found, LEARNT), LEARNT
        )
        elbo = float(terms.elbo) if fewest >= MIN_SAMPLES_PER_COEFFICIENT * features_needed(Q, S) else -math.inf
        told = replace(state, evaluations=state.evaluations + 1)
        if isinstance(state.stage, LBFGSStage):
            new = self._update_lbfgs(told, state.stage, elbo, terms.gradient.posterior)
        else:
            new = self._approach(told, bound_state, found, elbo, terms.gradient.posterior)
        info = Info(elbo, float(terms.expected_log_likelihood), float(terms.kl), new.posterior is state.trial)
        return new, info

    def _approach(self, state: State, bound_state: BoundState, found: Expected, elbo: float, gradient: Array) -> State:
        """After the first evaluation, or a natural-gradient step."""
        last = state.stage if isinstance(state.stage, NaturalStage) else None
        gain = elbo - state.elbo
        if not gain > 0:
            if last is None:
                return replace(state, finished="the bound is not finite at the start")
            return self._step(state, replace(last, step=0.5 * last.step))
        state = replace(state, posterior=state.trial, elbo=elbo, gradient=gradient)
        one = isinstance(bound_state.family, Full) and bound_state.family.components == 1
        if not one or gain <= MIN_RELATIVE_GAIN * max(1.0, abs(elbo)):
            return self._start_lbfgs(state, bound_state.q)
        step, steps = (1.0, 0) if last is None else (min(1.0, 2.0 * last.step), last.steps + 1)
        for limited in (False, True):  # only if it must be
            target = self._target(bound_state, found.of_component(0), limited=limited)
            with suppress(np.linalg.LinAlgError):
                return self._step(state, NaturalStage(bound_state.q, target, step, steps))
        return self._start_lbfgs(state, bound_state.q)

    def _step(self, state: State, stage: NaturalStage) -> State:
        """Try the step, or hand over if it is time."""
        family = self.bound.posterior
        if stage.steps >= MAX_NATURAL_STEPS or stage.step < SMALLEST_STEP or not isinstance(family, Full):
            return self._start_lbfgs(state, stage.q)
        return replace(state, stage=stage, trial=family.pack(interpolate(stage.q, stage.target, stage.step)))

    def _target(self, bound_state: BoundState, terms: SiteTerms, *, limited: bool) -> NaturalParameters:
        """Where a natural-gradient step leads, with or without a limit to the precision that sites take away."""
        _, scale = self._marginals(bound_state)
        limit = array_namespace(scale).square(scale[0, ...]) if limited else None
        return add_sites(
            prior_parameters(bound_state), bound_state, bound_state.geometry(0, self.bound.X.shape[0]), terms, limit
        )

    def _start_lbfgs(self, state: State, q: Mixture) -> State:
        """Hand over to L-BFGS at the best posterior, whose bound and gradient are known: no run is paid for twice."""
        family, whitening, start = self.bound.posterior, None, state.posterior
        if isinstance(family, Full) and family.components == 1:
            whitening = Whitening(family, q)
            start = whitening.start()
        return self._update_lbfgs(state, LBFGSStage(self.optimiser.init(start), whitening), state.elbo, state.gradient)

    def _update_lbfgs(self, state: State, stage: LBFGSStage, elbo: float, gradient: Array) -> State:
        """After a step of L-BFGS."""
        whitening = stage.whitening
        if whitening is not None:
            gradient = whitening.gradient(stage.optimiser.trial, gradient)
        optimiser = self.optimiser.tell(stage.optimiser, -elbo, -gradient)
        trial = optimiser.trial if whitening is None else whitening.posterior(optimiser.trial)
        if optimiser.accepted and elbo > state.elbo:
            state = replace(state, posterior=state.trial, elbo=elbo)
        return replace(state, trial=trial, stage=LBFGSStage(optimiser, whitening), finished=optimiser.finished)

    def marginals(self, state: State) -> tuple[Array, Array]:
        """Mean and variance (N, Q) of the latents under the best posterior so far, over all components."""
        xp = array_namespace(state.posterior)
        bound_state = self.bound_state(state.posterior)
        mean, scale = self._marginals(bound_state)
        weights = bound_state.q.weights[:, None, None]
        centre = xp.sum(weights * mean, axis=0)
        return centre, xp.sum(weights * (xp.square(scale) + xp.square(mean - centre)), axis=0)

    def draws(self, state: State, normals: Array) -> Array:
        """Joint draws (R, N, Q) of the latents at all sites, from normals (R, N, Q), for a dense single Gaussian."""
        xp = array_namespace(normals)
        bound_state = self.bound_state(state.posterior)
        mean, _ = self._marginals(bound_state)
        factor = bound_state.factor @ bound_state.q.spread[0, ...]
        return mean[0, ...] + xp.permute_dims(factor @ xp.permute_dims(normals, (2, 1, 0)), (2, 1, 0))

    def _fewest_valid(self, densities: Array) -> float:
        """How many log densities (K S, N) are finite where a component has the fewest at a site."""
        xp = array_namespace(densities)
        valid = xp.astype(xp.isfinite(densities), densities.dtype)
        by_component = xp.reshape(valid, (-1, self.points.base.shape[0], densities.shape[1]))
        return float(xp.min(xp.sum(by_component, axis=1)))

    def _marginals(self, bound_state: BoundState) -> tuple[Array, Array]:
        """Means and standard deviations (K, N, Q)."""
        mean, variance = bound_state.marginals(bound_state.geometry(0, self.bound.X.shape[0]))
        return mean, array_namespace(variance).sqrt(variance)
