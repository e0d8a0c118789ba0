"""Four kinds of readings over six layers, the lowest an intruding granite with an unknown top."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from invgp.forward_models import (
    ColumnResponse,
    columns_gravity,
    columns_magnetics,
    field_components,
    layers_temperature,
    magnetotelluric_sounding,
    order_tops,
)

Floats = NDArray[np.float64]
PADDING = 100_000.0  # m, by which the layers continue beyond the map for gravity and magnetics
KINDS = ("gravity", "magnetics", "temperature", "magnetotellurics")  # the column `kind` of a survey has their numbers


@dataclass(frozen=True, eq=False)
class Basin:
    """What is known of the area: its columns, the tops of all layers but the granite, and the boundary conditions.

    Parameters
    ----------
    east_edges, north_edges : array, shapes (I + 1,) and (J + 1,), in m
        Edges of the columns, at equal distances.
    base : float, in m
        Depth to which the layers reach.
    tops : array, shape (L - 1, I J), in m
        Depth of the top of each layer above the granite, the northing varying fastest.
    field : array, shape (3,), in nT
        Ambient magnetic field, east, north and up.
    frequency : array, shape (F,), in Hz
        Frequencies of the magnetotelluric soundings.
    surface_temperature, basal_heat_flow : float, in K and W m-2
        Boundary conditions of the temperature.
    """

    east_edges: Floats
    north_edges: Floats
    base: float
    tops: Floats
    field: Floats
    frequency: Floats
    surface_temperature: float
    basal_heat_flow: float

    @property
    def depths(self) -> Floats:
        """Depths (K,) in m at which gravity and magnetics of the columns are tabulated."""
        return np.concatenate([[0.0], np.geomspace(200.0, self.base, 40)])

    def layers(self, granite_top: Floats) -> Floats:
        """Tops (B, L, C) in m of all layers for tops of the granite (B, C) in m, below those of the other layers."""
        known = np.broadcast_to(self.tops, (len(granite_top), *self.tops.shape))
        tops = np.concatenate([known, granite_top[:, None]], axis=1)
        return np.clip(order_tops(tops), 0.0, self.base)


@dataclass(frozen=True, eq=False)
class Rocks:
    """Properties (..., L) of the layers: kg m-3, SI, W m-1 K-1, W m-3 and ohm m."""

    density: Floats
    susceptibility: Floats
    conductivity: Floats
    heat_production: Floats
    resistivity: Floats


def gravity_anomaly(basin: Basin, density: Floats, layers: Floats, stations: Floats) -> Floats:
    """Gravity (B, M) in m s-2 at stations (M, 3) in m, minus its mean over the stations."""
    found = _gravity(basin, stations.tobytes()).of_layers(layers, density)
    return np.asarray(found - np.mean(found, axis=-1, keepdims=True))


def magnetic_anomaly(basin: Basin, susceptibility: Floats, layers: Floats, stations: Floats) -> Floats:
    """Total-field anomaly (B, M) in nT at stations (M, 3) in m, minus its mean over the stations."""
    found = _magnetics(basin, stations.tobytes()).of_layers(layers, susceptibility)
    return np.asarray(found - np.mean(found, axis=-1, keepdims=True))


def temperature(basin: Basin, rocks: Rocks, layers: Floats, points: Floats) -> Floats:
    """Temperature (B, M) in K at points (M, 3) in m; cells of 400 m."""
    cells = np.linspace(0.0, basin.base, round(basin.base / 400.0) + 1)
    return layers_temperature(
        points,
        layers,
        rocks.conductivity,
        rocks.heat_production,
        basin.east_edges,
        basin.north_edges,
        cells,
        basin.surface_temperature,
        basin.basal_heat_flow,
    )


def soundings(basin: Basin, resistivity: Floats, layers: Floats, stations: Floats) -> tuple[Floats, Floats]:
    """log10 of the apparent resistivity in ohm m and phase in degrees, both (B, M, F), of the layers below stations."""
    below = layers @ interpolation(basin, stations).T  # (B, L, M)
    thickness = np.diff(below, axis=1).swapaxes(1, 2)
    rho = np.broadcast_to(np.asarray(resistivity)[..., None, :], (*thickness.shape[:2], layers.shape[1]))
    apparent, phase = magnetotelluric_sounding(rho, thickness, basin.frequency)
    return np.log10(apparent), np.degrees(phase)


def interpolation(basin: Basin, places: Floats) -> Floats:
    """Bilinear weights (M, C) of the centres of the columns at places (M, 2 or 3) in m."""
    parts = []
    for axis, edges in enumerate((basin.east_edges, basin.north_edges)):
        centres = 0.5 * (edges[1:] + edges[:-1])
        parts.append(np.stack([np.interp(places[:, axis], centres, unit) for unit in np.eye(centres.size)], axis=1))
    return np.asarray((parts[0][:, :, None] * parts[1][:, None, :]).reshape(len(places), -1))


@lru_cache(maxsize=4)
def _gravity(basin: Basin, stations: bytes) -> ColumnResponse:
    return columns_gravity(np.frombuffer(stations).reshape(-1, 3), *_padded(basin), basin.depths)


@lru_cache(maxsize=4)
def _magnetics(basin: Basin, stations: bytes) -> ColumnResponse:
    return columns_magnetics(np.frombuffer(stations).reshape(-1, 3), basin.field, *_padded(basin), basin.depths)


def _padded(basin: Basin) -> tuple[Floats, Floats]:
    """Edges whose outermost columns continue beyond the map."""
    east, north = basin.east_edges.copy(), basin.north_edges.copy()
    for edges in (east, north):
        edges[0], edges[-1] = edges[0] - PADDING, edges[-1] + PADDING
    return east, north


def readings(
    basin: Basin, rocks: Rocks, granite_top: Floats, places: Floats, kind: NDArray[np.int_]
) -> dict[str, Floats]:
    """Compute all readings of a survey.

    Parameters
    ----------
    granite_top : array, shape (B, C), in m
        Depth of the top of the granite in each column.
    places : array, shape (N, 3), in m
        Easting, northing and depth of each reading.
    kind : array, shape (N,)
        Number of its kind in `KINDS`.

    Returns
    -------
    dict of array
        ``gravity``, ``magnetics`` and ``temperature`` (B, N), ``apparent_resistivity`` and ``phase`` (B, N F), in the
        units of the functions above; 0 at readings of another kind. Only kinds that the survey has are computed.
    """
    layers = basin.layers(granite_top)
    found: dict[str, Floats] = {}
    for number in np.unique(kind):
        rows = np.flatnonzero(kind == number)
        here = np.ascontiguousarray(places[rows])
        for name, values in _of_kind(KINDS[number], basin, rocks, layers, here).items():
            everywhere = np.zeros((len(layers), len(kind), *values.shape[2:]))
            everywhere[:, rows] = values
            found[name] = everywhere.reshape(len(layers), -1)
    return found


def _of_kind(kind: str, basin: Basin, rocks: Rocks, layers: Floats, places: Floats) -> dict[str, Floats]:
    """Readings (B, M) or (B, M, F) of one kind."""
    if kind == "gravity":
        return {kind: gravity_anomaly(basin, rocks.density, layers, places)}
    if kind == "magnetics":
        return {kind: magnetic_anomaly(basin, rocks.susceptibility, layers, places)}
    if kind == "temperature":
        return {kind: temperature(basin, rocks, layers, places)}
    names = ("apparent_resistivity", "phase")
    return dict(zip(names, soundings(basin, rocks.resistivity, layers, places), strict=True))


# The synthetic twin: an invented basin with the layout of the real one. Its numbers are not those of the survey.
SIDE, COLUMNS = 36_000.0, 12  # m, and columns in each direction


def _twin() -> Basin:
    edges = np.linspace(0.0, SIDE, COLUMNS + 1)
    centres = 0.5 * (edges[1:] + edges[:-1]) / SIDE
    x, y = (part.ravel() for part in np.meshgrid(centres, centres, indexing="ij"))
    trough = 250.0 * np.cos(2.0 * np.pi * (x - 0.4)) * np.sin(np.pi * y)
    tops = np.stack([np.zeros(x.size), *(top + share * trough for top, share in TWIN_TOPS)])
    return Basin(
        edges, edges, 12_000.0, tops, field_components(55_000.0, -60.0, 7.0), np.geomspace(100.0, 0.01, 9), 290.0, 0.05
    )


TWIN_TOPS = ((1700.0, 0.3), (1950.0, 0.3), (2300.0, 0.6), (3300.0, 1.0))  # m, and share of the trough
TWIN = _twin()
ROCKS = Rocks(
    density=np.array([2200.0, 2500.0, 2450.0, 2420.0, 2700.0, 2620.0]),
    susceptibility=np.array([2e-4, 8e-4, 1e-4, 5e-5, 2e-3, 2e-4]),
    conductivity=np.array([1.7, 2.2, 2.8, 1.5, 2.6, 2.9]),
    heat_production=np.array([1.0e-6, 1.5e-6, 1.0e-6, 1.5e-6, 1.5e-6, 7.0e-6]),
    resistivity=np.array([4.0, 9.0, 60.0, 80.0, 300.0, 4000.0]),
)


def twin(granite_top: Floats, easting: Floats, northing: Floats, depth: Floats, kind: Floats) -> dict[str, Floats]:
    """All readings of the twin for tops of the granite (B, 144) in m; rock properties are known."""
    places = np.stack([easting[0], northing[0], depth[0]], axis=1)
    return readings(TWIN, ROCKS, granite_top, places, np.rint(kind[0]).astype(int))


def twin_with_unknown_rocks(
    granite_top: Floats,
    density_contrast: Floats,
    susceptibility_contrast: Floats,
    easting: Floats,
    northing: Floats,
    depth: Floats,
    kind: Floats,
) -> dict[str, Floats]:
    """The same with contrasts (B, 144) of the granite to the layer above it, which are the same everywhere."""
    density = np.repeat(ROCKS.density[None], len(granite_top), axis=0)
    density[:, -1] = density[:, -2] + density_contrast[:, 0]
    susceptibility = np.repeat(ROCKS.susceptibility[None], len(granite_top), axis=0)
    susceptibility[:, -1] = susceptibility[:, -2] + susceptibility_contrast[:, 0]
    rocks = Rocks(density, susceptibility, ROCKS.conductivity, ROCKS.heat_production, ROCKS.resistivity)
    places = np.stack([easting[0], northing[0], depth[0]], axis=1)
    return readings(TWIN, rocks, granite_top, places, np.rint(kind[0]).astype(int))
