"""Time and memory of a large map: `invgp predict` on a square grid, 8 latent processes, in a process of its own.

python tests/benchmarks/large_map.py
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import invgp
from invgp import netcdf
from invgp.adapters import CallableModel, Quantity
from invgp.core.kernels import Matern32, Matern52
from invgp.links import LINKS
from invgp.problem import (
    Column,
    InferenceSettings,
    Latent,
    Noise,
    Observation,
    OutputSettings,
    Problem,
    SimulatorVariable,
    Survey,
)

LAYERS = (1, 2, 3, 4)
EXTENT = 10_000.0  # m


def times(velocity, depth):
    """Linear, so that the inversion takes no time."""
    return {"time": depth / 1000.0 - velocity / 4000.0}


def posterior(sites: int):
    """Depth and log velocity of four layers."""
    rng = np.random.default_rng(1)
    position = EXTENT * rng.random((sites, 2))
    observed = np.linspace(0.5, 2.0, 4) + 0.1 * rng.standard_normal((sites, 4))
    scale = np.full(2, 2000.0)
    velocity = Latent(
        "velocity",
        "m s-1",
        np.linspace(2e3, 4e3, 4),
        np.full(4, 300.0),
        Matern32(1.0, scale),
        LINKS["log"],
        "layer",
        LAYERS,
    )
    depth = Latent(
        "depth",
        "m",
        np.linspace(1e3, 3e3, 4),
        np.full(4, 200.0),
        Matern52(1.0, scale),
        dimension="layer",
        labels=LAYERS,
    )
    problem = Problem(
        title="A large map",
        survey=Survey(
            (Column("easting", "m", position[:, 0]), Column("northing", "m", position[:, 1])),
            (Observation("time", "s", observed, "layer", LAYERS),),
        ),
        latents=(velocity, depth),
        noise=Noise("gaussian", {"time": np.full((sites, 4), 0.05)}),
        forward=CallableModel(
            function=times,
            inputs=(Quantity("velocity", "m s-1", LAYERS), Quantity("depth", "m", LAYERS)),
            outputs=(Quantity("time", "s", LAYERS),),
        ),
        inputs=(SimulatorVariable("velocity"), SimulatorVariable("depth")),
        outputs=(SimulatorVariable("time"),),
        inference=InferenceSettings(max_evaluations=2, emulator=False),
        output=OutputSettings(quantiles=(0.05, 0.5, 0.95), realizations=1),
    )  # fmt: skip
    return invgp.invert(problem)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure and print; seconds and MiB."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=1000, help="points along a side (default: %(default)s)")
    parser.add_argument("--sites", type=int, default=300, help="of the survey (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=0, help="over the whole map (default: %(default)s)")
    parser.add_argument("--memory", type=float, default=0.5, help="GiB, as of invgp predict (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        source = netcdf.write(posterior(chosen.sites), Path(folder) / "posterior.nc")
        step = EXTENT / (chosen.side - 1)
        stop = EXTENT + step / 2
        grid = f"easting=0:{stop}:{step},northing=0:{stop}:{step}"
        command = [sys.executable, "-m", "invgp", "predict", source, "--grid", grid, "--exceed", "velocity > 3 km/s"]
        command += ["--draws", str(chosen.draws), "--memory", str(chosen.memory)]
        start = time.perf_counter()
        printed = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
        seconds = time.perf_counter() - start
        size = (Path(folder) / "posterior.map.nc").stat().st_size / 2**20
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, processor = used.ru_maxrss / 2**10, used.ru_utime + used.ru_stime
    print(printed.partition(": ")[2].strip())
    took = f"{seconds:.0f} s ({processor:.0f} s of processor time)"
    print(f"{chosen.sites} sites, {took}, peak memory {peak:.0f} MiB, file {size:.0f} MiB")
    return {"seconds": seconds, "peak": peak}


if __name__ == "__main__":
    main()
