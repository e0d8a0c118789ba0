"""The algebra of a field inversion: 100 x 100 nodes, 2,000 data, 300 runs of a simulator that costs nothing.

python tests/benchmarks/field.py [--nodes 100] [--data 2000] [--runs 300]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from invgp.core.backend import place
from invgp.core.field.algorithm import FieldInference
from invgp.core.field.basis import leading_modes
from invgp.core.field.gaussian import mirrored_normals
from invgp.core.field.regression import Modes
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.inference.field import PAIRS, REFINING_STEPS, first_batch, next_batch
from invgp.inference.grid_modes import MOST_MODES


def main() -> None:
    """Print the seconds of each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100, help="along each side")
    parser.add_argument("--data", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=300)
    arguments = parser.parse_args()
    where, rng = place("cpu"), np.random.default_rng(0)
    axis = (np.arange(arguments.nodes) + 0.5) / arguments.nodes
    X = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")], axis=-1)
    started = time.process_time()
    kernel = Kernel(CORRELATIONS["matern 5/2"], where.asarray(1.0), where.asarray([0.15, 0.15]))
    basis = leading_modes(kernel, where.asarray(X), 0.9999, MOST_MODES)
    print(f"{basis.size} modes of {len(X)} nodes: {time.process_time() - started:.1f} s")

    at = rng.uniform(size=(arguments.data, 2))
    windows = np.exp(-0.5 * np.sum(((at[:, None] - X[None]) / 0.05) ** 2, axis=-1))
    A = windows / windows.sum(axis=1, keepdims=True) @ np.asarray(basis.modes)

    def forward(w: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(0.3 * (w @ A.T)) / 0.05)

    y = forward(rng.standard_normal((1, basis.size)))[0] + rng.standard_normal(arguments.data)
    started = time.process_time()
    inference = FieldInference(
        Modes(basis.variances, (basis.size,)), where.asarray(y), mirrored_normals(rng, PAIRS, basis.size)
    )
    state, runs, count = inference.init(), 0, first_batch(basis.size, arguments.runs)
    while runs < arguments.runs:
        count = min(count, arguments.runs - runs)
        w = inference.ask(state, count, rng)
        runs += count
        state, info = inference.tell(state, w, where.asarray(forward(w)), rng)
        count = next_batch(runs)
        print(f"{runs} runs: {time.process_time() - started:.1f} s, {info}")
    inference.refined(state, rng, REFINING_STEPS)
    print(f"all algebra of the inference: {time.process_time() - started:.1f} s of processor time")


if __name__ == "__main__":
    main()
