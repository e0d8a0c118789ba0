"""Names, dimensions and attributes of a map's variables, after those of the posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from invgp.axes import axis_attribute
from invgp.maps.grids import Grid, Slices, letters_of
from invgp.maps.quantities import DerivedQuantity, Quantity
from invgp.problem import Floats

KEPT = ("long_name", "units", "standard_name", "positive", "comment", "ancillary_variables")
LATENT_SUFFIXES = ("", "_std", "_quantile", "_sample", "_prior", "_prior_std", "_information")


@dataclass(frozen=True)
class MapVariable:
    """A variable of a map.

    Attributes
    ----------
    spatial : where the dimensions of the grid begin among its own, and how many they are.
    """

    dims: tuple[str, ...]
    attributes: dict[str, Any]
    spatial: tuple[int, int]

    def place(self, block: Slices) -> Slices:
        """Where a block of the grid is among its values."""
        first, count = self.spatial
        everything = slice(None)
        return (everything,) * first + block + (everything,) * (len(self.dims) - first - count)


def described(
    posterior: xr.Dataset, grid: Grid, quantity: Quantity, unit: str, dimension: str | None, *, levels: int, draws: int
) -> dict[str, MapVariable]:
    """The variables of a latent or a derived quantity."""
    name = quantity.name
    georeferenced = {"grid_mapping": "crs"} if "crs" in posterior else {}

    def variable(attributes: dict[str, Any], leading: tuple[str, ...] = ()) -> MapVariable:
        labels = () if dimension is None else (dimension,)
        dims = (*leading, *grid.dims, *labels) if grid.axes is None else (*leading, *labels, *grid.dims)
        return MapVariable(dims, {**attributes, **georeferenced}, (dims.index(grid.dims[0]), len(grid.dims)))

    about = _derived_attributes(quantity, unit) if isinstance(quantity, DerivedQuantity) else _kept(posterior, name)
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


def coordinates_of(
    posterior: xr.Dataset,
    grid: Grid,
    quantities: Sequence[Quantity],
    units: dict[str, str],
    levels: Floats,
    draws: int,
) -> dict[str, xr.DataArray]:
    """Of the points, of quantiles, draws and thresholds."""
    letters = letters_of(posterior, grid.coordinates)
    found: dict[str, xr.DataArray] = {}
    for d, name in enumerate(grid.coordinates):
        about = dict(posterior[name].attrs)
        if grid.axes is not None:
            found[name] = xr.DataArray(grid.axes[d], dims=(name,), attrs=about | axis_attribute(letters[name], about))
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


def map_attributes(posterior: xr.Dataset, grid: Grid, names: Sequence[str]) -> dict[str, Any]:
    """The posterior's own, with what is new."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    latents = posterior.attrs["invgp_latents"].split()
    return {
        **{key: value for key, value in posterior.attrs.items() if key not in ("invgp_observations", "invgp_points")},
        "history": f"{posterior.attrs['history']}\n{now} invgp {version('invgp')}: predicted",
        "invgp_latents": " ".join(name for name in names if name in latents),
        "invgp_derived": " ".join(name for name in names if name not in latents),
        "invgp_map": "points" if grid.axes is None else "grid",
    }


def _kept(posterior: xr.Dataset, name: str) -> dict[str, dict[str, Any]]:
    return {
        suffix: {key: value for key, value in posterior[name + suffix].attrs.items() if key in KEPT}
        for suffix in LATENT_SUFFIXES
    }


def _derived_attributes(quantity: DerivedQuantity, unit: str) -> dict[str, dict[str, Any]]:
    name, units = quantity.name, {"units": unit}
    how = "in closed form" if quantity.derived.linear else "mean and spread from draws at each point"
    return {
        "": {
            "long_name": name.replace("_", " "),
            **units,
            "ancillary_variables": f"{name}_std",
            "comment": f"posterior mean of {quantity.derived.text}, {how}",
        },
        "_std": {"long_name": f"posterior standard deviation of {name}", **units},
        "_quantile": {"long_name": f"posterior quantile of {name}", **units},
        "_sample": {"long_name": f"posterior draw of {name}", **units, "comment": "joint over the map and latents"},
    }
