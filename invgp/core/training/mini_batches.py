"""Stochastic optimisation on mini-batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from invgp.core.backend import array_namespace, backend_of
from invgp.core.bound import Bound, BoundState, KernelCache, Terms
from invgp.core.checks import check_boolean, check_integer, check_number
from invgp.core.estimators import default_batch_samples, fewest_unbiased_samples
from invgp.core.expectations import NotFiniteError, all_finite
from invgp.core.natural_gradients import keep_site_factors, natural_step
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Full, Mixture, Sites
from invgp.core.stochastic_optimisers import AdaDelta, Adam
from invgp.core.training.common import (
    Progress,
    Report,
    check_blocks,
    check_optimiser,
    check_start,
    format_settings,
    select_blocks,
)

MIN_EPOCHS, MIN_STEPS = 20, 1000  # of a fit, by default
START_SITES = 1000  # sites of the subset to which a fit adapts its start, by default
MAX_MOVE = 1.0  # of the latents at the sites, in standard deviations, in natural steps that need no check
MAX_HALVINGS = 12  # of a natural step that lowers the bound of its batch
MOVES = (1.0, 0.5, 0.25, 0.125)  # shares of a step of the optimiser that are tried
NATURAL_BATCH, SHORT_STEP_BATCH = 1000, 256  # default sites per batch, with and without natural gradients
SITES_PER_LATENT = 5000  # sites on which the posterior depends, twice, by default
SHORTEST_NATURAL, LONGEST_NATURAL = 0.02, 0.5  # default steps of natural gradients


@dataclass(frozen=True, repr=False)
class MiniBatches:
    """Stochastic optimisation on mini-batches, which are shuffled in each epoch.

    Parameters
    ----------
    learn : tuple of str
        Blocks that are learnt, among "posterior", "kernels", "inducing" and "likelihood". The prior mean cannot be
        learnt on mini-batches; add a kernel `Constant` instead.
    optimiser : Adam or AdaDelta
        Or an object with the same methods (`invgp.core.stochastic_optimisers`). It moves all blocks, except the
        posterior if `natural` is not 0.
    natural : float, optional
        Step of natural gradients for the posterior (one full Gaussian); 0 leaves the posterior to the optimiser. The
        posterior depends on about 1 / natural batches. If the steps are too long for the noise of a batch, above
        all with many latents, the bound falls from epoch to epoch. By default, the posterior depends on half of the
        sites, or on 2,500 sites per latent if that is fewer, with steps of 0.02 to 0.5; 0 for other posteriors.
    final_epochs : int, optional
        Number of final epochs in which only the posterior moves, by natural gradients with decreasing steps, so that
        all batches have equal weight. With constant steps the result would depend on the last few batches. By default
        a twentieth of the epochs.
    shrink : bool
        Whether the steps of the optimiser decrease to zero in the second half of its epochs, so that the parameters
        converge to an optimum instead of fluctuating around it; with natural gradients, steps of the kernels then also
        keep the site factors. A fit that is continued with more epochs has different steps from one with all epochs
        from the start.
    batch : int, optional
        Sites per batch. By default 1,000 with natural gradients, otherwise 256: then short steps need many batches.
    epochs : int, optional
        Passes over the data. By default 20, and more for few batches, so that there are at least 1,000 steps.
    samples : int, optional
        Samples per site. By default 64, and more for many latents.
    unbiased : bool
        Whether the gradients are unbiased, with two to three times the random error; otherwise their bias is of order
        1 / samples.
    start_sites : int
        A fit of `SAVIGP` starts from a short fit by `Blocks` to a random subset of this many sites. It finds the
        magnitude of kernels and noise, and avoids saddle points; 0 to start from the initial parameters.
    """

    learn: tuple[str, ...] = ("posterior", "kernels", "likelihood")
    optimiser: Adam | AdaDelta = field(default_factory=lambda: Adam(rate=0.05))
    natural: float | None = None
    final_epochs: int | None = None
    shrink: bool = True
    batch: int | None = None
    epochs: int | None = None
    samples: int | None = None
    unbiased: bool = False
    start_sites: int = START_SITES

    def __repr__(self) -> str:
        return format_settings(self)

    def __post_init__(self) -> None:
        check_blocks("learn", self.learn)
        if "prior_mean" in self.learn:
            raise ValueError(
                f"learn must not have 'prior_mean' with mini-batches, was {self.learn}: use Blocks, or add Constant() "
                "to the kernel"
            )
        for name in ("batch", "epochs", "samples"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        if self.natural is not None:
            check_number("natural", self.natural, 0.0, 1.0)
        if self.natural and "posterior" not in self.learn:
            raise ValueError(f"natural must be 0 unless learn has 'posterior' (was {self.learn}), was {self.natural}")
        if self.final_epochs is not None:
            check_integer("final_epochs", self.final_epochs, 0)
        if self.final_epochs and (self.natural == 0 or self.final_epochs > (self.epochs or self.final_epochs)):
            raise ValueError(
                "final_epochs must be 0 unless natural steps move the posterior, and at most epochs "
                f"(natural = {self.natural}, epochs = {self.epochs}), was {self.final_epochs}"
            )
        check_integer("start_sites", self.start_sites, 0)
        check_boolean("shrink", self.shrink)
        check_boolean("unbiased", self.unbiased)
        check_optimiser(self.optimiser, "gradient", "MiniBatches", "Adam or AdaDelta")

    def fit(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        rng: np.random.Generator,
        report: Report | None = None,
        after: Progress | None = None,
    ) -> Parameters:
        """Learn the parameters.

        Parameters
        ----------
        bound : Bound
            The model.
        parameters : Parameters
            Initial parameters.
        data : Data
            Likelihood and observations.
        rng : numpy.random.Generator
            Random generator; each epoch has its own stream.
        report : callable, optional
            Called with a `Progress` after each epoch, with the mean over its batches of the estimated bound. It may
            raise an exception to stop the fit.
        after : Progress, optional
            Continue after this epoch of an earlier fit with the same `rng`; the results are the same as without the
            interruption.

        Returns
        -------
        invgp.core.parameters.Parameters
            The learnt parameters.
        """
        return self.resolve(bound)._fit(bound, parameters, data, rng, report, after)

    def resolve(self, bound: Bound) -> MiniBatches:
        """Return the same method with numbers for all settings that are None, as suits a model.

        Parameters
        ----------
        bound : Bound
            The model.

        Returns
        -------
        MiniBatches
        """
        sites, latents = bound.X.shape[0], len(bound.kernels)
        single = isinstance(bound.posterior, Full) and bound.posterior.components == 1 and "posterior" in self.learn
        natural = self.natural
        batch = self.batch or (NATURAL_BATCH if single and natural != 0 else SHORT_STEP_BATCH)
        if natural is None:
            wanted = 2.0 * batch / min(sites, SITES_PER_LATENT * latents)
            natural = min(max(wanted, SHORTEST_NATURAL), LONGEST_NATURAL) if single else 0.0
        epochs = self.epochs or max(MIN_EPOCHS, math.ceil(MIN_STEPS / math.ceil(sites / batch)))
        final = self.final_epochs if self.final_epochs is not None else epochs // 20 if natural else 0
        samples = self.samples_for(latents)
        return replace(self, natural=natural, batch=batch, epochs=epochs, final_epochs=final, samples=samples)

    def _fit(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        rng: np.random.Generator,
        report: Report | None,
        after: Progress | None,
    ) -> Parameters:
        """Learn the parameters, with numbers for all settings."""
        self._check(bound)
        blocks = [b for b in select_blocks(self.learn, bound, parameters) if not (b == "posterior" and self.natural)]
        state = self.optimiser.init(parameters.flatten(blocks)) if blocks else None
        progress = after or Progress(0, -np.inf, parameters, optimiser=state)
        for stream in rng.spawn(self._epochs)[progress.round :]:
            progress = self._epoch(progress, blocks, bound, data, stream)
            if report is not None:
                report(progress)
        return progress.parameters

    def samples_for(self, latents: int) -> int:
        """Return the number of samples per site for this many latents.

        Parameters
        ----------
        latents : int
            Number of latents, Q.

        Returns
        -------
        int
        """
        return default_batch_samples(latents) if self.samples is None else self.samples

    def _check(self, bound: Bound) -> None:
        if isinstance(bound.posterior, Sites):
            raise ValueError(  # noqa: TRY004 - the combination is wrong, not the type
                "a posterior of type Sites needs all sites at once: use Full with mini-batches"
            )
        if self.natural and not (isinstance(bound.posterior, Full) and bound.posterior.components == 1):
            raise ValueError(f"natural must be 0 unless the posterior is a single full Gaussian, was {self.natural}")
        if self.unbiased:
            latents = len(bound.kernels)
            check_integer(
                "samples", self.samples_for(latents), fewest_unbiased_samples(latents), f" (Q = {latents}, unbiased)"
            )

    def _epoch(
        self, progress: Progress, blocks: Sequence[str], bound: Bound, data: Data, rng: np.random.Generator
    ) -> Progress:
        """One pass over the data."""
        N, parameters, state = bound.X.shape[0], progress.parameters, progress.optimiser
        order, values = rng.permutation(N), []
        size = self.batch or N
        starts = range(0, N, size)
        settling_passes = progress.round - self._moving_epochs  # epochs so far with a moving posterior only
        if settling_passes >= 0:
            blocks = ()
        # In the first half, posterior and site factors may be far from optimal, and keeping them would keep the kernels
        # there. If inducing inputs move, the factors, functions of the latents at these inputs, do not stay right.
        keeps_factors = (
            self.shrink
            and bool(self.natural)
            and "kernels" in blocks
            and "inducing" not in blocks
            and 2 * progress.round >= self._moving_epochs
        )
        cache: KernelCache | None = None
        for number, start in enumerate(starts):
            index = np.sort(order[start : start + size])
            small, some, points = self._batch(bound, data, index, rng)
            bound_state, density = (
                small.bound_state(parameters, kernel_cache=cache),
                some.log_density(parameters.likelihood, derivatives="likelihood" in blocks),
            )
            try:
                # Evaluate before the step: the bound of a batch after a step on this batch would be too high.
                terms = bound_state.evaluate(density, points, blocks, strict=progress.round == 0)
            except NotFiniteError:
                check_start(small, parameters, some, points)
                raise
            values.append(float(terms.elbo))
            if self.natural:
                step = self._natural_size(settling_passes * len(starts) + number)
                q = _increase_bound(bound_state, terms, some, points, step)
                family = cast(Full, bound_state.family)
                parameters = replace(parameters, posterior=family.pack(q))
            cache = None
            if state is not None and blocks:
                updated = self.optimiser.tell(state, -terms.gradient.flatten(blocks) / N)
                share = self._share_left(progress.round + number / len(starts))
                state, parameters, cache = _move(state, updated, share, parameters, blocks, bound)
            if keeps_factors and cache is not None:
                q = keep_site_factors(q, bound_state.factor, cache.factor)
                parameters = replace(parameters, posterior=family.pack(q))
        return Progress(progress.round + 1, float(np.mean(values)), parameters, optimiser=state)

    def _batch(
        self, bound: Bound, data: Data, index: np.ndarray[Any, Any], rng: np.random.Generator
    ) -> tuple[Bound, Data, Points]:
        backend = backend_of(bound.X)
        xp = backend.namespace
        rows = xp.asarray(index.astype(np.int32), device=backend.device)
        small = replace(bound, X=xp.take(bound.X, rows, axis=0), dense=False, weight=bound.X.shape[0] / len(index))
        samples, latents = self.samples_for(len(bound.kernels)), len(bound.kernels)
        points = Points.draw(rng, samples, len(index), latents, backend, independent=self.unbiased)
        return small, data.rows(rows), points

    @property
    def _epochs(self) -> int:
        return self.epochs or MIN_EPOCHS

    @property
    def _moving_epochs(self) -> int:
        """Number of epochs in which all blocks move."""
        return self._epochs - (self.final_epochs or 0)

    def _share_left(self, passes: float) -> float:
        """Return the factor of the optimiser's step after this many passes."""
        return min(1.0, 2.0 - 2.0 * passes / self._moving_epochs) if self.shrink else 1.0

    def _natural_size(self, settling: int) -> float:
        """Return the natural-gradient step after this many steps of the final epochs (negative before these).

        With steps 1 / (c + t), c = 1 / natural, each batch of the final epochs has the same weight in the result, and
        the posterior before them has the weight of c batches.
        """
        natural = self.natural or 0.0
        return natural / (1.0 + natural * max(settling, 0))


