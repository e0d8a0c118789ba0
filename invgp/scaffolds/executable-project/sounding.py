#!/usr/bin/env python3
"""The simulator of this project. Usage: sounding.py MODEL CURVE.

It reads a model of two layers and writes the apparent resistivity (ohm m) of a Wenner array at each spacing, computed
with the series of image currents. Replace it by your own program.
"""

import sys
from pathlib import Path

SPACINGS = (2.0, 5.0, 10.0, 20.0, 50.0)  # m
SMALL = 1e-10  # fraction of the upper resistivity at which the series is truncated


def apparent(upper: float, lower: float, thickness: float, spacing: float) -> float:
    """Compute the apparent resistivity over two layers, in ohm m."""
    reflection = (lower - upper) / (lower + upper)
    total, image, weight = 1.0, 0, 1.0
    while abs(weight) > SMALL and image < 2000:
        image += 1
        weight *= reflection
        depth = (2.0 * image * thickness / spacing) ** 2
        total += 4.0 * weight * ((1.0 + depth) ** -0.5 - (4.0 + depth) ** -0.5)
    return upper * total


def main() -> None:
    """Read the model file and write the curve file."""
    lines = Path(sys.argv[1]).read_text().splitlines()
    numbers = [float(word) for line in lines if not line.startswith("#") for word in line.split()]
    curve = [apparent(*numbers, spacing) for spacing in SPACINGS]
    Path(sys.argv[2]).write_text("\n".join(f"{value:.9g}" for value in curve) + "\n")


if __name__ == "__main__":
    main()
