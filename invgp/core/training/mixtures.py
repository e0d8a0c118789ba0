"""Where the search for a mixture starts."""

from __future__ import annotations

from dataclasses import replace

from invgp.core.backend import array_namespace, solve_triangular
from invgp.core.bound import Bound
from invgp.core.data import Data
from invgp.core.parameters import Parameters
from invgp.core.posteriors import Diagonal, Mixture
from invgp.core.profile import Profile
from invgp.core.sampling import Points


def around_the_best(
    bound: Bound, parameters: Parameters, data: Data, points: Points, tolerance: float
) -> Parameters | None:
    """Components that lie one standard deviation from the best single Gaussian, the ways that they lay apart before.

    None where no such Gaussian is found, or the components did not lie apart.
    """
    family, given = bound.posterior, bound.frame(parameters).q
    xp = array_namespace(given.mean)
    single = replace(family, components=1)
    alone = Mixture(xp.ones_like(given.weights[:1]), given.mean[:1, ...], given.spread[:1, ...])
    profile = Profile(replace(bound, posterior=single), data, points, tolerance)
    best = profile.start(replace(parameters, posterior=single.pack(alone)))
    ways = given.mean - xp.mean(given.mean, axis=0, keepdims=True)
    lengths = xp.sqrt(xp.sum(xp.square(ways), axis=(1, 2), keepdims=True))
    if best is None or not bool(xp.all(lengths > 0.0)):
        return None
    q, ways = best.frame.q, ways / lengths
    if isinstance(family, Diagonal):
        apart = solve_triangular(best.frame.factor, (xp.sqrt(q.spread) * ways)[..., None])
    else:
        apart = q.spread @ ways[..., None]
    spread = xp.broadcast_to(q.spread, given.spread.shape)
    mixture = Mixture(given.weights, q.mean + apart[..., 0], spread)
    return replace(parameters, posterior=family.pack(mixture))
