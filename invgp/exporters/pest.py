"""PEST++ ensemble: a CSV file with one row per realisation and one column per parameter, as pyEMU reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from invgp.exporters.exported_fields import select_sampled, split_fields
from invgp.posterior.latent_names import scalar_names
from invgp.problem import Floats

REALISATION = "real_name"


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file; `depth_2_17` is the depth of layer 2 at point 17, in the order of the CSV export, from 1.

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
    columns: dict[str, Floats] = {}
    for name in select_sampled(dataset, variables):
        for field in split_fields(dataset, [f"{name}_sample"], kept=("realization",)):
            values = field.values.values.reshape(dataset.sizes["realization"], -1)
            prefix = re.sub(r"\W", "_", name + field.name.removeprefix(f"{name}_sample")).lower()
            if name in scalar_names(dataset):
                columns[prefix] = values[:, 0]
            else:
                columns |= {f"{prefix}_{point}": column for point, column in enumerate(values.T, start=1)}
    index = pd.Index([str(number) for number in dataset["realization"].values], name=REALISATION)
    pd.DataFrame(columns, index=index).to_csv(path)
    return [path]
