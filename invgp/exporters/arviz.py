"""ArviZ: an InferenceData tree as netCDF, with the draws in `posterior` and what was measured in `observed_data`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from invgp.atomic_files import library_errors
from invgp.exporters.layers import draws

LIBRARY = "invgp"
ELSEWHERE = ("grid_mapping", "ancillary_variables")


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file. The draws are independent: one chain."""
    names = draws(dataset, variables)
    samples = dataset[[f"{name}_sample" for name in names]].rename({f"{name}_sample": name for name in names})
    posterior = samples.rename(realization="draw").expand_dims(chain=[0]).transpose("chain", "draw", ...)
    groups = {"posterior": posterior.assign_coords(draw=np.arange(posterior.sizes["draw"]))}
    observed = str(dataset.attrs.get("invgp_observations", "")).split()
    if observed:
        renamed = {f"{name}_observed": name for name in observed}
        groups["observed_data"] = dataset[list(renamed)].rename(renamed)
    attributes = {"inference_library": LIBRARY, "source": str(dataset.attrs.get("source", ""))}
    tree = xr.DataTree.from_dict({name: _by_itself(group).assign_attrs(attributes) for name, group in groups.items()})
    tree = tree.load()
    with library_errors():
        tree.to_netcdf(path, engine="netcdf4")
    return [path]


def _by_itself(group: xr.Dataset) -> xr.Dataset:
    """Without attributes that speak of the rest of the file."""
    bare = group.drop_attrs(deep=False).copy()
    for array in bare.data_vars.values():
        array.attrs = {key: text for key, text in array.attrs.items() if key not in ELSEWHERE}
    return bare
