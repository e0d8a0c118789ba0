"""What the figures read from a posterior: names, curves and their values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import PlotError
from invgp.plots.style import colours_for

Floats = NDArray[np.float64]

TWO_SIGMA = 1.96  # standard deviations from the mean to the edge of a central 95% interval
_NEEDED = {
    "coordinates": ("",),
    "site_coordinates": ("",),
    "latents": ("", "_std", "_prior"),
    "observations": ("_observed", "_noise_std", "_predicted", "_predicted_std", "_residual"),
}


POINTS = ("site", "node")


class Curve(NamedTuple):
    """One label along the dimension of a variable."""

    column: int
    label: str  # "" for a variable with no dimension but `site`
    colour: Any


def read_names(ds: xr.Dataset, kind: str) -> list[str]:
    """Names of the ``coordinates``, ``latents`` or ``observations``, whose variables must all be there."""
    names = str(ds.attrs.get(f"invgp_{kind}", "")).split()
    if not names:
        raise PlotError(
            f"The dataset is not an invgp posterior: its attribute 'invgp_{kind}' is missing or empty. "
            "Open a file that `invgp run` wrote."
        )
    variables = [f"{name}{suffix}" for name in names for suffix in _NEEDED[kind]]
    missing = [variable for variable in variables if variable not in ds]
    if missing:
        raise PlotError(f"The dataset is not a whole invgp posterior: it lacks {', '.join(missing)}.")
    return names


def read_site_coordinates(ds: xr.Dataset) -> list[str]:
    """Names of the coordinates of the data, which are not those of the latents where a run takes a whole grid."""
    return read_names(ds, "site_coordinates" if "invgp_site_coordinates" in ds.attrs else "coordinates")


def read_one_coordinate(ds: xr.Dataset) -> list[str]:
    """Name of the only coordinate, which a section needs."""
    names = read_names(ds, "coordinates")
    if len(names) != 1:
        raise PlotError(f"A section needs sites with 1 coordinate, but these have {len(names)}: {', '.join(names)}.")
    return names


def read_two_coordinates(ds: xr.Dataset) -> tuple[list[str], list[str]]:
    """Names of the first two coordinates, which a map needs, and of those it leaves out."""
    names = read_names(ds, "coordinates")
    if len(names) < 2:
        raise PlotError(f"A map needs sites with 2 coordinates or more, but these have 1: {names[0]}.")
    return names[:2], names[2:]


def read_curves(ds: xr.Dataset, variable: str) -> list[Curve]:
    """One curve for each label along the dimension of a variable, or one without a label."""
    array = ds[variable]
    dimension = next((str(d) for d in array.dims if d not in POINTS), None)
    if dimension is None:
        return [Curve(0, "", colours_for(1)[0])]
    labels = ds.get(f"{dimension}_label", array[dimension]).values.tolist()
    texts = [label if isinstance(label, str) else f"{dimension} {label}" for label in labels]
    return [Curve(i, text, colour) for i, (text, colour) in enumerate(zip(texts, colours_for(len(texts)), strict=True))]


def read_values(ds: xr.Dataset, variable: str, curve: Curve) -> Floats:
    """Values (N,) of a curve at the sites, or at the nodes of a grid."""
    array = ds[variable]
    along = next(d for d in array.dims if d in POINTS)
    values = np.asarray(array.transpose(along, ...).values, dtype=np.float64)
    return values if values.ndim == 1 else values[:, curve.column]


def read_interval(ds: xr.Dataset, variable: str, curve: Curve) -> tuple[Floats, Floats]:
    """Lower and upper edge (N,) of the central 95% interval: quantiles if there are any, or else mean and spread."""
    if f"{variable}_quantile" in ds:
        levels = np.asarray(ds["quantile"].values, dtype=np.float64)
        found = [np.flatnonzero(np.isclose(levels, level)) for level in (0.025, 0.975)]
        if all(indices.size for indices in found):
            tables = (ds.isel(quantile=int(indices[0])) for indices in found)
            lower, upper = (read_values(table, f"{variable}_quantile", curve) for table in tables)
            return lower, upper
    mean, std = read_values(ds, variable, curve), read_values(ds, f"{variable}_std", curve)
    return mean - TWO_SIGMA * std, mean + TWO_SIGMA * std


def points_down(array: xr.DataArray) -> bool:
    """Tell whether a quantity grows downwards, as depth does."""
    return bool(array.attrs.get("positive") == "down")
