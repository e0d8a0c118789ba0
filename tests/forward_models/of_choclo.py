"""Print what choclo computes for the layered bodies of the tests: needs `pip install choclo`, and nothing of ours.

    python tests/forward_models/of_choclo.py

`test_columns.py` holds these values.
"""

import sys
from itertools import pairwise
from pathlib import Path

import choclo
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.layered_bodies import BASE, DENSITY, EAST_EDGES, FIELD, NORTH_EDGES, STATIONS, SUSCEPTIBILITY, TOPS

MU_0 = 4e-7 * np.pi


def prisms() -> list[tuple[int, list[float]]]:
    """Layer, and west, east, south, north, bottom and top of each prism, positive upwards."""
    found = []
    for i in range(EAST_EDGES.size - 1):
        for j in range(NORTH_EDGES.size - 1):
            column = [*TOPS[:, i, j], BASE]
            for layer, (top, bottom) in enumerate(pairwise(column)):
                sides = [*EAST_EDGES[i : i + 2], *NORTH_EDGES[j : j + 2]]
                found.append((layer, [float(side) for side in (*sides, -bottom, -top)]))
    return found


def main() -> None:
    """Print gravity and total-field anomaly at each station."""
    print("choclo", choclo.__version__)
    magnetisation = FIELD * 1e-9 / MU_0
    for station in STATIONS:
        at = [float(station[0]), float(station[1]), -float(station[2])]
        gravity = sum(-choclo.prism.gravity_u(*at, *prism, DENSITY[layer]) for layer, prism in prisms())
        induced = sum(
            np.array(choclo.prism.magnetic_field(*at, *prism, *(SUSCEPTIBILITY[layer] * magnetisation)))
            for layer, prism in prisms()
        )
        print(repr((float(gravity), float(1e9 * induced @ FIELD / np.linalg.norm(FIELD)))))


if __name__ == "__main__":
    main()
