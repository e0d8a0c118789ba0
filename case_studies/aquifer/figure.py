"""Draw the conductivities next to the truth: python figure.py [FIGURE], with the posterior in results/aquifer.nc."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_truth import Marks, draw, inside, panels_of, truth_of  # noqa: E402
from command_line import run  # noqa: E402

from invgp.netcdf import open_dataset  # noqa: E402


def main() -> None:
    """Draw the figure, and print how well the posterior agrees with the truth."""
    figure = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "aquifer_truth.png"
    truth = truth_of(HERE / "data" / "truth.csv")
    wells = np.loadtxt(HERE / "data" / "wells.csv", delimiter=",", skiprows=1)
    with open_dataset(HERE / "results" / "aquifer.nc") as ds:
        panels = panels_of(ds, "k", truth, "log$_{10}$ of conductivity in m s$^{-1}$", np.log10)
        marks = {"wells": Marks(wells[:, 1], wells[:, 0], "o")}
        draw(ds, panels, marks, ("easting", "northing"), rows=2).savefig(figure, dpi=200)
        held, chi_square = inside(ds, "k", truth), float(ds["head_chi_square"])
        print(f"{ds.attrs['invgp_runs']} runs; {held:.0%} of the truth within the 95% intervals")
        print(f"mean squared normalised residual {chi_square:.2f}; {ds.attrs['invgp_status']}")


if __name__ == "__main__":
    run(main)
