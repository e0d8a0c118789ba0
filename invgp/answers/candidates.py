"""Candidate measurements: new sites of a source, direct values such as a borehole, or better data at a site."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.answers.emulated_problem import EmulatedProblem
from invgp.answers.joint_values import parse_latent_expression, quantity_of
from invgp.answers.places import read_places
from invgp.config.survey_tables import Table, read_table
from invgp.emulation.emulator import Emulator
from invgp.emulation.joint_emulator import JointEmulator
from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import join_names
from invgp.latent_model.problem_prior import noise_covariance
from invgp.maps.map_quantities import DerivedQuantity
from invgp.maps.process_prior import LatentField
from invgp.posterior.contents import field_names
from invgp.problem import Floats, Part, Problem

logger = logging.getLogger("invgp")

NEW_SITE, DIRECT, BETTER = "new site", "direct value", "better data"
COLUMNS = ("name", "source", "quantity", "std", "site", "noise_factor")
MOST_CHECKED = 32  # draws at which the runs must surround a candidate
FEWEST_AMONG_RUNS = 0.9  # of these draws


@dataclass(frozen=True)
class DataModel:
    """What predicts the data of candidates.

    Attributes
    ----------
    problem : Problem
        With the error of the emulator in its noise.
    emulated : EmulatedProblem or None
        The emulator of a site model; None for a field model, whose simulator computes only the data of its own sites.
    outputs : array, shape (R, N, P), or None
        Outputs of a field model at the draws of the latents.
    """

    problem: Problem
    emulated: EmulatedProblem | None = None
    outputs: Floats | None = None


@dataclass(frozen=True)
class Candidate:
    """One candidate measurement.

    Attributes
    ----------
    name : str
    kind : str
        ``"new site"``, ``"direct value"`` or ``"better data"``.
    source : str
        Source whose simulator predicts it; the expression for a direct value.
    site : int
        Number, from 0, of the nearest site of the source, whose noise it has; -1 for a direct value.
    noise_factor : float
        Factor of the standard deviation of this noise.
    std : float
        Standard deviation of a direct value, in the unit of the expression.
    """

    name: str
    kind: str
    source: str
    site: int = -1
    noise_factor: float = 1.0
    std: float = np.nan


@dataclass(frozen=True)
class CandidateList:
    """Candidate measurements at their places.

    Attributes
    ----------
    candidates : tuple of Candidate
    X : array, shape (C, D)
        Coordinates.
    covariates : dict of str to array, shape (C,)
        Columns of the file that the simulators take; NaN where the nearest site has the value.
    """

    candidates: tuple[Candidate, ...]
    X: Floats
    covariates: dict[str, Floats]


def read_candidates(path: Path, points: xr.Dataset, model: DataModel | None) -> CandidateList:
    """Read candidates from a CSV or netCDF file.

    Parameters
    ----------
    path : Path
        File with the coordinates of the posterior as columns, and optionally those of `COLUMNS`. Direct values need no
        coordinates if all latents are scalars.
    points : Dataset
        The posterior after `as_points`.
    model : DataModel or None
        Predicts data; None if only direct values are possible.

    Raises
    ------
    ConfigError
        The file cannot be read, or a row is not a measurement that can be predicted.
    """
    coordinates = str(points.attrs["invgp_coordinates"]).split()
    table = read_table(path, coordinates[0] if coordinates[0] in _names(path) else None, "candidates")
    texts = {name: table.texts(name, "candidates") for name in ("name", "source", "quantity") if name in table.names}
    numbers = {
        name: table.columns([name], "1", "candidates")[:, 0]
        for name in ("std", "site", "noise_factor")
        if name in table.names
    }
    if model is None:
        _check_direct(table, texts.get("quantity", []))
    X = _read_places(table, coordinates, points, numbers.get("site"), model)
    if not len(X):
        raise ArgumentError(f"candidates: must have at least one row, {path.name!r} had none")
    if not field_names(points):  # a direct value has no place
        direct = np.asarray([bool(text) for text in texts.get("quantity", [""] * len(X))])
        X = np.where(direct[:, None] & ~np.isfinite(X), read_places(points, "posterior")[0], X)
    if not np.isfinite(X).all():
        row = int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0]) + 1
        raise ArgumentError(f"candidates: must have {join_names(coordinates)} in every row, row {row} had not")
    rows: list[dict[str, str | float]] = [
        {**{key: own[i] for key, own in texts.items()}, **{key: float(own[i]) for key, own in numbers.items()}}
        for i in range(len(X))
    ]
    found = tuple(_candidate(i, row, X[i], model) for i, row in enumerate(rows))
    known = set() if model is None else {c.name for c in model.problem.survey.covariates}
    covariates = {name: table.columns([name], "1", "candidates")[:, 0] for name in table.names if name in known}
    unknown = [name for name in table.names if name not in (*coordinates, *COLUMNS, *known)]
    if unknown:
        logger.warning(
            "candidates: the columns %s of %s are not used; valid: %s",
            join_names(unknown),
            path.name,
            join_names((*coordinates, *COLUMNS, *sorted(known))),
        )
    return CandidateList(found, X, covariates)


def _names(path: Path) -> list[str]:
    return read_table(path, None, "candidates").names


def _read_places(
    table: Table,
    coordinates: list[str],
    points: xr.Dataset,
    sites: Floats | None,
    model: DataModel | None,
) -> Floats:
    """Return the coordinates (C, D), for rows with the number of a site those of the site; NaN if there are none."""
    if (sites is not None or not field_names(points)) and not any(name in table.names for name in coordinates):
        X = np.full((len(table.texts(table.names[0], "candidates")), len(coordinates)), np.nan)
    else:
        X = np.concatenate(
            [table.columns([name], points[name].attrs["units"], "candidates") for name in coordinates], axis=1
        )
    if sites is not None and model is not None:
        known = model.problem.survey.X
        given = np.isfinite(sites)
        wrong = given & ((sites < 1) | (sites > len(known)) | (sites != np.round(np.nan_to_num(sites))))
        if wrong.any():
            raise ArgumentError(f"candidates: site must be a number from 1 to {len(known):,}, was {sites[wrong][0]:g}")
        X = np.where(given[:, None], known[np.where(given, sites, 1).astype(np.intp) - 1], X)
    return X


def _check_direct(table: Table, quantities: list[str]) -> None:
    """Raise `ArgumentError` unless all rows are direct values, as they must be for a field model on a grid."""
    for i, _ in enumerate(table.texts(table.names[0], "candidates")):
        if not (quantities and quantities[i]):
            raise ArgumentError(
                f"candidates: must have a quantity in every row, row {i + 1} had none; data of a field model on a grid "
                "cannot be predicted here"
            )


def _candidate(i: int, row: dict[str, str | float], x: Floats, model: DataModel | None) -> Candidate:
    name = str(row.get("name", "")) or f"candidate {i + 1}"
    quantity, std = str(row.get("quantity", "")), float(row.get("std", np.nan))
    factor, site = float(row.get("noise_factor", np.nan)), float(row.get("site", np.nan))
    factor = 1.0 if np.isnan(factor) else factor
    if not factor > 0.0:
        raise ArgumentError(f"candidates: noise_factor must be greater than 0, was {factor:g} in row {i + 1}")
    if quantity:
        if not std > 0.0:
            was = "was not" if np.isnan(std) else f"greater than 0, was {std:g}"
            raise ArgumentError(f"candidates: std must be given for the quantity {quantity!r}, {was} in row {i + 1}")
        return Candidate(name, DIRECT, quantity, std=std)
    if model is None:
        raise ValueError("data cannot be predicted")
    if np.isfinite(site):
        if not factor < 1.0:
            raise ArgumentError(
                f"candidates: noise_factor must be below 1 for better data at a site, was {factor:g} in row {i + 1}"
            )
        number = int(site) - 1
        part = next(part for part in model.problem.parts if number in part.sites)
        if not np.isfinite(model.problem.survey.Y[number]).any():
            raise ArgumentError(f"candidates: site must have data to improve, {int(site)} had none in row {i + 1}")
        return Candidate(name, BETTER, part.name, number, factor)
    if model.emulated is None:
        raise ArgumentError(
            f"candidates: must have a quantity or a site in every row, row {i + 1} had none; data of a field model at "
            "other sites cannot be predicted without runs"
        )
    part = _part(model.problem, str(row.get("source", "")), i)
    distance = np.sum((part.problem.survey.X - x) ** 2, axis=1)
    distance[~np.isfinite(part.problem.survey.Y).any(axis=1)] = np.inf
    return Candidate(name, NEW_SITE, part.name, int(part.sites[int(np.argmin(distance))]), factor)


def _part(problem: Problem, source: str, i: int) -> Part:
    parts = {part.name: part for part in problem.parts}
    if source and source not in parts:
        raise ArgumentError(f"candidates: source must be {join_names(parts, 'or')}, was {source!r} in row {i + 1}")
    return parts[source] if source else next(part for part in parts.values() if not part.direct)


def simulate_data(
    candidates: CandidateList,
    f: Floats,
    points: xr.Dataset,
    fields: Sequence[LatentField],
    model: DataModel | None,
    rng: np.random.Generator,
) -> tuple[list[Floats], NDArray[np.bool_]]:
    """Simulate the data of each candidate at draws, with noise.

    Parameters
    ----------
    candidates : CandidateList
    f : array, shape (R, C, Q)
        Draws of the processes at the candidates.
    points : Dataset
        The posterior after `as_points`.
    fields : sequence of LatentField
        Latents of the posterior.
    model : DataModel or None
    rng : Generator

    Returns
    -------
    data : list of array, shape (R, P)
        The data of each candidate, with as many numbers as it measures.
    covered : array of bool, shape (C,)
        Whether the runs of the emulator surround the draws.
    """
    count, R = len(candidates.candidates), len(f)
    data: list[Floats] = [np.empty(0)] * count
    covered = np.ones(count, dtype=bool)
    covariance = None if model is None else noise_covariance(model.problem)
    expressions: dict[str, DerivedQuantity] = {}
    for source in dict.fromkeys(c.source for c in candidates.candidates if c.kind != DIRECT):
        if model is None or covariance is None:
            raise ValueError("data cannot be predicted")
        numbers = [i for i, c in enumerate(candidates.candidates) if c.kind != DIRECT and c.source == source]
        own = np.asarray(numbers, dtype=np.intp)
        part = next(part for part in model.problem.parts if part.name == source)
        sites = np.asarray([candidates.candidates[i].site for i in numbers], dtype=np.intp)
        columns = {name: values[own] for name, values in candidates.covariates.items()}
        if model.emulated is not None:
            outputs, covered[own] = _predict(model.emulated, part, f[:, own], sites, candidates.X[own], columns)
        elif model.outputs is not None:
            outputs = model.outputs[:, sites][..., part.columns]
        for k, i in enumerate(numbers):
            candidate, noise = candidates.candidates[i], covariance[np.ix_([sites[k]], part.columns, part.columns)][0]
            factor, kept = candidate.noise_factor**2, np.arange(len(part.columns))
            if candidate.kind == BETTER:  # data that together with the present ones have the better noise
                factor = factor / (1.0 - factor)
                kept = np.flatnonzero(np.isfinite(model.problem.survey.Y[sites[k], part.columns]))
            root = np.linalg.cholesky(factor * noise[np.ix_(kept, kept)])
            data[i] = outputs[:, k, kept] + rng.standard_normal((R, len(kept))) @ root.T
    for i, candidate in enumerate(candidates.candidates):
        if candidate.kind == DIRECT:
            if candidate.source not in expressions:
                expression = parse_latent_expression(candidate.source, points, fields, "candidates")
                expressions[candidate.source] = quantity_of(expression, fields)
            values = expressions[candidate.source].values(f[:, i : i + 1])[:, 0]
            data[i] = values + candidate.std * rng.standard_normal(values.shape)
    for candidate, values in zip(candidates.candidates, data, strict=True):
        if not np.isfinite(values).all():
            raise ConfigError(f"candidates: {candidate.name!r} must have data that are defined for all draws, had not")
    return data, covered


def _predict(
    emulated: EmulatedProblem, part: Part, f: Floats, sites: NDArray[np.intp], X: Floats, covariates: dict[str, Floats]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Predict the outputs (R, B, P) of a source for processes (R, B, Q) at candidates, and whether runs surround them.

    The site columns that the simulator takes are the coordinates of the candidates and the covariates of the file, or
    those of the nearest site.
    """
    h = emulated.problem.unmix(f)
    own = part.numbers[sites]
    model: object = emulated.emulator
    if isinstance(model, JointEmulator):
        model = model.models[[one.name for one in model.parts].index(part.name)]
    if not isinstance(model, Emulator):
        return _predict_direct(emulated, part, h, sites), np.ones(len(sites), dtype=bool)
    columns = _site_columns(part, own, X, covariates)
    outputs = model.predict_elsewhere(h, own, columns)
    inside = ~model.is_outside_elsewhere(h[:MOST_CHECKED], own, columns)
    return outputs, np.asarray(inside.mean(axis=0) >= FEWEST_AMONG_RUNS)


def _predict_direct(emulated: EmulatedProblem, part: Part, h: Floats, sites: NDArray[np.intp]) -> Floats:
    return np.asarray(emulated.emulator.predict(h, sites)[..., part.columns])


def _site_columns(part: Part, own: NDArray[np.intp], X: Floats, covariates: dict[str, Floats]) -> dict[str, Floats]:
    """Return the values (B,) of all coordinates and covariates of a source at candidates."""
    survey = part.problem.survey
    found = {c.name: X[:, d] for d, c in enumerate(survey.coordinates)}
    for c in survey.covariates:
        nearest = c.values[own]
        found[c.name] = np.where(np.isfinite(covariates.get(c.name, nearest)), covariates.get(c.name, nearest), nearest)
    return found
