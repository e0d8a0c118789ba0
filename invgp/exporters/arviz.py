"""ArviZ: an InferenceData tree as netCDF, with the groups `posterior`, `sample_stats` and `observed_data`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.exporters.exported_fields import select_sampled
from invgp.files.atomic_files import library_errors
from invgp.operating_system import delay_interrupts
from invgp.posterior.contents import scalar_names

LIBRARY = "invgp"
CHAIN = "chain"  # number of the chain of each draw, in posteriors with draws from Markov chains
DROPPED_ATTRIBUTES = ("grid_mapping", "ancillary_variables")  # they name variables of other groups


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file.

    Draws from Markov chains keep their chains: the variable ``chain`` along ``realization`` numbers them. Independent
    draws are one chain. Other variables along ``realization``, such as ``mode``, are in the group ``sample_stats``. If
    the chains have different lengths, only the draws up to the shortest one are exported, and the attribute
    ``dropped_draws`` states how many are missing.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map with draws.
    path : Path
        File to write.
    variables : sequence of str
        Latents and derived quantities to write; by default all.

    Returns
    -------
    list of Path
        The file.

    Raises
    ------
    ConfigError
        The dataset has no draws.
    """
    names = select_sampled(dataset, variables)
    draws = _rename(dataset, {f"{name}_sample": name for name in names})
    chain = dataset[CHAIN].values if _is_per_draw(dataset, CHAIN) else np.zeros(dataset.sizes["realization"], dtype=int)
    groups = {"posterior": _split_chains(draws, chain)}
    others = {CHAIN, *(f"{name}_sample" for name in scalar_names(dataset))}
    statistics = [str(name) for name in dataset.variables if _is_per_draw(dataset, name) and name not in others]
    if statistics:
        groups["sample_stats"] = _split_chains(dataset.reset_coords(statistics, drop=False)[statistics], chain)
    observed = str(dataset.attrs.get("invgp_observations", "")).split()
    if observed:
        groups["observed_data"] = _rename(dataset, {f"{name}_observed": name for name in observed})
    attributes: dict[str, Any] = {"inference_library": LIBRARY, "source": str(dataset.attrs.get("source", ""))}
    dropped = len(chain) - groups["posterior"].sizes["chain"] * groups["posterior"].sizes["draw"]
    if dropped:
        attributes["dropped_draws"] = dropped
    tree = xr.DataTree.from_dict({name: _isolate(group).assign_attrs(attributes) for name, group in groups.items()})
    tree = tree.load()
    with library_errors(), delay_interrupts():
        tree.to_netcdf(path, engine="netcdf4")
    return [path]


def _rename(dataset: xr.Dataset, names: dict[str, str]) -> xr.Dataset:
    """Return some variables with other names. A coordinate that has such a name is left out."""
    return dataset[list(names)].drop_vars(names.values(), errors="ignore").rename(names)


def _is_per_draw(dataset: xr.Dataset, name: object) -> bool:
    """Return whether a variable has one number per draw; not the coordinate of the draws itself."""
    return name in dataset.variables and name != "realization" and dataset[name].dims == ("realization",)


def _split_chains(draws: xr.Dataset, chain: NDArray[Any]) -> xr.Dataset:
    """Return draws with the dimensions chain and draw instead of realization, in the order of the draws.

    Parameters
    ----------
    draws : Dataset
        Variables along ``realization``.
    chain : array, shape (R,)
        Number of the chain of each draw.

    Returns
    -------
    Dataset
        With as many draws per chain as the shortest chain has.
    """
    numbers, lengths = np.unique(chain, return_counts=True)
    unlabelled = draws.drop_vars([name for name in draws.coords if "realization" in draws[name].dims])
    parts = [
        unlabelled.isel(realization=np.flatnonzero(chain == number)[: lengths.min()]).rename(realization="draw")
        for number in numbers
    ]
    joined = xr.concat(parts, xr.DataArray(numbers, dims="chain", name="chain"), data_vars="all", coords="minimal")
    return joined.transpose("chain", "draw", ...).assign_coords(draw=np.arange(lengths.min()))


def _isolate(group: xr.Dataset) -> xr.Dataset:
    """Return a group without attributes that refer to the rest of the file."""
    bare = group.drop_attrs(deep=False).copy()
    for array in bare.data_vars.values():
        array.attrs = {key: text for key, text in array.attrs.items() if key not in DROPPED_ATTRIBUTES}
    return bare
