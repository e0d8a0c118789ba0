"""How the time of one bound and gradient grows in N, M, Q, K and S, beside the paper's complexity section.

    python tests/benchmarks/growth.py

A full Gaussian costs Q (M^2 D + N M D + K^2 M^3 + K N M^2 + K N S L), L being the cost of one log density: each number
is doubled in turn. The exponent is the base-2 logarithm of the ratio of the times, and that of the paper's formula lies
between those of its terms, whichever dominates.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace

from workload import ALL_BLOCKS, Size, median_seconds, problem

BASE = Size(N=4_000, D=10, M=200, Q=2, K=2, S=50)
PAPER = {
    "N": ("Q N (M D + K M^2 + K S L)", (0, 1)),
    "M": ("Q (N M D + K^2 M^3 + K N M^2)", (0, 3)),
    "Q": ("Q, and what the likelihood makes of it", (1, 2)),
    "K": ("Q K (K M^3 + N M^2 + N S L)", (0, 2)),
    "S": ("Q K N S L", (0, 1)),
}


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure and print; the exponents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in vars(BASE).items():
        parser.add_argument(f"--{name}", type=int, default=value, help="of the base (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=7, help="measurements; the median counts (default: %(default)s)")
    chosen = vars(parser.parse_args(arguments))
    repeats = chosen.pop("repeats")
    base = Size(**chosen)

    def measure_seconds(size: Size) -> float:
        model = problem(size)
        return median_seconds(lambda: model.evaluate(ALL_BLOCKS), repeats)

    start = measure_seconds(base)
    print(f"One bound and gradient of every block, full Gaussian: {base}: {start:.3f} s")
    print("doubled    time  exponent  in the paper")
    exponents = {}
    for name, (formula, (least, most)) in PAPER.items():
        time = measure_seconds(replace(base, **{name: 2 * getattr(base, name)}))
        exponents[name] = math.log2(time / start)
        print(f"{name:7s} {time:7.3f} s   {exponents[name]:6.2f}  {least} to {most}: {formula}", flush=True)
    return exponents


if __name__ == "__main__":
    main()
