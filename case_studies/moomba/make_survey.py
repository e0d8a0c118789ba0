"""Draw the top of the granite from its prior, and compute the data: one table per kind in data/."""

from __future__ import annotations

from pathlib import Path

import model
import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
COUNTS = {"gravity": 100, "magnetics": 100, "temperature": 50, "magnetotellurics": 10}
NOISE = {"gravity": 3e-6, "magnetics": 3.0, "temperature": 2.0, "apparent_resistivity": 0.02, "phase": 1.0}
MEAN, STD, LENGTH_SCALE = 6000.0, 2000.0, 9000.0  # m, of the top of the granite
MGAL = 1e5  # mGal per m s-2


def draw_top(rng: np.random.Generator) -> np.ndarray:
    """Draw the top (C,) of the granite in m, with Matern 5/2 smoothness."""
    centres = 0.5 * (model.TWIN.east_edges[1:] + model.TWIN.east_edges[:-1])
    X = np.stack([part.ravel() for part in np.meshgrid(centres, centres, indexing="ij")], axis=-1)
    r = np.sqrt(5.0 * np.sum((X[:, None] - X[None]) ** 2, axis=-1)) / LENGTH_SCALE
    factor = np.linalg.cholesky((1.0 + r + r**2 / 3.0) * np.exp(-r) + 1e-10 * np.eye(len(X)))
    return np.asarray(MEAN + STD * factor @ rng.standard_normal(len(X)))


def write(name: str, table: dict[str, np.ndarray]) -> None:
    """Write a CSV file to data/."""
    (HERE / "data").mkdir(exist_ok=True)
    pd.DataFrame(table).to_csv(HERE / "data" / f"{name}.csv", index=False, float_format="%.6g")


def main() -> None:
    """Write the surveys and their truth."""
    rng = np.random.default_rng(22)
    top = draw_top(rng)
    functions = (model.gravity, model.magnetics, model.temperatures, model.magnetotellurics)
    for (name, count), function in zip(COUNTS.items(), functions, strict=True):
        place = dict(
            zip(("easting", "northing"), rng.uniform(500.0, model.SIDE - 500.0, (2, count)).round(), strict=True)
        )
        if name == "temperature":
            place["depth"] = rng.uniform(1800.0, 3200.0, count).round()
        found = function(top[None], **{key: values[None] for key, values in place.items()})
        outputs = {name: found} if name in NOISE else dict(zip(("apparent_resistivity", "phase"), found, strict=True))
        table = {f"{key}_m": values for key, values in place.items()}
        for output, values in outputs.items():
            noisy = values[0] + NOISE[output] * rng.standard_normal(values[0].size)
            if name in ("gravity", "magnetics"):
                noisy = (noisy - noisy.mean()) * (MGAL if name == "gravity" else 1.0)
            columns = noisy.reshape(count, -1).T
            names = [output] if len(columns) == 1 else [f"{output}_{number + 1}" for number in range(len(columns))]
            table |= dict(zip(names, columns, strict=True))
        write(name, table)
    centres = 0.5 * (model.TWIN.east_edges[1:] + model.TWIN.east_edges[:-1])
    nodes = np.stack([part.ravel() for part in np.meshgrid(centres, centres, indexing="ij")])
    write(
        "truth", {"easting_m": nodes[0], "northing_m": nodes[1], "granite_top_m": top}
    )  # last, because run.sh checks only this file


if __name__ == "__main__":
    main()
