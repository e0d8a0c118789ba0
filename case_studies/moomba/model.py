"""Gravity, magnetics, temperatures and soundings over six layers, the lowest an intruding granite."""

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
SURFACE = -0.5  # m, depth of stations on the ground


@dataclass(frozen=True, eq=False)
class Basin:
    """Known properties of the area: its columns, the tops of all layers but the granite, boundary conditions.

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
    return columns_gravity(np.frombuffer(stations).reshape(-1, 3), *_pad_edges(basin), basin.depths)


@lru_cache(maxsize=4)
def _magnetics(basin: Basin, stations: bytes) -> ColumnResponse:
    return columns_magnetics(np.frombuffer(stations).reshape(-1, 3), basin.field, *_pad_edges(basin), basin.depths)


def _pad_edges(basin: Basin) -> tuple[Floats, Floats]:
    """Edges whose outermost columns continue beyond the map."""
    east, north = basin.east_edges.copy(), basin.north_edges.copy()
    for edges in (east, north):
        edges[0], edges[-1] = edges[0] - PADDING, edges[-1] + PADDING
    return east, north


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


def gravity(granite_top: Floats, easting: Floats, northing: Floats, density_contrast: Floats | None = None) -> Floats:
    """Gravity anomaly (B, N) of the twin in m s-2.

    Parameters
    ----------
    granite_top : array, shape (B, 144), in m
        Top of the granite in each column.
    easting, northing : array, shape (B, N), in m
        Positions of the stations, the same in each row.
    density_contrast : array, shape (B, 144), in kg m-3, optional
        Density of the granite minus that of the basement, the same everywhere. By default it is known.
    """
    density = _with_contrast(ROCKS.density, density_contrast)
    return gravity_anomaly(TWIN, density, TWIN.layers(granite_top), _stations(easting, northing))


def magnetics(
    granite_top: Floats, easting: Floats, northing: Floats, susceptibility_contrast: Floats | None = None
) -> Floats:
    """Total-field anomaly (B, N) of the twin in nT; the contrast (B, 144) in SI units is known by default."""
    susceptibility = _with_contrast(ROCKS.susceptibility, susceptibility_contrast)
    return magnetic_anomaly(TWIN, susceptibility, TWIN.layers(granite_top), _stations(easting, northing))


def temperatures(granite_top: Floats, easting: Floats, northing: Floats, depth: Floats) -> Floats:
    """Temperatures (B, N) of the twin in K at depths (B, N) in m."""
    points = np.stack([easting[0], northing[0], depth[0]], axis=1)
    return temperature(TWIN, ROCKS, TWIN.layers(granite_top), points)


def magnetotellurics(granite_top: Floats, easting: Floats, northing: Floats) -> tuple[Floats, Floats]:
    """log10 of the apparent resistivity in ohm m and phase in degrees of the twin, (B, N F) both, site by site."""
    apparent, phase = soundings(TWIN, ROCKS.resistivity, TWIN.layers(granite_top), _stations(easting, northing))
    return apparent.reshape(len(apparent), -1), phase.reshape(len(phase), -1)


def _stations(easting: Floats, northing: Floats) -> Floats:
    return np.stack([easting[0], northing[0], np.full(easting.shape[1], SURFACE)], axis=1)


def _with_contrast(values: Floats, contrast: Floats | None) -> Floats:
    """Values (L,) of the layers, or (B, L) with those of the granite from a contrast (B, C) to the layer above."""
    if contrast is None:
        return values
    found = np.repeat(values[None], len(contrast), axis=0)
    found[:, -1] = found[:, -2] + contrast[:, 0]
    return found
