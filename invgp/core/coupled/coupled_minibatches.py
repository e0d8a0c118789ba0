"""Inference of the coupled posterior on mini-batches of sites, which are shuffled in every pass over the survey.

A step updates the site factors of one batch; the other sites keep theirs. The posterior therefore always includes all
sites, not a rescaled batch, and the step size need not decrease to zero. The evaluations of a pass also give the bound
of the posterior at its start. If this bound decreased, the search returns to the last accepted posterior and takes
smaller steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, cholesky, identity, to_numpy
from invgp.core.coupled.coupled_gaussian import (
    CoupledGaussian,
    Marginals,
    NaturalParameters,
    SiteFactors,
    add_sites,
    gaussian_from_natural,
    natural_parameters,
)
from invgp.core.coupled.coupled_savigp import (
    CONVERGED,
    CoupledSavigp,
)
from invgp.core.coupled.gaussian_posterior import GaussianPosterior, mean_movement, movement, spread_movement
from invgp.core.coupled.site_updates import SiteUpdate, scale_site_factors
from invgp.core.geometry import Geometry


@dataclass(frozen=True)
class BatchState:
    """Immutable state of the inference on mini-batches.

    Attributes
    ----------
    posterior : GaussianPosterior
        Posterior at the start of the pass.
    sites, natural, q : SiteFactors, NaturalParameters, CoupledGaussian
        Present site factors, and the posterior from them.
    values : array, shape (N,)
        E[log p] of the sites visited in this pass, under the posterior at its start; NaN for the other sites.
    order : array of int, shape (N,)
        Shuffled sites of this pass.
    verified : GaussianPosterior or None
        Last posterior whose bound was evaluated and accepted.
    elbo : float, nats
        Largest bound of the stage.
    start : int
        Index in `order` at which the next batch begins.
    step : float
        Length of the natural-gradient steps of this pass.
    stage : int
        Index of the present stage.
    passes : int
        Number of completed passes.
    finished : str
        Reason why the inference ended; empty while it continues.
    """

    posterior: GaussianPosterior
    sites: SiteFactors
    natural: NaturalParameters
    q: CoupledGaussian
    values: NDArray[np.float64]
    order: NDArray[np.intp]
    verified: GaussianPosterior | None = None
    elbo: float = -math.inf
    start: int = 0
    step: float = 1.0
    stage: int = 0
    passes: int = 0
    finished: str = ""

    @property
    def converged(self) -> bool:
        """Whether the inference ended because a further pass would not move the posterior."""
        return self.finished == CONVERGED


@dataclass(frozen=True)
class PassInfo:
    """Result of one pass over the survey.

    Attributes
    ----------
    elbo : float, nats
        Bound of the posterior at the start of the pass.
    accepted : bool
        Whether this posterior was accepted.
    movement : float, standard deviations
        Movement of a full step at the site that moves most; NaN if the pass was rejected.
    """

    elbo: float
    accepted: bool
    movement: float


@dataclass(frozen=True)
class MiniBatches:
    """Natural-gradient steps on mini-batches of sites.

    Parameters
    ----------
    algorithm : CoupledSavigp
        Algorithm for all sites. Kernels and inducing inputs are learnt after each pass; the noise is not learnt.
    size : int
        Number of sites in a batch.
    rng : numpy.random.Generator
        Random numbers of the shuffling.
    step : float
        Length of the steps of the first pass, between 0 and 1.
    """

    algorithm: CoupledSavigp
    size: int
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    step: float = 1.0

    def init(self, posterior: GaussianPosterior, stage: int = 0) -> BatchState:
        """Return the state at the start of the first pass from a posterior.

        Parameters
        ----------
        posterior : GaussianPosterior
            Start.
        stage : int
            Number of the first stage.

        Returns
        -------
        BatchState
        """
        natural = natural_parameters(posterior.prior, posterior.sites)
        values = np.full(self.algorithm.prior.site_count, np.nan)
        return BatchState(
            posterior, posterior.sites, natural, posterior.q, values, self._shuffle(), step=self.step, stage=stage
        )

    def ask(self, state: BatchState) -> tuple[NDArray[np.intp], Array]:
        """Return the sites (B,) of the next batch and the latent values (S, B, Q) for the forward model.

        Parameters
        ----------
        state : BatchState
            Present state.

        Returns
        -------
        tuple of array, shapes (B,) and (S, B, Q)
        """
        rows = state.order[state.start : state.start + self.size]
        mean, factor, _ = self._batch_marginals(state, rows)
        xp = array_namespace(mean)
        base = self.algorithm.stages[state.stage].points.base
        return rows, xp.permute_dims(base @ xp.matrix_transpose(factor), (1, 0, 2)) + mean

    def tell(self, state: BatchState, outputs: Array, valid: Array) -> tuple[BatchState, PassInfo | None]:
        """Update the state with the outputs of a batch.

        Parameters
        ----------
        state : BatchState
            State for which `ask` returned the latent values.
        outputs : Array, shape (S, B, P)
            Outputs at these values; NaN for missing outputs.
        valid : Array of bool, shape (S, B)
            Runs that did not fail.

        Returns
        -------
        BatchState
            Next state.
        PassInfo or None
            Result of the pass; None before its last batch.
        """
        algorithm = self.algorithm
        xp = array_namespace(outputs)
        rows = state.order[state.start : state.start + self.size]
        stage = algorithm.stages[state.stage]
        index = xp.asarray(rows, dtype=xp.int32, device=outputs.device)
        update = algorithm.site_update(stage, state.posterior.hyper.noise, outputs, valid, index)
        if update.reliable:
            values = state.values.copy()
            values[rows] = to_numpy(self._values_at_pass_start(state, rows, index, update))
            state = self._update_batch(replace(state, values=values), rows, index, update)
        state = replace(state, start=state.start + len(rows))
        if state.start < len(state.order):
            return state, None
        return self._end_pass(state)

    def _update_batch(self, state: BatchState, rows: NDArray[np.intp], index: Array, update: SiteUpdate) -> BatchState:
        """Update the site factors of a batch; shorten the step if the posterior were not positive definite."""
        xp = array_namespace(state.sites.shift)
        mean, factor, geometry = self._batch_marginals(state, rows)
        max_movement, prior_mean = self.algorithm.stages[state.stage].max_movement, self.algorithm.prior.mean_at(rows)
        now = Marginals(mean, factor @ xp.matrix_transpose(factor))
        old = SiteFactors(*(xp.take(part, index, axis=0) for part in state.sites))
        offset = mean - prior_mean
        bounded, step = False, state.step
        while step >= self.algorithm.options.smallest_limited_step:
            target = update.site_factors(factor, offset, old, bounded=bounded)
            new = old.step_towards(target.uncouple(offset) if self.algorithm.factorised else target, step)
            change = SiteFactors(new.precision - old.precision, new.shift - old.shift)
            natural = add_sites(state.natural, geometry, change)
            try:
                q = gaussian_from_natural(natural)
            except np.linalg.LinAlgError:
                if bounded and step < self.algorithm.options.smallest_step:
                    break
                step, bounded = (0.5 * step, True) if bounded else (step, True)
                continue
            if max_movement < math.inf:
                following = q.marginals(geometry, prior_mean)
                if max(mean_movement(factor, now, following), spread_movement(now, following)) > max_movement:
                    step *= 0.5
                    continue
            return replace(state, sites=_replace_rows(state.sites, rows, new), natural=natural, q=q)
        return state

    def _end_pass(self, state: BatchState) -> tuple[BatchState, PassInfo]:
        """Accept or reject the posterior at the start of the pass by its bound, and start the next pass."""
        algorithm, here = self.algorithm, state.posterior
        slack = (
            max(algorithm.options.pass_slack, algorithm.options.slack(algorithm.stages[state.stage]))
            * algorithm.prior.site_count
            * algorithm.prior.latent_count
        )
        elbo = float(np.sum(state.values)) - float(here.q.kl()) + algorithm.log_prior(here)
        fresh = np.full_like(state.values, np.nan)
        following = replace(state, values=fresh, order=self._shuffle(), start=0, passes=state.passes + 1)
        # A missing value of a site rejects a posterior, except before the first accepted one.
        incomplete = bool(np.isnan(elbo))
        if state.verified is not None and (incomplete or elbo < state.elbo - slack):
            back = self._start_pass(replace(following, step=0.5 * state.step), state.verified)
            if back.step < algorithm.options.smallest_step:
                back = self._end_stage(back, "no further pass improves the bound")
            return back, PassInfo(elbo, accepted=False, movement=math.nan)
        posterior = algorithm.posterior(state.sites, here.hyper)
        moved = movement(here, posterior) / state.step
        if algorithm.learning is not None and moved < algorithm.options.learning_threshold:
            factors = scale_site_factors(state.sites, here.factor, here.marginals.mean - here.prior.mean, None, None)
            posterior = algorithm.posterior(state.sites, algorithm.learning.fit(here.prior, factors, here.hyper))
            moved = max(moved, movement(here, posterior))
        on = self._start_pass(
            replace(following, step=min(1.0, algorithm.options.pass_step_growth * state.step)), posterior
        )
        if incomplete:
            return on, PassInfo(-math.inf, accepted=False, movement=moved)
        on = replace(on, verified=here, elbo=max(elbo, state.elbo))
        if moved <= algorithm.stages[state.stage].tolerance:
            on = self._end_stage(on, CONVERGED)
        return on, PassInfo(elbo, accepted=True, movement=moved)

    @staticmethod
    def _start_pass(state: BatchState, posterior: GaussianPosterior) -> BatchState:
        """Return the state at the start of a pass from a posterior."""
        natural = natural_parameters(posterior.prior, posterior.sites)
        return replace(state, posterior=posterior, sites=posterior.sites, natural=natural, q=posterior.q)

    def _end_stage(self, state: BatchState, why: str) -> BatchState:
        """Begin the next stage, or end the inference."""
        if state.stage + 1 < len(self.algorithm.stages):
            return replace(state, stage=state.stage + 1, verified=None, elbo=-math.inf, step=1.0)
        return replace(state, finished=why)

    def _values_at_pass_start(
        self, state: BatchState, rows: NDArray[np.intp], index: Array, update: SiteUpdate
    ) -> Array:
        """Extrapolate E[log p] (B,) from the present posterior to the posterior at the start of the pass.

        The extrapolation is of second order, which is exact for a linear forward model.
        """
        xp = array_namespace(update.terms.value)
        mean, factor, _ = self._batch_marginals(state, rows)
        start = state.posterior.marginals
        offset = xp.linalg.solve(factor, (xp.take(start.mean, index, axis=0) - mean)[..., None])
        half = xp.linalg.solve(factor, xp.take(start.covariance, index, axis=0))
        spread = xp.linalg.solve(factor, xp.matrix_transpose(half))
        second = spread + offset @ xp.matrix_transpose(offset) - identity(spread)
        change = xp.sum(update.terms.gradient * offset[..., 0], axis=-1)
        change = change + 0.5 * xp.sum(update.terms.curvature * second, axis=(-2, -1))
        if update.usable is not None:
            change = xp.where(update.usable, change, xp.zeros_like(change))
        return update.terms.value + change

    def _batch_marginals(self, state: BatchState, rows: NDArray[np.intp]) -> tuple[Array, Array, Geometry]:
        """Compute mean (B, Q), rotated factor (B, Q, Q) and geometry of sites under the present posterior.

        The last result is cached, because `ask` and both parts of `tell` use it.
        """
        cache = self.__dict__.get("_cache")
        if cache is not None and cache[0] is state.q and cache[1] == state.stage and np.array_equal(cache[2], rows):
            last: tuple[Array, Array, Geometry] = cache[3]
            return last
        xp = array_namespace(state.natural.shift)
        prior = state.posterior.prior
        geometry = prior.geometry_at(rows)
        marginals = state.q.marginals(geometry, prior.mean_at(rows))
        rotations = self.algorithm.stages[state.stage].points.rotations
        index = xp.asarray(rows, dtype=xp.int32, device=rotations.device)
        found = marginals.mean, cholesky(marginals.covariance) @ xp.take(rotations, index, axis=0), geometry
        self.__dict__["_cache"] = state.q, state.stage, rows, found
        return found

    def _shuffle(self) -> NDArray[np.intp]:
        """Draw the order of the sites in a pass."""
        return self.rng.permutation(self.algorithm.prior.site_count)


def _replace_rows(everything: SiteFactors, rows: NDArray[np.intp], part: SiteFactors) -> SiteFactors:
    """Return a copy with the factors of the sites `rows` replaced."""
    xp = array_namespace(everything.shift)
    number, inside = np.zeros(everything.shift.shape[0], dtype=np.intp), np.zeros(everything.shift.shape[0], dtype=bool)
    number[rows], inside[rows] = np.arange(len(rows)), True
    device = everything.shift.device
    number, inside = xp.asarray(number, dtype=xp.int32, device=device), xp.asarray(inside, device=device)
    return SiteFactors(
        xp.where(inside[:, None, None], xp.take(part.precision, number, axis=0), everything.precision),
        xp.where(inside[:, None], xp.take(part.shift, number, axis=0), everything.shift),
    )
