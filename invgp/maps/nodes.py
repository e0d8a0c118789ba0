"""The posterior of a field model as a map: its latents are at the nodes of a grid, its data at sites."""

from __future__ import annotations

import numpy as np
import xarray as xr

from invgp.axes import axis_attribute
from invgp.files.meshes import MESH
from invgp.maps.grids import read_axis_letters

SURVEY = "survey_"  # prefix of the coordinates of the sites in a dataset whose points are not the sites
NODE_ATTRIBUTES = ("invgp_site_coordinates", "invgp_grid_shape", "invgp_grid_coordinates")


def as_points(dataset: xr.Dataset) -> xr.Dataset:
    """Return the latents of a field model with the dimension ``site`` for its nodes, without the data.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.

    Returns
    -------
    Dataset
        The dataset itself if it is not of a field model.
    """
    if "node" not in dataset.dims:
        return dataset
    node_variables = [name for name, array in dataset.data_vars.items() if "site" not in array.dims]
    points = dataset[node_variables].drop_dims(["site", "iteration"], errors="ignore").rename(node="site")
    points = points.assign(survey_positions(dataset))
    if MESH in points:
        about = points[MESH].attrs
        points[MESH].attrs = {key: "site" if value == "node" else value for key, value in about.items()}
    attributes = {key: value for key, value in dataset.attrs.items() if key not in NODE_ATTRIBUTES}
    return points.assign_attrs(attributes, invgp_observations="", invgp_points="node")


def survey_positions(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the positions of the sites of a posterior as variables with a prefix, such as ``survey_easting``."""
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
    """Return the latents of a field model on the axes of its grid, or at points if the grid is irregular.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.

    Returns
    -------
    Dataset
        The dataset itself if it is not of a field model.
    """
    points = as_points(dataset)
    shape = [int(n) for n in np.atleast_1d(dataset.attrs.get("invgp_grid_shape", []))]
    if points is dataset or not shape:
        return points
    # The last coordinate of the grid varies fastest.
    names = str(dataset.attrs["invgp_grid_coordinates"]).split()
    letters = read_axis_letters(dataset, names)
    axes = {}
    for axis, name in enumerate(names):
        values = np.moveaxis(points[name].values.reshape(shape), axis, 0).reshape(shape[axis], -1)[:, 0]
        about = points[name].attrs
        axes[name] = xr.DataArray(values, dims=(name,), attrs=about | axis_attribute(letters[name], about))
    dims = sorted(names, key=lambda name: letters[name], reverse=True)  # the order of CF
    variables = {
        name: _unfold_sites(array, dict(zip(names, shape, strict=True)), dims)
        for name, array in points.drop_vars([*names, "site"], errors="ignore").variables.items()
    }
    found = xr.Dataset(variables, attrs=points.attrs).assign_coords(axes)
    return found.set_coords([name for name in points.coords if name in variables])


def _unfold_sites(array: xr.Variable, sizes: dict[str, int], wanted: list[str]) -> xr.Variable:
    """Replace the dimension of the sites by the axes of a grid with these sizes, in a given order."""
    if "site" not in array.dims:
        return array
    at = array.dims.index("site")
    before, after = array.dims[:at], array.dims[at + 1 :]
    values = array.values.reshape(*array.shape[:at], *sizes.values(), *array.shape[at + 1 :])
    return xr.Variable((*before, *sizes, *after), values, array.attrs).transpose(*before, *wanted, *after)