def _increase_bound(bound_state: BoundState, terms: Terms, data: Data, points: Points, step: float) -> Mixture:
    """Take a natural step, shortened until it does not lower the bound of its batch.

    Far from the optimum the curvature of the log density may change within a step, as that of counts with a log link.
    A step that hardly moves the latents is not checked, so that most batches are evaluated only once.
    """
    density = data.log_density(bound_state.parameters.likelihood, derivatives=False)
    before = float(terms.elbo)
    for _ in range(MAX_HALVINGS):
        q = natural_step(bound_state, terms.expected, step)
        after = replace(bound_state, q=q)
        if _largest_move(bound_state, after) <= MAX_MOVE:
            return q
        value = float(after.evaluate(density, points, ()).elbo)
        if value >= before:
            return q
        step *= 0.5
    return bound_state.q


def _largest_move(before: BoundState, after: BoundState) -> float:
    """Return the largest change of a latent at a site: of its mean, in standard deviations, or of its log variance."""
    xp, largest = array_namespace(before.factor), 0.0
    for sites in before.bound.batches():
        geometry = before.geometry(*sites)
        (m1, v1), (m2, v2) = before.marginals(geometry), after.marginals(geometry)
        change = xp.maximum(xp.abs(m1 - m2) / xp.sqrt(xp.minimum(v1, v2)), xp.abs(xp.log(v1 / v2)))
        largest = max(largest, float(xp.max(change)))
    return largest


def _move(
    state: Any, updated: Any, share: float, parameters: Parameters, blocks: Sequence[str], bound: Bound
) -> tuple[Any, Parameters, KernelCache | None]:
    """Move blocks by a share of a step, or by less if the kernels there cannot be factorised.

    Also return the state of the optimiser at the new point. Without a step, its state does not change.
    """
    if all_finite(updated.trial):
        for part in MOVES:
            trial = state.trial + part * share * (updated.trial - state.trial)
            moved = parameters.with_blocks(blocks, trial)
            try:
                return replace(updated, trial=trial), moved, bound.kernel_cache(moved)
            except np.linalg.LinAlgError:
                continue
    return state, parameters, None
