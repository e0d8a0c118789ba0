"""The posterior of a field model as a map: its latents live on the nodes of a grid, its data at sites."""

from __future__ import annotations

import numpy as np
import xarray as xr

from invgp.axes import axis_attribute
from invgp.maps.grids import letters_of

SURVEY = "survey_"  # before the name of a coordinate of the sites, where others are the points of a dataset
OF_NODES = ("invgp_site_coordinates", "invgp_grid_shape", "invgp_grid_coordinates")


def as_points(dataset: xr.Dataset) -> xr.Dataset:
    """The latents at the nodes, as if these were sites, without the data; any other dataset as it is."""
    if "node" not in dataset.dims:
        return dataset
    here = [name for name, array in dataset.data_vars.items() if "site" not in array.dims]
    alone = dataset[here].drop_dims(["site", "iteration"], errors="ignore").rename(node="site")
    alone = alone.assign(survey_positions(dataset))
    left = {key: value for key, value in dataset.attrs.items() if key not in OF_NODES}
    return alone.assign_attrs(left, invgp_observations="", invgp_points="node")


def survey_positions(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """Where the sites of a posterior are, by names that leave those of its coordinates free: ``survey_easting``."""
    kept = {str(name): array for name, array in dataset.data_vars.items() if array.dims == ("survey_site",)}
    if kept:
        return kept
    names = str(dataset.attrs.get("invgp_site_coordinates", dataset.attrs["invgp_coordinates"])).split()
    found = {}
    for name in names:
        about = {**dataset[name].attrs, "long_name": f"{dataset[name].attrs.get('long_name', name)} of the sites"}
        found[SURVEY + name.removeprefix("site_")] = xr.DataArray(
            dataset[name].values, dims=("survey_site",), attrs={k: about[k] for k in ("long_name", "units")}
        )
    return found


def as_map(dataset: xr.Dataset) -> xr.Dataset:
    """The latents on the axes of a regular grid, or at points where the nodes are none; other datasets as they are."""
    points = as_points(dataset)
    shape = [int(n) for n in np.atleast_1d(dataset.attrs.get("invgp_grid_shape", []))]
    if points is dataset or not shape:
        return points
    # The grid's last coordinate runs fastest.
    names = str(dataset.attrs["invgp_grid_coordinates"]).split()
    letters = letters_of(dataset, names)
    axes = {}
    for place, name in enumerate(names):
        values = np.moveaxis(points[name].values.reshape(shape), place, 0).reshape(shape[place], -1)[:, 0]
        about = points[name].attrs
        axes[name] = xr.DataArray(values, dims=(name,), attrs=about | axis_attribute(letters[name], about))
    dims = sorted(names, key=lambda name: letters[name], reverse=True)  # as CF has maps, whatever the order of the grid
    variables = {
        name: _unfolded(array, dict(zip(names, shape, strict=True)), dims)
        for name, array in points.drop_vars([*names, "site"]).variables.items()
    }
    found = xr.Dataset(variables, attrs=points.attrs).assign_coords(axes)
    return found.set_coords([name for name in points.coords if name in variables])


def _unfolded(array: xr.Variable, sizes: dict[str, int], wanted: list[str]) -> xr.Variable:
    """The variable with the axes of the grid, which has these sizes, in the place of its sites, in the order wanted."""
    if "site" not in array.dims:
        return array
    at = array.dims.index("site")
    before, after = array.dims[:at], array.dims[at + 1 :]
    values = array.values.reshape(*array.shape[:at], *sizes.values(), *array.shape[at + 1 :])
    return xr.Variable((*before, *sizes, *after), values, array.attrs).transpose(*before, *wanted, *after)
