"""Names, dimensions and attributes of the variables of a map, derived from those of the posterior."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from invgp.axes import axis_attribute
from invgp.files.meshes import cell_attributes
from invgp.maps.grids import MapGrid, read_axis_letters
from invgp.maps.map_quantities import DerivedQuantity, MapQuantity
from invgp.netcdf import BlockVariable
from invgp.posterior.contents import scalar_names
from invgp.posterior.coordinates import label_array
from invgp.problem import Floats

COPIED_ATTRIBUTES = ("long_name", "units", "standard_name", "positive", "comment", "ancillary_variables")
LATENT_SUFFIXES = ("", "_std", "_quantile", "_sample", "_prior", "_prior_std", "_information")


def quantity_variables(
    posterior: xr.Dataset,
    grid: MapGrid,
    quantity: MapQuantity,
    unit: str,
    dimension: str | None,
    *,
    levels: int,
    draws: int,
) -> dict[str, BlockVariable]:
    """Return the variables of a latent or a derived quantity.

    Parameters
    ----------
    posterior : Dataset
    grid : MapGrid
    quantity : MapQuantity
    unit : str
    dimension : str or None
        Dimension of the labels of the quantity.
    levels, draws : int
        Numbers of quantiles and of draws.

    Returns
    -------
    dict of str to BlockVariable
    """
    name = quantity.name
    georeferenced = {"grid_mapping": "crs"} if "crs" in posterior else {}
    georeferenced |= {} if grid.mesh is None else cell_attributes(grid.mesh)

    def variable(attributes: dict[str, Any], leading: tuple[str, ...] = ()) -> BlockVariable:
        labels = () if dimension is None else (dimension,)
        dims = (*leading, *grid.dims, *labels) if grid.axes is None else (*leading, *labels, *grid.dims)
        return BlockVariable(dims, {**attributes, **georeferenced}, (dims.index(grid.dims[0]), len(grid.dims)))

    about = (
        _derived_attributes(quantity, unit)
        if isinstance(quantity, DerivedQuantity)
        else copied_attributes(posterior, name)
    )
    leading = {"_quantile": ("quantile",), "_sample": ("realization",)}
    found = {
        name + suffix: variable(attributes, leading.get(suffix, ()))
        for suffix, attributes in about.items()
        if (suffix != "_sample" or draws) and (suffix != "_quantile" or levels)
    }
    if quantity.thresholds:
        what = about[""]["long_name"]
        attributes = {"long_name": f"probability that {what} is above the threshold", "units": "1"}
        found[f"{name}_exceedance"] = variable(attributes, (f"{name}_threshold",))
    return found


def map_coordinates(
    posterior: xr.Dataset,
    grid: MapGrid,
    quantities: Sequence[MapQuantity],
    units: dict[str, str],
    levels: Floats,
    draws: int,
) -> dict[str, xr.DataArray]:
    """Return the coordinates of the points, quantiles, draws and thresholds of a map.

    Parameters
    ----------
    posterior : Dataset
    grid : MapGrid
    quantities : sequence of MapQuantity
    units : dict of str to str
        Unit of each quantity.
    levels : array, shape (K,)
        Probabilities of the quantiles.
    draws : int

    Returns
    -------
    dict of str to DataArray
    """
    letters = read_axis_letters(posterior, grid.coordinates)
    found: dict[str, xr.DataArray] = {}
    for d, name in enumerate(grid.coordinates):
        about = dict(posterior[name].attrs)
        if grid.axes is not None:
            ends = np.array([np.min(grid.axes[d]), np.max(grid.axes[d])])  # GMT reads the extent of a grid from it
            about |= axis_attribute(letters[name], about) | {"actual_range": ends}
            found[name] = xr.DataArray(grid.axes[d], dims=(name,), attrs=about)
        elif grid.points is not None:
            found[name] = xr.DataArray(grid.points[:, d], dims=("site",), attrs=about)
    if grid.axes is None:
        number = np.arange(1, grid.size + 1)
        found["site"] = xr.DataArray(number, dims=("site",), attrs={"long_name": "point, in the order of the file"})
    if len(levels):
        found["quantile"] = xr.DataArray(levels, dims=("quantile",), attrs=dict(posterior["quantile"].attrs))
    if draws:
        number = np.arange(1, draws + 1)
        found["realization"] = xr.DataArray(number, dims=("realization",), attrs=dict(posterior["realization"].attrs))
    for quantity in quantities:
        if quantity.thresholds:
            name = f"{quantity.name}_threshold"
            attributes = {"long_name": f"threshold of {quantity.name}", "units": units[quantity.name]}
            found[name] = xr.DataArray(np.asarray(quantity.thresholds), dims=(name,), attrs=attributes)
    return found


def map_attributes(posterior: xr.Dataset, grid: MapGrid, names: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of a map: those of the posterior, with new history, names and type of points."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    latents, scalars = posterior.attrs["invgp_latents"].split(), scalar_names(posterior)
    return {
        **{key: value for key, value in posterior.attrs.items() if key not in ("invgp_observations", "invgp_points")},
        "history": f"{posterior.attrs['history']}\n{now} invgp {version('invgp')}: predicted",
        "invgp_latents": " ".join(name for name in names if name in latents),
        **({"invgp_scalars": " ".join(name for name in names if name in scalars)} if scalars else {}),
        "invgp_derived": " ".join(name for name in names if name not in latents),
        "invgp_map": "points" if grid.axes is None else "grid",
    }


def scalar_variable(
    quantity: MapQuantity, name: str, values: Floats, dimension: str | None, attributes: dict[str, Any]
) -> xr.DataArray:
    """Return a variable of a scalar, from its values (..., 1, L) at one point.

    Parameters
    ----------
    quantity : MapQuantity
    name : str
        Name of the variable, which is that of the scalar with a suffix.
    values : array, shape (..., 1, L)
    dimension : str or None
        Dimension of the labels.
    attributes : dict
    """
    suffix = name.removeprefix(quantity.name)
    leading = {"_quantile": ("quantile",), "_sample": ("realization",), "_exceedance": (f"{quantity.name}_threshold",)}
    if suffix == "_exceedance":
        attributes = {"long_name": f"probability that {quantity.name} is above the threshold", "units": "1"}
    return label_array(values, dimension, attributes, leading.get(suffix, ()), points=None)


def copied_attributes(posterior: xr.Dataset, name: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of the variables of a latent that a map copies, by their suffixes."""
    return {
        suffix: {key: value for key, value in posterior[name + suffix].attrs.items() if key in COPIED_ATTRIBUTES}
        for suffix in LATENT_SUFFIXES
    }


def _derived_attributes(quantity: DerivedQuantity, unit: str) -> dict[str, dict[str, Any]]:
    name, units = quantity.name, {"units": unit}
    how = "in closed form" if quantity.expression.linear else "mean and standard deviation from draws at each point"
    return {
        "": {
            "long_name": name.replace("_", " "),
            **units,
            "ancillary_variables": f"{name}_std",
            "comment": f"posterior mean of {quantity.expression.text}, {how}",
        },
        "_std": {"long_name": f"posterior standard deviation of {name}", **units},
        "_quantile": {"long_name": f"posterior quantile of {name}", **units},
        "_sample": {"long_name": f"posterior draw of {name}", **units, "comment": "joint over the map and latents"},
    }
