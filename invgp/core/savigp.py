"""SAVIGP as init / ask / tell: the caller runs the forward model.

The factors of the prior and the standard normals are computed once. The same normals are used in every evaluation
(common random numbers), so that the bound is a deterministic function, as L-BFGS requires. Each evaluation computes the
marginals, the site terms and the gradient. A single full Gaussian first takes natural-gradient steps, each of which
must increase the bound; they find the scale of the posterior even if the data are very informative. Then L-BFGS finds
the optimum, in coordinates whitened by their result. Kernels, inducing inputs and noise are fixed here;
`invgp.core.training` learns them for likelihoods that run in the same process.
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
MAX_NATURAL_STEPS = 20  # largest number of natural-gradient steps before L-BFGS
SMALLEST_STEP = 1.0 / 64.0  # shorter natural-gradient steps are not tried
MIN_RELATIVE_GAIN = 1e-3  # gain relative to the bound below which L-BFGS takes over
MIN_SAMPLES_PER_COEFFICIENT = 1.5  # valid runs per site; with fewer, the evaluation is rejected


@dataclass(frozen=True)
class NaturalStage:
    """Natural-gradient stage: an interpolation from q to a target by a step between 0 and 1."""

    q: Mixture
    target: NaturalParameters
    step: float = 1.0
    steps: int = 0


@dataclass(frozen=True)
class LBFGSStage:
    """L-BFGS stage, in whitened coordinates for a single full Gaussian."""

    optimiser: LBFGSState
    whitening: Whitening | None


@dataclass(frozen=True)
class State:
    """Immutable state of the inference.

    Attributes
    ----------
    trial : array
        Free parameters of the posterior at which the bound is evaluated next.
    posterior : array
        Free parameters of the best posterior so far.
    elbo, gradient : float and array
        The bound at the best posterior, and its gradient.
    stage : NaturalStage, LBFGSStage or None
        State of the current optimiser; None before the first evaluation.
    evaluations : int
        Number of evaluations of the bound so far.
    finished : str
        Why the inference ended; empty while it continues.
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
    """Result of one evaluation.

    Attributes
    ----------
    elbo, expected_log_likelihood, kl : float, in nats
        At the trial posterior.
    accepted : bool
        Whether the trial posterior is now the best one.
    """

    elbo: float
    expected_log_likelihood: float
    kl: float
    accepted: bool


