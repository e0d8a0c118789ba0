"""Fields of a dataset for export: one field over its points for each label, quantile and threshold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.errors import ArgumentError, ConfigError
from invgp.files.meshes import TYPES
from invgp.formatting import suggest
from invgp.posterior.contents import field_names, scalar_names
from invgp.problem import Floats


class ExportedField(NamedTuple):
    """A field with one number per point.

    Attributes
    ----------
    name : str
        Variable and labels, such as ``depth_quantile_0.5_2``.
    text : str
        Description, such as ``depth, quantile 0.5, layer 2``.
    unit : str
    values : DataArray
        Along the dimensions of the points.
    """

    name: str
    text: str
    unit: str
    values: xr.DataArray


def read_coordinates(dataset: xr.Dataset) -> list[str]:
    """Return the names of the coordinates."""
    return str(dataset.attrs["invgp_coordinates"]).split()


def read_quantities(dataset: xr.Dataset) -> list[str]:
    """Return the names of the latents that depend on the position, and of derived quantities."""
    return [*field_names(dataset), *str(dataset.attrs.get("invgp_derived", "")).split()]


def point_dims(dataset: xr.Dataset) -> tuple[str, ...]:
    """Return the dimensions of the points: ``site``, or the axes of a grid, the slowest first."""
    names = read_coordinates(dataset)
    if all(dataset[name].dims == (name,) for name in names):
        return tuple(str(d) for d in dataset[read_quantities(dataset)[0]].dims if d in names)
    return ("site",)


def is_grid(dataset: xr.Dataset) -> bool:
    """Return whether the points form a grid."""
    return point_dims(dataset) != ("site",)


def select_variables(dataset: xr.Dataset, variables: Sequence[str], suffixes: Sequence[str] | None = None) -> list[str]:
    """Return the variables to write.

    Parameters
    ----------
    dataset : Dataset
    variables : sequence of str
        Variables that the user selected; empty for the default.
    suffixes : sequence of str, or None
        Default: the variables of all quantities with these suffixes; None for all fields except draws.

    Returns
    -------
    list of str

    Raises
    ------
    ArgumentError
        A variable is not a field of the dataset.
    """
    if not read_quantities(dataset):
        raise ArgumentError(
            "format: must be csv, arviz or pest for a posterior that has only scalars: they are at no place"
        )
    dims = set(point_dims(dataset))
    fields = [
        str(name)
        for name, array in dataset.data_vars.items()
        if dims <= {str(d) for d in array.dims}
        and not {"process", "other_site", "mesh_corner"} & {str(d) for d in array.dims}
        and name != TYPES
    ]
    for name in variables:
        if name not in fields:
            raise ArgumentError(f"variables: must be a field of the file, was {name!r}{suggest(name, fields)}")
    if variables:
        return list(variables)
    if suffixes is not None:
        return [name + suffix for name in read_quantities(dataset) for suffix in suffixes]
    return [name for name in fields if "realization" not in dataset[name].dims]


def split_fields(dataset: xr.Dataset, names: Sequence[str], kept: tuple[str, ...] = ()) -> Iterator[ExportedField]:
    """Split variables into fields with one number per point.

    Parameters
    ----------
    dataset : Dataset
    names : sequence of str
        The variables.
    kept : tuple of str
        Dimensions that are not split; they come first in the values.

    Yields
    ------
    ExportedField
        In the order of the variables and labels; the first label varies slowest.
    """
    dims = (*kept, *(point_dims(dataset) if read_quantities(dataset) else ()))
    for name in names:
        array = dataset[name].transpose(..., *(d for d in dims if d in dataset[name].dims))
        others = [str(d) for d in array.dims if d not in dims]
        labels = [label_texts(dataset, d) for d in others]
        for indices in itertools.product(*(range(len(texts)) for texts in labels)):
            texts = [labels[i][k] for i, k in enumerate(indices)]
            words = [f"{dimension} {text}" for dimension, text in zip(others, texts, strict=True)]
            yield ExportedField(
                "_".join([name, *texts]),
                ", ".join([name, *words]),
                str(array.attrs.get("units", "1")),
                array.isel(dict(zip(others, indices, strict=True))),
            )


def label_texts(dataset: xr.Dataset, dimension: str) -> list[str]:
    """Return the labels along a dimension as text."""
    found = dataset.get(f"{dimension}_label", dataset[dimension]).values.tolist()
    return [label if isinstance(label, str) else f"{label:.6g}" for label in found]


def point_positions(dataset: xr.Dataset) -> dict[str, Floats]:
    """Return the coordinates of every point; the last dimension of a grid varies fastest."""
    dims = point_dims(dataset)
    if dims == ("site",):
        return {name: np.asarray(dataset[name].values, dtype=np.float64) for name in read_coordinates(dataset)}
    mesh = np.meshgrid(*(dataset[d].values for d in dims), indexing="ij")
    by_name = dict(zip(dims, mesh, strict=True))
    return {name: by_name[name].ravel() for name in read_coordinates(dataset)}


def select_sampled(dataset: xr.Dataset, variables: Sequence[str]) -> list[str]:
    """Return the latents and derived quantities to write that have draws.

    Raises
    ------
    ConfigError
        The dataset has no draws, or none of a selected quantity.
    """
    known = [*read_quantities(dataset), *scalar_names(dataset)]
    found = [name for name in variables or known if f"{name}_sample" in dataset]
    missing = [name for name in variables if name not in found]
    if missing or not found or not dataset.sizes.get("realization"):
        what = f"of {missing[0]!r} " if missing else ""
        raise ConfigError(f"the file contains no draws {what}to export; write a map with `invgp predict --draws`")
    return found


def import_extra(module: str, extra: str) -> ModuleType:
    """Import a library that belongs to an extra of invgp.

    Raises
    ------
    ArgumentError
        It is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".", maxsplit=1)[0]
        raise ArgumentError(f"format: needs {package}, which is not installed: pip install 'invgp[{extra}]'") from None
