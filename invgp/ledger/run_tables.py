"""Recorded runs as dictionaries, CSV files and netCDF files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from invgp.adapters.protocol import Floats, Quantity
from invgp.files.atomic_files import atomic_file, library_errors
from invgp.files.netcdf_container import utf8_path
from invgp.ledger.rows import directory_exists, without_removed_directory
from invgp.ledger.store import RecordedModel, RecordedRun
from invgp.operating_system import delay_interrupts

DETAILS = ("run", "status", "attempts", "seconds", "worker", "finished", "label", "message", "directory")


def describe_run(run: RecordedRun) -> dict[str, Any]:
    """Return the details of a run, without its inputs and outputs; the keys are `DETAILS`."""
    try:
        finished = datetime.fromtimestamp(run.finished, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # a time out of range, in a ledger from another source
        finished = ""
    return {name: getattr(run, name) for name in DETAILS} | {
        "status": run.status.value,
        "finished": finished,
        "message": without_removed_directory(run.message),
        "directory": run.directory if directory_exists(run.directory) else "",
    }


def column_names(prefix: str, quantities: Iterable[Quantity]) -> list[str]:
    """Return the column of each number, such as ``input_elevation`` or ``input_depth[1]``.

    Parameters
    ----------
    prefix : str
        ``"input"`` or ``"output"``.
    quantities : iterable of Quantity

    Returns
    -------
    list of str
    """
    return [
        f"{prefix}_{quantity.name}" + ("" if label is None else f"[{label}]")
        for quantity in quantities
        for label in (quantity.labels or (None,))
    ]


def write_runs(model: RecordedModel, runs: Iterable[RecordedRun], path: Path) -> int:
    """Write the runs of a model to a file.

    Parameters
    ----------
    model : RecordedModel
    runs : iterable of RecordedRun
    path : Path
        A netCDF file if the name ends in ``.nc``, otherwise a CSV file.

    Returns
    -------
    int
        Number of runs.

    Raises
    ------
    WriteError
        The file cannot be written.
    """
    rows = list(runs)
    with atomic_file("the table of runs", path) as part:
        if path.suffix == ".nc":
            with utf8_path(part) as name, library_errors(), delay_interrupts():
                to_dataset(model, rows).to_netcdf(name, engine="netcdf4", format="NETCDF4")
        else:
            _write_csv(model, rows, part)
    return len(rows)


def to_dataset(model: RecordedModel, runs: Sequence[RecordedRun]) -> xr.Dataset:
    """Return the runs of a model along the dimension ``run``; a quantity with labels has a second dimension.

    Parameters
    ----------
    model : RecordedModel
    runs : sequence of RecordedRun

    Returns
    -------
    Dataset
    """
    details = [describe_run(run) for run in runs]
    variables = {name: ("run", np.asarray([row[name] for row in details])) for name in DETAILS if name != "run"}
    dataset = xr.Dataset(variables, coords={"run": ("run", np.asarray([run.run for run in runs], dtype=np.int64))})
    dataset["seconds"].attrs["units"] = "s"
    for prefix, quantities, values in (
        ("input", model.inputs, [run.inputs for run in runs]),
        ("output", model.outputs, [run.outputs for run in runs]),
    ):
        _add_quantities(dataset, prefix, quantities, np.asarray(values))
    return dataset.assign_attrs(title=f"Runs of {model.name}", simulator=model.name, simulator_digest=model.digest)


def _add_quantities(dataset: xr.Dataset, prefix: str, quantities: tuple[Quantity, ...], values: Floats) -> None:
    ends = np.cumsum([quantity.size for quantity in quantities])[:-1]
    for quantity, numbers in zip(quantities, np.split(values, ends, axis=1), strict=True):
        name, unit = f"{prefix}_{quantity.name}", {"units": quantity.unit}
        if quantity.labels is None:
            dataset[name] = ("run", numbers[:, 0], unit)
        else:
            dimension = f"{name}_label"
            dataset.coords[dimension] = (dimension, np.asarray(quantity.labels))
            dataset[name] = (("run", dimension), numbers, unit)


def _write_csv(model: RecordedModel, runs: Sequence[RecordedRun], path: Path) -> None:
    inputs, outputs = column_names("input", model.inputs), column_names("output", model.outputs)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*DETAILS, *inputs, *outputs])
        for run in runs:
            # Python writes a float so that it reads back exactly. A missing output is an empty cell.
            numbers = [*run.inputs.tolist(), *("" if np.isnan(value) else value for value in run.outputs.tolist())]
            writer.writerow([*describe_run(run).values(), *numbers])