@dataclass(frozen=True)
class Savigp:
    """The algorithm, with all quantities that are fixed during the inference.

    Parameters
    ----------
    bound : Bound
        The model.
    parameters : Parameters
        Initial parameters; only the posterior changes.
    log_density : callable
        Outputs of the forward model (S, N, P) -> log p(y_n | outputs), (S, N).
    points : Points
        Standard normals, the same in every evaluation.
    optimiser : LBFGS
        Settings of L-BFGS.
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
        """Return the initial state, at the posterior of the initial parameters."""
        start = self.parameters.posterior
        return State(start, start)

    def bound_state(self, posterior: Array) -> BoundState:
        """Compute the bound state at a posterior."""
        return self.bound.bound_state(self.parameters.updated(LEARNT, posterior), kernel_cache=self.kernel_cache)

    def ask(self, state: State) -> Array:
        """Return latent values (K S, N, Q) at which to run the forward model: S samples for each of K components."""
        xp = array_namespace(state.posterior)
        mean, scale = self._marginals(self.bound_state(state.trial))
        return xp.concat([self.points.samples(mean[k, ...], scale[k, ...]) for k in range(mean.shape[0])])

    def tell(self, state: State, outputs: Array, valid: Array) -> tuple[State, Info]:
        """Update the state with the outputs of the forward model at the values of `ask`.

        Parameters
        ----------
        outputs : array, shape (K S, N, P)
            Outputs at the samples of `ask`; those of failed runs are ignored.
        valid : array of bool, shape (K S, N)
            False where the run failed.

        Returns
        -------
        state : State
            The new state.
        info : Info
            The bound at the trial posterior.
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
        updated = replace(state, evaluations=state.evaluations + 1)
        if isinstance(state.stage, LBFGSStage):
            new = self._update_lbfgs(updated, state.stage, elbo, terms.gradient.posterior)
        else:
            new = self._approach(updated, bound_state, found, elbo, terms.gradient.posterior)
        info = Info(elbo, float(terms.expected_log_likelihood), float(terms.kl), new.posterior is state.trial)
        return new, info

    def _approach(self, state: State, bound_state: BoundState, found: Expected, elbo: float, gradient: Array) -> State:
        """Update the state after the first evaluation or a natural-gradient step."""
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
        for limited in (False, True):  # limit the precisions only if the step fails without
            target = self._target(bound_state, found.of_component(0), limited=limited)
            with suppress(np.linalg.LinAlgError):
                return self._step(state, NaturalStage(bound_state.q, target, step, steps))
        return self._start_lbfgs(state, bound_state.q)

    def _step(self, state: State, stage: NaturalStage) -> State:
        """Prepare the next natural-gradient step, or start L-BFGS after the last one."""
        family = self.bound.posterior
        if stage.steps >= MAX_NATURAL_STEPS or stage.step < SMALLEST_STEP or not isinstance(family, Full):
            return self._start_lbfgs(state, stage.q)
        return replace(state, stage=stage, trial=family.pack(interpolate(stage.q, stage.target, stage.step)))

    def _target(self, bound_state: BoundState, terms: SiteTerms, *, limited: bool) -> NaturalParameters:
        """Compute the target of a natural-gradient step, with or without a limit on negative site precisions."""
        _, scale = self._marginals(bound_state)
        limit = array_namespace(scale).square(scale[0, ...]) if limited else None
        return add_sites(
            prior_parameters(bound_state), bound_state, bound_state.geometry(0, self.bound.X.shape[0]), terms, limit
        )

    def _start_lbfgs(self, state: State, q: Mixture) -> State:
        """Start L-BFGS at the best posterior, whose bound and gradient are known, so that no run is repeated."""
        family, whitening, start = self.bound.posterior, None, state.posterior
        if isinstance(family, Full) and family.components == 1:
            whitening = Whitening(family, q)
            start = whitening.start()
        return self._update_lbfgs(state, LBFGSStage(self.optimiser.init(start), whitening), state.elbo, state.gradient)

    def _update_lbfgs(self, state: State, stage: LBFGSStage, elbo: float, gradient: Array) -> State:
        """Update the state after a step of L-BFGS."""
        whitening = stage.whitening
        if whitening is not None:
            gradient = whitening.gradient(stage.optimiser.trial, gradient)
        optimiser = self.optimiser.tell(stage.optimiser, -elbo, -gradient)
        trial = optimiser.trial if whitening is None else whitening.posterior(optimiser.trial)
        if optimiser.accepted and elbo > state.elbo:
            state = replace(state, posterior=state.trial, elbo=elbo)
        return replace(state, trial=trial, stage=LBFGSStage(optimiser, whitening), finished=optimiser.finished)

    def marginals(self, state: State) -> tuple[Array, Array]:
        """Compute mean and variance (N, Q) of the latents under the best posterior so far, over all components."""
        xp = array_namespace(state.posterior)
        bound_state = self.bound_state(state.posterior)
        mean, scale = self._marginals(bound_state)
        weights = bound_state.q.weights[:, None, None]
        centre = xp.sum(weights * mean, axis=0)
        return centre, xp.sum(weights * (xp.square(scale) + xp.square(mean - centre)), axis=0)

    def draws(self, state: State, normals: Array) -> Array:
        """Transform normals (R, N, Q) to joint samples of the latents at all sites, for a dense single Gaussian."""
        xp = array_namespace(normals)
        bound_state = self.bound_state(state.posterior)
        mean, _ = self._marginals(bound_state)
        factor = bound_state.factor @ bound_state.q.spread[0, ...]
        return mean[0, ...] + xp.permute_dims(factor @ xp.permute_dims(normals, (2, 1, 0)), (2, 1, 0))

    def _fewest_valid(self, densities: Array) -> float:
        """Count the finite log densities (K S, N) per component and site, and return the smallest count."""
        xp = array_namespace(densities)
        valid = xp.astype(xp.isfinite(densities), densities.dtype)
        by_component = xp.reshape(valid, (-1, self.points.base.shape[0], densities.shape[1]))
        return float(xp.min(xp.sum(by_component, axis=1)))

    def _marginals(self, bound_state: BoundState) -> tuple[Array, Array]:
        """Compute means and standard deviations (K, N, Q) of the latents at all sites."""
        mean, variance = bound_state.marginals(bound_state.geometry(0, self.bound.X.shape[0]))
        return mean, array_namespace(variance).sqrt(variance)
