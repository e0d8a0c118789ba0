"""Rate of `invgp.revise`, after the case study of the Otway line.

    bash case_studies/otway/run.sh
    python tests/benchmarks/revisions.py case_studies/otway/results/otway.nc [--revisions 100] [--seed 1]

Each revision changes the noise of all data by a factor, or the prior standard deviation of depth or velocity; the
logarithm of the factor has a standard deviation of 0.2. The time of the first one, which opens the file and fits its
emulator, is shown apart. The others use the emulator that is kept. The processor time is that of all threads; on a free
machine with OPENBLAS_NUM_THREADS=1 it is the elapsed time.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np

import invgp


class Rate(NamedTuple):
    """Seconds of the first revision and of all others, and how many of all are reliable."""

    first: float
    processor: float
    elapsed: float
    revisions: int
    reliable: int


def changes_of(posterior, rng):
    """Return a random change of one key of the configuration."""
    factor = float(np.exp(0.2 * rng.standard_normal()))
    latents, observations = (posterior.attrs[f"invgp_{kind}"].split() for kind in ("latents", "observations"))
    name = str(rng.choice([*latents, *observations]))
    if name in latents:
        share = (posterior[f"{name}_prior_std"] / abs(posterior[f"{name}_prior"])).values.flat[0]
        return {f"latents.{name}.std": f"{100 * share * factor:.4g}%"}
    noise = np.atleast_1d(posterior[f"{name}_noise_std"].values[0])
    return {
        f"noise.std.{name}": [float(value) for value in noise * factor] if noise.size > 1 else float(noise[0] * factor)
    }


def measure(path, revisions, seed):
    """Revise a posterior file, and return the times."""
    posterior, rng, reliable = invgp.open_posterior(path), np.random.default_rng(seed), 0
    start = time.perf_counter()
    reliable += invgp.has_converged(invgp.revise(path, changes_of(posterior, rng)))
    first = time.perf_counter() - start
    start, processor = time.perf_counter(), time.process_time()
    for _ in range(revisions - 1):
        reliable += invgp.has_converged(invgp.revise(path, changes_of(posterior, rng)))
    return Rate(first, time.process_time() - processor, time.perf_counter() - start, revisions, reliable)


def main(arguments=None):
    """Print and return the rate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("posterior", help="file of `invgp run`, with its configuration beside or above it")
    parser.add_argument("--revisions", type=int, default=100, help="at least 2")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    found = measure(options.posterior, max(options.revisions, 2), options.seed)
    others = found.revisions - 1
    print(f"{found.revisions} revisions, {found.reliable} of them reliable; the first took {found.first:.2f} s")
    for kind in ("processor", "elapsed"):
        seconds = getattr(found, kind)
        print(f"{kind:9} {seconds / others:6.3f} s per revision, {60 * others / seconds:4.0f} per minute")
    return found


if __name__ == "__main__":
    main()
