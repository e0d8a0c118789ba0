"""Draw a section from the prior, and compute first arrivals between two boreholes, with more and with fewer rays.

The times come from a grid twice or three times as fine as that of the inversion.
"""

from __future__ import annotations

from pathlib import Path

import model
import numpy as np

HERE = Path(__file__).resolve().parent
MEAN, STD = 2000.0, 200.0  # m s-1
LENGTH_SCALES = np.asarray([20.0, 10.0])  # m, across and down
NOISE = 2e-4  # s
FINE = 1.0  # m
MS = 1e3  # ms per s


def draw_velocity(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Draw a log-normal velocity (G,) in m s-1 at nodes (G, 2) in m, with Matern 5/2 smoothness."""
    r = np.sqrt(5.0 * np.sum(((X[:, None] - X[None]) / LENGTH_SCALES) ** 2, axis=-1))
    factor = np.linalg.cholesky((1.0 + r + r**2 / 3.0) * np.exp(-r) + 1e-9 * np.eye(len(X)))
    variance = np.log1p((STD / MEAN) ** 2)
    drawn = factor @ rng.standard_normal(len(X))
    return np.asarray(MEAN * np.exp(np.sqrt(variance) * drawn - 0.5 * variance))


def shot(rng: np.random.Generator, velocity: np.ndarray, step: float) -> list[np.ndarray]:
    """Compute depths of sources and receivers, `step` m apart, and noisy times in ms between all of them, (R,) each."""
    depths = np.arange(0.5 * step, model.DEPTH, step)
    source, receiver = (part.ravel() for part in np.meshgrid(depths, depths, indexing="ij"))
    times = model.bent(velocity[None], source[None], receiver[None])[0] + NOISE * rng.standard_normal(source.size)
    return [source, receiver, MS * times]


def write(name: str, header: str, *columns: np.ndarray) -> None:
    """Write a CSV file to data/."""
    (HERE / "data").mkdir(exist_ok=True)
    np.savetxt(HERE / "data" / name, np.column_stack(columns), delimiter=",", header=header, comments="", fmt="%.6g")


def main() -> None:
    """Write the surveys and their truth."""
    rng = np.random.default_rng(3)
    axes = [np.arange(0.0, extent + 0.5 * FINE, FINE) for extent in (model.WIDTH, model.DEPTH)]
    X = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=-1)
    velocity = draw_velocity(rng, X)
    for name, step in (("truth", 2.0), ("small_truth", 3.0)):
        on_grid = np.all(X % step == 0.0, axis=1)
        write(f"{name}.csv", "distance_m,depth_m,velocity_m_s", *X[on_grid].T, velocity[on_grid])
    survey, small = (shot(rng, velocity, step) for step in (3.0, 6.0))
    for name, columns in (("small", small), ("survey", survey)):  # run.sh checks only the last file
        write(f"{name}.csv", "source_depth_m,receiver_depth_m,time_ms", *columns)


if __name__ == "__main__":
    main()
