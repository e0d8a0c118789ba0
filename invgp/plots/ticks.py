"""Numbers along an axis: of very large and very small values the power of ten stands in the label, once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, Formatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from invgp.plots.labels import MINUS

_PLAIN = range(-2, 5)  # powers of ten that a tick writes out: 0.01 to 99,999
_DENSEST_FIRST = (
    (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
    (1.0, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)


def power_of(ends: Sequence[float]) -> int:
    """The power of ten that goes into the label of an axis between these ends; 0 where ticks are written out."""
    largest = max((abs(end) for end in ends if math.isfinite(end)), default=0.0)
    power = math.floor(math.log10(largest)) if largest > 0.0 else 0
    return 0 if power in _PLAIN else power


class ScaledFormatter(Formatter):
    """Ticks in units of a power of ten, with as many decimals as they need."""

    def __init__(self, power: int) -> None:
        self.power = power

    def __call__(self, x: float, pos: int | None = None) -> str:  # noqa: ARG002 - as matplotlib asks
        """One tick."""
        return self.format_ticks([x])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """All ticks of an axis."""
        scaled = np.asarray(values, dtype=np.float64) / 10.0**self.power
        close = 1e-4 * (float(np.diff(np.sort(scaled)).min()) if len(scaled) > 1 else abs(float(scaled[0])) or 1.0)
        decimals = next((d for d in range(12) if np.all(np.abs(np.round(scaled, d) - scaled) <= close)), 12)
        return [f"{value + 0.0:.{decimals}f}".replace("-", MINUS) for value in np.round(scaled, decimals)]


def set_value_ticks(axis: Axis, power: int, most: int) -> None:
    """Put at most about so many ticks on an axis of values, in units of a power of ten."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(ScaledFormatter(power))


def set_log_ticks(axis: Axis, power: int, most: int) -> None:
    """Put at most about so many round numbers on a logarithmic axis, in units of a power of ten, and small ticks."""
    low, high = sorted(float(end) for end in axis.get_view_interval())
    axis.set_major_locator(FixedLocator(log_ticks(low, high, most).tolist()))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 10.0**power:.6g}"))
    axis.set_minor_locator(LogLocator(subs=range(1, 10), numticks=1000))
    axis.set_minor_formatter(NullFormatter())


def log_ticks(low: float, high: float, most: int) -> NDArray[np.float64]:
    """Round numbers between two positive ones, as many as stand clear of each other where about `most` have room."""
    decades = np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = np.empty(0)
    for mantissas in _DENSEST_FIRST:
        ticks = np.outer(10.0**decades, mantissas).ravel()
        inside = ticks[(ticks >= low * (1.0 - 1e-9)) & (ticks <= high * (1.0 + 1e-9))]
        if inside.size <= most and _closest(inside) * most > 0.5 * math.log(high / low):
            return inside
    return inside[:: math.ceil(inside.size / most)]


def _closest(ticks: NDArray[np.float64]) -> float:
    """Smallest distance between the logarithms of neighbouring ticks."""
    return float(np.diff(np.log(ticks)).min()) if ticks.size > 1 else math.inf
