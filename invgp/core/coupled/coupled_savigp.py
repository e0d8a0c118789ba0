"""SAVIGP with a posterior coupled across latents, as init / ask / tell: the caller runs the forward model.

Every step is a natural-gradient step: the site factors move towards the factors that the samples give. A step is
accepted if the bound does not decrease, and halved otherwise. The usual first stage is statistical linearisation, which
is safe far from the optimum; the last one uses the Hermite terms, which are exact for quadratic outputs. A stage has
converged when its next step would not move the posterior of any site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky
from invgp.core.coupled.coupled_gaussian import Marginals, SiteFactors, gaussian_from_natural, natural_parameters
from invgp.core.coupled.gaussian_posterior import GaussianPosterior, mean_movement, movement
from invgp.core.coupled.hyperparameters import HyperparameterLearning, Hyperparameters, NoiseScaledFactors
from invgp.core.coupled.prior import Prior
from invgp.core.coupled.site_estimators import GaussianNoise
from invgp.core.coupled.site_updates import LogDensity, SiteUpdate, estimate_site_update, scale_site_factors
from invgp.core.coupled.stage import Stage, StepOptions
from invgp.core.point_sets import Points

NO_IMPROVEMENT = "no further step improves the bound"
NOT_POSITIVE_DEFINITE = "no step keeps the posterior covariance positive definite"
CONVERGED = "the posterior has converged"


@dataclass(frozen=True)
class State:
    """Immutable state of the inference, complete for continuing it.

    Attributes
    ----------
    trial : GaussianPosterior
        Posterior whose bound is evaluated next.
    best : GaussianPosterior or None
        Posterior that was accepted last; None before the first successful evaluation.
    elbo : float, nats
        Largest bound of the stage.
    target : Target or None
        Values that a step of length 1 from `best` would reach.
    step : float
        Length of the step from `best` to `trial`.
    initial_step : float
        Length of the first trial of this step.
    idle_steps : int
        Accepted steps of the stage that did not improve the bound.
    stage : int
        Index of the present stage.
    evaluations : int
        Number of evaluations so far.
    finished : str
        Reason why the inference ended; empty while it continues.
    """

    trial: GaussianPosterior
    best: GaussianPosterior | None = None
    elbo: float = -math.inf
    target: Target | None = None
    step: float = 1.0
    initial_step: float = 1.0
    idle_steps: int = 0
    stage: int = 0
    evaluations: int = 0
    finished: str = ""

    @property
    def converged(self) -> bool:
        """Whether the inference ended because a further step would not move the posterior."""
        return self.finished == CONVERGED


@dataclass(frozen=True)
class Target:
    """Site factors and hyperparameters that a step of length 1 would reach."""

    sites: SiteFactors
    hyper: Hyperparameters


@dataclass(frozen=True)
class Info:
    """Result of one evaluation.

    Attributes
    ----------
    elbo, expected_log_likelihood, kl : float, nats
        Bound and its terms at the evaluated posterior.
    accepted : bool
        Whether the evaluated posterior was accepted.
    movement : float, standard deviations
        Movement of the next step at the site that moves most; NaN if there is no next step to measure.
    """

    elbo: float
    expected_log_likelihood: float
    kl: float
    accepted: bool
    movement: float


@dataclass(frozen=True)
class CoupledSavigp:
    """Variational inference of a posterior that is coupled across latents.

    The object contains everything that is constant during the inference. `init`, `ask` and `tell` are functions of an
    immutable `State`.

    Parameters
    ----------
    prior : Prior
        Prior with the initial kernels and inducing inputs.
    stages : sequence of Stage
        Estimators, used in this order.
    likelihood : GaussianNoise or callable
        Gaussian noise, or a function from outputs of the forward model (S, B, P) and site indices (B,), None for all
        sites, to log p(y_n | outputs), shape (S, B). A function requires stages of the kind ``"log density"``.
    learning : HyperparameterLearning or None
        Learning of kernels, noise and inducing inputs; None if they are fixed.
    factorised : bool
        Whether the posterior factorises over the latents, as in the paper; by default its covariance is full. The
        hyperparameters of a factorised posterior are not learnt here.
    options : StepOptions

    Raises
    ------
    ValueError
        If a stage, or the learning, is not possible with this likelihood or this posterior.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), Equations (9) to (11) for the bound and Theorem 2 for the posterior; Khan and
    Lin (2017) for the steps.
    """

    prior: Prior
    stages: Sequence[Stage]
    likelihood: GaussianNoise | LogDensity
    learning: HyperparameterLearning | None = None
    factorised: bool = False
    options: StepOptions = field(default_factory=StepOptions)

    def __post_init__(self) -> None:
        kinds = {stage.kind for stage in self.stages}
        gaussian = isinstance(self.likelihood, GaussianNoise)
        if not gaussian and kinds != {"log density"}:
            raise ValueError("stages: must all be of kind 'log density' if the noise is not Gaussian")
        learns_noise = self.learning is not None and self.learning.noise_groups.shape[1] > 0
        if learns_noise and (not gaussian or "log density" in kinds):
            raise ValueError(
                "learning: the noise can be learnt only if it is Gaussian and no stage is of kind 'log density'"
            )
        if self.learning is not None and self.factorised:
            raise ValueError("learning: must be None for a posterior that factorises over the latents")

    def init(self, precision: float = 0.0) -> State:
        """Return the state at the prior.

        Parameters
        ----------
        precision : float
            Initial precision of the site factor of each latent, in units of the prior precision. A positive value
            gives a start that is narrower than the prior.
        """
        xp = array_namespace(self.prior.mean)
        variance = xp.stack([kernel.variance + xp.zeros_like(self.prior.mean[0, 0]) for kernel in self.prior.kernels])
        eye = xp.eye(self.prior.latent_count, dtype=variance.dtype, device=variance.device)
        precisions = xp.broadcast_to(precision / variance * eye, (self.prior.site_count, *eye.shape))
        shift = xp.zeros((self.prior.site_count, self.prior.latent_count), dtype=variance.dtype, device=variance.device)
        if self.learning is None:
            hyper = Hyperparameters(shift[0, :0], shift[0, :0], self.prior.Z)
        else:
            hyper = self.learning.initial_values(self.prior)
        return State(self.posterior(SiteFactors(precisions, shift), hyper))

    def start_from(self, posterior: GaussianPosterior, *, near_optimum: bool) -> State:
        """Return the state at a posterior, with the first stage, or the last one if it is near the optimum.

        Parameters
        ----------
        posterior : GaussianPosterior
            Where the search starts.
        near_optimum : bool
            Whether to start with the last stage.

        Returns
        -------
        State
        """
        return State(posterior, stage=len(self.stages) - 1 if near_optimum else 0)

    def ask(self, state: State) -> Array:
        """Return the latent values (S, N, Q) at which the caller has to evaluate the forward model next.

        Parameters
        ----------
        state : State
            The present state.

        Returns
        -------
        array, shape (S, N, Q)
        """
        return self.samples(state.trial, self.stages[state.stage].points)

    def samples(self, posterior: GaussianPosterior, points: Points) -> Array:
        """Transform standard normal points to samples (S, N, Q) of the posterior at each site.

        Parameters
        ----------
        posterior : GaussianPosterior
            The posterior.
        points : Points
            Standard normal points of all sites.

        Returns
        -------
        array, shape (S, N, Q)
        """
        xp = array_namespace(posterior.factor)
        offsets = points.base @ xp.matrix_transpose(posterior.factor @ points.rotations)
        return xp.permute_dims(offsets, (1, 0, 2)) + posterior.marginals.mean

    def tell(self, state: State, outputs: Array, valid: Array) -> tuple[State, Info]:
        """Update the state with the outputs of the forward model.

        Parameters
        ----------
        state : State
            State for which `ask` returned the latent values.
        outputs : Array, shape (S, N, P)
            Outputs at these values; NaN for missing outputs.
        valid : Array of bool, shape (S, N)
            Runs that did not fail.

        Returns
        -------
        State
            Next state.
        Info
            Result of the evaluation.
        """
        xp = array_namespace(outputs)
        trial, stage = state.trial, self.stages[state.stage]
        update = self.site_update(stage, trial.hyper.noise, outputs, valid)
        expected, kl = float(xp.sum(update.terms.value)), float(trial.q.kl())
        elbo = expected - kl + self.log_prior(trial)
        state = replace(state, evaluations=state.evaluations + 1)
        slack = self.options.slack(stage) * self.prior.site_count * self.prior.latent_count
        if not update.reliable or not math.isfinite(elbo) or elbo < state.elbo - slack:
            bound = elbo if update.reliable else -math.inf
            return self._step_back(state), Info(bound, expected, kl, accepted=False, movement=math.nan)
        improved = elbo >= state.elbo - self.options.bound_slack * self.prior.site_count * self.prior.latent_count
        idle_steps = state.idle_steps + (not improved)
        if idle_steps > self.options.max_idle_steps:
            state = self._end_stage(replace(state, best=trial), NO_IMPROVEMENT)
            return state, Info(elbo, expected, kl, accepted=True, movement=math.nan)
        growth = 2.0 if stage.max_movement == math.inf else self.options.limited_step_growth
        step = min(1.0, growth * state.step) if improved else 0.5 * state.step
        state = replace(state, best=trial, elbo=max(elbo, state.elbo), step=step, idle_steps=idle_steps)
        new, moved = self._next_step(state, trial, update)
        return new, Info(elbo, expected, kl, accepted=True, movement=moved)

    def site_update(
        self, stage: Stage, log_noise_scales: Array, outputs: Array, valid: Array, rows: Array | None = None
    ) -> SiteUpdate:
        """Estimate the terms of all sites, or of the sites `rows` (B,); see `estimate_site_update`."""
        groups = None if self.learning is None else self.learning.noise_groups
        return estimate_site_update(stage, self.likelihood, groups, log_noise_scales, outputs, valid, rows)

    def _next_step(self, state: State, here: GaussianPosterior, update: SiteUpdate) -> tuple[State, float]:
        """Prepare the next step from `here`, or end the stage if it has converged; return the movement as well."""
        stage = self.stages[state.stage]
        factor, offset = here.factor @ stage.points.rotations, here.marginals.mean - self.prior.mean
        for bounded in (False, True):  # bounded only if necessary: the optimum may have negative precisions
            sites = update.site_factors(factor, offset, here.sites, bounded=bounded)
            target = Target(self._uncouple(here, sites) if self.factorised else sites, here.hyper)
            trial, step = self._step_towards(here, target, state.step, shorten=bounded, max_movement=stage.max_movement)
            if trial is not None:
                break
        else:
            return replace(state, finished=NOT_POSITIVE_DEFINITE), math.nan
        moved = movement(here, trial)
        if self.learning is not None and moved < self.options.learning_threshold:
            scaled = scale_site_factors(target.sites, factor, offset, update.by_group, self._group_counts())
            hyper = self.learning.fit(here.prior, scaled, here.hyper)
            learnt = Target(scaled.site_factors(hyper.noise - here.hyper.noise), hyper)
            following, step = self._step_towards(here, learnt, step, shorten=True, max_movement=stage.max_movement)
            if following is not None:
                target, trial, moved = learnt, following, max(moved, movement(here, following))
        state = replace(state, trial=trial, target=target, step=step, initial_step=step)
        if moved > step * stage.tolerance:
            return state, moved
        return self._end_stage(state, CONVERGED), moved

    def noise_scaled_factors(self, posterior: GaussianPosterior, outputs: Array, valid: Array) -> NoiseScaledFactors:
        """Express the site factors of a posterior as a function of the noise scales.

        Parameters
        ----------
        posterior : GaussianPosterior
        outputs : Array, shape (S, N, P)
            Outputs of the forward model at the `samples` of the last stage.
        valid : Array of bool, shape (S, N)
            Runs that did not fail.
        """
        stage = self.stages[-1]
        update = self.site_update(stage, posterior.hyper.noise, outputs, valid)
        factor, offset = posterior.factor @ stage.points.rotations, posterior.marginals.mean - self.prior.mean
        return scale_site_factors(posterior.sites, factor, offset, update.by_group, self._group_counts())

    def _uncouple(self, here: GaussianPosterior, sites: SiteFactors) -> SiteFactors:
        """Return the factors of a posterior that factorises over the latents, with the mean of the coupled one.

        The step of the mean is a Newton step with the coupled precision, which converges much faster than one with the
        precisions of each latent. Both have the same fixed point.
        """
        try:
            coupled = gaussian_from_natural(natural_parameters(here.prior, sites))
        except np.linalg.LinAlgError:
            mean = here.marginals.mean
        else:
            prior = here.prior
            batches = [coupled.mean_at(prior.geometry(a, b), prior.mean[a:b, :]) for a, b in prior.batches()]
            mean = array_namespace(here.prior.mean).concat(batches)
        return sites.uncouple(mean - here.prior.mean)

    def _group_counts(self) -> Array | None:
        """Count the observations (G,) of each group of outputs whose noise is learnt."""
        if not isinstance(self.likelihood, GaussianNoise) or self.learning is None:
            return None
        observed = self.likelihood.observed
        return array_namespace(observed).sum(observed @ self.learning.noise_groups, axis=0)

    def _step_back(self, state: State) -> State:
        """Halve the step from the best posterior, or end the stage if the step is too small."""
        if state.best is None or state.target is None:
            return replace(state, finished="the bound is not finite at the start")
        if state.step * 0.5 < self.options.smallest_step * state.initial_step:
            return self._end_stage(replace(state, trial=state.best), NO_IMPROVEMENT)
        trial, step = self._step_towards(state.best, state.target, 0.5 * state.step, shorten=True)
        if trial is None:
            return self._end_stage(replace(state, trial=state.best), NOT_POSITIVE_DEFINITE)
        return replace(state, trial=trial, step=step)

    def _end_stage(self, state: State, why: str) -> State:
        """Begin the next stage, which estimates the bound again, or end the inference at the trial posterior."""
        if state.stage + 1 < len(self.stages):
            return replace(state, stage=state.stage + 1, elbo=-math.inf, step=1.0, idle_steps=0)
        return replace(state, best=state.trial, finished=why)

    def _step_towards(
        self, here: GaussianPosterior, target: Target, step: float, *, shorten: bool, max_movement: float = math.inf
    ) -> tuple[GaussianPosterior | None, float]:
        """Take a step towards a target, and return the new posterior with the length of the step.

        The posterior is None if the precision is not positive definite: at this step if `shorten` is False, or at all
        steps down to `smallest_step`. A step that moves the posterior by more than `max_movement` is always shortened.
        """
        while step >= self.options.smallest_limited_step:
            try:
                sites, hyper = here.sites.step_towards(target.sites, step), here.hyper.step_towards(target.hyper, step)
                trial = self.posterior(sites, hyper)
            except np.linalg.LinAlgError:
                if not shorten or step < self.options.smallest_step:
                    break
            else:
                if max_movement == math.inf or movement(here, trial) <= max_movement:
                    return trial, step
            step *= 0.5
        return None, step

    def limit_movement(
        self, here: GaussianPosterior, there: GaussianPosterior, max_distance: float
    ) -> GaussianPosterior:
        """Shorten the way from one posterior to another until the mean of no site moves by more than `max_distance`.

        Parameters
        ----------
        here, there : GaussianPosterior
            Start and end.
        max_distance : float, standard deviations
            Largest movement of the mean, in standard deviations of `here`.
        """
        target = Target(there.sites, there.hyper)
        step, smallest = 1.0, self.options.smallest_limited_step
        while mean_movement(here.factor, here.marginals, there.marginals) > max_distance and step > smallest:
            step *= 0.5
            trial, _ = self._step_towards(here, target, step, shorten=False)
            there = trial or there
        return there

    def posterior(self, sites: SiteFactors, hyper: Hyperparameters) -> GaussianPosterior:
        """Compute the posterior from site factors and hyperparameters.

        Parameters
        ----------
        sites : SiteFactors
            Gaussian approximations of the likelihoods.
        hyper : Hyperparameters
            Learnt parameters of the prior and the noise.

        Returns
        -------
        GaussianPosterior

        Raises
        ------
        numpy.linalg.LinAlgError
            If its precision is not positive definite.
        """
        prior = self.prior if self.learning is None else self.learning.prior_at(self.prior, hyper)
        q = gaussian_from_natural(natural_parameters(prior, sites))
        marginals = Marginals.concatenate(
            [q.marginals(prior.geometry(a, b), prior.mean[a:b, :]) for a, b in prior.batches()]
        )
        return GaussianPosterior(sites, hyper, prior, q, marginals, cholesky(marginals.covariance))

    def log_prior(self, posterior: GaussianPosterior) -> float:
        """Compute the log prior density of the hyperparameters, without constants; 0 if they are fixed.

        Parameters
        ----------
        posterior : GaussianPosterior
            The posterior with its hyperparameters.

        Returns
        -------
        float, in nats
        """
        return 0.0 if self.learning is None else float(self.learning.log_prior(posterior.hyper))
