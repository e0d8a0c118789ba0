"""Scales of colours: between which ends they run, whether logarithmically, and on which side values lie beyond."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.colors import LogNorm, Normalize

from invgp.plots.look import is_field, value_range
from invgp.plots.reading import Floats, points_down
from invgp.plots.ticks import power_of

_BEYOND = 1.0  # per cent of the values, at either end, that the colours may leave out
_FAR = 0.1  # of the span of the other values: extremes that are nearer are not left out
_WIDE = 3.0  # highest over lowest value from which a scale is logarithmic
_CLOSE = 1e-6  # of the span: rounding, not a value beyond the scale


def colour_scale(
    ds: xr.Dataset, latent: str, quantity: str, values: Floats, limits: tuple[float, float] | None
) -> Normalize:
    """Scale of the colours of a quantity of a latent that has these values (N,): between limits, where they are set.

    Else a few values far from the others do not stretch it. It is logarithmic where the latent has a log link and
    values several times as large as others, unless it is a depth.
    """
    low, high = limits or value_range(_without_extremes(values), quantity)
    seen = values[np.isfinite(values)]
    if not _may_be_logarithmic(ds, latent, quantity) or min(low, seen.min(initial=low)) <= 0.0 or high <= _WIDE * low:
        return Normalize(low, high)
    if limits is None:
        low, high = (math.exp(end) for end in value_range(_without_extremes(np.log(values)), quantity))
    return LogNorm(low, high)


def scale_power(scale: Normalize) -> int:
    """The power of ten that goes into the label of a colour bar of this scale."""
    low, high = _ends(scale)
    return power_of((math.sqrt(low * high),) if isinstance(scale, LogNorm) else (low, high))


def beyond(scale: Normalize, values: Floats) -> Literal["neither", "both", "min", "max"]:
    """On which side of a scale values (N,) lie beyond it, in matplotlib's words."""
    low, high = _ends(scale)
    seen, close = values[np.isfinite(values)], _CLOSE * (high - low)
    below, above = bool((seen < low - close).any()), bool((seen > high + close).any())
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"


def _ends(scale: Normalize) -> tuple[float, float]:
    return float(scale.vmin or 0.0), float(scale.vmax or 0.0)


def _without_extremes(values: Floats) -> Floats:
    """Values (N,), with the highest and the lowest few clipped to the others if they lie far from them."""
    seen = values[np.isfinite(values)]
    if not seen.size:
        return values
    low = float(np.percentile(seen, _BEYOND, method="lower"))
    high = float(np.percentile(seen, 100.0 - _BEYOND, method="higher"))
    far = _FAR * (high - low)
    if far == 0.0:
        return values
    return np.clip(values, low if seen.min() < low - far else None, high if seen.max() > high + far else None)


def _may_be_logarithmic(ds: xr.Dataset, latent: str, quantity: str) -> bool:
    """Whether a quantity grows by factors; what few runs leave open, and depths, are read on an even scale."""
    return (is_field(quantity) or quantity == "std") and _has_log_link(ds, latent) and not points_down(ds[latent])


def _has_log_link(ds: xr.Dataset, latent: str) -> bool:
    """Whether a latent is the exponential of its Gaussian process; a map says so in the comment on its information."""
    information = ds.get(f"{latent}_information")
    comment = "" if information is None else str(information.attrs.get("comment", ""))
    return ds[latent].attrs.get("link") == "log" or "(link: log)" in comment
