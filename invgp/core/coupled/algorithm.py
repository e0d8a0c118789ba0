"""SAVIGP with a posterior coupled across latents, as init / ask / tell: the caller runs the forward model.

Every step is a natural-gradient step: what the sites say moves towards what the samples say they should say. The step
is kept if the bound does not fall, and halved if it does. Statistical linearisation first, which is safe far from the
optimum; then the Hermite terms, which are exact. A stage has settled when its next step would move no site's posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.core.backend import Array, array_namespace, cholesky
from invgp.core.coupled.estimators import (
    GaussianNoise,
    SiteTerms,
    bounded_precision,
    estimate,
    estimate_log_density,
    fewest_samples,
)
from invgp.core.coupled.hyperparameters import Learning
from invgp.core.coupled.posterior import Coupled, Marginals, SiteFactors, natural_parameters, posterior_of
from invgp.core.coupled.prior import Prior
from invgp.core.sampling import Points

SMALLEST_STEP = 1.0 / 64.0
START_PRECISION = 3.0  # of each site at the start, in units of the prior's
SLACK = 1e-4  # nats a latent and site that the bound may fall: below what its estimate can tell
NEWTON_STEPS = 20
LEARN_FROM = 1.0  # standard deviations: hyperparameters are learnt once a step moves the posterior by less


LogDensity = Callable[[Array, Array | None], Array]


@dataclass(frozen=True)
class Stage:
    """An estimator with the points it uses.

    Parameters
    ----------
    kind : ``"linear"`` (statistical linearisation) or ``"hermite"``, both for Gaussian noise, or ``"log density"``.
    tolerance : settled when a step moves the posterior by less, root mean square, in standard deviations.
    """

    kind: str
    points: Points
    tolerance: float

    @property
    def quadratic(self) -> bool:
        """Whether it fits second-order terms."""
        return self.kind != "linear"


@dataclass(frozen=True)
class Position:
    """A posterior and all that follows from it.

    Attributes
    ----------
    sites, theta, noise : what is learnt: of the sites, the kernels, and log scales of the noise by group (G,).
    prior, q : that these make.
    marginals : at the sites.
    factor : lower triangular F with F F^T = Sigma_n, (N, Q, Q).
    """

    sites: SiteFactors
    theta: Array
    noise: Array
    prior: Prior
    q: Coupled
    marginals: Marginals
    factor: Array


@dataclass(frozen=True)
class State:
    """Where the inference stands: immutable, all that is needed to go on.

    Attributes
    ----------
    trial : the position whose bound is wanted next.
    best : the best position so far; None before the first evaluation has succeeded.
    target : where the step leads, and how far it goes.
    stage : number of the estimator in use.
    finished : why the inference is over; empty while it goes on.
    """

    trial: Position
    best: Position | None = None
    elbo: float = -math.inf
    target: Target | None = None
    step: float = 1.0
    stage: int = 0
    evaluations: int = 0
    finished: str = ""


@dataclass(frozen=True)
class Target:
    """Where a whole step leads."""

    sites: SiteFactors
    theta: Array
    noise: Array
    Z: Array


@dataclass(frozen=True)
class Info:
    """What one evaluation found.

    Attributes
    ----------
    elbo, expected_log_likelihood, kl : at the posterior that was asked about, in nats.
    accepted : whether that posterior is now the best one.
    movement : of the next step, root mean square, in standard deviations.
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
    noise : for the Gaussian estimators; None with a log density alone.
    log_density : outputs of the forward model (S, B, P), and the numbers (B,) of the sites they are for, None for all
        -> log p(y_n | outputs), (S, B), for noise of any kind.
    learning : of kernels and inducing inputs; None to hold them fixed.
    noise_groups : (P, G), 1 where an output's noise belongs to a group whose scale is learnt.
    noise_spread : standard deviation (G,) of the normal prior of each log scale; infinite for none.
    """

    prior: Prior
    stages: Sequence[Stage]
    noise: GaussianNoise | None = None
    log_density: LogDensity | None = None
    learning: Learning | None = None
    noise_groups: Array = None
    noise_spread: Array = None

    def init(self) -> State:
        """Start at the prior's mean, with a part of its spread."""
        xp = array_namespace(self.prior.mean)
        variance = xp.stack([kernel.variance + xp.zeros_like(self.prior.mean[0]) for kernel in self.prior.kernels])
        eye = xp.eye(self.prior.latents, dtype=variance.dtype, device=variance.device)
        precision = xp.broadcast_to(START_PRECISION / variance * eye, (self.prior.sites, *eye.shape))
        shift = xp.zeros((self.prior.sites, self.prior.latents), dtype=variance.dtype, device=variance.device)
        theta = shift[0, :0] if self.learning is None else xp.zeros_like(self.learning.spread)
        noise = shift[0, :0] if self.noise_groups is None else xp.zeros_like(self.noise_spread)
        return State(self.position(SiteFactors(precision, shift), theta, noise, self.prior.Z))

    def start_from(self, position: Position, *, known: bool) -> State:
        """Start from a position; if it is known to be near the optimum, with the last stage."""
        return State(position, stage=len(self.stages) - 1 if known else 0)

    def ask(self, state: State) -> Array:
        """Latent values (S, N, Q) at which the forward model is wanted next."""
        return self.samples(state.trial, self.stages[state.stage].points)

    def samples(self, position: Position, points: Points) -> Array:
        """Latent values (S, N, Q): points at each site's posterior."""
        xp = array_namespace(position.factor)
        offsets = points.base @ xp.matrix_transpose(position.factor @ points.rotations)
        return xp.permute_dims(offsets, (1, 0, 2)) + position.marginals.mean

    def tell(self, state: State, outputs: Array, valid: Array) -> tuple[State, Info]:
        """Take in the forward model's outputs (S, N, P) at the values last asked for; valid (S, N)."""
        xp = array_namespace(outputs)
        trial, stage = state.trial, self.stages[state.stage]
        outputs = xp.where(valid[..., None], outputs, xp.zeros_like(outputs))
        terms, squares = self.terms(stage, trial.noise, outputs, valid)
        expected, kl = float(xp.sum(terms.value)), float(trial.q.kl())
        elbo = expected - kl + self.log_prior(trial)
        if not self.enough(stage, valid):
            elbo = -math.inf
        state = replace(state, evaluations=state.evaluations + 1)
        slack = SLACK * self.prior.sites * self.prior.latents
        if not elbo >= state.elbo - slack:
            return self._step_back(state), Info(elbo, expected, kl, accepted=False, movement=math.nan)
        if not math.isfinite(elbo):
            new = replace(state, finished="the bound is not finite at the start")
            return new, Info(elbo, expected, kl, accepted=False, movement=math.nan)
        state = replace(state, best=trial, elbo=elbo, step=min(1.0, 2.0 * state.step))
        sites = said_by(trial.factor @ stage.points.rotations, trial.marginals.mean - self.prior.mean, terms)
        target = Target(sites, trial.theta, self.noise_target(trial.noise, squares), trial.prior.Z)
        new, moved = self._step_on(state, target)
        return new, Info(elbo, expected, kl, accepted=True, movement=moved)

    def enough(self, stage: Stage, valid: Array) -> bool:
        """Whether every site has valid runs enough to be estimated."""
        xp = array_namespace(valid)
        fewest = float(xp.min(xp.sum(xp.astype(valid, stage.points.base.dtype), axis=0)))
        return fewest >= fewest_samples(self.prior.latents, quadratic=stage.quadratic)

    def terms(
        self, stage: Stage, log_scales: Array, outputs: Array, valid: Array, rows: Array | None = None
    ) -> tuple[SiteTerms, Array | None]:
        """The terms of all sites, or of some (B,), and the sum over them of the whitened residuals' squares, (P,)."""
        xp = array_namespace(outputs)
        z = stage.points.base
        if stage.kind == "log density":
            densities = self.log_density(outputs, rows)
            valid = valid & xp.isfinite(densities)
            return estimate_log_density(z, densities, valid), None
        noise = self.noise if rows is None else self.noise.at(rows)
        residuals, normaliser = noise.residuals(outputs), noise.log_normaliser
        if log_scales.shape[0]:
            log_scale = (self.noise_groups @ log_scales[:, None])[:, 0]
            residuals = residuals * xp.exp(-log_scale)
            normaliser = normaliser - noise.observed @ log_scale
        return estimate(z, residuals, normaliser, valid, quadratic=stage.quadratic)

    def noise_target(self, log_scales: Array, squares: Array | None) -> Array:
        """The log scales (G,) of the noise that the expected squares (P,) of the residuals ask for."""
        if squares is None or not log_scales.shape[0]:
            return log_scales
        xp = array_namespace(squares)
        count = xp.sum(self.noise.observed @ self.noise_groups, axis=0)
        # In units of the noise as it was given, not as it has been scaled since.
        total = (squares[None, :] @ self.noise_groups)[0, :] * xp.exp(2.0 * log_scales)
        scale, tightness = log_scales, 1.0 / self.noise_spread**2
        for _ in range(NEWTON_STEPS):
            pull = total * xp.exp(-2.0 * scale)
            move = (pull - count - scale * tightness) / (2.0 * pull + tightness)
            scale = scale + xp.clip(move, -1.0, 1.0)
        return scale

    def _step_on(self, state: State, target: Target) -> tuple[State, float]:
        """Try the next step, or leave the stage if the step would move nothing."""
        trial, step = self._towards(state.best, target, state.step)
        moved = movement(state.best, trial)
        if self.learning is not None and moved < LEARN_FROM:
            theta, Z = self.learning.fit(trial.prior, trial.sites, trial.theta)
            target = replace(target, theta=theta, Z=Z)
            trial, step = self._towards(state.best, target, step)
            moved = max(moved, movement(state.best, trial))
        state = replace(state, trial=trial, target=target, step=step)
        if moved > self.stages[state.stage].tolerance:
            return state, moved
        return self._leave_stage(state, "the posterior has settled"), moved

    def _step_back(self, state: State) -> State:
        if state.best is None:
            return replace(state, finished="the bound is not finite at the start")
        if state.step * 0.5 < SMALLEST_STEP:
            return self._leave_stage(replace(state, trial=state.best), "no further step improves the bound")
        trial, step = self._towards(state.best, state.target, 0.5 * state.step)
        return replace(state, trial=trial, step=step)

    def _leave_stage(self, state: State, why: str) -> State:
        """To the next stage, where the bound is estimated anew, or to the end, with a last step too small to harm."""
        if state.stage + 1 < len(self.stages):
            return replace(state, stage=state.stage + 1, elbo=-math.inf, step=1.0)
        return replace(state, best=state.trial, finished=why)

    def _towards(self, here: Position, target: Target, step: float) -> tuple[Position, float]:
        """The position a step away, as long a step as keeps the posterior a distribution."""
        while True:
            theta, noise, Z = (
                (1.0 - step) * old + step * new
                for old, new in (
                    (here.theta, target.theta),
                    (here.noise, target.noise),
                    (here.prior.Z, target.Z),
                )
            )
            try:
                return self.position(here.sites.towards(target.sites, step), theta, noise, Z), step
            except np.linalg.LinAlgError:
                if step < SMALLEST_STEP:
                    return here, step
                step *= 0.5

    def position(self, sites: SiteFactors, theta: Array, noise: Array, Z: Array) -> Position:
        """The posterior that these make.

        Raises
        ------
        numpy.linalg.LinAlgError
            It is no distribution.
        """
        xp = array_namespace(theta)
        prior = self.prior if self.learning is None else self.learning.prior(self.prior, theta, Z)
        q = posterior_of(natural_parameters(prior, sites))
        parts = [q.marginals(prior.geometry(*batch), prior.mean) for batch in prior.batches()]
        marginals = parts[0] if len(parts) == 1 else Marginals(*(xp.concat(list(p)) for p in zip(*parts, strict=True)))
        return Position(sites, theta, noise, prior, q, marginals, cholesky(marginals.covariance))

    def log_prior(self, position: Position) -> float:
        """Of the hyperparameters, less its constants."""
        xp = array_namespace(position.theta)
        total = 0.0
        if self.learning is not None:
            total += float(self.learning.log_prior(position.theta))
        if position.noise.shape[0]:
            total -= 0.5 * float(xp.sum((position.noise / self.noise_spread) ** 2))
        return total


def said_by(factor: Array, offset: Array, terms: SiteTerms) -> SiteFactors:
    """What sites should say, from their terms in units of z.

    Parameters
    ----------
    factor : F with f = mean + F z, (B, Q, Q).
    offset : mean less the prior's, (B, Q).
    """
    xp = array_namespace(factor)
    inverse = xp.linalg.inv(factor)
    back = xp.matrix_transpose(inverse)
    precision = back @ bounded_precision(terms.curvature) @ inverse
    return SiteFactors(precision, (back @ terms.gradient[..., None] + precision @ offset[..., None])[..., 0])


def movement(old: Position, new: Position) -> float:
    """How far the sites' posteriors move, root mean square: means in standard deviations, or spreads in shares."""
    xp = array_namespace(old.factor)
    change = xp.linalg.solve(old.factor, (new.marginals.mean - old.marginals.mean)[..., None])
    variances = [xp.linalg.diagonal(p.marginals.covariance) for p in (old, new)]
    spread = 0.5 * xp.log(variances[1] / variances[0])
    return math.sqrt(max(float(xp.mean(xp.square(change))), float(xp.mean(xp.square(spread)))))
