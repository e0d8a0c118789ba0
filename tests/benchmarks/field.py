"""The algebra of a field inversion: 100 x 100 nodes, 2,000 data, 300 runs of a simulator that costs nearly nothing.

All of `invgp.invert` is timed, from the modes of the prior to the dataset, less the time within the simulator.

python tests/benchmarks/field.py [--nodes 100] [--data 2000] [--runs 300]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

import invgp

RUN = 1.0  # s, of the simulator that the algebra is set beside
BAR = 0.1  # of its time
NOISE = 0.05


class Averages:
    """A bent function of local averages of the field, which knows how long it took."""

    def __init__(self, nodes: np.ndarray, at: np.ndarray) -> None:
        windows = np.exp(-0.5 * np.sum(((at[:, None] - nodes[None]) / 0.05) ** 2, axis=-1))
        self.weights = windows / windows.sum(axis=1, keepdims=True)
        self.seconds = 0.0

    def __call__(self, porosity: np.ndarray) -> np.ndarray:
        """Data (..., N) of fields (..., G)."""
        started = time.perf_counter()
        data = np.exp(0.3 * (porosity @ self.weights.T))
        self.seconds += time.perf_counter() - started
        return np.asarray(data)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Print seconds of wall and processor time, and their ratio to those of the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100, help="along each side")
    parser.add_argument("--data", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=300)
    chosen = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    step = 1.0 / chosen.nodes
    axis = step * (np.arange(chosen.nodes) + 0.5)
    nodes = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")], axis=-1)
    at = rng.uniform(size=(chosen.data, 2))
    simulator = Averages(nodes, at)
    waves = rng.normal(scale=5.0, size=(2, 20))
    truth = np.cos(nodes @ waves + rng.uniform(0.0, 2.0 * np.pi, 20)).sum(axis=1) / np.sqrt(10.0)
    data = simulator(truth) + NOISE * rng.standard_normal(chosen.data)
    ends = {"unit": "km", "start": axis[0], "stop": axis[-1], "step": step}
    problem = invgp.define(
        {"easting": at[:, 0], "northing": at[:, 1], "average": data},
        coordinates={"easting": "km", "northing": "km"},
        observations={"average": "1"},
        latents={
            "porosity": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"kind": "matern 5/2", "length_scale": 0.15}}
        },
        grid={"easting": ends, "northing": ends},
        forward=simulator,
        noise={"average": NOISE},
        inference={"max_runs": chosen.runs},
    )
    simulator.seconds, started, processor = 0.0, time.perf_counter(), time.process_time()
    posterior = invgp.invert(problem)
    wall, processor = time.perf_counter() - started - simulator.seconds, time.process_time() - processor
    runs = posterior.attrs["invgp_runs"]
    share = wall / (runs * RUN)
    print(f"{nodes.shape[0]:,} nodes, {chosen.data:,} data, {runs} runs: {posterior.attrs['invgp_status']}")
    print(posterior.attrs["invgp_diagnostics"])
    print(f"algebra: {wall:.1f} s of wall time (processor, with the simulator's {simulator.seconds:.1f} s:", end=" ")
    print(f"{processor:.1f} s); ratio to runs of {RUN:g} s: {share:.3f}, bar {BAR:g}")
    return {"seconds": wall, "share": share}


if __name__ == "__main__":
    main()
