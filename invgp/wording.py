"""How numbers are written for people: counts, durations, units."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


def counted(count: int, one: str, many: str = "") -> str:
    """``1 site``, ``2 sites``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def with_unit(text: str, unit: str) -> str:
    """``5 m``; a number without a unit, which is written '1' in a config, stands alone."""
    return text if unit == "1" else f"{text} {unit}"


def duration(seconds: float) -> str:
    """``20 µs``, ``3 ms``, ``5 s``, ``3 min``, ``2.5 h`` or ``4 days``."""
    if seconds < 0.9995e-3:  # which three digits round to the next unit
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:,.0f} days"


def not_converged(posterior: xr.Dataset) -> str:
    """What that means for a posterior; a field model's spread has in it what few runs leave open."""
    return "more runs may move and narrow it" if "node" in posterior.dims else "do not trust its spreads yet"


def shorten(text: str, longest: int = 60) -> str:
    """A text of others, cut where it is too long for a sentence."""
    return text if len(text) <= longest else text[: longest - 3] + "..."
