"""False alarms and power of the bands of `invgp calibrate`, by simulation.

python tests/benchmarks/coverage_bands.py [--tables 1000] [--sites 40]

Each table is one calibration of one latent. The errors of any two sites have the same correlation. A posterior whose
standard deviation is that of the exact one times `spread` is right if the spread is 1; a table is flagged if any of its
three coverages is outside its band.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from invgp.validation.coverage import INTERVALS, interval_coverage

SPREADS = (1.0, 2.0 / 3.0, 1.0 / 3.0)
CORRELATIONS = (0.0, 0.5, 0.9, 1.0)
SURVEYS = (3, 8, 24, 100)


def flagged_share(
    surveys: int, sites: int, correlation: float, spread: float, tables: int, rng: np.random.Generator
) -> float:
    """Return the share of tables with a coverage outside its band."""
    flagged = 0
    for _ in range(tables // 100):  # in parts, for the memory
        common, own = rng.standard_normal((surveys, 1, 100)), rng.standard_normal((surveys, sites, 100))
        pit = ndtr((np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * own) / spread)
        found = [interval_coverage(pit, interval, len(INTERVALS)) for interval in INTERVALS]
        flagged += int(np.sum(np.any([one.below | one.above for one in found], axis=0)))
    return flagged / (100 * (tables // 100))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000, help="per cell (default: %(default)s)")
    parser.add_argument("--sites", type=int, default=40, help="(default: %(default)s)")
    chosen = parser.parse_args(arguments)
    rng = np.random.default_rng(1)
    heads = [f"spread {spread:.2f}" for spread in SPREADS]
    print("| surveys | correlation of sites | " + " | ".join(heads) + " |")
    print("| --- | --- |" + " --- |" * len(SPREADS))
    for surveys in SURVEYS:
        for correlation in CORRELATIONS:
            shares = [flagged_share(surveys, chosen.sites, correlation, s, chosen.tables, rng) for s in SPREADS]
            cells = " | ".join(f"{100 * share:.0f}%" for share in shares)
            print(f"| {surveys} | {correlation:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
