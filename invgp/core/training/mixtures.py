"""Starting point of the search for a mixture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from invgp.core.backend import array_namespace, backend_of, solve_triangular
from invgp.core.bound import Bound
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Mixture, Sites
from invgp.core.profiled_bound import Profile
from invgp.core.training.restarts import Starts, restart, separate_modes

MAX_LOG_WEIGHT_DIFFERENCE = -5.0  # between the initial weights of components


def surround_best_gaussian(
    bound: Bound, parameters: Parameters, data: Data, points: Points, tolerance: float
) -> Parameters | None:
    """Place components around the best single Gaussian, in the directions of the initial components.

    The farthest one is one standard deviation away, the others in proportion. None if no single Gaussian is found, or
    if all initial components have the same mean.
    """
    family, given = bound.posterior, bound.bound_state(parameters).q
    if isinstance(family, Sites):  # one Gaussian
        return None
    xp = array_namespace(given.mean)
    single = replace(family, components=1)
    alone = Mixture(xp.ones_like(given.weights[:1]), given.mean[:1, ...], given.spread[:1, ...])
    profile = Profile(replace(bound, posterior=single), data, points, tolerance)
    best = profile.start(replace(parameters, posterior=single.pack(alone)))
    ways = given.mean - xp.mean(given.mean, axis=0, keepdims=True)
    farthest = float(xp.max(xp.linalg.vector_norm(ways, axis=(1, 2))))
    rounding = float(xp.finfo(ways.dtype).eps) * float(xp.linalg.vector_norm(given.mean))
    if best is None or farthest <= 10.0 * rounding:
        return None
    q, ways = best.bound_state.q, ways / farthest
    if isinstance(family, Diagonal):
        apart = solve_triangular(best.bound_state.factor, (xp.sqrt(q.spread) * ways)[..., None])
    else:
        apart = q.spread @ ways[..., None]
    spread = xp.broadcast_to(q.spread, given.spread.shape)
    mixture = Mixture(given.weights, q.mean + apart[..., 0], spread)
    return replace(parameters, posterior=family.pack(mixture))


def mixture_of_modes(
    bound: Bound, parameters: Parameters, data: Data, points: Points, tolerance: float, starts: Starts | None
) -> Parameters | None:
    """Place components at different optima of a single Gaussian, with weights in proportion to exp(bound).

    The optima are found from the given starts, from the prior mean, and from the reflection of each optimum at the
    prior mean. If there are fewer optima than components, the remaining components are copies of them, moved by a
    tenth of a standard deviation. None if there is only one optimum.
    """
    family, given = bound.posterior, bound.bound_state(parameters).q
    if isinstance(family, Sites) or starts is None or not starts.means.shape[0]:
        return None
    xp, K = array_namespace(given.mean), given.mean.shape[0]
    single = replace(family, components=1)
    alone = Mixture(xp.ones_like(given.weights[:1]), given.mean[:1, ...], given.spread[:1, ...])
    begin = replace(parameters, posterior=single.pack(alone))
    profile = Profile(replace(bound, posterior=single), data, points, tolerance)
    first = profile.start(begin)
    found = restart(profile, begin, starts.means, complete=K) + ([] if first is None else [first])
    best = separate_modes(found, K)
    if best:
        mirrored = xp.stack([-trial.bound_state.q.mean[0, ...] for trial in best])
        found += restart(profile, begin, mirrored, complete=len(best))
    modes = separate_modes(found, K)
    if len(modes) < 2:
        return None
    gains = [max(trial.elbo - modes[0].elbo, MAX_LOG_WEIGHT_DIFFERENCE) for trial in modes]
    chosen = [k % len(modes) for k in range(K)]
    weights = backend_of(given.mean).asarray(np.exp([gains[i] for i in chosen]))
    qs = [modes[i].bound_state.q for i in chosen]
    # A copy of a mode is moved, because equal components would stay equal.
    moves = [0.0 if k < len(modes) else 0.1 for k in range(K)]
    mean = xp.stack([q.mean[0, ...] + moves[k] * (1.0 + given.mean[k, ...]) for k, q in enumerate(qs)])
    mixture = Mixture(weights / xp.sum(weights), mean, xp.stack([q.spread[0, ...] for q in qs]))
    return replace(parameters, posterior=family.pack(mixture))
