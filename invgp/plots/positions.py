"""Where the sites stand on a figure: their positions, in which unit and from which origin, and the ticks along them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from invgp.formatting import append_unit
from invgp.plots.labels import MINUS, axis_label, quantity_name, unit_label
from invgp.plots.reading import Floats

_LONG_LINE = 5000.0  # m, from where a survey is drawn in km
_METRES = ("m", "metre", "meter", "metres", "meters")
_MOST_DIGITS = 6  # of the label of a tick that still stands clear of its neighbours
_SIX_FIGURES = 1e5  # where projected coordinates begin


def read_positions(ds: xr.Dataset, coordinates: list[str]) -> list[tuple[Floats, str]]:
    """Positions (N,) of the sites along each coordinate, and their label.

    They are in km where the survey is long, and from a round origin, which the label names, where ticks would
    otherwise need too many digits.
    """
    arrays = [ds[name].astype(np.float64) for name in coordinates]
    span = max(float(np.ptp(array.values)) for array in arrays)
    scale, unit = length_unit(arrays)
    return [_from_origin(array, array.values / scale, unit, span / scale) for array in arrays]


def read_survey_positions(ds: xr.Dataset, survey: xr.Dataset, coordinates: list[str]) -> list[Floats]:
    """Positions of the sites of a survey along each coordinate, as `read_positions` has those of the dataset."""
    scale, _ = length_unit([ds[name] for name in coordinates])
    found = []
    for name, (positions, _) in zip(coordinates, read_positions(ds, coordinates), strict=True):
        origin = float(ds[name].values[0]) / scale - float(positions[0])
        found.append(survey[name].values / scale - origin)
    return found


def length_unit(arrays: Sequence[xr.DataArray]) -> tuple[float, str]:
    """What to divide coordinates by, and the unit they have then: km for a long survey in metres, or 1 and nothing."""
    span = max(float(np.ptp(array.values)) for array in arrays)
    in_km = span > _LONG_LINE and all(array.attrs.get("units") in _METRES for array in arrays)
    return (1e3, "km") if in_km else (1.0, "")


def set_ticks(axis: Axis, positions: Floats, most: int) -> None:
    """Put at most about `most` ticks along positions (N,), or one where the sites share one position."""
    if np.ptp(positions) > 0.0:
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
        formatter = ScalarFormatter(useOffset=False)
        formatter.set_scientific(False)
        axis.set_major_formatter(formatter)
    else:
        axis.set_ticks([float(positions[0])], labels=[f"{positions[0]:.10g}".replace("-", MINUS)])


def _from_origin(array: xr.DataArray, positions: Floats, unit: str, span: float) -> tuple[Floats, str]:
    """Positions from their origin, and the label that names it, in a survey of this span."""
    origin, decimals = _origin(positions, span)
    if origin == 0.0:
        return positions, axis_label(array, unit=unit)
    sign = MINUS if origin > 0.0 else "+"
    figures = f"{abs(origin):,.{decimals}f}".replace(",", "\xa0")
    return positions - origin, axis_label(array, f"{quantity_name(array)} {sign}\xa0{figures}", unit)


def _origin(positions: Floats, span: float) -> tuple[float, int]:
    """Round number just below the positions, and its decimals, or 0 where ticks need no other origin."""
    largest = float(np.max(np.abs(positions)))
    if span == 0.0 or largest < 10.0 * span:
        return 0.0, 0
    digits_before = math.floor(math.log10(largest)) + 1
    digits_behind = max(0, -math.floor(math.log10(span / 5.0)))  # of ticks a fifth of the span apart
    if largest < _SIX_FIGURES and digits_before + digits_behind <= _MOST_DIGITS:
        return 0.0, 0
    exponent = math.ceil(math.log10(span))
    return round(math.floor(float(positions.min()) / 10.0**exponent) * 10.0**exponent, -exponent), max(0, -exponent)


def name_site(ds: xr.Dataset, index: int) -> str:
    """Name a site by its number and its coordinates: ``Site 57 (position 22.4 km)``."""
    coordinates = str(ds.attrs["invgp_coordinates"]).split()
    places = [append_unit(f"{name} {ds[name].values[index]:.10g}", unit_label(ds[name]) or "1") for name in coordinates]
    return f"{str(ds.attrs.get('invgp_points', 'site')).capitalize()} {ds['site'].values[index]} ({', '.join(places)})"
