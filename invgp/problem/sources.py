"""Sources of data: several data sets, each with its own sites and model, in one problem; which can be joined.

The survey of a joint problem has the sites of all sources, one source after the other. An observation of one source is
missing at the sites of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import ForwardModel
from invgp.errors import ArgumentError
from invgp.formatting import join_names
from invgp.problem.direct_data import EarlierField
from invgp.problem.prior_and_noise import Noise
from invgp.problem.processes_and_rows import ProcessesAndRows, SimulatorVariable
from invgp.problem.survey import Column, Floats, Grid, Observation, Survey

Integers = NDArray[np.intp]
Named = TypeVar("Named", Column, Observation)
T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A data set with its own sites and its own model.

    Parameters
    ----------
    name : str
    sites : array of int, shape (n,)
        Its sites, as numbers in the survey of the problem, from 0.
    forward : ForwardModel
        Its simulator, or for direct data the model that evaluates expressions of the latents.
    inputs, outputs : tuple of SimulatorVariable
        Connections of the model to latents, site columns and observations, as in `Problem`.
    direct : bool
        Whether the data are direct: values of the latents, which need no simulator run.
    runs_per_site : float or None
        Most runs per site of its simulator; None for that of the problem.
    survey : Survey or None
        Places and values of direct data of a field model, whose places are not sites of the survey; otherwise None.
    noise : Noise or None
        Noise of these values.
    single_sites : bool
        Whether it is a site model in the inversion of a field model: its simulator takes the latents at one site.
    coarse : ForwardModel or None
        A cheaper model with the same inputs and outputs.
    """

    name: str
    sites: Integers
    forward: ForwardModel
    inputs: tuple[SimulatorVariable, ...]
    outputs: tuple[SimulatorVariable, ...]
    direct: bool = False
    runs_per_site: float | None = None
    survey: Survey | None = None
    noise: Noise | None = None
    single_sites: bool = False
    coarse: ForwardModel | None = None

    def select(self, sites: Integers) -> Source:
        """Return the source in a survey that has only some of the sites (B,), in this order.

        Parameters
        ----------
        sites : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        Source
        """
        return replace(self, sites=np.flatnonzero(np.isin(sites, self.sites)))


def join_surveys(surveys: Sequence[Survey]) -> Survey:
    """Join the surveys of several sources; the coordinates must have the same names and units.

    Observations and covariates with the same name in two surveys become one. They are NaN at the sites of the other
    surveys. File, digest and coordinate reference system are those of the first survey.

    Parameters
    ----------
    surveys : sequence of Survey

    Returns
    -------
    Survey
    """
    sizes = [survey.size for survey in surveys]
    first = surveys[0]
    coordinates = tuple(
        replace(column, values=np.concatenate([survey.coordinates[d].values for survey in surveys]))
        for d, column in enumerate(first.coordinates)
    )
    extents = None
    if any(survey.extents is not None for survey in surveys):
        parts = [np.zeros(survey.X.shape) if survey.extents is None else survey.extents for survey in surveys]
        extents = np.concatenate(parts)
    return replace(
        first,
        coordinates=coordinates,
        observations=_join(sizes, [survey.observations for survey in surveys]),
        covariates=_join(sizes, [survey.covariates for survey in surveys]),
        extents=extents,
    )


def join_noise(noises: Sequence[Noise], sizes: Sequence[int]) -> Noise:
    """Join the noise of several sources, whose surveys have these numbers of sites.

    Parameters
    ----------
    noises : sequence of Noise
    sizes : sequence of int
        Number of sites of each survey.

    Returns
    -------
    Noise
    """
    std: dict[str, Floats] = {}
    for start, noise, size in zip(np.cumsum([0, *sizes[:-1]]), noises, sizes, strict=True):
        for name, values in noise.std.items():
            std.setdefault(name, np.full((sum(sizes), *values.shape[1:]), np.nan))[start : start + size] = values
    first = noises[0]
    return replace(
        first,
        std=std,
        correlation=_merge([noise.correlation for noise in noises]),
        correlation_length=_merge([noise.correlation_length for noise in noises]),
        learn=_merge([noise.learn for noise in noises]),
        discrepancy=_merge([noise.discrepancy for noise in noises]),
        scale_degrees={names: degrees for noise in noises for names, degrees in noise.scale_degrees.items()},
        kinds={
            name: noise.kind_of(name) for noise in noises for name in noise.std if noise.kind_of(name) != first.kind
        },
    )


def select_noise(noise: Noise, names: Sequence[str], sites: Integers) -> Noise:
    """Return the noise of some observations at some sites.

    Parameters
    ----------
    noise : Noise
    names : sequence of str
        Observations.
    sites : array of int, shape (B,)
        Numbers of the sites.

    Returns
    -------
    Noise
    """

    def pick(table: Mapping[str, T]) -> dict[str, T]:
        return {name: table[name] for name in names if name in table}

    kinds = {noise.kind_of(name) for name in names}
    kind = kinds.pop() if len(kinds) == 1 else noise.kind
    return replace(
        noise,
        kind=kind,
        kinds=pick(noise.kinds) if kinds else {},
        std={name: noise.std[name][sites] for name in names},
        correlation=pick(noise.correlation),
        correlation_length=pick(noise.correlation_length),
        learn=pick(noise.learn),
        discrepancy=pick(noise.discrepancy),
        scale_degrees={own: degrees for own, degrees in noise.scale_degrees.items() if {*own} <= {*names}},
    )


def _merge(tables: Sequence[Mapping[str, T]]) -> dict[str, T]:
    return {name: value for table in tables for name, value in table.items()}


def _join(sizes: Sequence[int], by_survey: Sequence[Sequence[Named]]) -> tuple[Named, ...]:
    """Join columns or observations by name."""
    starts = np.cumsum([0, *sizes[:-1]])
    joined: dict[str, Named] = {}
    one: Named
    for start, size, columns in zip(starts, sizes, by_survey, strict=True):
        for one in columns:
            if one.name not in joined:
                joined[one.name] = replace(one, values=np.full((sum(sizes), *one.values.shape[1:]), np.nan))
            joined[one.name].values[start : start + size] = one.values
    return tuple(joined.values())


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
    if (own.coarse is None) != (other.coarse is None):
        raise ArgumentError(f"others: must all have a coarse model or none, {name!r} differs from this problem")
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
