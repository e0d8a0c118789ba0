"""Noise of the observations: standard deviations and correlations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgp.config.build_kernels import broadcast_length_scales
from invgp.config.build_latents import learning_factors
from invgp.config.build_survey import columns
from invgp.config.survey_tables import Table, check_regular
from invgp.config.toml_document import LARGEST, SMALLEST
from invgp.config.variable_names import per_label
from invgp.errors import ConfigError, Mistakes, build_each
from invgp.files.archives import read_array
from invgp.formatting import nearest_name, one_line, suggest
from invgp.problem import SMALLEST_EIGENVALUE, Floats, Noise, Observation, Survey
from invgp.settings.configuration import Config
from invgp.settings.values import percentage

OF_GAUSSIAN = ("correlation", "learn", "correlation_length")  # keys that other noise has not
OF_OBSERVATIONS = ("std", *OF_GAUSSIAN, "discrepancy")  # tables with the names of observations
ROUNDED = 1e-9  # of the variance: a matrix that was written with fewer digits may be so far from symmetric
MATRIX = 2  # dimensions
REAL = "iuf"  # kinds of numbers that are


def build_noise(config: Config, survey: Survey, table: Table, directory: Path) -> Noise:
    """Build the noise of each observation; `check_noise_names` reports missing ones."""
    if config.noise.covariance is not None:
        return _noise_from_covariance(survey, directory / config.noise.covariance)

    def std(observation: Observation) -> Floats:
        name = observation.name
        return _noise_std(config.noise.std[name], observation, table, f"noise.std.{name}")

    given, mistakes = [o for o in survey.observations if o.name in config.noise.std], Mistakes()
    spreads = mistakes.collect(lambda: build_each(std, given))
    correlations = mistakes.collect(lambda: _correlations(config, survey))
    lengths = mistakes.collect(lambda: _correlation_lengths(config))
    mistakes.raise_all()
    by_name = dict(zip((o.name for o in given), spreads or (), strict=True))
    learn, degrees = learning_factors(config.noise.learn), config.noise.scale_degrees
    scales = {} if degrees is None else {tuple(o.name for o in survey.observations): float(degrees)}
    return Noise(
        config.noise.kind,
        by_name,
        correlations or {},
        config.noise.degrees,
        learn,
        lengths or {},
        scale_degrees=scales,
    )


def _noise_from_covariance(survey: Survey, file: Path) -> Noise:
    """Build Gaussian noise with the covariance matrix of a file."""
    key = "noise.covariance"
    sizes = [o.values.shape[1] for o in survey.observations]
    wanted = survey.size * sum(sizes)
    covariance = _read_matrix(file, key)
    if covariance.shape != (wanted, wanted):
        rows, columns = covariance.shape
        raise ConfigError(
            f"{key}: must be {wanted} by {wanted}, a row for each number of each site in turn, was {rows} by {columns}"
        )
    covariance = covariance.astype(np.float64)
    observed = np.flatnonzero(~np.isnan(survey.Y.ravel()))
    seen = covariance[np.ix_(observed, observed)]
    if not np.all(np.isfinite(seen)):
        row, column = np.argwhere(~np.isfinite(seen))[0]
        place = f"row {observed[row] + 1}, column {observed[column] + 1}"
        raise ConfigError(
            f"{key}: must hold finite numbers wherever there are observations, was {seen[row, column]} in {place}"
        )
    scale = np.sqrt(np.abs(np.diagonal(seen)))
    if not np.allclose(seen, seen.T, rtol=0.0, atol=ROUNDED * float(scale.max()) ** 2):
        row, column = np.unravel_index(np.argmax(np.abs(seen - seen.T)), seen.shape)
        one, other = observed[row] + 1, observed[column] + 1
        raise ConfigError(
            f"{key}: must be symmetric, was not: {seen[row, column]:g} in row {one}, column {other}, but "
            f"{seen[column, row]:g} in row {other}, column {one}"
        )
    if not np.all(np.diagonal(seen) > 0.0):
        raise ConfigError(f"{key}: must have variances above 0 on its diagonal, had {np.diagonal(seen).min():g}")
    least = float(np.linalg.eigvalsh(seen / np.outer(scale, scale))[0])
    if least <= SMALLEST_EIGENVALUE:
        raise ConfigError(
            f"{key}: must be positive definite, was not: its correlations have an eigenvalue of {least:.2g}; white "
            "noise of its own for each datum, on the diagonal, would mend that"
        )
    std = np.sqrt(np.abs(np.diagonal(covariance))).reshape(survey.size, -1)
    parts = np.split(std, np.cumsum(sizes)[:-1], axis=1)
    by_name = {o.name: part for o, part in zip(survey.observations, parts, strict=True)}
    for o in survey.observations:
        check_noise_std(
            o.values, by_name[o.name], f"{key}, standard deviation of {o.name}", datum="observation", place="site"
        )
    return Noise("gaussian", by_name, covariance=0.5 * (covariance + covariance.T))


def _read_matrix(file: Path, key: str) -> NDArray[Any]:
    check_regular(file, key)
    try:
        found = read_array(file) if file.suffix == ".npy" else np.loadtxt(file, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: must be a CSV file of numbers without a header, or a NumPy file (.npy), was {str(file)!r}: "
            f"{one_line(str(error))}"
        ) from error
    if found.ndim != MATRIX or found.dtype.kind not in REAL:
        raise ConfigError(f"{key}: must hold a matrix of real numbers, was {found.dtype} of shape {found.shape}")
    return found


def _correlation_lengths(config: Config) -> dict[str, Floats]:
    """Return the correlation lengths of each observation, one per coordinate of the survey, (D,)."""
    units = [c.unit for c in config.survey.coordinates.values()]
    return {
        name: broadcast_length_scales(value, units, f"noise.correlation_length.{name}")
        for name, value in config.noise.correlation_length.items()
        if name in config.survey.observations
    }


def check_noise_names(config: Config) -> None:
    """Raise `ConfigError` unless every observation has noise, and nothing else has."""
    section, observations = config.noise, config.survey.observations
    wrong = []
    if section.covariance is not None:
        given = [f"noise.{table}" for table in (*OF_OBSERVATIONS, "scale_degrees") if getattr(section, table)]
        wrong = [f"{key}: must be left out with noise.covariance, was given" for key in given]
        if section.kind != "gaussian":
            wrong.append("noise.covariance: must be left out where noise.kind is not 'gaussian', was given")
        if wrong:
            raise ConfigError(wrong)
        return
    for table in OF_OBSERVATIONS:
        given = getattr(section, table)
        if given and table in OF_GAUSSIAN and section.kind != "gaussian":
            wrong.append(f"noise.{table}: must be left out where noise.kind is not 'gaussian', was given")
            continue
        wrong += [
            f"noise.{table}.{name}: must have the name of an observation{suggest(name, list(observations))}"
            for name in given
            if name not in observations
        ]
    if section.scale_degrees is not None and section.kind != "gaussian":
        wrong.append("noise.scale_degrees: must be left out where noise.kind is not 'gaussian', was given")
    if section.scale_degrees is not None and section.learn:
        wrong.append("noise.learn: must be left out with noise.scale_degrees, was given")
    misspelt = {nearest_name(name, list(observations)) for name in section.std if name not in observations}
    wrong += [
        f"noise.std.{name}: is missing; it must be the standard deviation of the noise in {observation.unit!r}"
        for name, observation in observations.items()
        if name not in section.std and name not in misspelt
    ]
    if wrong:
        raise ConfigError(wrong)


def _correlations(config: Config, survey: Survey) -> dict[str, Floats]:
    sizes = {o.name: o.values.shape[1] for o in survey.observations}
    found = {}
    for name, rows in config.noise.correlation.items():
        if name not in sizes:
            continue  # reported by `check_noise_names`
        matrix = np.asarray(rows, dtype=np.float64)
        key = f"noise.correlation.{name}"
        if len(matrix) != (size := sizes[name]):
            raise ConfigError(
                f"{key}: must be {size} by {size}, a row for each number observed at a site, "
                f"was {len(matrix)} by {len(matrix)}"
            )
        found[name] = matrix
    return found


def _noise_std(value: object, observation: Observation, table: Table, key: str) -> Floats:
    """Return standard deviations, (N, p), positive and finite wherever there is an observation."""
    spread = _read_std(value, observation, table, key)
    share = value if percentage(value) is not None else None
    check_noise_std(observation.values, spread, key, datum="observation", place="site", share=share)
    return spread


def _read_std(value: object, observation: Observation, table: Table, key: str) -> Floats:
    share = percentage(value)
    if share is not None:
        return np.asarray(share * np.abs(observation.values))
    names: list[Any] = value if isinstance(value, list) else [value]
    if not isinstance(names[0], str):
        return np.broadcast_to(per_label(value, observation.labels, key), observation.values.shape).copy()
    spread = table.columns(names, observation.unit, key, spread=True)
    wanted = observation.values.shape[1]
    if spread.shape[1] != wanted:
        raise ConfigError(f"{key}: must be {columns(wanted)} (as many as the observation has), was {spread.shape[1]}")
    return spread


SMALLEST_SHARE = 1e-12  # of a datum: differences of outputs are then rounding errors


def check_noise_std(values: Floats, std: Floats, key: str, *, datum: str, place: str, share: object = None) -> None:
    """Check standard deviations of noise wherever there are data.

    Parameters
    ----------
    values : array, shape (N, p)
        Data; NaN where there are none.
    std : array, shape (N, p)
        Standard deviations of their noise, in the same unit.
    key : str
        Key of the standard deviations.
    datum, place : str
        What a value and a row are called in messages, for example "observation" and "site".
    share : object
        The percentage from which `std` was computed, if any.

    Raises
    ------
    ConfigError
        A standard deviation is missing or not positive, or so small that it is lost in rounding.
    """
    present = ~np.isnan(values)
    wrong = np.argwhere(present & ~((std >= SMALLEST) & (std <= LARGEST)))
    if wrong.size:
        row, column = wrong[0]
        was = "missing" if np.isnan(std[row, column]) else f"{std[row, column]:g}"
        if share is not None:
            was = f"{share} of {_article(datum)} {datum} of {values[row, column]:g}"
        raise ConfigError(
            f"{key}: must be positive wherever there is {_article(datum)} {datum}, was {was} at {place} {row + 1}"
        )
    sizes = np.abs(values)
    largest = float(np.max(sizes, initial=0.0, where=present))
    small = np.argwhere(present & (std < SMALLEST_SHARE * np.where(sizes == 0.0, largest, sizes)))
    if small.size:
        row, column = small[0]
        raise ConfigError(
            f"{key}: must be at least {SMALLEST_SHARE:g} times the {datum}, or times the largest one where it is 0, "
            f"because double precision resolves no less, was {std[row, column]:g} for {values[row, column]:g} at "
            f"{place} {row + 1}"
        )


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"
