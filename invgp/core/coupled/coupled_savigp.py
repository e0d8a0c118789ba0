"""SAVIGP with a posterior coupled across latents, as init / ask / tell: the caller runs the forward model.

Every step is a natural-gradient step: what the sites say moves towards what the samples say they should say. The step
is kept if the bound does not fall, and halved if it does. Statistical linearisation first, which is safe far from the
optimum; then the Hermite terms, which are exact. A stage has settled when its next step would move no site's posterior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky
from invgp.core.coupled.coupled_gaussian import Marginals, SiteFactors, gaussian_from_natural, natural_parameters
from invgp.core.coupled.gaussian_posterior import GaussianPosterior, mean_movement, movement
from invgp.core.coupled.hyperparameters import Hyperparameters, Learning
from invgp.core.coupled.prior import Prior
from invgp.core.coupled.site_estimators import GaussianNoise
from invgp.core.coupled.site_updates import LogDensity, SiteUpdate, estimate_site_update, scale_site_factors
from invgp.core.coupled.stage import SLACK, Stage
from invgp.core.point_sets import Points

SMALLEST_STEP = 1.0 / 64.0
SHORTEST_REACH = (
    2.0**-30
)  # of a step that is shortened for its reach alone: data may be that much sharper than the prior
GROWTH = 8.0  # of a step that was shortened for its reach, from one to the next
MOST_IDLE = 10  # steps of a stage that leads beside its optimum
NO_IMPROVEMENT = "no further step improves the bound"
CONVERGED = "the posterior has converged"
LEARN_FROM = 1.0  # standard deviations: hyperparameters are learnt once a step moves the posterior by less


@dataclass(frozen=True)
class State:
    """Where the inference stands: immutable, all that is needed to go on.

    Attributes
    ----------
    trial : the position whose bound is wanted next.
    best : the position that was kept last; None before the first evaluation has succeeded.
    target, step, first : where the step leads, how far it goes, and how far it went at first.
    idle : steps of the stage that were kept without improving the bound.
    stage : number of the estimator in use.
    finished : why the inference is over; empty while it goes on.
    """

    trial: GaussianPosterior
    best: GaussianPosterior | None = None
    elbo: float = -math.inf
    target: Target | None = None
    step: float = 1.0
    first: float = 1.0
    idle: int = 0
    stage: int = 0
    evaluations: int = 0
    finished: str = ""

    @property
    def converged(self) -> bool:
        """Whether it is over because a further step would move nothing."""
        return self.finished == CONVERGED


@dataclass(frozen=True)
class Target:
    """Where a whole step leads."""

    sites: SiteFactors
    hyper: Hyperparameters


@dataclass(frozen=True)
class Info:
    """What one evaluation found.

    Attributes
    ----------
    elbo, expected_log_likelihood, kl : at the posterior that was asked about, in nats.
    accepted : whether that posterior is now the best one.
    movement : of the next step, at the site that moves most, in standard deviations.
    """

    elbo: float
    expected_log_likelihood: float
    kl: float
    accepted: bool
    movement: float


@dataclass(frozen=True)
class CoupledSavigp:
    """The algorithm with everything that stays fixed while it runs.

    Parameters
    ----------
    prior : where the kernels and inducing inputs start.
    stages : estimators, one after the other.
    likelihood : Gaussian noise; or, for the stage of log densities alone, a function that takes outputs of the forward
        model (S, B, P) and the numbers (B,) of their sites, None for all, to log p(y_n | outputs), (S, B).
    learning : of kernels, noise and inducing inputs; None to hold them fixed.
    """

    prior: Prior
    stages: Sequence[Stage]
    likelihood: GaussianNoise | LogDensity
    learning: Learning | None = None

    def __post_init__(self) -> None:
        kinds = {stage.kind for stage in self.stages}
        gaussian = isinstance(self.likelihood, GaussianNoise)
        if not gaussian and kinds != {"log density"}:
            raise ValueError("stages: must be of log densities where the noise is not Gaussian")
        learns_noise = self.learning is not None and self.learning.noise_groups.shape[1] > 0
        if learns_noise and (not gaussian or "log density" in kinds):
            raise ValueError("learning: noise can be learnt only if it is Gaussian, and not from log densities")

    def init(self, precision: float = 0.0) -> State:
        """Start at the prior; narrower, if each site is to add a precision, in units of the prior's."""
        xp = array_namespace(self.prior.mean)
        variance = xp.stack([kernel.variance + xp.zeros_like(self.prior.mean[0]) for kernel in self.prior.kernels])
        eye = xp.eye(self.prior.latents, dtype=variance.dtype, device=variance.device)
        said = xp.broadcast_to(precision / variance * eye, (self.prior.sites, *eye.shape))
        shift = xp.zeros((self.prior.sites, self.prior.latents), dtype=variance.dtype, device=variance.device)
        if self.learning is None:
            hyper = Hyperparameters(shift[0, :0], shift[0, :0], self.prior.Z)
        else:
            hyper = self.learning.initial(self.prior)
        return State(self.posterior(SiteFactors(said, shift), hyper))

    def start_from(self, posterior: GaussianPosterior, *, known: bool) -> State:
        """Start from a position; if it is known to be near the optimum, with the last stage."""
        return State(posterior, stage=len(self.stages) - 1 if known else 0)

    def ask(self, state: State) -> Array:
        """Latent values (S, N, Q) at which the forward model is wanted next."""
        return self.samples(state.trial, self.stages[state.stage].points)

    def samples(self, posterior: GaussianPosterior, points: Points) -> Array:
        """Latent values (S, N, Q): points at each site's posterior."""
        xp = array_namespace(posterior.factor)
        offsets = points.base @ xp.matrix_transpose(posterior.factor @ points.rotations)
        return xp.permute_dims(offsets, (1, 0, 2)) + posterior.marginals.mean

    def tell(self, state: State, outputs: Array, valid: Array) -> tuple[State, Info]:
        """Take in the forward model's outputs (S, N, P) at the values last asked for; valid (S, N).

        An output of a valid run may be missing, which is NaN.
        """
        xp = array_namespace(outputs)
        trial, stage = state.trial, self.stages[state.stage]
        told = self.told(stage, trial.hyper.noise, outputs, valid)
        expected, kl = float(xp.sum(told.terms.value)), float(trial.q.kl())
        elbo = expected - kl + self.log_prior(trial)
        state = replace(state, evaluations=state.evaluations + 1)
        slack = stage.slack * self.prior.sites * self.prior.latents
        if not told.trustworthy or not math.isfinite(elbo) or elbo < state.elbo - slack:
            bound = elbo if told.trustworthy else -math.inf
            return self._step_back(state), Info(bound, expected, kl, accepted=False, movement=math.nan)
        improved = elbo >= state.elbo - SLACK * self.prior.sites * self.prior.latents
        idle = state.idle + (not improved)
        if idle > MOST_IDLE:
            state = self._leave_stage(replace(state, best=trial), NO_IMPROVEMENT)
            return state, Info(elbo, expected, kl, accepted=True, movement=math.nan)
        growth = 2.0 if stage.reach == math.inf else GROWTH
        step = min(1.0, growth * state.step) if improved else 0.5 * state.step
        state = replace(state, best=trial, elbo=max(elbo, state.elbo), step=step, idle=idle)
        new, moved = self._next_step(state, trial, told)
        return new, Info(elbo, expected, kl, accepted=True, movement=moved)

    def told(self, stage: Stage, noise: Array, outputs: Array, valid: Array, rows: Array | None = None) -> SiteUpdate:
        """What outputs (S, B, P) tell of all sites, or of some (B,), with noise of these log scales (G,)."""
        groups = None if self.learning is None else self.learning.noise_groups
        return estimate_site_update(stage, self.likelihood, groups, noise, outputs, valid, rows)

    def _next_step(self, state: State, here: GaussianPosterior, told: SiteUpdate) -> tuple[State, float]:
        """Try the next step, or leave the stage if the step would move nothing."""
        stage = self.stages[state.stage]
        factor, offset = here.factor @ stage.points.rotations, here.marginals.mean - self.prior.mean
        for bounded in (False, True):  # bounded only if it must be: the optimum may take precision away
            target = Target(told.sites(factor, offset, here.sites, bounded=bounded), here.hyper)
            trial, step = self._step_towards(here, target, state.step, shorten=bounded, reach=stage.reach)
            if trial is not None:
                break
        else:
            return replace(state, finished="no step keeps the posterior a distribution"), math.nan
        moved = movement(here, trial)
        if self.learning is not None and moved < LEARN_FROM:
            said = scale_site_factors(target.sites, factor, offset, told.by_group, self._counts())
            hyper = self.learning.fit(here.prior, said, here.hyper)
            learnt = Target(said.at(hyper.noise - here.hyper.noise), hyper)
            following, step = self._step_towards(here, learnt, step, shorten=True, reach=stage.reach)
            if following is not None:
                target, trial, moved = learnt, following, max(moved, movement(here, following))
        state = replace(state, trial=trial, target=target, step=step, first=step)
        if moved > step * stage.tolerance:
            return state, moved
        return self._leave_stage(state, CONVERGED), moved

    def _counts(self) -> Array | None:
        """Observations (G,) of each group whose noise is learnt."""
        if not isinstance(self.likelihood, GaussianNoise) or self.learning is None:
            return None
        observed = self.likelihood.observed
        return array_namespace(observed).sum(observed @ self.learning.noise_groups, axis=0)

    def _step_back(self, state: State) -> State:
        if state.best is None or state.target is None:
            return replace(state, finished="the bound is not finite at the start")
        if state.step * 0.5 < SMALLEST_STEP * state.first:
            return self._leave_stage(replace(state, trial=state.best), NO_IMPROVEMENT)
        trial, step = self._step_towards(state.best, state.target, 0.5 * state.step, shorten=True)
        if trial is None:
            return self._leave_stage(replace(state, trial=state.best), "no step keeps the posterior a distribution")
        return replace(state, trial=trial, step=step)

    def _leave_stage(self, state: State, why: str) -> State:
        """To the next stage, where the bound is estimated anew, or to the end, with a last step too small to harm."""
        if state.stage + 1 < len(self.stages):
            return replace(state, stage=state.stage + 1, elbo=-math.inf, step=1.0, idle=0)
        return replace(state, best=state.trial, finished=why)

    def _step_towards(
        self, here: GaussianPosterior, target: Target, step: float, *, shorten: bool, reach: float = math.inf
    ) -> tuple[GaussianPosterior | None, float]:
        """The position a step away; None if that is no distribution, with a step that may be shortened or not.

        A step that would go farther than its reach is shortened in any case.
        """
        while step >= SHORTEST_REACH:
            try:
                sites, hyper = here.sites.step_towards(target.sites, step), here.hyper.step_towards(target.hyper, step)
                trial = self.posterior(sites, hyper)
            except np.linalg.LinAlgError:
                if not shorten or step < SMALLEST_STEP:
                    break
            else:
                if reach == math.inf or movement(here, trial) <= reach:
                    return trial, step
            step *= 0.5
        return None, step

    def limit_movement(self, here: GaussianPosterior, there: GaussianPosterior, farthest: float) -> GaussianPosterior:
        """The position towards another whose mean is at no site farther away, in standard deviations."""
        target = Target(there.sites, there.hyper)
        step = 1.0
        while mean_movement(here.factor, here.marginals, there.marginals) > farthest and step > SHORTEST_REACH:
            step *= 0.5
            trial, _ = self._step_towards(here, target, step, shorten=False)
            there = trial or there
        return there

    def posterior(self, sites: SiteFactors, hyper: Hyperparameters) -> GaussianPosterior:
        """The posterior that these make.

        Raises
        ------
        numpy.linalg.LinAlgError
            It is no distribution.
        """
        prior = self.prior if self.learning is None else self.learning.prior(self.prior, hyper)
        q = gaussian_from_natural(natural_parameters(prior, sites))
        marginals = Marginals.concatenate([q.marginals(prior.geometry(*b), prior.mean) for b in prior.batches()])
        return GaussianPosterior(sites, hyper, prior, q, marginals, cholesky(marginals.covariance))

    def log_prior(self, posterior: GaussianPosterior) -> float:
        """Of the hyperparameters, less its constants."""
        return 0.0 if self.learning is None else float(self.learning.log_prior(posterior.hyper))
