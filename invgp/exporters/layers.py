"""A dataset as layers: one field over its points for each label, quantile and threshold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import suggest
from invgp.problem import Floats


class Layer(NamedTuple):
    """One number a point.

    Attributes
    ----------
    name : of the variable and its labels, such as ``depth_quantile_0.5_2``.
    text : for people, such as ``depth, quantile 0.5, layer 2``.
    values : along the dimensions of the points.
    """

    name: str
    text: str
    unit: str
    values: xr.DataArray


def coordinates(dataset: xr.Dataset) -> list[str]:
    """Names of the coordinates."""
    return str(dataset.attrs["invgp_coordinates"]).split()


def quantities(dataset: xr.Dataset) -> list[str]:
    """Latents, and what was derived from them."""
    return f"{dataset.attrs['invgp_latents']} {dataset.attrs.get('invgp_derived', '')}".split()


def point_dims(dataset: xr.Dataset) -> tuple[str, ...]:
    """The dimensions of the points: ``site``, or the axes of a grid, slowest first."""
    names = coordinates(dataset)
    if all(dataset[name].dims == (name,) for name in names):
        return tuple(str(d) for d in dataset[quantities(dataset)[0]].dims if d in names)
    return ("site",)


def is_grid(dataset: xr.Dataset) -> bool:
    """Whether the points are a grid."""
    return point_dims(dataset) != ("site",)


def chosen(dataset: xr.Dataset, variables: Sequence[str], suffixes: Sequence[str] | None = None) -> list[str]:
    """The variables to write: those named, or by default all fields but draws, or those with some suffixes."""
    dims = set(point_dims(dataset))
    fields = [
        str(name)
        for name, array in dataset.data_vars.items()
        if dims <= {str(d) for d in array.dims} and not {"process", "other_site"} & {str(d) for d in array.dims}
    ]
    for name in variables:
        if name not in fields:
            raise ArgumentError(f"variables: must be a field of the file, was {name!r}{suggest(name, fields)}")
    if variables:
        return list(variables)
    if suffixes is not None:
        return [name + suffix for name in quantities(dataset) for suffix in suffixes]
    return [name for name in fields if "realization" not in dataset[name].dims]


def layers(dataset: xr.Dataset, names: Sequence[str], whole: tuple[str, ...] = ()) -> Iterator[Layer]:
    """Of some variables, in order; the labels that stand first vary slowest. Dimensions that stay whole come first."""
    dims = (*whole, *point_dims(dataset))
    for name in names:
        array = dataset[name].transpose(..., *dims)
        others = [str(d) for d in array.dims if d not in dims]
        labels = [labels_of(dataset, d) for d in others]
        for place in itertools.product(*(range(len(texts)) for texts in labels)):
            texts = [labels[i][k] for i, k in enumerate(place)]
            words = [f"{dimension} {text}" for dimension, text in zip(others, texts, strict=True)]
            yield Layer(
                "_".join([name, *texts]),
                ", ".join([name, *words]),
                str(array.attrs.get("units", "1")),
                array.isel(dict(zip(others, place, strict=True))),
            )


def labels_of(dataset: xr.Dataset, dimension: str) -> list[str]:
    """As text: names, or numbers."""
    found = dataset.get(f"{dimension}_label", dataset[dimension]).values.tolist()
    return [label if isinstance(label, str) else f"{label:.6g}" for label in found]


def positions(dataset: xr.Dataset) -> dict[str, Floats]:
    """The coordinates of every point, the points of a grid in the order of its dimensions, the last fastest."""
    dims = point_dims(dataset)
    if dims == ("site",):
        return {name: np.asarray(dataset[name].values, dtype=np.float64) for name in coordinates(dataset)}
    mesh = np.meshgrid(*(dataset[d].values for d in dims), indexing="ij")
    by_name = dict(zip(dims, mesh, strict=True))
    return {name: by_name[name].ravel() for name in coordinates(dataset)}


def draws(dataset: xr.Dataset, variables: Sequence[str]) -> list[str]:
    """The latents and derived quantities of which there are draws."""
    found = [name for name in variables or quantities(dataset) if f"{name}_sample" in dataset]
    missing = [name for name in variables if name not in found]
    if missing or not found or not dataset.sizes.get("realization"):
        what = f"of {missing[0]!r} " if missing else ""
        raise ConfigError(f"the file holds no draws {what}to export; write a map with `invgp predict --draws`")
    return found


def needed(module: str, extra: str) -> ModuleType:
    """A library that an extra of invgp brings."""
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".", maxsplit=1)[0]
        raise ArgumentError(f"format: needs {package}, which is not here: pip install 'invgp[{extra}]'") from None
