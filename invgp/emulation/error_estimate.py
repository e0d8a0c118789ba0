"""Which runs tell of the error at which site."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from invgp.emulation.neighbours import Neighbours
from invgp.emulation.training_runs import Runs
from invgp.problem import Floats

NEIGHBOURS = 16  # of each run: where a site has few runs, those of others help to see how rough it is there
NEIGHBOUR_WEIGHT = 0.25  # each; a site's own newest runs weigh 1


def weights_of_runs(runs: Runs, neighbours: Neighbours) -> csr_array:
    """How much each run tells of each site, (N, R): its own newest runs most, then those nearest to them."""
    newest = np.flatnonzero(neighbours.newest)
    near, _ = neighbours.nearest(neighbours.x[newest], NEIGHBOURS)
    told = np.concatenate([newest[:, None], near], axis=1)
    weights = np.full(told.shape, NEIGHBOUR_WEIGHT)
    weights[:, 0] = 1.0
    sites = np.repeat(runs.sites[newest], told.shape[1])
    shape = (len(neighbours.like), len(runs))
    return coo_array((weights.ravel(), (sites, told.ravel())), shape=shape).tocsr()[neighbours.like]


def weighted_mean(weights: csr_array, values: Floats) -> Floats:
    """Means (B, P) of values (R, P), of which some are NaN, by weights (B, R); infinite where none is known."""
    known = np.isfinite(values)
    total = weights @ known.astype(float)
    means: Floats = np.full(total.shape, np.inf)
    np.divide(weights @ np.where(known, values, 0.0), total, out=means, where=total > 0)
    return means
