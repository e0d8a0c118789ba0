"""Measure the forward models of layers below a map: 20 x 20 columns, 6 layers, 400 stations or points.

python tests/benchmarks/layers.py
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from invgp.forward_models import columns_gravity, columns_magnetics, layers_temperature

EDGES = np.linspace(0.0, 36_000.0, 21)  # m
DEPTHS = np.concatenate([[0.0], np.geomspace(100.0, 12_000.0, 50)])  # m
FIELD = (3_600.0, 27_600.0, 47_800.0)  # nT
MODELS = 20


def seconds(function: Callable[[], object]) -> float:
    """Best of three calls."""
    times = []
    for _ in range(3):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the time of each table, and of each model."""
    rng = np.random.default_rng(1)
    stations = np.column_stack([rng.uniform(0.0, 36_000.0, (400, 2)), np.full(400, -0.5)])
    mean, spread = [0.0, 1800.0, 2000.0, 2300.0, 3400.0, 5000.0], [0.0, 100.0, 100.0, 100.0, 200.0, 1000.0]
    tops = np.array(mean)[:, None] + np.array(spread)[:, None] * rng.standard_normal((MODELS, 6, 400))
    value = rng.uniform(0.0, 1.0, (MODELS, 6))
    tables = {
        "gravity": lambda: columns_gravity(stations, EDGES, EDGES, DEPTHS),
        "magnetics": lambda: columns_magnetics(stations, FIELD, EDGES, EDGES, DEPTHS),
    }
    for name, make in tables.items():
        response = make()
        size = response.table.nbytes / 1e6
        each = seconds(lambda response=response: response.of_layers(tops, value)) / MODELS
        print(f"{name}: table {seconds(make):.2f} s, {size:.0f} MB; {1e3 * each:.1f} ms per model")
    points = np.column_stack([stations[:, :2], rng.uniform(1500.0, 3500.0, 400)])
    conductivity, production = 1.0 + 2.0 * value, 5e-6 * value
    cells = np.linspace(0.0, 12_000.0, 61)
    each = seconds(lambda: layers_temperature(points, tops, conductivity, production, EDGES, EDGES, cells, 290.0, 0.06))
    print(f"temperature, 20 x 20 x 60 cells: {1e3 * each / MODELS:.1f} ms per model")


if __name__ == "__main__":
    main()
