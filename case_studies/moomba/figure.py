"""Draw the top of the granite next to its truth: python figure.py [FIGURE], with the posterior in results/twin.nc."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_truth import Marks, as_it_is, draw, inside, panels_of, truth_of  # noqa: E402
from command_line import run  # noqa: E402

from invgp.netcdf import open_dataset  # noqa: E402


def main() -> None:
    """Draw the figure, and print the agreement with the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", type=Path, nargs="?", default=HERE / "results" / "twin_truth.png")
    figure = parser.parse_args().figure
    marks = {}
    for name, marker in (("gravity", "."), ("temperature", "+"), ("magnetotellurics", "^")):
        rows = pd.read_csv(HERE / "data" / f"{name}.csv")
        marks[name] = Marks(rows["easting_m"].to_numpy(), rows["northing_m"].to_numpy(), marker)
    truth = truth_of(HERE / "data" / "truth.csv")
    with open_dataset(HERE / "results" / "twin.nc") as ds:
        panels = panels_of(ds, "granite_top", truth, "m", as_it_is, "depth of the granite")
        draw(ds, panels, marks, ("easting", "northing"), rows=2).savefig(figure, dpi=200)
        error, spread = (np.sqrt(np.mean(part**2)) for part in (ds["granite_top"] - truth, ds["granite_top_std"]))
        held = inside(ds, "granite_top", truth)
        print(f"twin: {ds.attrs['invgp_runs']} runs; {held:.0%} of the truth within the 95% intervals")
        print(f"error {error:.0f} m, standard deviation {spread:.0f} m")


if __name__ == "__main__":
    run(main)
