"""Priors of latents from maps, and trends: functions of position with unknown coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from invgp.config.map_files import MOST_NODES, Coordinate, GriddedMap, read_map
from invgp.core.kernels import Constant, Kernel, Linear, Mapped, Trended, vary_length
from invgp.errors import ConfigError
from invgp.formatting import format_value, join_names, suggest
from invgp.links import LINKS
from invgp.problem import Floats, Latent, PriorMap, Problem
from invgp.settings.configuration import Config, LatentSection, MapSection
from invgp.settings.values import is_map_file, percentage

SAME = 1e-12  # largest deviation of a scale from 1 that is rounding


@dataclass(frozen=True)
class MapContext:
    """What is needed to read maps for the latents.

    Attributes
    ----------
    coordinates : tuple of Coordinate
        Coordinates of the latents.
    X : array, shape (N, D)
        Sites or nodes of the latents.
    crs : str or None
    directory : Path
        Directory of the configuration.
    """

    coordinates: tuple[Coordinate, ...]
    X: Floats
    crs: str | None
    directory: Path

    @staticmethod
    def of(config: Config, X: Floats, directory: Path) -> MapContext:
        """Return the context of a configuration, for sites or nodes X (N, D)."""
        sections = (config.survey if config.grid is None else config.grid).coordinates
        coordinates = tuple(
            Coordinate(name, c.unit, {"standard_name": c.standard_name, "positive": c.positive})
            for name, c in sections.items()
        )
        return MapContext(coordinates, X, config.survey.crs, directory)

    def read(self, section: MapSection, unit: str, key: str) -> GriddedMap:
        """Read a map around the points.

        Raises
        ------
        ConfigError
            It is not a map, has too many nodes, or does not cover all points.
        """
        found = read_map(section, self.coordinates, unit, self.crs, self.directory, key).crop(self.X)
        if found.values.size > MOST_NODES:
            raise ConfigError(
                f"{key}: the map {section.file} must have at most {MOST_NODES:,} values around the points of the "
                f"latents, had {found.values.size:,}; resample it to a coarser grid"
            )
        maps = PriorMap(found.axes, found.dimensions, found.values[None])
        outside = np.flatnonzero(~np.isfinite(maps.mean_at(self.X, self.X.shape[1])[:, 0]))
        if len(outside):
            first = ", ".join(f"{c.name} {x:.6g}" for c, x in zip(self.coordinates, self.X[outside[0]], strict=True))
            raise ConfigError(
                f"{key}: the map {section.file} must cover all {len(self.X)} points of the latents, had no value at "
                f"{len(outside)} of them, the first at {first}"
            )
        return found


def map_section(value: object) -> MapSection | None:
    """Return the map that a value stands for: a table, or the name of a file; None for other values."""
    if isinstance(value, MapSection):
        return value
    return MapSection(file=value) if isinstance(value, str) and is_map_file(value) else None


def has_maps(section: LatentSection) -> bool:
    """Return whether the prior mean or standard deviation of a latent is a map."""
    given = [item for value in (section.mean, section.std) for item in (value if isinstance(value, list) else [value])]
    return any(map_section(item) is not None for item in given)


def with_maps(latent: Latent, section: LatentSection, context: MapContext, key: str) -> Latent:
    """Return a latent with the maps and the trend of its table.

    Parameters
    ----------
    latent : Latent
        The latent, with any numbers in the place of maps.
    section : LatentSection
    context : MapContext
    key : str
        Key of the table, for messages.
    """
    if section.length_scale_map is not None:
        latent = replace(latent, kernel=_vary_length(latent.kernel, section, context, f"{key}.length_scale_map"))
    if section.trend:
        latent = replace(latent, kernel=_add_trend(latent.kernel, section, context, f"{key}.trend"))
    means, stds = (_per_label(value, latent, f"{key}.{name}") for name, value in _moments_of(section))
    files = [map_section(item) for item in (*means, *stds)]
    if not any(files):
        return latent
    keys = [f"{key}.mean"] * latent.size + [f"{key}.std"] * latent.size
    known: dict[tuple[MapSection, str], GriddedMap] = {}
    for file, own in zip(files, keys, strict=True):
        if file is not None and (file, own) not in known:
            known[file, own] = context.read(file, section.unit, own)
    largest = max(known.values(), key=lambda one: one.values.size)
    if any(one.dimensions != largest.dimensions for one in known.values()):
        raise ConfigError(f"{key}: the maps of the mean and the standard deviation must have the same coordinates")
    axes, shape = largest.axes, largest.values.shape
    mean = _on_nodes(means, known, f"{key}.mean", axes, shape)
    increments = np.diff(mean, prepend=0.0) if section.link == "increasing" else mean
    share = percentage(section.std)
    std = share * np.abs(increments) if share is not None else _on_nodes(stds, known, f"{key}.std", axes, shape)
    valid = np.asarray(np.isfinite(mean).all(axis=-1) & np.isfinite(std).all(axis=-1))
    _check_values(section, increments[valid], std[valid], key)
    with np.errstate(invalid="ignore", divide="ignore"):
        process_mean, process_std = LINKS[section.link].prior_to_process(mean, std)
    return _with_process_maps(latent, largest, process_mean, process_std, valid, context.X)


def _moments_of(section: LatentSection) -> list[tuple[str, object]]:
    return [("mean", section.mean), ("std", section.std)]


def _per_label(value: object, latent: Latent, key: str) -> list[object]:
    """Return one number, percentage or map per label."""
    if not isinstance(value, list):
        return [value] * latent.size
    if latent.labels is None or len(value) != latent.size:
        wanted = f"a list of {latent.size}, one for each label" if latent.labels is not None else "one value"
        raise ConfigError(f"{key}: must be one value or {wanted}, was a list of {len(value)}")
    return value


def _on_nodes(
    values: Sequence[object],
    known: dict[tuple[MapSection, str], GriddedMap],
    key: str,
    axes: tuple[Floats, ...],
    shape: tuple[int, ...],
) -> Floats:
    """Return numbers or maps, one per label, at the nodes: (n_1, ..., n_D, L)."""
    found = []
    for value in values:
        file = map_section(value)
        found.append(np.full(shape, 0.0 if percentage(value) else value) if file is None else known[file, key].at(axes))
    return np.stack(found, axis=-1).astype(np.float64)


def _check_values(section: LatentSection, increments: Floats, std: Floats, key: str) -> None:
    if section.link != "identity" and not np.all(increments > 0):
        grow = " and grow from label to label" if section.link == "increasing" else ""
        raise ConfigError(
            f"{key}.mean: must be positive{grow} everywhere with link = {section.link!r}, was {increments.min():.6g} "
            f"in a map{' from one label to the next' if grow else ''}"
        )
    if not np.all(std > 0):
        raise ConfigError(f"{key}.std: must be positive everywhere, was {std.min():.6g} in a map")


def _with_process_maps(
    latent: Latent, grid: GriddedMap, mean: Floats, std: Floats, valid: NDArray[np.bool_], X: Floats
) -> Latent:
    """Return a latent with maps (n_1, ..., n_D, L) of the moments of its processes.

    The nominal moments are averages over the points of the latents.
    """
    mean, std = (np.moveaxis(np.where(valid[..., None], part, np.nan), -1, 0) for part in (mean, std))
    at_points = (PriorMap(grid.axes, grid.dimensions, part).mean_at(X, X.shape[1]) for part in (mean, std**2))
    centre, variance = (part.mean(axis=0) for part in at_points)
    nominal = np.sqrt(variance)
    scale = _fill(std / nominal.reshape(-1, *(1,) * len(grid.axes)))
    varies = bool(np.max(np.abs(scale - 1.0)) > SAME)
    maps = PriorMap(grid.axes, grid.dimensions, mean, scale if varies else None)
    physical_mean, physical_std = latent.link.process_to_prior(centre, nominal)
    return replace(latent, mean=physical_mean, std=physical_std, maps=maps)


def _fill(values: Floats) -> Floats:
    """Replace missing values of maps (L, n_1, ..., n_D) by those of the nearest node."""
    missing = ~np.isfinite(values[0])
    if not missing.any():
        return values
    from scipy.ndimage import distance_transform_edt  # noqa: PLC0415 - a configuration is checked without SciPy

    nearest = distance_transform_edt(missing, return_distances=False, return_indices=True)
    return np.asarray(values[(slice(None), *nearest)])


def _vary_length(kernel: Kernel, section: LatentSection, context: MapContext, key: str) -> Kernel:
    """Return a kernel whose length-scales are multiplied by a map."""
    file = map_section(section.length_scale_map)
    if file is None:
        return kernel
    found = context.read(file, file.unit or "1", key)
    smallest = float(np.nanmin(found.values))
    if not smallest > 0.0:
        raise ConfigError(f"{key}: must be positive everywhere, was {smallest:.6g} in the map {file.file}")
    varied = vary_length(kernel, found.axes, _fill(found.values[None])[0], tuple(found.dimensions))
    if varied is kernel:
        raise ConfigError(
            f"{key}: must be left out unless the kernel has a squared exponential, exponential or Matérn part along "
            f"all coordinates, without angle and dip, was {kernel.formula!r}"
        )
    return varied


def _add_trend(kernel: Kernel, section: LatentSection, context: MapContext, key: str) -> Kernel:
    """Return a kernel with a trend: a constant, and one function for each coordinate or map."""
    variance, names = section.trend_std**2, [c.name for c in context.coordinates]
    terms: list[Kernel] = [Constant(variance)]
    for item in section.trend:
        file = map_section(item)
        if file is None and item not in names:
            raise ConfigError(
                f"{key}: must be coordinates, {join_names(names)}, or map files, had {format_value(item)}"
                f"{suggest(str(item), names)}; a column of the survey is known at its sites only"
            )
        if file is None:
            d = names.index(str(item))
            x = context.X[:, d]
            centre, half = 0.5 * (x.min() + x.max()), 0.5 * np.ptp(x)
            if not half > 0.0:
                raise ConfigError(f"{key}: must be coordinates that vary, {item!r} was {x[0]:.6g} everywhere")
            terms.append(Linear(variance, half, centre).on(d))
            continue
        found = context.read(file, file.unit or "1", key)
        maps = PriorMap(found.axes, found.dimensions, found.values[None])
        own = maps.mean_at(context.X, context.X.shape[1])[:, 0]
        if not np.ptp(own) > 0.0:
            raise ConfigError(f"{key}: must be maps that vary, {file.file} was {own[0]:.6g} at all points")
        values = _fill((found.values[None] - 0.5 * (own.min() + own.max())) / (0.5 * np.ptp(own)))[0]
        terms.append(Mapped(found.axes, values, variance).on(*found.dimensions))
    return Trended(kernel, tuple(terms))


def check_maps_cover(problem: Problem) -> None:
    """Raise `ConfigError` if the map of a prior does not cover the sites of all sources of a joint inversion."""
    for part in problem.parts:
        for latent in problem.latents:
            X = problem.points if part.problem.grid is not None else part.problem.survey.locations
            count = len((part.problem.survey if part.problem.grid is None else part.problem.grid).coordinates)
            outside = np.flatnonzero(~np.isfinite(latent.process_mean(X, count)).all(axis=-1))
            if len(outside):
                raise ConfigError(
                    f"latents.{latent.name}: its prior maps must cover the points of {part.name!r}, had no value at "
                    f"{len(outside)} of {len(X)}"
                )
