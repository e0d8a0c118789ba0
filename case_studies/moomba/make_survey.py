"""Draw the top of the granite from its prior, and the readings over it: data/twin.csv and data/twin_truth.csv."""

from __future__ import annotations

from pathlib import Path

import model
import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
COUNTS = {"gravity": 100, "magnetics": 100, "temperature": 50, "magnetotellurics": 10}
NOISE = {"gravity": 3e-6, "magnetics": 3.0, "temperature": 2.0, "apparent_resistivity": 0.02, "phase": 1.0}
MEAN, STD, LENGTH_SCALE = 6000.0, 2000.0, 9000.0  # m, of the top of the granite
MGAL = 1e5  # in a m s-2


def drawn_top(rng: np.random.Generator) -> np.ndarray:
    """Top (C,) of the granite in m, of Matern 5/2 smoothness."""
    centres = 0.5 * (model.TWIN.east_edges[1:] + model.TWIN.east_edges[:-1])
    X = np.stack([part.ravel() for part in np.meshgrid(centres, centres, indexing="ij")], axis=-1)
    r = np.sqrt(5.0 * np.sum((X[:, None] - X[None]) ** 2, axis=-1)) / LENGTH_SCALE
    factor = np.linalg.cholesky((1.0 + r + r**2 / 3.0) * np.exp(-r) + 1e-10 * np.eye(len(X)))
    return np.asarray(MEAN + STD * factor @ rng.standard_normal(len(X)))


def main() -> None:
    """Write the survey and its truth."""
    rng = np.random.default_rng(22)
    top = drawn_top(rng)
    kind = np.repeat(np.arange(4), list(COUNTS.values()))
    places = np.column_stack([rng.uniform(500.0, model.SIDE - 500.0, (kind.size, 2)).round(), np.full(kind.size, -0.5)])
    in_wells = kind == model.KINDS.index("temperature")
    places[in_wells, 2] = rng.uniform(1800.0, 3200.0, np.count_nonzero(in_wells)).round()
    found = model.readings(model.TWIN, model.ROCKS, top[None], places, kind)
    table = dict(zip(("easting_m", "northing_m", "depth_m"), places.T, strict=True)) | {"kind": kind}
    for name, std in NOISE.items():
        values = found[name][0].reshape(kind.size, -1)
        values = values + std * rng.standard_normal(values.shape)
        measured = kind == model.KINDS.index(name if name in model.KINDS else "magnetotellurics")
        values[~measured] = np.nan
        if name in ("gravity", "magnetics"):
            values -= np.nanmean(values)
        names = [name] if values.shape[1] == 1 else [f"{name}_{number}" for number in range(1, values.shape[1] + 1)]
        table |= dict(zip(names, values.T * (MGAL if name == "gravity" else 1.0), strict=True))
    centres = 0.5 * (model.TWIN.east_edges[1:] + model.TWIN.east_edges[:-1])
    nodes = np.stack([part.ravel() for part in np.meshgrid(centres, centres, indexing="ij")])
    (HERE / "data").mkdir(exist_ok=True)
    truth = {"easting_m": nodes[0], "northing_m": nodes[1], "granite_top_m": top}
    pd.DataFrame(truth).to_csv(HERE / "data" / "twin_truth.csv", index=False, float_format="%.6g")
    pd.DataFrame(table).to_csv(HERE / "data" / "twin.csv", index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
