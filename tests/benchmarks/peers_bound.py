"""One bound and its gradient here, in GPflow and in GPyTorch, at three sizes, measured in turns in one run.

    python tests/benchmarks/peers_bound.py
    OPENBLAS_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python tests/benchmarks/peers_bound.py

The last one is for a machine with other work on its cores. Each package has an environment of its own, made once in the
user's cache folder. All evaluate a full Gaussian, whitened, with a logistic likelihood: here with 100 samples a site,
there with quadratures of 20 points. A ratio below 1 says that invgp was faster.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import against_gpflow
import environments
import numpy as np
from tables import Table, tell
from workload import Size, problem, seconds

import invgp

SIZES = (Size(1_000, 1, 1_000), Size(10_000, 20, 200), Size(5_000, 8, 500))
SMALL = (Size(100, 1, 100), Size(200, 4, 20), Size(200, 2, 50))


class Package(NamedTuple):
    """Another one, and the script that speaks for it."""

    name: str
    folder: str
    steps: tuple[tuple[str, ...], ...]
    module: str
    script: str


PACKAGES = (
    Package("GPflow", "gpflow", (against_gpflow.REQUIREMENTS,), "gpflow", "_gpflow_side.py"),
    Package("GPyTorch", "gpytorch", (("torch==2.13.0",), ("gpytorch",)), "gpytorch", "_gpytorch_side.py"),
)


class Timing(NamedTuple):
    """Median seconds of one bound and gradient."""

    size: Size
    learnt: str
    package: str
    seconds: float


def measure_seconds(size: Size, pythons: dict[str, Path], repeats: int, versions: dict[str, str]) -> list[Timing]:
    """All packages in turns; the first turn, which compiles and allocates, is discarded."""
    tell(f"one bound and gradient at {size}")
    ours = problem(size)
    timings = []
    with ExitStack() as stack:
        sides = {
            package.name: stack.enter_context(against_gpflow.side(pythons[package.name], size, package.script))
            for package in PACKAGES
            if package.name in pythons
        }
        for side in sides.values():
            versions |= side.versions
        for learnt, blocks in against_gpflow.LEARNT.items():
            taken: dict[str, list[float]] = {"invgp": [], **{name: [] for name in sides}}
            for _ in range(repeats + 1):
                taken["invgp"].append(seconds(lambda blocks=blocks: ours.evaluate(blocks)))
                time.sleep(against_gpflow.PAUSE)
                for name, side in sides.items():
                    taken[name].append(side.seconds(learnt))
                    time.sleep(against_gpflow.PAUSE)
            timings += [Timing(size, learnt, name, statistics.median(t[1:])) for name, t in taken.items()]
    return timings


def table(timings: Sequence[Timing], repeats: int, versions: Mapping[str, str]) -> Table:
    """A row a size and a set of variables, with the ratios of ours to the others."""
    taken = {(t.size, t.learnt, t.package): t.seconds for t in timings}
    settings = list(dict.fromkeys((t.size, t.learnt) for t in timings))
    others = [p for p in dict.fromkeys(t.package for t in timings) if p != "invgp"]
    ratios = {p: {s: taken[*s, "invgp"] / taken[*s, p] for s in settings} for p in others}

    def row(size: Size, learnt: str) -> tuple[str, ...]:
        beside = (cell for p in others for cell in (f"{taken[size, learnt, p]:.4f}", f"{ratios[p][size, learnt]:.2f}"))
        return f"N = {size.N:,}, D = {size.D}, M = {size.M:,}", learnt, f"{taken[size, learnt, 'invgp']:.4f}", *beside

    return Table(
        "One bound and gradient",
        "A whitened full Gaussian with a logistic likelihood. invgp uses 100 samples per site, as for any likelihood; "
        "the others use quadrature with 20 points. The gradient is that of the posterior alone, or also of kernels and "
        f"inducing inputs. Wall-clock seconds, medians of {repeats}, measured in turns. A ratio below 1 means that "
        "invgp is faster.",
        ("size", "learnt", "invgp, s", *(column for p in others for column in (f"{p}, s", f"invgp / {p}"))),
        tuple(row(*setting) for setting in settings),
        versions,
        tuple(
            f"invgp takes {min(found.values()):.2f} to {max(found.values()):.2f} of the time of {package}."
            for package, found in ratios.items()
        ),
    )


def main(arguments: Sequence[str] | None = None) -> Table:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="measurements; the median counts (default: 7)")
    parser.add_argument("--packages", nargs="*", choices=[p.name for p in PACKAGES], help="(default: all)")
    parser.add_argument("--small", action="store_true", help="small sizes, whose times mean nothing")
    chosen = parser.parse_args(arguments)
    pythons = {
        p.name: environments.environment(environments.cache_folder(p.folder), p.steps, (p.module,), p.name)
        for p in PACKAGES
        if chosen.packages is None or p.name in chosen.packages
    }
    versions = {"invgp": invgp.__version__, "numpy": np.__version__}
    timings = [
        t
        for size in (SMALL if chosen.small else SIZES)
        for t in measure_seconds(size, pythons, chosen.repeats, versions)
    ]
    reported = table(timings, chosen.repeats, versions)
    print(reported)
    return reported


if __name__ == "__main__":
    main()
