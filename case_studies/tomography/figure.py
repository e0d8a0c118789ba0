"""Draw the section next to its truth: python figure.py NAME [FIGURE], with the posterior in results/NAME.nc."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import model
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_truth import Marks, as_it_is, draw, inside, panels_of, truth_of  # noqa: E402
from command_line import run  # noqa: E402

from invgp.netcdf import open_dataset  # noqa: E402


def main() -> None:
    """Draw the figure, and print how well the posterior agrees with the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["tomography", "straight", "small"])
    parser.add_argument("figure", type=Path, nargs="?", help="figure to write (default: results/NAME_truth.png)")
    chosen = parser.parse_args()
    name = chosen.name
    figure = chosen.figure or HERE / "results" / f"{name}_truth.png"
    truth = truth_of(HERE / "data" / ("small_truth.csv" if name == "small" else "truth.csv"))
    with open_dataset(HERE / "results" / f"{name}.nc") as ds:
        shots, picks = (np.unique(ds[f"{end}_depth"]) for end in ("source", "receiver"))
        marks = {
            "shots": Marks(np.zeros(shots.size), shots, "o"),
            "receivers": Marks(np.full(picks.size, model.WIDTH), picks, "<"),
        }
        panels = panels_of(ds, "velocity", truth, "m s$^{-1}$", as_it_is)
        draw(ds, panels, marks, ("distance", "depth"), rows=1, downwards=True).savefig(figure, dpi=200)
        error, spread = (np.sqrt(np.mean(part**2)) for part in (ds["velocity"] - truth, ds["velocity_std"]))
        held, chi_square = inside(ds, "velocity", truth), float(ds["time_chi_square"])
        print(f"{name}: {ds.attrs['invgp_runs']} runs; {held:.0%} of the truth within the 95% intervals")
        print(f"error {error:.0f} m/s, standard deviation {spread:.0f} m/s")
        print(f"mean squared normalised residual {chi_square:.2f}")


if __name__ == "__main__":
    run(main)
