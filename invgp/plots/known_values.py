"""Known values of the latents, of boreholes or of a synthetic truth, beside a posterior."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from invgp.errors import PlotError
from invgp.maps.predict import predict
from invgp.plots.axis_labels import unit_label
from invgp.plots.plot_data import Floats, read_curves, read_interval, read_names, read_values


class KnownValues(NamedTuple):
    """Known values of one latent and label.

    Attributes
    ----------
    latent, label : str
        Name of the latent, and text of its label; empty without labels.
    places : array, shape (K, D)
        Coordinates, in the order and units of the posterior.
    values : array, shape (K,)
        Values in the unit of the latent.
    """

    latent: str
    label: str
    places: Floats
    values: Floats


class Misfit(NamedTuple):
    """Comparison of a posterior with known values of one latent and label.

    Attributes
    ----------
    latent, label, unit : str
    size : int
        Number of known values.
    mean_error, rms_error : float
        Mean and root mean square of posterior mean minus known value.
    standardised : float
        Root mean square of the error over the posterior standard deviation; about 1 if the posterior is calibrated.
    inside : float
        Share of the known values inside the central 95% interval.
    """

    latent: str
    label: str
    unit: str
    size: int
    mean_error: float
    rms_error: float
    standardised: float
    inside: float


def read_known_values(path: str | Path, ds: xr.Dataset) -> tuple[KnownValues, ...]:
    """Read a CSV table of known values.

    Parameters
    ----------
    path : str or Path
        One row per place, with a column for each coordinate of the posterior and columns named by latents, such as
        ``depth``, or ``depth_2`` for the label 2. An empty cell is unknown; other columns are ignored.
    ds : Dataset
        A posterior.

    Returns
    -------
    tuple of KnownValues

    Raises
    ------
    PlotError
        The table cannot be read, lacks a coordinate or has no latent.
    """
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError, pd.errors.ParserError) as error:
        raise PlotError(f"values: the table {str(path)!r} cannot be read: {error}") from error
    coordinates = read_names(ds, "coordinates")
    columns: dict[str, tuple[str, str]] = {}
    for name in read_names(ds, "fields"):
        for curve in read_curves(ds, name):
            last = curve.label.split()[-1] if curve.label else ""
            columns[f"{name}_{last}" if last else name] = name, curve.label
    missing = [name for name in coordinates if name not in table]
    if missing:
        raise PlotError(f"values: must have a column {missing[0]!r}, had {', '.join(map(str, table.columns))}")
    found = [name for name in columns if name in table]
    if not found:
        raise PlotError(f"values: must have at least one of the columns {', '.join(columns)}")
    try:
        numbers = table[[*coordinates, *found]].astype(np.float64)
    except ValueError as error:
        raise PlotError(f"values: must be numbers: {error}") from error
    known = []
    for column in found:
        part = numbers.dropna(subset=[*coordinates, column])
        known.append(KnownValues(*columns[column], part[coordinates].to_numpy(), part[column].to_numpy()))
    return tuple(known)


def compare_with_values(ds: xr.Dataset, known: Sequence[KnownValues]) -> list[Misfit]:
    """Compare a posterior with known values, at their places.

    Parameters
    ----------
    ds : Dataset
        A posterior.
    known : sequence of KnownValues

    Returns
    -------
    list of Misfit
        One per latent and label that has known values.
    """
    coordinates = read_names(ds, "coordinates")
    rows = []
    for one in known:
        if not one.values.size:
            continue
        with TemporaryDirectory() as folder:
            file = Path(folder) / "places.csv"
            np.savetxt(file, one.places, "%.17g", ",", header=",".join(coordinates), comments="")
            at = predict(ds, file, latents=[one.latent], quantiles=[0.025, 0.5, 0.975])
        [curve] = [curve for curve in read_curves(at, one.latent) if curve.label == one.label]
        error = read_values(at, one.latent, curve) - one.values
        low, high = read_interval(at, one.latent, curve)
        rows.append(
            Misfit(
                one.latent,
                one.label,
                unit_label(ds[one.latent]),
                error.size,
                float(error.mean()),
                float(np.sqrt(np.mean(error**2))),
                float(np.sqrt(np.mean((error / read_values(at, f"{one.latent}_std", curve)) ** 2))),
                float(np.mean((low <= one.values) & (one.values <= high))),
            )
        )
    return rows
