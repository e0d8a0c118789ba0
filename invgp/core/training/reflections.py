"""Moves between the modes of a likelihood that is even about the prior mean, such as that of y = f^2 + noise.

The sign of such a latent is arbitrary, also in each region between places where it is near the prior mean: there, a
latent that changes its sign and one that does not fit the data almost equally well, but one of them is smoother. A
search that has ended with the wrong signs is continued from the posterior mean with one region reflected.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from invgp.core.backend import backend_of, to_numpy
from invgp.core.bound import BoundState
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.profiled_bound import Profile, Trial
from invgp.core.training.restarts import restart_at, values_at_sites

MAX_DIFFERENCE = 0.01  # of the expected log likelihood after a reflection, relative to its absolute value
MAX_CUTS = 12  # places at which a reflection may begin
MAX_MOVES = 6  # reflections that follow each other


def is_even(bound_state: BoundState, data: Data, points: Points) -> bool:
    """Whether the reflection of the posterior at the prior mean fits the data as well."""
    density = data.log_density(bound_state.parameters.likelihood, derivatives=False)
    here = float(bound_state.evaluate(density, points, ()).expected_log_likelihood)
    other = replace(bound_state, q=bound_state.q._replace(mean=-bound_state.q.mean))
    there = float(other.evaluate(density, points, ()).expected_log_likelihood)
    return abs(here - there) <= MAX_DIFFERENCE * abs(here)


def reflect_regions(profile: Profile, parameters: Parameters) -> Parameters | None:
    """Reflect one region after the other while this increases the bound; None if it does not.

    Parameters
    ----------
    profile : Profile
        The bound of one latent.
    parameters : Parameters
        Where a search has ended.
    """
    start = profile.start(parameters)
    best = start
    for _ in range(MAX_MOVES):
        if best is None:
            return None
        moved = _best_reflection(profile, best)
        if moved is None or moved.elbo <= best.elbo + profile.tolerance * max(1.0, abs(best.elbo)):
            break
        best = moved
    return None if best is start or best is None else profile.parameters(best)


def _best_reflection(profile: Profile, trial: Trial) -> Trial | None:
    state, backend = trial.bound_state, backend_of(trial.bound_state.factor)
    values = to_numpy(state.factor @ state.q.mean[0, ..., None])[0, :, 0]
    covariance = to_numpy(state.kernels[0](state.parameters.inducing[0, ...], state.parameters.inducing[0, ...]))
    factors = region_factors(values, covariance)
    if not len(factors):
        return None
    # Values at the sites are reflected: between inducing inputs, a smooth process through reflected values overshoots.
    at_sites = to_numpy(values_at_sites(profile, state.parameters, state.q.mean[0, ...]))[0, :]
    nearest = _nearest_inducing(trial, np.sqrt(np.diag(covariance)))
    starts = (backend.asarray((one[nearest] * at_sites)[None, :]) for one in factors)
    found = restart_at(profile, state.parameters, starts)
    return found[0] if found else None


def _nearest_inducing(trial: Trial, scale: np.ndarray) -> np.ndarray:
    """Return the inducing input with the largest prior correlation with each site, (N,).

    Parameters
    ----------
    trial : Trial
        The model, with one latent.
    scale : array, shape (M,)
        Prior standard deviations at the inducing inputs.
    """
    state = trial.bound_state
    parts = []
    for start, stop in state.bound.batches():
        covariance = to_numpy(state.factor @ state.geometry(start, stop).projection)[0, ...]
        parts.append(np.argmax(np.abs(covariance) / scale[:, None], axis=0))
    return np.concatenate(parts)


def region_factors(values: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return factors (R, M), -1, 0 or 1, that reflect the latent on one side of a place near its prior mean.

    Neighbouring inducing inputs are linked to a tree by their prior correlations. The tree is cut at an input at which
    the latent is nearer to its prior mean than at all neighbours. There the factor is 0; one of the parts is reflected.

    Parameters
    ----------
    values : array, shape (M,)
        The latent at the inducing inputs, minus its prior mean.
    covariance : array, shape (M, M)
        Prior covariance of these values.
    """
    scale, size, M = np.sqrt(np.diag(covariance)), np.abs(values), len(values)
    distance = 2.0 - np.abs(covariance / np.outer(scale, scale))  # positive: 0 would mean that there is no link
    np.fill_diagonal(distance, 0.0)
    tree = minimum_spanning_tree(distance).toarray() > 0
    tree |= tree.T
    smallest = np.where(tree, size, np.inf).min(axis=1)  # among the neighbours
    minima = sorted(np.flatnonzero(size <= smallest), key=lambda m: size[m])
    factors = []
    for m in minima[:MAX_CUTS]:
        rest = tree.copy()
        rest[m, :] = rest[:, m] = False
        _, part = connected_components(rest, directed=False)
        for neighbour in np.flatnonzero(tree[m]):
            factors.append(np.where(part == part[neighbour], -1.0, 1.0))
            factors[-1][m] = 0.0
    # Factors that differ in the sign of all numbers have the same effect.
    unique = {tuple((one * one[np.flatnonzero(one)[0]]).tolist()) for one in factors if np.any(one)}
    return np.asarray(sorted(unique)).reshape(-1, M)
