"""Whether two problems can be inverted together."""

from __future__ import annotations

import numpy as np

from invgp.errors import ArgumentError
from invgp.formatting import join_names
from invgp.problem.earlier_posterior import EarlierField
from invgp.problem.processes_and_rows import ProcessesAndRows
from invgp.problem.survey import Grid, Survey


def check_can_join(own: ProcessesAndRows, other: ProcessesAndRows, name: str) -> None:
    """Raise `ConfigError` unless another problem has the coordinates and latents of a problem, and a fitting model.

    Parameters
    ----------
    own, other : Problem
        The problem, and the one that is joined to it.
    name : str
        Name of the source of the other one.
    """
    if own.grid is None and other.grid is not None:
        raise ArgumentError(
            f"others: must be site models like this problem, {name!r} was a field model; join this problem to it"
        )
    if own.grid is None and isinstance(other.forward, EarlierField):
        raise ArgumentError("without: must leave a field model, because the prior is the posterior of one")
    if own.grid is not None and other.grid is None:
        _check_site_model(own, own.grid, other, name)
    if own.grid is not None and other.grid is not None and not np.array_equal(own.grid.X, other.grid.X):
        raise ArgumentError(f"others: must have the grid of this problem, {name!r} had another one")
    if own.noise.covariance is not None or other.noise.covariance is not None:
        raise ArgumentError("others: must have noise without a covariance of all data")
    known = {latent.name: latent for latent in own.latents}
    for latent in other.latents:
        same = known.get(latent.name, latent)
        if (same.unit, same.dimension, same.labels) != (latent.unit, latent.dimension, latent.labels):
            raise ArgumentError(f"others: must have the same unit and labels of {latent.name!r}, {name!r} had not")
    here, there = (_coordinates(problem.survey) for problem in (own, other))
    if here != there:
        raise ArgumentError(
            f"others: must have the same coordinates, {name!r} had {join_names(there)}, not {join_names(here)}"
        )


def _check_site_model(own: ProcessesAndRows, grid: Grid, other: ProcessesAndRows, name: str) -> None:
    """Raise `ConfigError` unless a site model can be joined to a field model."""
    nodes, sites = _coordinates(grid), _coordinates(other.survey)
    if own.has_fields and nodes != sites:
        raise ArgumentError(
            f"others: must have the coordinates of the grid to be joined to a field model, {join_names(nodes)}, the "
            f"site model {name!r} had {join_names(sites)}"
        )
    if any(latent.discrepancy_of for latent in other.latents):
        raise ArgumentError(
            f"others: must have no discrepancy in a site model that is joined to a field model, {name!r} had"
        )
    if own.inference.localisation is not None:
        raise ArgumentError(
            "inference.localisation: must be left out in a field model that site models are joined to, was given with "
            f"{name!r}"
        )


def _coordinates(points: Survey | Grid) -> list[str]:
    return [f"{c.name} ({c.unit})" for c in points.coordinates]
