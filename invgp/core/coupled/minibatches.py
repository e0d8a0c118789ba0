"""The coupled posterior on mini-batches of sites, shuffled anew for every pass over the survey.

A step renews what the sites of one batch say; all others keep what they said last. So the posterior is always that of
all sites, not of a batch scaled up, and the steps need not shrink. After each pass the bound, with each site's term as
it was when last seen, is compared with the best so far: if it fell, the pass is taken back, and the next one takes
smaller steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, cholesky, to_numpy
from invgp.core.coupled.algorithm import (
    LEARN_FROM,
    SETTLED,
    SMALLEST_STEP,
    CoupledSavigp,
    Position,
    Told,
    movement,
    scaled_sites,
)
from invgp.core.coupled.posterior import (
    Coupled,
    NaturalParameters,
    SiteFactors,
    add_sites,
    natural_parameters,
    posterior_of,
)
from invgp.core.geometry import Geometry

SLACK = 1e-3  # nats a latent and site that the bound may fall: its terms are not all of the same posterior


@dataclass(frozen=True)
class BatchState:
    """Where the inference stands.

    Attributes
    ----------
    position : at the start of the pass; its sites are the best so far.
    sites, natural, q : what the sites say now, and the posterior that they make.
    values, kept : E[log p] of each site when last seen, (N,), now and at the start of the pass.
    elbo : the bound of the best pass.
    order, start : the sites of this pass, shuffled, and where its next batch begins.
    """

    position: Position
    sites: SiteFactors
    natural: NaturalParameters
    q: Coupled
    values: NDArray[np.float64]
    kept: NDArray[np.float64]
    order: NDArray[np.intp]
    elbo: float = -math.inf
    start: int = 0
    step: float = 1.0
    stage: int = 0
    passes: int = 0
    finished: str = ""

    @property
    def settled(self) -> bool:
        """Whether it is over because a further pass would move nothing."""
        return self.finished == SETTLED


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

    def init(self, position: Position, stage: int = 0) -> BatchState:
        """Start from a position."""
        natural = natural_parameters(position.prior, position.sites)
        values = np.full(self.algorithm.prior.sites, np.nan)
        return BatchState(
            position, position.sites, natural, position.q, values, values, self._shuffled(), step=self.step, stage=stage
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
        told = algorithm.told(stage, state.position.hyper.noise, outputs, valid, index)
        if told.trustworthy:
            values = state.values.copy()
            values[rows] = to_numpy(told.terms.value)
            state = self._renewed(replace(state, values=values), rows, index, told)
        state = replace(state, start=state.start + len(rows))
        if state.start < len(state.order):
            return state, None
        return self._end_pass(state)

    def _renewed(self, state: BatchState, rows: NDArray[np.intp], index: Array, told: Told) -> BatchState:
        """What the sites of a batch say, renewed; with shorter steps if the posterior would be no distribution."""
        xp = array_namespace(state.sites.shift)
        mean, factor, geometry = self._batch(state, rows)
        old = SiteFactors(*(xp.take(part, index, axis=0) for part in state.sites))
        offset = mean - self.algorithm.prior.mean
        bounded, step = False, state.step
        while step >= SMALLEST_STEP:
            new = old.towards(told.sites(factor, offset, old, bounded=bounded), step)
            change = SiteFactors(new.precision - old.precision, new.shift - old.shift)
            natural = add_sites(state.natural, geometry, change)
            try:
                q = posterior_of(natural)
            except np.linalg.LinAlgError:
                step, bounded = (0.5 * step, True) if bounded else (step, True)
                continue
            return replace(state, sites=_replaced(state.sites, rows, new), natural=natural, q=q)
        return state

    def _end_pass(self, state: BatchState) -> tuple[BatchState, PassInfo]:
        algorithm = self.algorithm
        N, Q = algorithm.prior.sites, algorithm.prior.latents
        old = state.position
        position = algorithm.position(state.sites, old.hyper)
        moved = movement(old, position) / state.step
        if algorithm.learning is not None and moved < LEARN_FROM:
            said = scaled_sites(state.sites, old.factor, old.marginals.mean - old.prior.mean, None, None)
            position = algorithm.position(state.sites, algorithm.learning.fit(old.prior, said, old.hyper))
            moved = max(moved, movement(old, position))
        elbo = float(np.nansum(state.values)) - float(position.q.kl()) + algorithm.log_prior(position)
        following = replace(state, order=self._shuffled(), start=0, passes=state.passes + 1)
        if not elbo >= state.elbo - SLACK * N * Q:
            natural = natural_parameters(old.prior, old.sites)
            back = replace(
                following, sites=old.sites, natural=natural, q=old.q, values=state.kept, step=0.5 * state.step
            )
            if back.step < SMALLEST_STEP:
                back = self._leave_stage(back, "no further pass improves the bound")
            return back, PassInfo(elbo, accepted=False, movement=moved)
        natural = natural_parameters(position.prior, position.sites)
        step = min(1.0, 2.0 * state.step)
        on = replace(
            following,
            position=position,
            natural=natural,
            q=position.q,
            elbo=max(elbo, state.elbo),
            step=step,
            kept=state.values,
        )
        if moved <= algorithm.stages[state.stage].tolerance:
            on = self._leave_stage(on, SETTLED)
        return on, PassInfo(elbo, accepted=True, movement=moved)

    def _leave_stage(self, state: BatchState, why: str) -> BatchState:
        if state.stage + 1 < len(self.algorithm.stages):
            return replace(state, stage=state.stage + 1, elbo=-math.inf, step=1.0)
        return replace(state, finished=why)

    def _batch(self, state: BatchState, rows: NDArray[np.intp]) -> tuple[Array, Array, Geometry]:
        """Mean (B, Q), factor with rotations (B, Q, Q) and geometry of some sites, under the posterior of now."""
        xp = array_namespace(state.natural.shift)
        prior = state.position.prior
        geometry = prior.geometry_at(rows)
        marginals = state.q.marginals(geometry, prior.mean)
        rotations = self.algorithm.stages[state.stage].points.rotations
        index = xp.asarray(rows, dtype=xp.int32, device=rotations.device)
        return marginals.mean, cholesky(marginals.covariance) @ xp.take(rotations, index, axis=0), geometry

    def _shuffled(self) -> NDArray[np.intp]:
        return self.rng.permutation(self.algorithm.prior.sites)


def _replaced(everything: SiteFactors, rows: NDArray[np.intp], part: SiteFactors) -> SiteFactors:
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
