"""Draw the basement next to its true depth: python figure.py [FOLDER], with the posteriors in results/."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_truth import Marks, as_it_is, draw, inside, panels_of, truth_of  # noqa: E402
from command_line import run  # noqa: E402

from invgp.netcdf import read  # noqa: E402
from invgp.plots.style import COLOURS, PAGE, STYLE, letter_panels  # noqa: E402


def draw_basement(ax: Axes, ds: xr.Dataset, truth: np.ndarray) -> None:
    """Draw mean, 95% interval and truth."""
    km = ds["position"].values / 1000.0
    low, high = (ds["depth_quantile"].sel(quantile=level) for level in (0.025, 0.975))
    ax.fill_between(km, low, high, color=COLOURS[0], alpha=0.25, linewidth=0.0, label="95% interval")
    ax.plot(km, ds["depth"], color=COLOURS[0], label="mean")
    ax.plot(km, truth, "--", color="black", label="truth")
    ax.set_ylabel("Depth to basement (m)")


def profiles(known: xr.Dataset, unknown: xr.Dataset, truth: np.ndarray) -> Figure:
    """Draw gravity, and the basement for known and for unknown contrast."""
    with rc_context(STYLE):
        figure = Figure((PAGE, 5.6), layout="constrained")
        gravity, first, second = figure.subplots(3, 1, sharex=True)
        km = known["station"].values / 1000.0
        gravity.plot(km, known["gravity_observed"], "o", color="black", markersize=2.5, label="measured")
        gravity.plot(km, known["gravity_predicted"], color=COLOURS[1], label="of the posterior")
        gravity.set_ylabel("Gravity anomaly (mGal)")
        draw_basement(first, known, truth)
        draw_basement(second, unknown, truth)
        deepest = float(unknown["depth_quantile"].max()) * 1.05
        for ax in (first, second):
            ax.set_ylim(deepest, 0.0)
        for ax in (gravity, first):
            ax.legend(frameon=False, ncols=3, loc="lower center")
        second.set_xlabel("Distance along the profile (km)")
        contrast, spread = (float(unknown[name].mean()) for name in ("contrast", "contrast_std"))
        titles = ["gravity", "contrast known, $-$400 kg m$^{-3}$",
                  f"contrast unknown, found to be $-${-contrast:.0f} ± {spread:.0f} kg m$^{{-3}}$"]  # fmt: skip
        letter_panels((gravity, first, second), titles)
    return figure


def main() -> None:
    """Draw both figures, and print how well the posteriors agree with the truth."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results"
    truths = {name: truth_of(HERE / "data" / f"{name}_truth.csv") for name in ("profile", "map")}
    truths["contrast"] = truths["profile"]
    found = {name: read(HERE / "results" / f"{name}.nc") for name in truths}
    profiles(found["profile"], found["contrast"], truths["profile"]).savefig(folder / "basin_profile.png", dpi=200)
    stations = np.loadtxt(HERE / "data" / "map.csv", delimiter=",", skiprows=1)
    marks = {"stations": Marks(stations[:, 0], stations[:, 1], ".")}
    panels = panels_of(found["map"], "depth", truths["map"], "m", as_it_is, "depth to basement")
    draw(found["map"], panels, marks, ("easting", "northing"), rows=2).savefig(folder / "basin_map.png", dpi=200)
    for name, ds in found.items():
        held, spread = inside(ds, "depth", truths[name]), float(np.sqrt(np.mean(ds["depth_std"] ** 2)))
        print(f"{name}: {ds.attrs['invgp_runs']} runs; standard deviation {spread:.0f} m; {held:.0%} inside 95%")


if __name__ == "__main__":
    run(main)
