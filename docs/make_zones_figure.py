"""Draw the figure of a fault: the map of a field without and with zones.

    python docs/make_zones_figure.py

It inverts 70 noisy values of a field that jumps at an inclined fault, and writes docs/figures/zones.png.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

import invgp

FIGURES = Path(__file__).parent / "figures"
STEP = 50.0  # m, of the map
WEST = [[-100.0, -100.0], [2600.0, -100.0], [1700.0, 3100.0], [-100.0, 3100.0]]


def is_west(x, y):
    """Whether points (m) are on the western side of the fault."""
    return x < 2600.0 - 900.0 * (y + 100.0) / 3200.0


def depth_at(x, y):
    """Depth (m) of a surface that jumps by 120 m at the fault."""
    return 300.0 + 40.0 * np.sin(x / 700.0) * np.cos(y / 900.0) + np.where(is_west(x, y), 60.0, -60.0)


def posterior_map(x, y, data, zones):
    """Return the map of the posterior mean with or without zones."""
    kernel = {"kind": "matern 5/2", "length_scale": 1200.0} | ({"zones": zones} if zones else {})
    posterior = invgp.invert(
        invgp.define(
            {"x": x, "y": y, "depth": data},
            coordinates={"x": "m", "y": "m"},
            observations={"depth": "m"},
            latents={"top": {"unit": "m", "mean": 300, "std": 80, "kernel": kernel}},
            forward=lambda top: top,
            noise={"depth": 8.0},
            inference={"posterior": "coupled gaussian"},
        ),
        seed=1,
    )
    return invgp.predict(posterior, grid=f"x=0:4000:{STEP:g},y=0:3000:{STEP:g}")["top"]


def main() -> None:
    """Write the figure."""
    rng = np.random.default_rng(7)
    x, y = rng.uniform(0.0, 4000.0, 70), rng.uniform(0.0, 3000.0, 70)
    data = depth_at(x, y) + 8.0 * rng.standard_normal(len(x))
    with TemporaryDirectory() as directory:
        os.chdir(directory)
        Path("blocks.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [[*WEST, WEST[0]]]}))
        maps = [posterior_map(x, y, data, zones) for zones in (None, "blocks.geojson")]
    X, Y = np.meshgrid(maps[0]["x"], maps[0]["y"])
    truth = depth_at(X, Y)
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.9), sharey=True, layout="constrained")
    titles = ("Truth and sites", "Without zones", "With zones")
    panels = (truth, *(found.transpose("y", "x").values for found in maps))
    for ax, title, values in zip(axes, titles, panels, strict=True):
        image = ax.pcolormesh(X / 1e3, Y / 1e3, values, vmin=200.0, vmax=400.0, cmap="viridis", rasterized=True)
        error = np.sqrt(np.mean((values - truth) ** 2))
        ax.set(
            title=title if values is truth else f"{title}: error {error:.0f} m", xlabel="Easting (km)", aspect="equal"
        )
    axes[0].plot(x / 1e3, y / 1e3, ".", color="white", markersize=3.0)
    axes[0].set_ylabel("Northing (km)")
    figure.colorbar(image, ax=axes, label="Depth (m)")
    figure.savefig(FIGURES / "zones.png", dpi=130)


if __name__ == "__main__":
    main()
