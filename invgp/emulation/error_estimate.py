"""Weights of the runs in the error estimate of each site."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from invgp.emulation.neighbours import Neighbours
from invgp.emulation.training_runs import Runs
from invgp.problem import Floats

NEIGHBOURS = 16  # neighbours of each newest run that contribute to the error estimate of its site
NEIGHBOUR_WEIGHT = 0.25  # of each neighbour; the newest runs of the site have weight 1


def weights_of_runs(runs: Runs, neighbours: Neighbours) -> csr_array:
    """Return the weight (N, R) of each run in the error estimate of each site: its newest runs and their neighbours."""
    newest = np.flatnonzero(neighbours.newest)
    near, _ = neighbours.nearest(neighbours.x[newest], NEIGHBOURS)
    contributing = np.concatenate([newest[:, None], near], axis=1)
    weights = np.full(contributing.shape, NEIGHBOUR_WEIGHT)
    weights[:, 0] = 1.0
    sites = np.repeat(runs.sites[newest], contributing.shape[1])
    shape = (len(neighbours.like), len(runs))
    return coo_array((weights.ravel(), (sites, contributing.ravel())), shape=shape).tocsr()[neighbours.like]


def weighted_mean(weights: csr_array, values: Floats) -> Floats:
    """Return weighted means (B, P) of values (R, P) with weights (B, R), without NaN; infinite where all are NaN."""
    known = np.isfinite(values)
    total = weights @ known.astype(float)
    means: Floats = np.full(total.shape, np.inf)
    np.divide(weights @ np.where(known, values, 0.0), total, out=means, where=total > 0)
    return means
