"""Invert the synthetic survey with each kind of data, without each, and with all: python contributions.py [--runs N].

It writes results/contributions.png and prints a table.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_truth import Marks, Normalize, Panel, draw, inside, truth_of  # noqa: E402
from command_line import at_least, run  # noqa: E402

import invgp  # noqa: E402

# Names of the sources in twin.toml; the first simulator is that of [survey].
SOURCES = {
    "gravity": "survey",
    "magnetics": "magnetics",
    "temperature": "temperature",
    "magnetotellurics": "magnetotellurics",
}


def combinations() -> dict[str, tuple[str, ...]]:
    """Return the kinds of data that are left out, by the name of the combination."""
    alone = {f"{name} only": tuple(kind for kind in SOURCES if kind != name) for name in SOURCES}
    return alone | {f"without {name}": (name,) for name in SOURCES} | {"all": ()}


def invert(left_out: tuple[str, ...], runs: int) -> xr.Dataset:
    """Invert the top of the granite without some kinds of data, with at most this many runs of each simulator."""
    problem = invgp.load(HERE / "twin.toml").without(*(SOURCES[name] for name in left_out))
    return invgp.invert(problem.with_inference(max_runs=runs * (len(SOURCES) - len(left_out))))


def main() -> None:
    """Invert, print the table, and draw the standard deviations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=at_least(20), default=150, help="largest number of runs of each simulator (default: 150)"
    )
    runs = parser.parse_args().runs
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    truth = truth_of(HERE / "data" / "truth.csv")
    found = {}
    print("data | runs | standard deviation (m) | error of the mean (m) | information | truth inside 95%")
    for name, left_out in combinations().items():
        ds = found[name] = invert(left_out, runs)
        spread, error = (np.sqrt(np.mean(part**2)) for part in (ds["granite_top_std"], ds["granite_top"] - truth))
        share, held = float(ds["granite_top_information"].mean()), inside(ds, "granite_top", truth)
        print(f"{name} | {ds.attrs['invgp_runs']} | {spread:.0f} | {error:.0f} | {share:.2f} | {held:.0%}", flush=True)
    largest = max(float(ds["granite_top_std"].max()) for ds in found.values())
    shown = [f"{name} only" for name in SOURCES] + ["without gravity", "all"]
    panels = [
        Panel(name, found[name]["granite_top_std"].values, "cividis", "standard deviation (m)", Normalize(0.0, largest))
        for name in shown
    ]
    places = pd.read_csv(HERE / "data" / "magnetotellurics.csv")
    marks = {"magnetotelluric stations": Marks(places["easting_m"].values, places["northing_m"].values, "^")}
    draw(found["all"], panels, marks, ("easting", "northing"), rows=3).savefig(results / "contributions.png", dpi=200)


if __name__ == "__main__":
    run(main)
