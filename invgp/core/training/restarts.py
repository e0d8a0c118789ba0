"""Further starts of the search for a single Gaussian, where the first one may have ended at a poor optimum.

A posterior that is symmetric about the prior mean, such as that of y = f^2 + noise, has a stationary point at the prior
mean, at which a search from the prior ends. There the log density is convex: its curvature at the mean of the posterior
is positive. In this case, the search is repeated from draws of the prior. Where the noise is learnt, it may explain the
data before the curvature shows the saddle point. Therefore the end of a fit is examined too: if the log density is
convex there, or if the posterior is almost the prior, the posterior is started again with the learnt noise, and with
the initial length-scales and shorter ones, because a draw with long length-scales is far from any fast function.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of, matrix_vector_product, to_numpy
from invgp.core.bound import Bound, BoundState
from invgp.core.estimators import quadratic_fit
from invgp.core.expectations import NotFiniteError, all_finite, iterate_samples
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.profiled_bound import Profile, Trial


class Starts(NamedTuple):
    """Whitened means of the inducing variables from which the posterior of a single Gaussian is started.

    Attributes
    ----------
    means : array, shape (R, Q, M)
        Standard normals are draws of the prior.
    chosen : bool
        Whether the search starts at these means only, and not at the initial posterior.
    """

    means: Array
    chosen: bool = False


NARROW = 0.1  # standard deviations at which the curvature is computed, relative to those of the posterior
MAX_CURVATURE = 0.5  # positive curvature at a site, relative to the precision of its posterior
MAX_CONVEX_FRACTION = 0.1  # of the sites that may have a larger curvature, such as outliers
MIN_KL = 0.5  # nats: a smaller KL divergence of the posterior from the prior means that nothing was learnt
LENGTH_SCALES = (1.0, 0.5, 0.25)  # of restarts at the end of a fit, relative to the initial ones
COMPLETED = 2  # restarts whose search is completed
MIN_DISTANCE = 1.0  # between modes: root mean square difference of the marginal means, in standard deviations


def is_convex_at_mean(bound_state: BoundState, data: Data, points: Points) -> bool:
    """Whether the log density is convex, in some direction, at the posterior mean of many sites."""
    xp = array_namespace(bound_state.factor)
    density = data.log_density(bound_state.parameters.likelihood, derivatives=False)
    convex = total = 0
    for start, stop in bound_state.bound.batches():
        mean, variance = bound_state.marginals(bound_state.geometry(start, stop))
        scale = NARROW * xp.sqrt(variance)
        for rows, here, latents in iterate_samples(points.at(start, stop), mean, scale):
            values = density(latents[0], start + rows.start, start + rows.stop)[0]
            if not all_finite(values):
                return False
            # In units of the narrow scale; the curvature in units of the posterior is larger by 1 / NARROW^2.
            curvature = np.asarray(to_numpy(quadratic_fit(here, values).curvature)) / NARROW**2
            convex += int(np.sum(np.linalg.eigvalsh(curvature)[:, -1] > MAX_CURVATURE))
            total += curvature.shape[0]
    return convex > MAX_CONVEX_FRACTION * total


def has_learnt_nothing(bound_state: BoundState) -> bool:
    """Whether the posterior is almost the prior, as at a saddle point that the noise level or the kernels hide."""
    return -float(bound_state.family.negative_kl(bound_state.q, bound_state.factor)) < MIN_KL


def is_suspicious(bound_state: BoundState, data: Data, points: Points) -> bool:
    """Whether a fit may have ended at a saddle point or a poor optimum."""
    return has_learnt_nothing(bound_state) or is_convex_at_mean(bound_state, data, points)


def shorten_length_scales(bound: Bound, parameters: Parameters, factor: float) -> Parameters:
    """Multiply all length-scales of the kernels by a factor, within their bounds."""
    names = [name for kernel in bound.kernels for name in kernel.parameter_names]
    shift = math.log(factor) * np.asarray([1.0 if name == "length_scale" else 0.0 for name in names])
    free = bound.kernel_parameters(parameters) + backend_of(parameters.kernels).asarray(shift)
    return replace(parameters, kernels=free if bound.hyperpriors is None else bound.hyperpriors.unconstrain(free))


def restart(profile: Profile, parameters: Parameters, starts: Array, complete: int = COMPLETED) -> list[Trial]:
    """Search for the optimal posterior from several starts.

    Parameters
    ----------
    profile : Profile
        The bound.
    parameters : Parameters
        Kernels, inducing inputs and likelihood.
    starts : array, shape (R, Q, M)
        Whitened means of the inducing variables: standard normals for draws of the prior.
    complete : int
        Only the searches of the best few starts are completed.

    Returns
    -------
    list of Trial
        The best first.
    """
    values = (values_at_sites(profile, parameters, starts[r, ...]) for r in range(starts.shape[0]))
    return restart_at(profile, parameters, values, complete)


def restart_at(
    profile: Profile, parameters: Parameters, values: Iterable[Array], complete: int = COMPLETED
) -> list[Trial]:
    """Search for the optimal posterior near several sets of values of the latents, minus the prior mean, (Q, N) each.

    The other parameters and the result are those of `restart`.
    """
    found = []
    for start in values:
        try:
            trial = profile.start_at(parameters, start)
        except (np.linalg.LinAlgError, NotFiniteError):
            continue
        if trial is not None:
            found.append(trial)
    best = sorted(found, key=lambda trial: -trial.elbo)[:complete]
    return sorted((profile.finish(trial) for trial in best), key=lambda trial: -trial.elbo)


def values_at_sites(profile: Profile, parameters: Parameters, start: Array) -> Array:
    """Compute the latents at the sites, minus the prior mean, (Q, N), from whitened inducing variables (Q, M)."""
    xp, bound = array_namespace(start), profile.bound
    cache = bound.kernel_cache(parameters)
    parts = []
    for first, last in bound.batches():
        W = bound.geometry(cache, first, last).projection
        parts.append(matrix_vector_product(xp.matrix_transpose(W), start))
    return xp.concat(parts, axis=1)


def separate_modes(trials: list[Trial], count: int) -> list[Trial]:
    """Select the best trials whose means differ by more than their standard deviations, at most `count`."""
    chosen: list[Trial] = []
    for trial in sorted(trials, key=lambda one: -one.elbo):
        if len(chosen) < count and all(_distance(trial, other) > MIN_DISTANCE for other in chosen):
            chosen.append(trial)
    return chosen


def _distance(one: Trial, other: Trial) -> float:
    """Compute the root mean square difference of the marginal means at the sites, in standard deviations."""
    squares = count = 0.0
    xp = array_namespace(one.bound_state.factor)
    for sites in one.bound_state.bound.batches():
        (m1, v1), (m2, v2) = (t.bound_state.marginals(t.bound_state.geometry(*sites)) for t in (one, other))
        squares += float(xp.sum(xp.square(m1 - m2) / xp.maximum(v1, v2)))
        count += m1.shape[1] * m1.shape[2]
    return math.sqrt(squares / count)


def draw_starts(rng: np.random.Generator, count: int, like: Array) -> Starts:
    """Draw R = `count` starts from the prior, for inducing inputs `like` (Q, M, D)."""
    return Starts(backend_of(like).asarray(rng.standard_normal((count, *like.shape[:2]))))
