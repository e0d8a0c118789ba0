"""The coupled posterior on mini-batches of sites, shuffled anew for every pass over the survey.

A step renews what the sites of one batch say; all others keep what they said last. So the posterior is always that of
all sites, not of a batch scaled up, and the steps need not shrink. What a pass sees of the sites also tells the bound
of the posterior that it started from: if that fell, the search goes back to the last one that was better, and takes
smaller steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, cholesky, identity, to_numpy
from invgp.core.coupled.coupled_gaussian import (
    Coupled,
    Marginals,
    NaturalParameters,
    SiteFactors,
    add_sites,
    gaussian_from_natural,
    natural_parameters,
)
from invgp.core.coupled.coupled_savigp import CONVERGED, LEARN_FROM, SHORTEST_REACH, SMALLEST_STEP, CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior, mean_movement, movement, spread_movement
from invgp.core.coupled.site_updates import SiteUpdate, scale_site_factors
from invgp.core.geometry import Geometry

GROWTH = 1.2  # of a step that was kept: faster, and it would be too long again in the next pass
SLACK = 1e-3  # nats a latent and site that the bound may fall: its terms are not all of the same posterior


@dataclass(frozen=True)
class BatchState:
    """Where the inference stands.

    Attributes
    ----------
    position : at the start of the pass.
    sites, natural, q : what the sites say now, and the posterior that they make.
    values : E[log p] of the sites that this pass has seen, under the posterior at its start, (N,); NaN of the others.
    verified, elbo : the last position whose bound was seen and did not fall, and the best bound of the stage.
    order, start : the sites of this pass, shuffled, and where its next batch begins.
    """

    posterior: GaussianPosterior
    sites: SiteFactors
    natural: NaturalParameters
    q: Coupled
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
        """Whether it is over because a further pass would move nothing."""
        return self.finished == CONVERGED


@dataclass(frozen=True)
class PassInfo:
    """What a pass over the survey came to."""

    elbo: float
    accepted: bool
    movement: float


@dataclass(frozen=True)
class MiniBatches:
    """Natural-gradient steps on mini-batches.

    Parameters
    ----------
    algorithm : for all sites; kernels and inducing inputs are learnt after each pass, noise is not.
    size : sites in a batch.
    step : of the first pass, between 0 and 1.
    """

    algorithm: CoupledSavigp
    size: int
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    step: float = 1.0

    def init(self, posterior: GaussianPosterior, stage: int = 0) -> BatchState:
        """Start from a position."""
        natural = natural_parameters(posterior.prior, posterior.sites)
        values = np.full(self.algorithm.prior.sites, np.nan)
        return BatchState(
            posterior, posterior.sites, natural, posterior.q, values, self._shuffle(), step=self.step, stage=stage
        )

    def ask(self, state: BatchState) -> tuple[NDArray[np.intp], Array]:
        """The sites (B,) of the next batch, and latent values (S, B, Q) at which the forward model is wanted."""
        rows = state.order[state.start : state.start + self.size]
        mean, factor, _ = self._batch(state, rows)
        xp = array_namespace(mean)
        base = self.algorithm.stages[state.stage].points.base
        return rows, xp.permute_dims(base @ xp.matrix_transpose(factor), (1, 0, 2)) + mean

    def tell(self, state: BatchState, outputs: Array, valid: Array) -> tuple[BatchState, PassInfo | None]:
        """Take in the outputs (S, B, P) at the values last asked for; at the end of a pass, say what it came to."""
        algorithm = self.algorithm
        xp = array_namespace(outputs)
        rows = state.order[state.start : state.start + self.size]
        stage = algorithm.stages[state.stage]
        index = xp.asarray(rows, dtype=xp.int32, device=outputs.device)
        told = algorithm.told(stage, state.posterior.hyper.noise, outputs, valid, index)
        if told.trustworthy:
            values = state.values.copy()
            values[rows] = to_numpy(self._values_at_start(state, rows, index, told))
            state = self._update_batch(replace(state, values=values), rows, index, told)
        state = replace(state, start=state.start + len(rows))
        if state.start < len(state.order):
            return state, None
        return self._end_pass(state)

    def _update_batch(self, state: BatchState, rows: NDArray[np.intp], index: Array, told: SiteUpdate) -> BatchState:
        """What the sites of a batch say, renewed; with shorter steps if the posterior would be no distribution."""
        xp = array_namespace(state.sites.shift)
        mean, factor, geometry = self._batch(state, rows)
        reach, prior_mean = self.algorithm.stages[state.stage].reach, self.algorithm.prior.mean
        now = Marginals(mean, factor @ xp.matrix_transpose(factor))
        old = SiteFactors(*(xp.take(part, index, axis=0) for part in state.sites))
        offset = mean - prior_mean
        bounded, step = False, state.step
        while step >= SHORTEST_REACH:
            new = old.step_towards(told.sites(factor, offset, old, bounded=bounded), step)
            change = SiteFactors(new.precision - old.precision, new.shift - old.shift)
            natural = add_sites(state.natural, geometry, change)
            try:
                q = gaussian_from_natural(natural)
            except np.linalg.LinAlgError:
                if bounded and step < SMALLEST_STEP:
                    break
                step, bounded = (0.5 * step, True) if bounded else (step, True)
                continue
            if reach < math.inf:
                following = q.marginals(geometry, prior_mean)
                if max(mean_movement(factor, now, following), spread_movement(now, following)) > reach:
                    step *= 0.5
                    continue
            return replace(state, sites=_replace_rows(state.sites, rows, new), natural=natural, q=q)
        return state

    def _end_pass(self, state: BatchState) -> tuple[BatchState, PassInfo]:
        """Judge the position at the start of the pass by what the pass has seen of it; go on from it, or back."""
        algorithm, here = self.algorithm, state.posterior
        slack = max(SLACK, algorithm.stages[state.stage].slack) * algorithm.prior.sites * algorithm.prior.latents
        elbo = float(np.sum(state.values)) - float(here.q.kl()) + algorithm.log_prior(here)
        fresh = np.full_like(state.values, np.nan)
        following = replace(state, values=fresh, order=self._shuffle(), start=0, passes=state.passes + 1)
        # A site that could not be judged says nothing against a first position, but against a later one.
        unjudged = bool(np.isnan(elbo))
        if state.verified is not None and (unjudged or elbo < state.elbo - slack):
            back = self._at(replace(following, step=0.5 * state.step), state.verified)
            if back.step < SMALLEST_STEP:
                back = self._leave_stage(back, "no further pass improves the bound")
            return back, PassInfo(elbo, accepted=False, movement=math.nan)
        posterior = algorithm.posterior(state.sites, here.hyper)
        moved = movement(here, posterior) / state.step
        if algorithm.learning is not None and moved < LEARN_FROM:
            said = scale_site_factors(state.sites, here.factor, here.marginals.mean - here.prior.mean, None, None)
            posterior = algorithm.posterior(state.sites, algorithm.learning.fit(here.prior, said, here.hyper))
            moved = max(moved, movement(here, posterior))
        on = self._at(replace(following, step=min(1.0, GROWTH * state.step)), posterior)
        if unjudged:
            return on, PassInfo(-math.inf, accepted=False, movement=moved)
        on = replace(on, verified=here, elbo=max(elbo, state.elbo))
        if moved <= algorithm.stages[state.stage].tolerance:
            on = self._leave_stage(on, CONVERGED)
        return on, PassInfo(elbo, accepted=True, movement=moved)

    @staticmethod
    def _at(state: BatchState, posterior: GaussianPosterior) -> BatchState:
        """The state at the start of a pass from a position."""
        natural = natural_parameters(posterior.prior, posterior.sites)
        return replace(state, posterior=posterior, sites=posterior.sites, natural=natural, q=posterior.q)

    def _leave_stage(self, state: BatchState, why: str) -> BatchState:
        if state.stage + 1 < len(self.algorithm.stages):
            return replace(state, stage=state.stage + 1, verified=None, elbo=-math.inf, step=1.0)
        return replace(state, finished=why)

    def _values_at_start(self, state: BatchState, rows: NDArray[np.intp], index: Array, told: SiteUpdate) -> Array:
        """E[log p] (B,) of sites under the posterior at the start of the pass, from what they are under that of now.

        To second order, which is exact for a linear forward model.
        """
        xp = array_namespace(told.terms.value)
        mean, factor, _ = self._batch(state, rows)
        start = state.posterior.marginals
        offset = xp.linalg.solve(factor, (xp.take(start.mean, index, axis=0) - mean)[..., None])
        half = xp.linalg.solve(factor, xp.take(start.covariance, index, axis=0))
        spread = xp.linalg.solve(factor, xp.matrix_transpose(half))
        second = spread + offset @ xp.matrix_transpose(offset) - identity(spread)
        change = xp.sum(told.terms.gradient * offset[..., 0], axis=-1)
        change = change + 0.5 * xp.sum(told.terms.curvature * second, axis=(-2, -1))
        if told.usable is not None:
            change = xp.where(told.usable, change, xp.zeros_like(change))
        return told.terms.value + change

    def _batch(self, state: BatchState, rows: NDArray[np.intp]) -> tuple[Array, Array, Geometry]:
        """Mean (B, Q), factor with rotations (B, Q, Q) and geometry of some sites, under the posterior of now.

        The last one is kept: it is wanted to ask, to judge and to step.
        """
        kept = self.__dict__.get("_kept")
        if kept is not None and kept[0] is state.q and kept[1] == state.stage and np.array_equal(kept[2], rows):
            last: tuple[Array, Array, Geometry] = kept[3]
            return last
        xp = array_namespace(state.natural.shift)
        prior = state.posterior.prior
        geometry = prior.geometry_at(rows)
        marginals = state.q.marginals(geometry, prior.mean)
        rotations = self.algorithm.stages[state.stage].points.rotations
        index = xp.asarray(rows, dtype=xp.int32, device=rotations.device)
        found = marginals.mean, cholesky(marginals.covariance) @ xp.take(rotations, index, axis=0), geometry
        self.__dict__["_kept"] = state.q, state.stage, rows, found
        return found

    def _shuffle(self) -> NDArray[np.intp]:
        return self.rng.permutation(self.algorithm.prior.sites)


def _replace_rows(everything: SiteFactors, rows: NDArray[np.intp], part: SiteFactors) -> SiteFactors:
    """A copy with what some sites say replaced."""
    xp = array_namespace(everything.shift)
    number, inside = np.zeros(everything.shift.shape[0], dtype=np.intp), np.zeros(everything.shift.shape[0], dtype=bool)
    number[rows], inside[rows] = np.arange(len(rows)), True
    device = everything.shift.device
    number, inside = xp.asarray(number, dtype=xp.int32, device=device), xp.asarray(inside, device=device)
    return SiteFactors(
        xp.where(inside[:, None, None], xp.take(part.precision, number, axis=0), everything.precision),
        xp.where(inside[:, None], xp.take(part.shift, number, axis=0), everything.shift),
    )
