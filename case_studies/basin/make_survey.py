"""Draw a basement from the prior, and compute its gravity: a profile and a map."""

from __future__ import annotations

from pathlib import Path

import model
import numpy as np

HERE = Path(__file__).resolve().parent
NOISE = 0.3e-5  # m s-2, 0.3 mGal
MEAN, STD = 2500.0, 900.0  # m, of the depth
MGAL = 1e5  # mGal per m s-2


def draw_depth(rng: np.random.Generator, X: np.ndarray, length_scale: float) -> np.ndarray:
    """Draw a log-normal depth (G,) in m at nodes (G, D) in m, with Matern 5/2 smoothness."""
    r = np.sqrt(5.0 * np.sum((X[:, None] - X[None]) ** 2, axis=-1)) / length_scale
    factor = np.linalg.cholesky((1.0 + r + r**2 / 3.0) * np.exp(-r) + 1e-10 * np.eye(len(X)))
    variance = np.log1p((STD / MEAN) ** 2)
    drawn = factor @ rng.standard_normal(len(X))
    return np.asarray(MEAN * np.exp(np.sqrt(variance) * drawn - 0.5 * variance))


def write(name: str, header: str, *columns: np.ndarray) -> None:
    """Write a CSV file to data/."""
    (HERE / "data").mkdir(exist_ok=True)
    np.savetxt(HERE / "data" / name, np.column_stack(columns), delimiter=",", header=header, comments="", fmt="%.6g")


def main() -> None:
    """Write the surveys and their true depths."""
    rng = np.random.default_rng(20)
    nodes = 0.5 * (model.PROFILE_EDGES[1:] + model.PROFILE_EDGES[:-1])
    depth = draw_depth(rng, nodes[:, None], 6000.0)
    station = np.arange(500.0, 40_000.0, 1000.0)
    gravity = model.profile(depth[None], station[None])[0] + NOISE * rng.standard_normal(station.size)
    write("profile_truth.csv", "position_m,depth_m", nodes, depth)
    write("profile.csv", "position_m,gravity_mgal", station, MGAL * gravity)

    side = model.CELL * (np.arange(model.SIDE) + 0.5)
    X = np.stack([part.ravel() for part in np.meshgrid(side, side, indexing="ij")], axis=-1)
    depth = draw_depth(rng, X, 5000.0)
    place = rng.uniform(0.0, model.SIDE * model.CELL, (2, 150)).round()
    gravity = model.gravity_map(depth[None], place[:1], place[1:])[0] + NOISE * rng.standard_normal(150)
    write("map_truth.csv", "easting_m,northing_m,depth_m", *X.T, depth)
    write(
        "map.csv", "easting_m,northing_m,gravity_mgal", *place, MGAL * gravity
    )  # last, because run.sh checks only this file


if __name__ == "__main__":
    main()
