"""Fits of the parameters, followed by an estimate of the bound on samples that the fit has not used."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from invgp.core.backend import Backend, array_namespace, backend_of, cholesky
from invgp.core.bound import Bound, BoundState
from invgp.core.bound_estimates import BoundEstimate, estimate_bound
from invgp.core.estimators import default_samples
from invgp.core.observed_likelihood import Data
from invgp.core.optimisers import LBFGS
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Full, Mixture, Sites
from invgp.core.training import Blocks, MiniBatches, Progress, evaluate
from invgp.core.training.common import Report
from invgp.core.training.restarts import Starts, is_convex_at_mean

GROWTH, STAGES = 4, 4  # factor between the samples of successive stages of a fit, and the largest number of stages
NO_WEIGHT = 1e-6  # of a component that is not needed
MAX_SAMPLES = 4096  # per site
# Largest gap between the bound on the samples of a fit and that on new ones, in nats and relative to the bound.
MAX_GAP, MAX_RELATIVE_GAP = 0.25, 1e-4
MAX_ESTIMATE_SITES = 20_000  # after mini-batches, the bound is estimated on a random subset of this many sites
MAX_CHECK_NUMBERS = 2_000_000  # samples of all latents at all sites, for a check of mini-batches on all data
CHECK_EVALUATIONS = 5  # of the bound in this check
START_EVALUATIONS, START_ROUNDS = 50, 3  # of the fit to a subset from which mini-batches start
MAX_CURVATURE_SITES = 1000  # likewise, of the search for signs of a saddle point


class FittedParameters(NamedTuple):
    """Learnt parameters, with the bound on new samples.

    Attributes
    ----------
    parameters : Parameters
        The learnt parameters.
    estimate : BoundEstimate
        The bound on new samples.
    samples : int
        Samples per site of the fit.
    gap : float, in nats
        By how much the bound on the samples of the fit is higher, if that is significant; otherwise 0.
    at_saddle : bool
        Whether the log density is convex at the posterior mean of many sites, as at a saddle point.
    gain : float, in nats
        After mini-batches: by how much a few steps on all data increase the bound; 0 if they would take long.
    """

    parameters: Parameters
    estimate: BoundEstimate
    samples: int
    gap: float = 0.0
    at_saddle: bool = False
    gain: float = 0.0


def fit_blocks(
    method: Blocks,
    bound: Bound,
    initial: Parameters,
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
    bound, initial, data
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
    spare = rng.spawn(2 * STAGES + 1)
    streams, last_stream, new_streams = [rng, *spare[: STAGES - 1]], spare[STAGES - 1], spare[STAGES : 2 * STAGES]
    single = None
    if bound.posterior.components > 1 and method.profile_posterior and "posterior" in method.learn:
        # A mixture starts with the kernels and the likelihood of the best single Gaussian, which is found much faster.
        alone = single_gaussian(bound, initial)
        single = fit_blocks(method, *alone, data, samples, spare[-1], lambda _: None, None, starts)
        initial = replace(single.parameters, posterior=initial.posterior)
    last = after
    stage = counts.index(after.samples) if after is not None and after.samples in counts else 0

    def keep(progress: Progress) -> None:
        nonlocal last
        last = progress
        record(progress)

    while True:
        count = counts[stage]
        points = Points.draw(streams[stage], count, sites, latents, backend)
        # The initial parameters are those of restarts, also if the fit continues after an earlier stage.
        parameters = method.fit(bound, initial, data, points, keep, after, starts)
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
            if single is not None and _is_not_better(estimate, single.estimate):
                return keep_single(bound, single)
            saddle = bound.posterior.components == 1 and is_convex_at_mean(bound_state, data, points)
            return FittedParameters(parameters, estimate, count, 0.0 if fine else gap, saddle)
        stage += 1
        after = last = Progress(last.round, -np.inf, parameters)


def single_gaussian(bound: Bound, parameters: Parameters) -> tuple[Bound, Parameters]:
    """Return the model with the first component of a mixture alone."""
    family, q = cast(Full | Diagonal, bound.posterior), bound.bound_state(parameters).q
    single = replace(family, components=1)
    alone = Mixture(array_namespace(q.mean).ones_like(q.weights[:1]), q.mean[:1, ...], q.spread[:1, ...])
    return replace(bound, posterior=single), replace(parameters, posterior=single.pack(alone))


def _is_not_better(mixture: BoundEstimate, single: BoundEstimate) -> bool:
    """Whether the bound of a mixture is not clearly higher than that of a single Gaussian."""
    error = math.hypot(mixture.mixture_standard_error, single.standard_error)
    return mixture.mixture_elbo < single.elbo + 2.0 * error


def keep_single(bound: Bound, single: FittedParameters) -> FittedParameters:
    """Return the result of a single Gaussian as a mixture whose other components have almost no weight."""
    family, K = cast(Full | Diagonal, bound.posterior), bound.posterior.components
    alone = replace(bound, posterior=replace(family, components=1)).bound_state(single.parameters).q
    xp, backend = array_namespace(alone.mean), backend_of(alone.mean)
    weights = backend.asarray(np.asarray([1.0 - (K - 1) * NO_WEIGHT] + (K - 1) * [NO_WEIGHT]))
    mean, spread = (xp.concat(K * [part], axis=0) for part in (alone.mean, alone.spread))
    parameters = replace(single.parameters, posterior=family.pack(Mixture(weights, mean, spread)))
    state, found = bound.bound_state(parameters), single.estimate
    kl = -float(state.family.negative_kl(state.q, state.factor))
    # The mixture is the single Gaussian. Only the lower bound of its entropy differs.
    estimate = found._replace(elbo=found.expected_log_likelihood - kl, kl=kl)
    return single._replace(parameters=parameters, estimate=estimate)


def fit_batches(
    method: MiniBatches,
    bound: Bound,
    parameters: Parameters,
    data: Data,
    rng: np.random.Generator,
    new_stream: np.random.Generator,
    record: Report,
    after: Progress | None,
    starts: Starts,
) -> FittedParameters:
    """Fit on mini-batches, with the stream `rng`, and estimate the bound with `new_stream`; else as `fit_blocks`.

    The fit starts from one to a subset of the sites (`MiniBatches.start_sites`), unless it continues after an epoch.
    """
    [first] = rng.spawn(1)  # also if the fit continues, so that its epochs have the same streams
    if after is None and method.start_sites and "posterior" in method.learn:
        parameters = fit_subset(method, bound, parameters, data, first, starts)
    parameters = method.fit(bound, parameters, data, rng, record, after)
    samples = method.samples_for(len(bound.kernels))
    many = max(samples, default_samples(len(bound.kernels)))
    some = random_subset(bound, data, MAX_ESTIMATE_SITES, new_stream)
    estimate = estimate_bound(
        some.bound.bound_state(parameters),
        some.data.log_density(parameters.likelihood, derivatives=False),
        many,
        new_stream,
    )
    few = random_subset(bound, data, MAX_CURVATURE_SITES, new_stream)
    Q, backend = len(bound.kernels), backend_of(bound.X)
    points = Points.draw(new_stream, many, few.bound.X.shape[0], Q, backend)
    saddle = bound.posterior.components == 1 and is_convex_at_mean(few.bound.bound_state(parameters), few.data, points)
    gain = gain_on_all_data(method, bound, parameters, data, samples, new_stream)
    return FittedParameters(parameters, estimate, samples, at_saddle=saddle, gain=gain)


def gain_on_all_data(
    method: MiniBatches, bound: Bound, parameters: Parameters, data: Data, samples: int, rng: np.random.Generator
) -> float:
    """Compute by how much a few steps on all data increase the bound, in nats; 0 if there are too many samples."""
    N, latents = bound.X.shape[0], len(bound.kernels)
    if N * samples * latents > MAX_CHECK_NUMBERS:
        return 0.0
    points = Points.draw(rng, samples, N, latents, backend_of(bound.X))
    steps = Blocks(learn=method.learn, evaluations=CHECK_EVALUATIONS, rounds=1, restarts=0)
    better = steps.fit(bound, parameters, data, points)
    after, before = (float(evaluate(bound, one, data, points, ()).elbo) for one in (better, parameters))
    return after - before


def fit_subset(
    method: MiniBatches, bound: Bound, parameters: Parameters, data: Data, rng: np.random.Generator, starts: Starts
) -> Parameters:
    """Fit to a random subset of the sites by a few rounds on all of them together."""
    some = random_subset(bound, data, method.start_sites, rng)
    few = replace(some.bound, weight=1.0)  # with larger weights, the kernels would adapt to the noise of the subset
    latents = len(bound.kernels)
    points = Points.draw(rng, method.samples_for(latents), few.X.shape[0], latents, backend_of(bound.X))
    # A long first step may change parameters beyond the reach of mini-batches, such as the period of a kernel.
    optimiser = LBFGS(tolerance=1e-7, first_step=0.3)
    blocks = Blocks(learn=method.learn, evaluations=START_EVALUATIONS, rounds=START_ROUNDS, optimiser=optimiser)
    return blocks.fit(few, parameters, some.data, points, starts=starts)


class Subset(NamedTuple):
    """A model of a random subset of the sites, whose weights make up for the others, with their observations."""

    bound: Bound
    data: Data


def random_subset(bound: Bound, data: Data, size: int, rng: np.random.Generator) -> Subset:
    """Choose a random subset of the sites; all of them if there are at most `size`."""
    N = bound.X.shape[0]
    if size >= N:
        return Subset(bound, data)
    backend: Backend = backend_of(bound.X)
    chosen = np.sort(rng.choice(N, size, replace=False)).astype(np.int32)
    rows = backend.namespace.asarray(chosen, device=backend.device)
    X = backend.namespace.take(bound.X, rows, axis=0)
    return Subset(replace(bound, X=X, dense=False, weight=N / size), data.rows(rows))


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
