"""Generate a synthetic survey: four resistivities over a map from the prior, and noisy soundings along lines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline
from soundings import soundings

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import at_least, run

Floats = NDArray[np.float64]
HERE = Path(__file__).resolve().parent

ORIGIN = np.array([500_000.0, 6_000_000.0])  # m, south-west corner
EXTENT = np.array([6000.0, 4000.0])  # m, easting and northing
LENGTH_SCALE = 800.0  # m
MEAN = np.array([60.0, 25.0, 80.0, 20.0])  # ohm m
SPREAD = 0.5  # standard deviation over mean
NOISE_STD = {"galvanic": 0.0217, "inductive": 0.0217, "phase": 1.5}
NODES_PER_LENGTH_SCALE = 16  # nodes of the truth; splines interpolate between them


def draw_truth(rng: np.random.Generator) -> list[RectBivariateSpline]:
    """Draw the log-resistivity of each layer from the prior, as a function of easting and northing from the origin."""
    axes = [np.linspace(0.0, side, round(NODES_PER_LENGTH_SCALE * side / LENGTH_SCALE) + 1) for side in EXTENT]
    along_easting, along_northing = (correlation_root(axis) for axis in axes)
    variance = np.log1p(SPREAD**2)
    fields = []
    for mean in MEAN:
        # The squared exponential is a product over the coordinates, and so is its root.
        normals = rng.standard_normal((axes[0].size, axes[1].size))
        field = np.log(mean) - 0.5 * variance + np.sqrt(variance) * along_easting @ normals @ along_northing.T
        fields.append(RectBivariateSpline(*axes, field))
    return fields


def correlation_root(position: Floats) -> Floats:
    """Compute the symmetric root (N, N) of the squared exponential correlation between positions (N,) in m."""
    values, vectors = np.linalg.eigh(np.exp(-0.5 * ((position[:, None] - position) / LENGTH_SCALE) ** 2))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


def stations(count: int) -> Floats:
    """Return positions (count, 2) in m from the origin, on lines along easting, three station distances apart."""
    lines = max(round(np.sqrt(count * EXTENT[1] / (3.0 * EXTENT[0]))), 1)
    each = -(-count // lines)
    easting, northing = ((np.arange(n) + 0.5) * side / n for n, side in zip((each, lines), EXTENT, strict=True))
    grid = np.stack(np.meshgrid(easting, northing), axis=-1)
    return grid.reshape(-1, 2)[:count]


def write_csv(path: Path, names: list[str], position: Floats, values: Floats) -> None:
    """Write positions (N, 2) from the origin and values (N, C), with names in the first line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = np.column_stack([ORIGIN + position, values])
    header = ",".join(["easting_m", "northing_m", *names])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt=["%.2f"] * 2 + ["%.5f"] * values.shape[1])


def main() -> None:
    """Write the survey and its truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--soundings", type=at_least(1), default=10_000, metavar="N", help="number of soundings (default: 10000)"
    )
    parser.add_argument(
        "--seed", type=at_least(0), default=1, help="random seed of the truth and the noise (default: 1)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=HERE / "data" / "em_survey.csv",
        help="survey to write, with the truth beside it as <name>_truth.csv (default: data/em_survey.csv)",
    )
    arguments = parser.parse_args()
    truth, noise = np.random.default_rng(arguments.seed).spawn(2)
    fields, position = draw_truth(truth), stations(arguments.soundings)
    resistivity = np.exp(np.stack([field(*position.T, grid=False) for field in fields], axis=-1))
    measured = [
        values + NOISE_STD[name] * noise.standard_normal(values.shape)
        for name, values in soundings(resistivity).items()
    ]
    survey: Path = arguments.output
    beside = survey.with_name(f"{survey.stem}_truth.csv")
    spacings = [f"lg_rhoa_{s}" for s in ("5m", "10m", "20m", "40m", "80m", "160m")]
    frequencies = ["100kHz", "30kHz", "10kHz", "3kHz", "1kHz"]
    names = [*spacings, *(f"lg_rhoa_{f}" for f in frequencies), *(f"phase_{f}_deg" for f in frequencies)]
    # The truth is written first: if the survey exists, so does its truth.
    write_csv(beside, [f"resistivity_{layer}_ohm_m" for layer in range(1, MEAN.size + 1)], position, resistivity)
    write_csv(survey, names, position, np.concatenate(measured, axis=-1))
    print(f"Wrote {survey} and {beside}.")


if __name__ == "__main__":
    run(main)
