"""Draw the valley next to its truth: python figure.py [FIGURE], with the posterior in results/valley.nc."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from invgp.plots.axis_labels import read_positions
from invgp.plots.plot_data import read_curves, read_interval, read_values
from invgp.plots.sections import LinePanels, band_handles, draw_band, finish_panel
from invgp.plots.style import GREY, PAGE, STYLE, add_legend, letter_panels

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import run

HERE = Path(__file__).resolve().parent
# Columns of the truth, by latent and label.
TRUTHS = {
    "thickness": {"": "thickness_m"},
    "half_width": {"top": "half_width_top_m", "floor": "half_width_floor_m"},
    "contrast": {"": "contrast_kg_m3"},
}
PRIOR: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (5, 3))}
TRUTH: dict[str, Any] = {"color": "black", "linewidth": 1.3, "linestyle": (0, (1, 1.2))}

PROFILE: dict[str, Any] = {"marker": 2, "markersize": 4.0, "markeredgewidth": 0.5, "linestyle": ""}  # a tick upwards


def draw(ds: xr.Dataset, truth: np.ndarray) -> Figure:
    """Draw mean, 95% interval, prior mean and truth of each latent along the valley."""
    ((x, x_label),) = read_positions(ds, ["position"])
    with rc_context(STYLE):
        figure = Figure((PAGE, 2.9), layout="constrained")
        axes = figure.subplots(1, len(TRUTHS))
        for ax, (name, columns) in zip(axes, TRUTHS.items(), strict=True):
            draw_latent(ax, x, ds, name, {label: truth[column] for label, column in columns.items()})
            ax.set_xlabel(x_label)
        letter_panels(axes)
        handles = [
            *band_handles("posterior mean"),
            Line2D([], [], label="truth", **TRUTH),
            Line2D([], [], color=GREY, label="prior mean", **PRIOR),
            Line2D([], [], color="black", label="profile", **PROFILE),
        ]
        add_legend(figure, handles)
    return figure


def draw_latent(ax: Axes, x: np.ndarray, ds: xr.Dataset, name: str, truths: dict[str, np.ndarray]) -> None:
    """Draw one panel at the positions x (N,), with truths (N,) by label."""
    curves = read_curves(ds, name)
    means = [read_values(ds, name, curve) for curve in curves]
    for curve, mean in zip(curves, means, strict=True):
        draw_band(ax, x, mean, read_interval(ds, name, curve), curve.colour)
        ax.plot(x, read_values(ds, f"{name}_prior", curve), color=curve.colour, **PRIOR)
        ax.plot(x, truths[curve.label], **TRUTH)
    finish_panel(ax, LinePanels(x, "", x), ds[name], curves, [float(mean[-1]) for mean in means])


def main() -> None:
    """Draw the figure."""
    figure = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "valley_truth.png"
    truth = np.genfromtxt(HERE / "data" / "profiles_truth.csv", delimiter=",", names=True)
    with xr.open_dataset(HERE / "results" / "valley.nc") as ds:
        draw(ds, truth).savefig(figure, dpi=200)


if __name__ == "__main__":
    run(main)
