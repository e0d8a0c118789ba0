"""Fits of the parameters, followed by an estimate of the bound on samples that the fit has not used."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Backend, array_namespace, backend_of, cholesky
from invgp.core.bound import Bound, BoundState
from invgp.core.bound_estimates import BoundEstimate, estimate_bound
from invgp.core.estimators import default_samples
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Full, Mixture, Sites
from invgp.core.training import Blocks, MiniBatches, Progress
from invgp.core.training.common import Report
from invgp.core.training.restarts import Starts

GROWTH, STAGES = 4, 4  # factor between the samples of successive stages of a fit, and the largest number of stages
MAX_SAMPLES = 4096  # per site
# Largest gap between the bound on the samples of a fit and that on new ones, in nats and relative to the bound.
MAX_GAP, MAX_RELATIVE_GAP = 0.25, 1e-4
MAX_ESTIMATE_SITES = 20_000  # after mini-batches, the bound is estimated on a random subset of this many sites


class FittedParameters(NamedTuple):
    """Learnt parameters, the bound on new samples, and whether it is lower than on the samples of the fit."""

    parameters: Parameters
    estimate: BoundEstimate
    samples: int
    gap: float = 0.0


def fit_blocks(
    method: Blocks,
    bound: Bound,
    parameters: Parameters,
    data: Data,
    samples: int | None,
    rng: np.random.Generator,
    record: Report,
    after: Progress | None,
    starts: Starts | None = None,
) -> FittedParameters:
    """Fit on all data; without a given number of `samples`, with more samples until the bound on new ones is as high.

    Parameters
    ----------
    method : Blocks
        The optimisation.
    bound, parameters, data
        The model, its initial parameters, and its likelihood and observations.
    samples : int, optional
        Samples per site.
    rng : numpy.random.Generator
        Random stream of all sample points.
    record : callable
        Called with the progress after each round.
    after : Progress, optional
        Continue after this round.
    starts : Starts, optional
        As in `Blocks.fit`.
    """
    latents, sites, backend = len(bound.kernels), bound.X.shape[0], backend_of(bound.X)
    first = default_samples(latents) if samples is None else samples
    counts = [first]
    while samples is None and len(counts) < STAGES and counts[-1] * GROWTH <= MAX_SAMPLES:
        counts.append(counts[-1] * GROWTH)
    spare = rng.spawn(2 * STAGES)
    streams, last_stream, new_streams = [rng, *spare[: STAGES - 1]], spare[STAGES - 1], spare[STAGES:]
    last = after
    stage = counts.index(after.samples) if after is not None and after.samples in counts else 0

    def keep(progress: Progress) -> None:
        nonlocal last
        last = progress
        record(progress)

    while True:
        count = counts[stage]
        points = Points.draw(streams[stage], count, sites, latents, backend)
        parameters = method.fit(bound, parameters, data, points, keep, after, starts)
        density = data.log_density(parameters.likelihood, derivatives=False)
        many = max(count, default_samples(latents))
        bound_state = bound.bound_state(parameters)
        estimate = estimate_bound(bound_state, density, many, new_streams[stage])
        gap = last.elbo - float(bound_state.log_hyperprior) - estimate.elbo if last is not None else 0.0
        allowed = max(MAX_GAP, MAX_RELATIVE_GAP * abs(estimate.elbo), 2.0 * estimate.standard_error)
        fine = gap <= allowed
        finished = last is None or last.round >= method.rounds or stage == len(counts) - 1
        if fine or finished or last is None:
            if len(counts) > 1 and estimate.standard_error > 0.0:
                # The first estimate has decided whether the fit ends here, so one that is too high is more probable.
                estimate = estimate_bound(bound_state, density, many, last_stream)
            return FittedParameters(parameters, estimate, count, 0.0 if fine else gap)
        stage += 1
        after = last = Progress(last.round, -np.inf, parameters)


def fit_batches(
    method: MiniBatches,
    bound: Bound,
    parameters: Parameters,
    data: Data,
    rng: np.random.Generator,
    new_stream: np.random.Generator,
    record: Report,
    after: Progress | None,
) -> FittedParameters:
    """Fit on mini-batches, with the stream `rng`, and estimate the bound with `new_stream`; else as `fit_blocks`."""
    parameters = method.fit(bound, parameters, data, rng, record, after)
    samples = method.samples_for(len(bound.kernels))
    many = max(samples, default_samples(len(bound.kernels)))
    return FittedParameters(parameters, estimate_on_subset(bound, parameters, data, many, new_stream), samples)


def estimate_on_subset(
    bound: Bound, parameters: Parameters, data: Data, samples: int, rng: np.random.Generator
) -> BoundEstimate:
    """Estimate the bound on new samples, at a random subset of the sites if there are very many."""
    N = bound.X.shape[0]
    if N > MAX_ESTIMATE_SITES:
        backend: Backend = backend_of(bound.X)
        chosen = np.sort(rng.choice(N, MAX_ESTIMATE_SITES, replace=False)).astype(np.int32)
        rows = backend.namespace.asarray(chosen, device=backend.device)
        bound = replace(bound, X=backend.namespace.take(bound.X, rows, axis=0), weight=N / MAX_ESTIMATE_SITES)
        data = data.rows(rows)
    density = data.log_density(parameters.likelihood, derivatives=False)
    return estimate_bound(bound.bound_state(parameters), density, samples, rng)


def describe_posterior(bound_state: BoundState) -> str:
    """Return the family of a posterior in words."""
    family, K = bound_state.family, bound_state.q.weights.shape[0]
    kind = "diagonal" if isinstance(family, Diagonal) else "full"
    held = ", stored as N numbers per latent (Theorem 2)" if isinstance(family, Sites) else ""
    return (f"one {kind} Gaussian" if K == 1 else f"a mixture of {K} {kind} Gaussians") + held


def convert_to_full(bound_state: BoundState) -> BoundState:
    """Convert a posterior of Theorem 2 to a `Full` one, so that prediction does not need the training sites."""
    xp = array_namespace(bound_state.factor)
    R = bound_state.q.spread
    family = Full(bound_state.factor.shape[0], bound_state.factor.shape[-1])
    lower = cholesky(R @ xp.matrix_transpose(R))
    q = Mixture(bound_state.q.weights, bound_state.q.mean, lower)
    parameters = replace(bound_state.parameters, posterior=family.pack(q))
    return replace(bound_state.bound, posterior=family).bound_state(parameters)
