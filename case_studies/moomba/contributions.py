"""Invert the twin with each kind of data alone, without each, and with all: python contributions.py [--runs N].

It writes results/contributions.png and prints a table.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_truth import Marks, Normalize, Panel, draw, inside, truth_of  # noqa: E402
from command_line import at_least, run  # noqa: E402
from model import KINDS  # noqa: E402

import invgp  # noqa: E402


def sets_of_kinds() -> dict[str, tuple[str, ...]]:
    """Kinds of data by the name of their combination."""
    alone = {f"{name} only": (name,) for name in KINDS}
    without = {f"without {name}": tuple(kind for kind in KINDS if kind != name) for name in KINDS}
    return alone | without | {"all": KINDS}


def invert(kinds: tuple[str, ...], runs: int) -> xr.Dataset:
    """Posterior of the top of the granite given some kinds of data: the configuration without the others."""
    keys = tomllib.loads((HERE / "twin.toml").read_text(encoding="utf-8"))
    table = pd.read_csv(HERE / "data" / "twin.csv")
    chosen = table[table["kind"].isin([KINDS.index(name) for name in kinds])].reset_index(drop=True)
    observations = {
        name: value
        for name, value in keys["survey"]["observations"].items()
        if (name if name in KINDS else "magnetotellurics") in kinds
    }
    outputs = [
        output
        for output in keys["forward"]["outputs"]
        if (output if isinstance(output, str) else output["name"]) in observations
    ]
    dimensions = {"dimensions": keys["dimensions"]} if "magnetotellurics" in kinds else {}
    problem = invgp.define(
        chosen,
        coordinates=keys["survey"]["coordinates"],
        covariates=keys["survey"]["covariates"],
        observations=observations,
        latents=keys["latents"],
        grid=keys["grid"]["coordinates"],
        forward=keys["forward"] | {"outputs": outputs},
        noise=keys["noise"] | {"std": {name: keys["noise"]["std"][name] for name in observations}},
        inference=keys["inference"] | {"max_runs": runs},
        **dimensions,
    )
    return invgp.invert(problem)


def main() -> None:
    """Invert, print the table, and draw the standard deviations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=at_least(20), default=400, help="at most, for each inversion (default: 400)")
    runs = parser.parse_args().runs
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    truth = truth_of(HERE / "data" / "twin_truth.csv")
    found = {}
    print("data | runs | standard deviation (m) | error of the mean (m) | information | truth inside 95%")
    for name, kinds in sets_of_kinds().items():
        ds = found[name] = invert(kinds, runs)
        spread, error = (np.sqrt(np.mean(part**2)) for part in (ds["granite_top_std"], ds["granite_top"] - truth))
        share, held = float(ds["granite_top_information"].mean()), inside(ds, "granite_top", truth)
        print(f"{name} | {ds.attrs['invgp_runs']} | {spread:.0f} | {error:.0f} | {share:.2f} | {held:.0%}", flush=True)
    largest = max(float(ds["granite_top_std"].max()) for ds in found.values())
    shown = [f"{name} only" for name in KINDS] + ["without gravity", "all"]
    panels = [
        Panel(name, found[name]["granite_top_std"].values, "cividis", "standard deviation (m)", Normalize(0.0, largest))
        for name in shown
    ]
    table = pd.read_csv(HERE / "data" / "twin.csv")
    places = table[table["kind"] == KINDS.index("magnetotellurics")]
    marks = {"magnetotelluric stations": Marks(places["easting_m"].values, places["northing_m"].values, "^")}
    draw(found["all"], panels, marks, ("easting", "northing"), rows=3).savefig(results / "contributions.png", dpi=200)


if __name__ == "__main__":
    run(main)
