"""Coverage of the intervals of invgp over surveys whose truth is a draw from the prior (simulation-based calibration).

python tests/benchmarks/shape_calibration.py [--surveys 100] [--only product-30-short square-line surface-waves]

If the posteriors are exact, 50, 80 and 95% intervals contain the truth in 50, 80 and 95% of all cases. A survey is one
trial: the standard error is that of the mean over surveys of the share of sites and unknowns. 100 surveys of the three
default problems take a few hours on one core.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shape_problems import CASES, Survey
from shapes import summaries

import invgp

LEVELS = {0.5: (0.25, 0.75), 0.8: (0.1, 0.9), 0.95: (0.025, 0.975)}
DEFAULT = ("product-30-short", "square-line", "surface-waves")
FIRST_SEED = 1000  # the surveys of `shapes.py` have lower ones


def coverage_of(survey: Survey, inference: dict[str, Any]) -> tuple[list[float], bool]:
    """Share of the truths (N, Q) within the intervals of each level, and whether the file warns."""
    posterior = invgp.invert(survey.problem(**inference))
    truth = survey.case.physical(survey.truth)
    shares = []
    for ends in LEVELS.values():
        _, _, low, high = summaries(posterior, list(survey.case.unknowns), ends)
        shares.append(float(np.mean((truth >= low) & (truth <= high))))
    warned = posterior.attrs["invgp_converged"] != "yes" or bool(posterior.attrs["invgp_diagnostics"])
    return shares, warned


def main(arguments: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Print the coverage of each problem, and return the shares (surveys, levels)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--surveys", type=int, default=100, help="of each problem (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=DEFAULT, choices=list(CASES), metavar="NAME")
    parser.add_argument("--posterior", default="", help='such as "coupled gaussian" (default: that of invgp)')
    parser.add_argument("--record", type=Path, help="write the shares to this JSON file")
    chosen = parser.parse_args(arguments)
    inference = {"posterior": chosen.posterior} if chosen.posterior else {}
    print(f"{'problem':22s} surveys " + "".join(f"{100 * level:16.0f}%" for level in LEVELS) + "  warned   seconds")
    results: dict[str, np.ndarray] = {}
    for name in chosen.only:
        case = CASES[name]
        if case.needs and importlib.util.find_spec(case.needs) is None:
            print(f"{name:22s} needs the package {case.needs}: pip install {case.needs}")
            continue
        started = time.perf_counter()
        found = [coverage_of(case.survey(FIRST_SEED + k), inference) for k in range(chosen.surveys)]
        shares = results[name] = np.array([one for one, _ in found])
        error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
        cells = []
        for level, mean, deviation in zip(LEVELS, shares.mean(axis=0), error, strict=True):
            good = abs(mean - level) <= 2.0 * deviation
            cells.append(f"{100 * mean:6.1f} +- {100 * deviation:3.1f} {'ok' if good else 'NO'}")
        warned = sum(one for _, one in found)
        seconds = time.perf_counter() - started
        print(f"{name:22s} {len(shares):7d} " + " ".join(cells) + f" {warned:7d} {seconds:9.0f}", flush=True)
    if chosen.record:
        kept = {name: shares.tolist() for name, shares in results.items()}
        chosen.record.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    main()
