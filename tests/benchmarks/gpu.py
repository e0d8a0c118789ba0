"""Compare the GPU with the processor: the same numbers on both, and their times.

Each row is an operation of the core. The last columns are the largest difference of the results, relative to the
largest result, and the time of the processor over that of the GPU. Run it on a machine with an NVIDIA GPU and CuPy.
Without them, `--device stand-in` tests this script on the stand-in for CuPy, whose times mean nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from workload import ALL_BLOCKS, POSTERIOR, Size, median_seconds, problem

from invgp.core.backend import Backend, DeviceError, cholesky, select_backend, solve_triangular, to_numpy
from invgp.core.kernels import Matern52

Operation = Callable[[], Any]


def operations(backend: Backend, device: str, size: Size) -> dict[str, Operation]:
    """Return the operations on one device, each of which returns an array or a number."""
    rng = np.random.default_rng(0)
    X = backend.asarray(rng.random((size.M, size.D)))
    kernel = Matern52(1.0, np.ones(size.D)).on_backend(backend)
    covariance = kernel(X, X)
    factor, right = cholesky(covariance), backend.asarray(rng.standard_normal((size.M, size.S)))
    model = problem(size, device=device)
    return {
        f"kernel, {size.M:,} points": lambda: kernel(X, X),
        f"Cholesky factor, {size.M:,} rows": lambda: cholesky(covariance),
        f"triangular solve, {size.S} columns": lambda: solve_triangular(factor, right),
        "bound and its gradient, posterior": lambda: model.evaluate(POSTERIOR),
        "bound and its gradient, all parameters": lambda: model.evaluate(ALL_BLOCKS),
    }


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Print the table, and return the differences by operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "stand-in"), default="cuda")
    parser.add_argument("--sites", type=int, default=60_000, help="N (default: 60,000)")
    parser.add_argument("--inducing", type=int, default=2400, help="M (default: 2,400)")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions, of which the median is printed")
    chosen = parser.parse_args(arguments)
    size = Size(N=chosen.sites, D=8, M=chosen.inducing)
    try:
        if chosen.device == "stand-in":
            sys.path.append(str(Path(__file__).resolve().parents[1]))
            from helpers.cupy_stand_in import install  # noqa: PLC0415 - it takes the place of CuPy

            gpu = install()
        else:
            gpu = select_backend("cuda")
    except DeviceError as error:
        sys.exit(f"gpu.py: {error}")
    sides = {"cpu": select_backend("cpu"), "cuda": gpu}
    found = {device: operations(backend, device, size) for device, backend in sides.items()}
    print(f"{size}\n{'':42}{'CPU s':>10}{'GPU s':>10}{'difference':>12}{'CPU / GPU':>11}")
    differences = {}
    for name, on_cpu in found["cpu"].items():
        on_gpu = found["cuda"][name]
        reference, result = np.asarray(on_cpu()), _on_host(on_gpu())
        differences[name] = float(np.max(np.abs(result - reference)) / np.max(np.abs(reference)))
        # The copy to the host waits until the GPU has finished.
        cpu, cuda = (
            median_seconds(on_cpu, chosen.repeats),
            median_seconds(lambda f=on_gpu: _on_host(f()), chosen.repeats),
        )
        print(f"{name:42}{cpu:10.4f}{cuda:10.4f}{differences[name]:12.1e}{cpu / cuda:11.1f}", flush=True)
    return differences


def _on_host(value: Any) -> np.ndarray:
    return np.asarray(value) if isinstance(value, float) else to_numpy(value)


if __name__ == "__main__":
    main()
