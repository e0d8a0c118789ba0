"""invgp beside other packages, in one run: simulator runs to a posterior, one bound and gradient, one run of a program.

    python tests/benchmarks/peers.py
    OPENBLAS_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python tests/benchmarks/peers.py

The first time it makes an environment for each package in the user's cache folder, some gigabytes in all. What is
measured, and how, is told at the heads of `peers_otway.py`, `peers_bound.py` and `peers_adapters.py`, which run alone,
too. The second line is for a machine with other work on its cores. `--small --seconds 2 --repeats 1` tries that all of
it works.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence

import peers_adapters
import peers_bound
import peers_otway


def main(arguments: Sequence[str] | None = None) -> None:
    """All three parts of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", default="60", help="of processors, for each other way to a posterior (default: 60)"
    )
    parser.add_argument("--repeats", default="7", help="of every other measurement (default: 7)")
    parser.add_argument("--small", action="store_true", help="a trial of a few minutes; its figures mean nothing")
    chosen = parser.parse_args(arguments)
    print(f"Python {platform.python_version()}, {platform.machine()}")
    peers_otway.main(["--seconds", chosen.seconds, *(["--sites", "8", "--draws", "400"] if chosen.small else [])])
    print()
    peers_bound.main(["--repeats", chosen.repeats, *(["--small"] if chosen.small else [])])
    print()
    peers_adapters.main(["--repeats", chosen.repeats, *(["--runs", "5"] if chosen.small else [])])


if __name__ == "__main__":
    main()
