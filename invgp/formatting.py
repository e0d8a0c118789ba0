"""Text for numbers: counts, durations and units."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


def count_noun(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: ``1 site``, ``2 sites``.

    Parameters
    ----------
    count : int
    one : str
        Singular noun.
    many : str
        Plural noun; by default the singular with an ``s``.

    Returns
    -------
    str

    Examples
    --------
    >>> count_noun(1200, "site")
    '1,200 sites'
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def append_unit(text: str, unit: str) -> str:
    """Return a number with its unit, ``5 m``; the unit ``1`` is left out."""
    return text if unit == "1" else f"{text} {unit}"


def format_duration(seconds: float) -> str:
    """Return a duration with a suitable unit: ``20 µs``, ``3 ms``, ``5 s``, ``3 min``, ``2.5 h`` or ``4 days``."""
    if seconds < 0.9995e-3:  # three digits would round it up to the next unit
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


def convergence_advice(posterior: xr.Dataset) -> str:
    """Return what a user should know about a posterior that has not converged.

    The standard deviations of a field model include the uncertainty due to the small number of runs; those of a site
    model do not.
    """
    if "node" in posterior.dims:
        return "more runs may change its mean and reduce its standard deviations"
    return "do not rely on its standard deviations yet"


def shorten(text: str, longest: int = 60) -> str:
    """Return a text that comes from a user or a file, cut to a maximum length."""
    return text if len(text) <= longest else text[: longest - 3] + "..."
