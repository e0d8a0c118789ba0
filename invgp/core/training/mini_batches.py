"""Stochastic optimisation on mini-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from invgp.core.backend import backend_of
from invgp.core.bound import Bound
from invgp.core.checks import check_boolean, check_integer, check_number
from invgp.core.estimators import fewest_unbiased_samples
from invgp.core.expectations import NotFiniteError
from invgp.core.natural_gradients import natural_step
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Full, Sites
from invgp.core.stochastic_optimisers import AdaDelta, Adam
from invgp.core.training.common import Progress, Report, check_blocks, check_optimiser, check_start, select_blocks


@dataclass(frozen=True)
class MiniBatches:
    """Stochastic optimisation on mini-batches, shuffled anew for every pass over the data.

    Parameters
    ----------
    learn : blocks that may move.
    optimiser : `Adam`, `AdaDelta` or your own, for everything that `natural` does not move (see
        `invgp.core.stochastic_optimisers`).
    natural : step of natural gradients for the posterior (one full Gaussian); 0 leaves it to the optimiser. The
        posterior knows some 1 / natural batches at a time: steps that are too long for what a batch can tell, most of
        all of many latents, feed on their own noise, and the bound falls from epoch to epoch.
    settle : passes, the last ones of `epochs`, in which the posterior alone moves, by natural gradients whose steps
        shrink so that all batches count alike. Steps that do not shrink leave it as the last few batches would have it.
    shrink : whether the optimiser's steps shrink to nothing in the second half of the passes that it has: what it
        learns then comes to rest at an optimum, where steps that do not shrink leave it somewhere around one. A fit
        that goes on for more passes once it was over has had other steps than one that was as long from the beginning.
    batch, epochs, samples : sites a batch, passes over the data, samples a site.
    unbiased : whether the gradients have no bias at all, at some two to three times the error of each; by default
        their bias is of order 1 / samples.
    """

    learn: tuple[str, ...] = ("posterior", "kernels", "likelihood")
    optimiser: Adam | AdaDelta = field(default_factory=Adam)
    natural: float = 0.0
    settle: int = 0
    shrink: bool = True
    batch: int = 256
    epochs: int = 20
    samples: int = 64
    unbiased: bool = False

    def __post_init__(self) -> None:
        check_blocks("learn", self.learn)
        for name in ("batch", "epochs", "samples"):
            check_integer(name, getattr(self, name), 1)
        check_number("natural", self.natural, 0.0, 1.0)
        if self.natural and "posterior" not in self.learn:
            raise ValueError(f"natural must be 0 unless learn has 'posterior' (was {self.learn}), was {self.natural}")
        check_integer("settle", self.settle, 0)
        if self.settle and not (self.natural and self.settle <= self.epochs):
            raise ValueError(
                "settle must be 0 unless natural steps move the posterior, and at most epochs "
                f"(natural = {self.natural}, epochs = {self.epochs}), was {self.settle}"
            )
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
        """Learn.

        Parameters
        ----------
        rng : every epoch gets a stream of its own from it.
        report : told after each epoch, with the mean of its batches' estimates of the bound; it may raise to stop.
        after : go on after this epoch of an earlier fit that began with the same `rng`, to the same numbers as if that
            had gone on itself.
        """
        self._check(bound)
        blocks = [b for b in select_blocks(self.learn, bound, parameters) if not (b == "posterior" and self.natural)]
        state = self.optimiser.init(parameters.flat(blocks)) if blocks else None
        progress = after or Progress(0, -np.inf, parameters, optimiser=state)
        for stream in rng.spawn(self.epochs)[progress.round :]:
            progress = self._epoch(progress, blocks, bound, data, stream)
            if report is not None:
                report(progress)
        return progress.parameters

    def _check(self, bound: Bound) -> None:
        if isinstance(bound.posterior, Sites):
            raise ValueError(  # noqa: TRY004 - the combination is wrong, not the type
                "a posterior held at the sites needs all of them at once: use Full with mini-batches"
            )
        if self.natural and not (isinstance(bound.posterior, Full) and bound.posterior.components == 1):
            raise ValueError(f"natural must be 0 unless the posterior is a single full Gaussian, was {self.natural}")
        if self.unbiased:
            latents = len(bound.kernels)
            check_integer("samples", self.samples, fewest_unbiased_samples(latents), f" (Q = {latents}, unbiased)")

    def _epoch(
        self, progress: Progress, blocks: Sequence[str], bound: Bound, data: Data, rng: np.random.Generator
    ) -> Progress:
        """One pass over the data."""
        N, parameters, state = bound.X.shape[0], progress.parameters, progress.optimiser
        order, values = rng.permutation(N), []
        starts = range(0, N, self.batch)
        settling_passes = progress.round - (self.epochs - self.settle)  # passes in which the posterior alone has moved
        if settling_passes >= 0:
            blocks = ()
        for number, start in enumerate(starts):
            index = np.sort(order[start : start + self.batch])
            small, some, points = self._batch(bound, data, index, rng)
            bound_state, density = (
                small.bound_state(parameters),
                some.log_density(parameters.likelihood, derivatives="likelihood" in blocks),
            )
            try:
                # Before the step: a batch that the posterior has just been fitted to would flatter the bound.
                terms = bound_state.evaluate(density, points, blocks, strict=progress.round == 0)
            except NotFiniteError:
                check_start(small, parameters, some, points)
                raise
            values.append(float(terms.elbo))
            if self.natural:
                step = self._natural_size(settling_passes * len(starts) + number)
                q = natural_step(bound_state, terms.expected, step)
                parameters = replace(parameters, posterior=cast(Full, bound_state.family).pack(q))
            if state is not None and blocks:
                told = self.optimiser.tell(state, -terms.gradient.flat(blocks) / N)
                share = self._share_left(progress.round + number / len(starts))
                state = replace(told, trial=state.trial + share * (told.trial - state.trial))
                parameters = parameters.updated(blocks, state.trial)
        return Progress(progress.round + 1, float(np.mean(values)), parameters, optimiser=state)

    def _batch(
        self, bound: Bound, data: Data, index: np.ndarray[Any, Any], rng: np.random.Generator
    ) -> tuple[Bound, Data, Points]:
        backend = backend_of(bound.X)
        xp = backend.namespace
        rows = xp.asarray(index.astype(np.int32), device=backend.device)
        small = replace(bound, X=xp.take(bound.X, rows, axis=0), dense=False, weight=bound.X.shape[0] / len(index))
        points = Points.draw(rng, self.samples, len(index), len(bound.kernels), backend, independent=self.unbiased)
        return small, data.rows(rows), points

    def _share_left(self, passes: float) -> float:
        """Of the optimiser's step, after so many passes."""
        return min(1.0, 2.0 - 2.0 * passes / (self.epochs - self.settle)) if self.shrink else 1.0

    def _natural_size(self, settling: int) -> float:
        """The step after so many that were to settle the posterior, less than nothing ahead of them.

        With 1 / (c + t) after t of them, each of these batches has the same weight in what comes out, and what was
        there before has that of c.
        """
        return self.natural / (1.0 + self.natural * max(settling, 0))
