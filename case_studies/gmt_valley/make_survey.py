"""Draw a synthetic valley from the prior, and compute gravity across it with talwani2d of GMT."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import at_least, run

Floats = NDArray[np.float64]
HERE = Path(__file__).resolve().parent

SPACING = 250.0  # m, between profiles
STATIONS = np.arange(-500, 501, 100)  # m, from the axis
COVER = 20.0  # m
# Mean and standard deviation, and the length-scale in m.
PRIOR = {
    "thickness_m": (80.0, 24.0, 1500.0),
    "half_width_top_m": (300.0, 50.0, 1500.0),
    "half_width_floor_m": (120.0, 30.0, 1500.0),
    "contrast_kg_m3": (400.0, 32.0, 5000.0),
}
NOISE_STD = 0.03  # mGal


def draw(rng: np.random.Generator, position: Floats, mean: float, std: float, length_scale: float) -> Floats:
    """Draw a log-normal field (N,) with this mean and standard deviation at positions (N,) in m."""
    variance = np.log1p((std / mean) ** 2)
    correlation = np.exp(-0.5 * ((position[:, None] - position) / length_scale) ** 2) + 1e-9 * np.eye(position.size)
    process = np.sqrt(variance) * np.linalg.cholesky(correlation) @ rng.standard_normal(position.size)
    return np.asarray(mean * np.exp(process - 0.5 * variance))


def gravity(thickness: float, top: float, floor: float, contrast: float) -> Floats:
    """Compute the gravity anomaly in mGal at the stations."""
    corners = [(-top, 0.0), (top, 0.0), (floor, thickness), (-floor, thickness)]
    model = "\n".join([f"> {-contrast}", *(f"{x} {z}" for x, z in corners), ""])
    stations = f"-T{STATIONS[0]}/{STATIONS[-1]}/{STATIONS[1] - STATIONS[0]}"
    command = ["gmt", "talwani2d", stations, f"-Z{-COVER}"]
    answer = subprocess.run(command, input=model, capture_output=True, text=True, check=True).stdout
    return np.array([float(line.split()[1]) for line in answer.splitlines()])


def main() -> None:
    """Write the survey and its truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=at_least(0), default=1, help="seed of the truth and of the noise (default: 1)")
    parser.add_argument(
        "--profiles", type=at_least(1), default=40, metavar="N", help="number of profiles, 250 m apart (default: 40)"
    )
    parser.add_argument("--output", type=Path, default=HERE / "data" / "profiles.csv", help="the survey to write")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    position = SPACING * np.arange(arguments.profiles)
    truth = np.stack([draw(rng, position, *prior) for prior in PRIOR.values()], axis=-1)
    try:
        measured = np.stack([gravity(*row) for row in truth])
    except FileNotFoundError:
        parser.exit(1, "make_survey.py: there is no program 'gmt' here; on Debian, apt-get install gmt.\n")
    measured += NOISE_STD * rng.standard_normal(measured.shape)
    survey: Path = arguments.output
    survey.parent.mkdir(parents=True, exist_ok=True)
    beside = survey.with_name(f"{survey.stem}_truth.csv")
    for path, names, values in (
        (beside, list(PRIOR), truth),  # first: if the survey exists, so does its truth
        (survey, [f"g_{x}_mGal" for x in STATIONS], measured),
    ):
        header = ",".join(["position_m", *names])
        np.savetxt(path, np.column_stack([position, values]), delimiter=",", header=header, comments="", fmt="%.4f")
    print(f"Wrote {survey} and {beside}.")


if __name__ == "__main__":
    run(main)
