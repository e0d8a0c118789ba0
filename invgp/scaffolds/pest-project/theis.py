#!/usr/bin/env python3
"""The model of this PEST case: drawdown near a pumping well, after Theis (1935).

It reads aquifer.dat and writes drawdown.out. Replace it by your own model, with its templates and instructions.
"""

import math
from pathlib import Path

MINUTES = (10, 60, 360, 1440)
EULER = 0.57721566490153286


def well_function(u: float) -> float:
    """Compute the exponential integral E1(u)."""
    if u < 1.0:
        term, total = -u, u
        for n in range(2, 40):
            term *= -u / n
            total -= term / n
        return -EULER - math.log(u) + total
    fraction = 0.0
    for n in range(60, 0, -1):
        fraction = n / (1.0 + n / (u + fraction))
    return math.exp(-u) / (u + fraction)


def main() -> None:
    """Read four numbers and write four drawdowns."""
    lines = Path("aquifer.dat").read_text().splitlines()
    transmissivity, storativity, rate, radius = (float(line.split()[-1]) for line in lines)
    with Path("drawdown.out").open("w") as file:
        file.write("minutes drawdown (m)\n")
        for minutes in MINUTES:
            u = radius**2 * storativity / (4.0 * transmissivity * minutes / 1440.0)
            drawdown = rate / (4.0 * math.pi * transmissivity) * well_function(u)
            file.write(f"{minutes:<7d} {drawdown:.9f}\n")


if __name__ == "__main__":
    main()
