"""Labels and ticks of axes: names of quantities, typeset units, positions of the sites, and numbers along an axis."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axis import Axis
from matplotlib.ticker import (
    FixedLocator,
    Formatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    ScalarFormatter,
)

from invgp.formatting import append_unit
from invgp.plots.plot_data import Floats

MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SYMBOLS = {
    "degC": "°C",
    "degree": "°",
    "degrees": "°",
    "degrees_east": "°E",
    "degrees_north": "°N",
    "ohm": "Ω",
    "percent": "%",
}
_LONG_LINE = 5000.0  # m, from which a survey is drawn in km
_METRES = ("m", "metre", "meter", "metres", "meters")
_MOST_DIGITS = 6  # of a tick label that does not touch its neighbours
_PROJECTED = 1e5  # projected coordinates are larger
_PLAIN_POWERS = range(-2, 5)  # powers of ten for which ticks show the whole number: 0.01 to 99,999
_PLAIN_LOG_POWERS = range(-3, 5)
_MANTISSAS = (  # of the ticks of a logarithmic axis, the densest first
    (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
    (1.0, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)


def axis_label(array: xr.DataArray, text: str = "", unit: str = "", width: int = 44, power: int = 0) -> str:
    """Return the label of an axis.

    Parameters
    ----------
    array : DataArray
        Array that gives the name and the unit.
    text : str
        Text instead of the name of the array.
    unit : str
        Unit instead of that of the array.
    width : int
        Maximum number of characters per line.
    power : int
        Power of ten in which the ticks are given.

    Returns
    -------
    str
    """
    text = text or quantity_name(array)
    unit = unit_with_power(_typeset_unit(unit) or unit_label(array), power)
    if unit:
        text += " (" + unit.replace(" ", "\xa0") + ")"  # a unit is never broken over two lines
    return "\n".join(textwrap.wrap(sentence_case(text), width)).replace("\xa0", " ")


def sentence_case(text: str) -> str:
    """Return a text with a capital first letter, unless it begins with a symbol, such as y, pH or vs."""
    first, _, rest = text.partition(" ")
    symbol = (len(first) <= 2 and not rest[:1].isalpha()) or any(letter.isupper() for letter in first)
    return text if symbol else text[:1].upper() + text[1:]


def quantity_name(array: xr.DataArray) -> str:
    """Return the name of the quantity in an array, without the word "observed"."""
    name = str(array.attrs.get("long_name", str(array.name).removesuffix("_observed").replace("_", " ")))
    return name.removeprefix("observed ")


def unit_label(array: xr.DataArray) -> str:
    """Return the typeset unit of an array; empty for the unit 1."""
    return _typeset_unit(str(array.attrs.get("units", "")))


def unit_with_power(unit: str, power: int) -> str:
    """Return a typeset unit after a power of ten: ``10⁻⁴ m``."""
    return " ".join(filter(None, (f"10{str(power).translate(_SUPERSCRIPTS)}" if power else "", unit)))


def format_range(array: xr.DataArray) -> str:
    """Return the range of an array, to three digits of its span, with the unit: ``from 0.4 to 29.4 m``."""
    low, high = float(array.min()), float(array.max())
    decimals = max(0, 2 - math.floor(math.log10(high - low))) if high > low else 2
    ends = [f"{value:.{decimals}f}".replace("-", MINUS) for value in (low, high)]
    return f"from {ends[0]} to {ends[1]} {unit_label(array)}".rstrip()


def _typeset_unit(unit: str) -> str:
    """Return a unit with superscripts and symbols: ``m s-1`` becomes ``m s⁻¹``, and ``1`` an empty text."""
    if unit == "1":
        return ""
    return " ".join(_typeset_factor(factor) for factor in unit.split())


def _typeset_factor(factor: str) -> str:
    parts = re.fullmatch(r"([^\W\d]+)(?:\^|\*\*)?([-+]?\d+)?", factor)
    if parts is None:
        return factor
    return _SYMBOLS.get(parts[1], parts[1]) + (parts[2] or "").translate(_SUPERSCRIPTS)


def site_title(ds: xr.Dataset, index: int) -> str:
    """Return the number and the coordinates of a site: ``Site 57 (position 22.4 km)``."""
    coordinates = str(ds.attrs["invgp_coordinates"]).split()
    values = [append_unit(f"{name} {ds[name].values[index]:.10g}", unit_label(ds[name]) or "1") for name in coordinates]
    return f"{str(ds.attrs.get('invgp_points', 'site')).capitalize()} {ds['site'].values[index]} ({', '.join(values)})"


def read_positions(ds: xr.Dataset, coordinates: list[str]) -> list[tuple[Floats, str]]:
    """Return the positions of the sites along each coordinate, and the axis label.

    Positions are in km for a long survey. If the ticks would need too many digits, positions are relative to a round
    origin, which the label states.

    Parameters
    ----------
    ds : Dataset
        A posterior, or a map after `flatten_grid`.
    coordinates : list of str

    Returns
    -------
    list of tuple
        For each coordinate, positions (N,) and the label.
    """
    arrays = [ds[name].astype(np.float64) for name in coordinates]
    span = max(float(np.ptp(array.values)) for array in arrays)
    scale, unit = length_unit(arrays)
    return [_shift_origin(array, array.values / scale, unit, span / scale) for array in arrays]


def read_survey_positions(ds: xr.Dataset, survey: xr.Dataset, coordinates: list[str]) -> list[Floats]:
    """Return the positions of the sites of a survey in the unit and from the origin of `read_positions`."""
    scale, _ = length_unit([ds[name] for name in coordinates])
    found = []
    for name, (positions, _) in zip(coordinates, read_positions(ds, coordinates), strict=True):
        origin = float(ds[name].values[0]) / scale - float(positions[0])
        found.append(survey[name].values / scale - origin)
    return found


def length_unit(arrays: Sequence[xr.DataArray]) -> tuple[float, str]:
    """Return the divisor of coordinates and their new unit: (1000, "km") for a long survey in metres, else (1, "")."""
    span = max(float(np.ptp(array.values)) for array in arrays)
    in_km = span > _LONG_LINE and all(array.attrs.get("units") in _METRES for array in arrays)
    return (1e3, "km") if in_km else (1.0, "")


def _shift_origin(array: xr.DataArray, positions: Floats, unit: str, span: float) -> tuple[Floats, str]:
    """Return positions relative to their origin, and the label that states it, for a survey of this span."""
    origin, decimals = _find_origin(positions, span)
    if origin == 0.0:
        return positions, axis_label(array, unit=unit)
    sign = MINUS if origin > 0.0 else "+"
    figures = f"{abs(origin):,.{decimals}f}".replace(",", "\xa0")
    return positions - origin, axis_label(array, f"{quantity_name(array)} {sign}\xa0{figures}", unit)


def _find_origin(positions: Floats, span: float) -> tuple[float, int]:
    """Return a round number just below the positions and its decimals; 0 if the ticks need no other origin."""
    largest = float(np.max(np.abs(positions)))
    if span == 0.0 or largest < 10.0 * span:
        return 0.0, 0
    digits_before = math.floor(math.log10(largest)) + 1
    digits_after = max(0, -math.floor(math.log10(span / 5.0)))  # for ticks at a distance of a fifth of the span
    if largest < _PROJECTED and digits_before + digits_after <= _MOST_DIGITS:
        return 0.0, 0
    exponent = math.ceil(math.log10(span))
    return round(math.floor(float(positions.min()) / 10.0**exponent) * 10.0**exponent, -exponent), max(0, -exponent)


def set_position_ticks(axis: Axis, positions: Floats, most: int) -> None:
    """Set about `most` ticks at most along positions (N,), or one tick if all positions are equal."""
    if np.ptp(positions) > 0.0:
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
        formatter = ScalarFormatter(useOffset=False)
        formatter.set_scientific(False)
        axis.set_major_formatter(formatter)
    else:
        axis.set_ticks([float(positions[0])], labels=[f"{positions[0]:.10g}".replace("-", MINUS)])


def tick_power(ends: Sequence[float]) -> int:
    """Return the power of ten for the label of an axis between these ends; 0 if the ticks show the whole numbers."""
    largest = max((abs(end) for end in ends if math.isfinite(end)), default=0.0)
    power = math.floor(math.log10(largest)) if largest > 0.0 else 0
    return 0 if power in _PLAIN_POWERS else power


class ScaledFormatter(Formatter):
    """Format ticks in units of a power of ten, with as many decimals as they need.

    Parameters
    ----------
    power : int
        The power of ten.
    """

    def __init__(self, power: int) -> None:
        self.power = power

    def __call__(self, x: float, pos: int | None = None) -> str:  # noqa: ARG002 - matplotlib requires the argument
        """Return the text of one tick."""
        return self.format_ticks([x])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Return the texts of all ticks of an axis."""
        scaled = np.asarray(values, dtype=np.float64) / 10.0**self.power
        close = 1e-4 * (float(np.diff(np.sort(scaled)).min()) if len(scaled) > 1 else abs(float(scaled[0])) or 1.0)
        decimals = next((d for d in range(12) if np.all(np.abs(np.round(scaled, d) - scaled) <= close)), 12)
        return [f"{value + 0.0:.{decimals}f}".replace("-", MINUS) for value in np.round(scaled, decimals)]


