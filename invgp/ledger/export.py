"""Runs of a ledger for other programs: plain dictionaries, CSV, netCDF."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from invgp.adapters.protocol import Floats, Quantity
from invgp.atomic_files import atomic_file, library_errors
from invgp.ledger.kept_directories import is_there, without_removed_directory
from invgp.ledger.store import Model, Run
from invgp.library_paths import utf8_path

ABOUT = ("run", "status", "attempts", "seconds", "worker", "finished", "label", "message", "directory")


def described(run: Run) -> dict[str, Any]:
    """All about a run but its numbers."""
    try:
        finished = datetime.fromtimestamp(run.finished, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # no time that a calendar has: somebody else wrote the ledger
        finished = ""
    return {name: getattr(run, name) for name in ABOUT} | {
        "status": run.status.value,
        "finished": finished,
        "message": without_removed_directory(run.message),
        "directory": run.directory if is_there(run.directory) else "",
    }


def columns(prefix: str, quantities: Iterable[Quantity]) -> list[str]:
    """The name of each number: ``input_elevation``, ``input_depth[1]``."""
    return [
        f"{prefix}_{quantity.name}" + ("" if label is None else f"[{label}]")
        for quantity in quantities
        for label in (quantity.labels or (None,))
    ]


def write(model: Model, runs: Iterable[Run], path: Path) -> int:
    """Write the runs of a model as netCDF if the path ends in .nc, otherwise as CSV; say how many."""
    rows = list(runs)
    with atomic_file("the table of runs", path) as part:
        if path.suffix == ".nc":
            with utf8_path(part) as name, library_errors():
                to_dataset(model, rows).to_netcdf(name, engine="netcdf4", format="NETCDF4")
        else:
            _write_csv(model, rows, part)
    return len(rows)


def to_dataset(model: Model, runs: Sequence[Run]) -> xr.Dataset:
    """The runs of a model along `run`; an input or output with labels also lies along a dimension of its own."""
    about = [described(run) for run in runs]
    variables = {name: ("run", np.asarray([row[name] for row in about])) for name in ABOUT if name != "run"}
    dataset = xr.Dataset(variables, coords={"run": ("run", np.asarray([run.run for run in runs], dtype=np.int64))})
    dataset["seconds"].attrs["units"] = "s"
    for prefix, quantities, values in (
        ("input", model.inputs, [run.inputs for run in runs]),
        ("output", model.outputs, [run.outputs for run in runs]),
    ):
        _add(dataset, prefix, quantities, np.asarray(values))
    return dataset.assign_attrs(title=f"Runs of {model.name}", simulator=model.name, simulator_digest=model.digest)


def _add(dataset: xr.Dataset, prefix: str, quantities: tuple[Quantity, ...], values: Floats) -> None:
    ends = np.cumsum([quantity.size for quantity in quantities])[:-1]
    for quantity, numbers in zip(quantities, np.split(values, ends, axis=1), strict=True):
        name, unit = f"{prefix}_{quantity.name}", {"units": quantity.unit}
        if quantity.labels is None:
            dataset[name] = ("run", numbers[:, 0], unit)
        else:
            dimension = f"{name}_label"
            dataset.coords[dimension] = (dimension, np.asarray(quantity.labels))
            dataset[name] = (("run", dimension), numbers, unit)


def _write_csv(model: Model, runs: Sequence[Run], path: Path) -> None:
    inputs, outputs = columns("input", model.inputs), columns("output", model.outputs)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*ABOUT, *inputs, *outputs])
        for run in runs:
            # A number is written so that it reads back exactly; what a failed run has not given is an empty cell.
            given, gave = run.inputs.tolist(), run.outputs.tolist()
            writer.writerow([*described(run).values(), *given, *("" if np.isnan(v) else v for v in gave)])
