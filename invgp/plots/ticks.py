"""Numbers along an axis: of very large and very small values the power of ten stands in the label, once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import Formatter, MaxNLocator

from invgp.plots.labels import MINUS

_PLAIN = range(-2, 5)  # powers of ten that a tick writes out: 0.01 to 99,999


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
