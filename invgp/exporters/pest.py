"""PEST++ ensemble: a CSV file with one row per realisation and one column per parameter, as pyEMU reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from invgp.exporters.exported_fields import read_coordinates, select_sampled, split_fields
from invgp.posterior.contents import scalar_names
from invgp.problem import Floats

REALISATION = "real_name"
PARAMETERS = "invgp_pest_parameters"


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file.

    If the simulator of a field model is a PEST case, the columns are all parameters of the case, in its order and with
    its values: pyEMU reads it as an ensemble of the case. Otherwise, or with `variables`, `depth_2_17` is the depth of
    layer 2 at point 17, in the order of the CSV export, from 1.

    A scalar has the name of its latent, with its label if there is one.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.
    path : Path
        File to write.
    variables : sequence of str
        Latents and derived quantities to write; by default all.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ConfigError
        The dataset has no draws.
    """
    names = select_sampled(dataset, variables)
    is_case = PARAMETERS in dataset.attrs and "invgp_map" not in dataset.attrs and not variables
    columns = _case_columns(dataset) if is_case else _point_columns(dataset, names)
    index = pd.Index([str(number) for number in dataset["realization"].values], name=REALISATION)
    pd.DataFrame(columns, index=index).to_csv(path)
    return [path]


def _point_columns(dataset: xr.Dataset, names: Sequence[str]) -> dict[str, Floats]:
    """Return the draws (R,) of each quantity at each point."""
    columns: dict[str, Floats] = {}
    for name in names:
        for field in split_fields(dataset, [f"{name}_sample"], kept=("realization",)):
            values = field.values.values.reshape(dataset.sizes["realization"], -1)
            prefix = re.sub(r"\W", "_", name + field.name.removeprefix(f"{name}_sample")).lower()
            if name in scalar_names(dataset):
                columns[prefix] = values[:, 0]
            else:
                columns |= {f"{prefix}_{point}": column for point, column in enumerate(values.T, start=1)}
    return columns


def _case_columns(dataset: xr.Dataset) -> dict[str, Floats]:
    """Return the draws (R,) of each parameter of the PEST case that was the simulator."""
    draws: dict[str, Floats] = {}
    columns: dict[str, Floats] = {}
    count = dataset.sizes["realization"]
    points = {"realization", "site", "node", *read_coordinates(dataset)}
    for name, latent, place, factor, offset in json.loads(str(dataset.attrs[PARAMETERS])):
        if latent is None:
            columns[name] = np.full(count, offset)
            continue
        if latent not in draws:
            sample = dataset[f"{latent}_sample"]
            labels = [dimension for dimension in sample.dims if dimension not in points]
            draws[latent] = sample.transpose("realization", *labels, ...).to_numpy().reshape(count, -1)
        columns[name] = factor * draws[latent][:, place].astype(np.float64) + offset
    return columns
