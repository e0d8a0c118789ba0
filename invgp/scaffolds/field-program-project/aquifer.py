#!/usr/bin/env python3
"""The simulator of this project: steady groundwater flow between two rivers.

It reads the conductivities at the nodes from conductivity.txt and the positions of the wells from wells.csv, and writes
the heads to heads.csv. Replace it by your own program.
"""

from itertools import pairwise
from pathlib import Path

LENGTH = 2000.0  # m
RECHARGE = 5e-4  # m/d
THICKNESS = 20.0  # m
LEFT, RIGHT = 20.0, 15.0  # m, heads of the rivers at both ends


def node_heads(conductivity: list[float]) -> list[float]:
    """Return the heads at the nodes in m."""
    step = LENGTH / (len(conductivity) - 1)
    flows = [RECHARGE * step * (i + 0.5) for i in range(len(conductivity) - 1)]
    resistance = [2.0 * step / (THICKNESS * (a + b)) for a, b in pairwise(conductivity)]
    flux = (LEFT - RIGHT - sum(r * f for r, f in zip(resistance, flows, strict=True))) / sum(resistance)
    heads = [LEFT]
    for r, flow in zip(resistance, flows, strict=True):
        heads.append(heads[-1] - r * (flux + flow))
    return heads


def main() -> None:
    """Read the input files and write the heads."""
    lines = Path("conductivity.txt").read_text().splitlines()
    conductivity = [float(line) for line in lines if not line.startswith("#")]
    if min(conductivity) <= 0.0:
        raise SystemExit("a conductivity is not positive")
    heads, step = node_heads(conductivity), LENGTH / (len(conductivity) - 1)
    rows = ["position,head"]
    for line in Path("wells.csv").read_text().splitlines()[1:]:
        position = float(line.split(",")[0])
        node = min(int(position / step), len(heads) - 2)
        share = position / step - node
        rows.append(f"{position},{(1.0 - share) * heads[node] + share * heads[node + 1]:.10g}")
    Path("heads.csv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
