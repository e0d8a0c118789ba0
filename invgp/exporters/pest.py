"""The PEST++ ensemble: a CSV file with a row a realisation and a column a parameter, as pyEMU reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from invgp.exporters.layers import draws, layers
from invgp.problem import Floats

REALISATION = "real_name"


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write one file; `depth_2_17` is the depth of layer 2 at point 17, counted as in the CSV export from 1."""
    columns: dict[str, Floats] = {}
    for name in draws(dataset, variables):
        for layer in layers(dataset, [f"{name}_sample"], whole=("realization",)):
            values = layer.values.values.reshape(dataset.sizes["realization"], -1)
            prefix = re.sub(r"\W", "_", name + layer.name.removeprefix(f"{name}_sample")).lower()
            columns |= {f"{prefix}_{point}": column for point, column in enumerate(values.T, start=1)}
    index = pd.Index([str(number) for number in dataset["realization"].values], name=REALISATION)
    pd.DataFrame(columns, index=index).to_csv(path)
    return [path]
