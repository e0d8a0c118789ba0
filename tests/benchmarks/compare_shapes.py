"""Compare posteriors of problems of `shapes.py` with the reference chains of `invgp compare`.

    python tests/benchmarks/compare_shapes.py product-30-separate --posterior "coupled gaussian"

Prints the table of `invgp compare` for each problem, a site model or a field model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import xarray as xr
from shape_fields import FIELDS
from shape_problems import CASES

import invgp
from invgp.cli.compare import print_comparison

PROBLEMS = CASES | FIELDS


def main(arguments: Sequence[str] | None = None) -> dict[str, xr.Dataset]:
    """Invert, compare and print; return the comparison of each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "problems", nargs="+", choices=PROBLEMS, metavar="PROBLEM", help="name of a problem of shapes.py"
    )
    parser.add_argument("--posterior", default="sampled", help="inference.posterior (default: sampled)")
    parser.add_argument("--survey", type=int, default=1, help="number of the survey (default: 1)")
    parser.add_argument("--chains", type=int, help="number of chains (default: by size)")
    parser.add_argument("--runs", type=int, help="largest number of simulator runs (default: 30,000 per site)")
    parser.add_argument("--effective", type=int, default=1000, help="effective draws of the chains (default: 1000)")
    parser.add_argument("--plot", help="figure of the last problem")
    chosen = parser.parse_args(arguments)
    found = {}
    for name in chosen.problems:
        problem = PROBLEMS[name].survey(chosen.survey).problem(posterior=chosen.posterior)
        posterior = invgp.invert(problem)
        started = time.perf_counter()
        settings = {"chains": chosen.chains, "runs": chosen.runs, "effective": chosen.effective}
        found[name] = invgp.compare(posterior, problem, plot=chosen.plot, **settings)
        print(f"{name}, posterior {chosen.posterior!r}")
        print_comparison(found[name], found[name].attrs["invgp_reference_runs"], time.perf_counter() - started)
    return found


if __name__ == "__main__":
    main()
