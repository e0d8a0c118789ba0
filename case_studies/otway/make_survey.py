"""Generate a synthetic reflection line with the geometry, the prior and the noise of the Otway survey."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from invgp.forward_models import two_way_times

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import at_least, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent

POSITION: NDArray[np.float64] = np.linspace(0.0, 44_800.0, 113)  # m
LENGTH_SCALE = 4480.0  # m, a tenth of the line
DEPTH = np.array([200.0, 500.0, 1600.0, 2200.0])  # m
DEPTH_STD = 0.15 * DEPTH
VELOCITY = np.array([1950.0, 2300.0, 2750.0, 3650.0])  # m s-1
VELOCITY_STD = 0.10 * VELOCITY
NOISE_STD = np.array([0.025, 0.05, 0.075, 0.1])  # s
MAX_DRAWS = 1000
WELL_STD = 5.0  # m, noise of the layer tops in the borehole


def correlation_factor(position: NDArray[np.float64], length_scale: float) -> NDArray[np.float64]:
    """Compute the Cholesky factor (N, N) of the squared exponential correlation between positions (N,) in m."""
    distance = (position[:, None] - position[None, :]) / length_scale
    # Without this, the matrix is singular in double precision because neighbouring sites are almost equal.
    correlation: NDArray[np.float64] = np.exp(-0.5 * distance**2) + 1e-8 * np.eye(position.size)
    return np.asarray(np.linalg.cholesky(correlation), dtype=np.float64)


def draw_truth(
    rng: np.random.Generator, position: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Draw depths (N, 4) in m and velocities (N, 4) in m s-1 from the prior until the depths increase.

    Reflectors can cross in the prior but not in the earth, so a draw with crossing reflectors is discarded
    whole. The truth thus comes from the prior *given* increasing depths. Also returns the number of draws.
    """
    factor = correlation_factor(position, LENGTH_SCALE)
    shape = (position.size, DEPTH.size)
    for draws in range(1, MAX_DRAWS + 1):
        depth = DEPTH + DEPTH_STD * (factor @ rng.standard_normal(shape))
        velocity = VELOCITY + VELOCITY_STD * (factor @ rng.standard_normal(shape))
        if np.all(np.diff(depth, axis=1, prepend=0.0) > 0.0) and np.all(velocity > 0.0):
            return depth, velocity, draws
    raise RuntimeError(f"None of {MAX_DRAWS} draws from the prior has increasing depths.")


def write_csv(path: Path, names: list[str], position: NDArray[np.float64], *columns: NDArray[np.float64]) -> None:
    """Write the positions (N,) and columns (N, 4), with names in the first line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = np.column_stack([position, *columns])
    formats = ["%.0f"] + ["%.6f"] * (table.shape[1] - 1)
    header = ",".join(["position_m", *names])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt=formats)


def main() -> None:
    """Write the survey, its truth and the layer tops of a borehole in the middle of the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=at_least(0), default=1, help="seed of the truth and of the noise (default: 1)")
    parser.add_argument(
        "--sites",
        type=at_least(1),
        default=POSITION.size,
        metavar="N",
        help=f"the first N sites of the line, 400 m apart (default: all {POSITION.size})",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=HERE / "data" / "synthetic.csv",
        help="survey to write, with the truth and a borehole beside it as <name>_truth.csv and <name>_well.csv "
        "(default: data/synthetic.csv)",
    )
    arguments = parser.parse_args()
    if arguments.sites > POSITION.size:
        parser.error(f"--sites must be at most {POSITION.size}, was {arguments.sites}")
    rng = np.random.default_rng(arguments.seed)
    position = POSITION[: arguments.sites]
    depth, velocity, draws = draw_truth(rng, position)
    times = two_way_times(depth, velocity) + NOISE_STD * rng.standard_normal(depth.shape)

    layers = range(1, DEPTH.size + 1)
    survey: Path = arguments.output
    truth = survey.with_name(f"{survey.stem}_truth.csv")
    names = [f"depth_{layer}_m" for layer in layers] + [f"velocity_{layer}_m_s" for layer in layers]
    write_csv(truth, names, position, depth, velocity)  # first: if the survey exists, so does its truth
    middle = slice(position.size // 2, position.size // 2 + 1)
    tops = depth[middle] + WELL_STD * np.random.default_rng([arguments.seed, 1]).standard_normal((1, DEPTH.size))
    well = survey.with_name(f"{survey.stem}_well.csv")
    write_csv(well, [f"top_{layer}_m" for layer in layers], position[middle], tops)
    write_csv(survey, [f"twt_{layer}_s" for layer in layers], position, times)
    if draws > 1:
        print(f"Drew the truth {draws} times, because reflectors crossed in the first {draws - 1}.")
    print(f"Wrote {survey}, {truth} and {well}.")


if __name__ == "__main__":
    run(main)
