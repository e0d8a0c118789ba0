"""Draw the volume next to its truth: python figure.py [NAME [FIGURE]], with the grid in results/NAME.map.nc."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_truth import Panel, draw  # noqa: E402
from command_line import run  # noqa: E402

from invgp.plots.map_colours import colour_scale  # noqa: E402
from invgp.plots.plot_data import flatten_grid  # noqa: E402

LATENT, AXES = "resistivity", ("easting", "northing")
UNIT = "Ω m"


def truth_at(ds: xr.Dataset, path: Path) -> NDArray[np.float64]:
    """Interpolate true resistivities (N, L) to the nodes; outside the stations, take that of the nearest one."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    nodes = np.stack([ds[name].values for name in AXES], axis=-1)
    between, nearest = (
        way(table[:, :2], np.log(table[:, 2:]))(nodes) for way in (LinearNDInterpolator, NearestNDInterpolator)
    )
    return np.exp(np.where(np.isnan(between), nearest, between))


def panels_of(ds: xr.Dataset, truth: NDArray[np.float64]) -> list[Panel]:
    """Return panels of truth and mean of each layer in the same colours, and of the relative standard deviation."""
    panels = []
    for layer, label in enumerate(ds["layer_label"].values.tolist()):
        mean, std = (ds[name].isel(layer=layer).values for name in (LATENT, f"{LATENT}_std"))
        field = colour_scale(ds, LATENT, "mean", np.concatenate([truth[:, layer], mean]), None)
        spread = colour_scale(ds, LATENT, "std", std / mean, None)
        panels += [
            Panel(f"{label}: truth", truth[:, layer], "viridis", UNIT, field),
            Panel(f"{label}: mean", mean, "viridis", UNIT, field),
            Panel(f"{label}: uncertainty", std / mean, "cividis", "std / mean", spread),
        ]
    return panels


def main() -> None:
    """Draw the figure."""
    name = sys.argv[1] if len(sys.argv) > 1 else "em_survey"
    figure = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "results" / f"{name}_truth.png"
    with xr.open_dataset(HERE / "results" / f"{name}.map.nc") as opened:
        ds = flatten_grid(opened)
        panels = panels_of(ds, truth_at(ds, HERE / "data" / f"{name}_truth.csv"))
        draw(ds, panels, {}, AXES, rows=ds.sizes["layer"]).savefig(figure, dpi=200, bbox_inches="tight")


if __name__ == "__main__":
    run(main)
