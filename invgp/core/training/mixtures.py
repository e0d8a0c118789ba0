"""Starting point of the search for a mixture."""

from __future__ import annotations

from dataclasses import replace

from invgp.core.backend import array_namespace, solve_triangular
from invgp.core.bound import Bound
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Mixture, Sites
from invgp.core.profiled_bound import Profile


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