def set_value_ticks(axis: Axis, power: int, most: int) -> None:
    """Set about `most` ticks at most on a linear axis, in units of a power of ten."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(ScaledFormatter(power))


def set_log_ticks(axis: Axis, power: int, most: int) -> None:
    """Set about `most` labelled ticks at most on a logarithmic axis, in units of a power of ten, and minor ticks."""
    low, high = sorted(float(end) for end in axis.get_view_interval())
    axis.set_major_locator(FixedLocator(log_ticks(low, high, most).tolist()))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _format_log_tick(value / 10.0**power)))
    axis.set_minor_locator(LogLocator(subs=range(1, 10), numticks=1000))
    axis.set_minor_formatter(NullFormatter())


def _format_log_tick(value: float) -> str:
    """Return the text of a tick of a logarithmic axis: ``500``, ``10⁷`` or ``3 × 10⁷``."""
    exponent = math.floor(math.log10(value) + 1e-9)
    if exponent in _PLAIN_LOG_POWERS:
        return f"{value:.6g}"
    mantissa, power = f"{value / 10.0**exponent:.3g}", f"10{str(exponent).translate(_SUPERSCRIPTS)}"
    return power if mantissa == "1" else f"{mantissa} \N{MULTIPLICATION SIGN} {power}"


def log_ticks(low: float, high: float, most: int) -> Floats:
    """Return round numbers between two positive numbers, about `most` at most, that do not overlap on a log axis."""
    decades = np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = np.empty(0)
    for mantissas in _MANTISSAS:
        ticks = np.outer(10.0**decades, mantissas).ravel()
        inside = ticks[(ticks >= low * (1.0 - 1e-9)) & (ticks <= high * (1.0 + 1e-9))]
        if inside.size <= most and _closest_distance(inside) * most > 0.5 * math.log(high / low):
            return inside
    return inside[:: math.ceil(inside.size / most)]


def _closest_distance(ticks: Floats) -> float:
    """Return the smallest distance between the logarithms of neighbouring ticks."""
    return float(np.diff(np.log(ticks)).min()) if ticks.size > 1 else math.inf
