"""What the figures read from a posterior: names, curves and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import PlotError
from invgp.maps.grids import letters_of
from invgp.maps.nodes import SURVEY
from invgp.plots.style import colours_for

Floats = NDArray[np.float64]

_HELD = ("site_precision", "site_shift", "whitened_mean", "whitened_factor", "whitened_root")
TWO_SIGMA = 1.96  # standard deviations from the mean to the edge of a central 95% interval
_NEEDED = {
    "coordinates": ("",),
    "site_coordinates": ("",),
    "latents": ("", "_std"),
    "observations": ("_observed", "_noise_std", "_predicted", "_predicted_std", "_residual"),
}


class Curve(NamedTuple):
    """One label along the dimension of a variable."""

    column: int
    label: str  # "" for a variable with no dimension but `site`
    colour: Any


def read_names(ds: xr.Dataset, kind: str) -> list[str]:
    """Names of the ``coordinates``, ``latents`` or ``observations``, whose variables must all be there."""
    names = str(ds.attrs.get(f"invgp_{kind}", "")).split()
    if kind == "latents":  # and what `invgp predict` derived from them
        names += str(ds.attrs.get("invgp_derived", "")).split()
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


def choose(ds: xr.Dataset, latents: Sequence[str] = (), labels: Sequence[str] = ()) -> xr.Dataset:
    """The dataset with these latents only, and these labels along their dimensions; none stands for all."""
    known = read_names(ds, "latents")
    for name in latents:
        if name not in known:
            raise PlotError(f"--latent: must be one of {', '.join(known)}, was {name!r}")
    chosen = [name for name in known if not latents or name in latents]
    along = {name: _label_texts(ds, name) for name in chosen}
    for label in labels:
        if not any(label in texts for texts in along.values()):
            listed = ", ".join(dict.fromkeys(text for texts in along.values() for text in texts if text))
            raise PlotError(f"--layer: must be {f'one of {listed}' if listed else 'left out'}, was {label!r}")
    wanted = {
        dimension: [i for i, text in enumerate(along[name]) if text in labels]
        for name in chosen
        if (dimension := label_dimension(ds[name])) is not None and set(labels) & set(along[name])
    }
    processes = [
        name in chosen and (label_dimension(ds[name]) not in wanted or text in labels)
        for name in known
        for text in _label_texts(ds, name)
    ]
    if "process" in ds.dims and ds.sizes["process"] == len(processes):
        wanted |= dict.fromkeys(("process", "other_process"), np.flatnonzero(processes).tolist())
    kept = {dimension: indices for dimension, indices in wanted.items() if dimension in ds.dims}
    ds = ds.drop_vars(_HELD, errors="ignore")  # what is left of them predicts nothing
    return ds.isel(kept).assign_attrs(invgp_latents=" ".join(chosen), invgp_derived="")


def _label_texts(ds: xr.Dataset, variable: str) -> list[str]:
    """Labels of a variable as a user writes them; one without a name for a variable that has none."""
    dimension = label_dimension(ds[variable])
    return [""] if dimension is None else [str(label) for label in labels_along(ds, dimension)]


def labels_along(ds: xr.Dataset, dimension: str) -> list[Any]:
    """Labels along a dimension: names or numbers."""
    found: list[Any] = ds.get(f"{dimension}_label", ds[dimension]).values.tolist()
    return found


def label_dimension(array: xr.DataArray) -> str | None:
    """The dimension of a variable's labels, beside those of the sites, nodes or axes of a grid, which have units."""
    others = ("site", "node", "quantile", "realization")
    return next((str(d) for d in array.dims if d not in others and "units" not in array[d].attrs), None)


def read_site(ds: xr.Dataset, number: int | None, key: str = "--site") -> int:
    """Index of a site by its number, counted from 1; without one, of the site in the middle of the table."""
    if number is None:
        return (ds.sizes["site"] - 1) // 2
    numbers = ds["site"].values
    if number not in numbers:
        raise PlotError(f"{key}: must be the number of a site, {numbers.min()} to {numbers.max()}, was {number}")
    return int(np.flatnonzero(numbers == number)[0])


def read_one_coordinate(ds: xr.Dataset) -> list[str]:
    """Name of the only coordinate, which a section needs."""
    names = read_names(ds, "coordinates")
    if len(names) != 1:
        raise PlotError(f"A section needs sites with 1 coordinate, but these have {len(names)}: {', '.join(names)}.")
    return names


def read_two_coordinates(ds: xr.Dataset) -> tuple[list[str], list[str]]:
    """Names of the coordinates across and up a map, and of those it leaves out: east across, north or height up."""
    letters = letters_of(ds, read_names(ds, "coordinates"))
    names = sorted(letters, key=lambda name: letters[name])
    if len(names) < 2:
        raise PlotError(f"A map needs sites with 2 coordinates or more, but these have 1: {names[0]}.")
    return names[:2], names[2:]


def read_curves(ds: xr.Dataset, variable: str) -> list[Curve]:
    """One curve for each label along the dimension of a variable, or one without a label."""
    array = ds[variable]
    dimension = label_dimension(array)
    if dimension is None:
        return [Curve(0, "", colours_for(1)[0])]
    labels = labels_along(ds, dimension)
    texts = [label if isinstance(label, str) else f"{dimension} {label}" for label in labels]
    return [Curve(i, text, colour) for i, (text, colour) in enumerate(zip(texts, colours_for(len(texts)), strict=True))]


def read_values(ds: xr.Dataset, variable: str, curve: Curve) -> Floats:
    """Values (N,) of a curve at the sites."""
    values = np.asarray(ds[variable].transpose("site", ...).values, dtype=np.float64)
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


def read_survey(ds: xr.Dataset, coordinates: Sequence[str]) -> xr.Dataset | None:
    """Sites of the survey, by these coordinates, of a dataset whose points are others; None if it does not tell."""
    names = {f"{SURVEY}{name}": name for name in coordinates}
    if not all(name in ds for name in names):
        return None
    return ds[list(names)].rename(names).rename(survey_site="site")


def survey_coordinates(ds: xr.Dataset) -> list[str]:
    """Coordinates of the sites that `read_survey` can tell of."""
    names = [str(name) for name, array in ds.data_vars.items() if array.dims == ("survey_site",)]
    return [name.removeprefix(SURVEY) for name in names]


def points_down(array: xr.DataArray) -> bool:
    """Tell whether a quantity grows downwards, as depth does."""
    return bool(array.attrs.get("positive") == "down")
