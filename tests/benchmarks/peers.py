"""invgp beside other packages, in one run: simulator runs to a posterior, one bound and gradient, one run of a program.

    python tests/benchmarks/peers.py
    OPENBLAS_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python tests/benchmarks/peers.py

The first time it creates an environment for each package in the user's cache folder, some gigabytes in all. The
docstrings of `peers_otway.py`, `peers_bound.py` and `peers_adapters.py`, which can also be run alone, describe what is
measured and how. The second line is for a machine with other work on its cores. `--record` writes the tables to
`peers.json`, from which `python docs/make_peers.py` generates docs/peers.md. `--small --seconds 2 --repeats 1` is a
quick test.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import peers_adapters
import peers_bound
import peers_otway
import tables

RECORD = Path(__file__).with_name("peers.json")


def main(arguments: Sequence[str] | None = None) -> None:
    """All three tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", default="60", help="of processors, for each other way to a posterior (default: 60)"
    )
    parser.add_argument("--repeats", default="7", help="of every other measurement (default: 7)")
    parser.add_argument("--small", action="store_true", help="a trial of a few minutes; its figures mean nothing")
    parser.add_argument(
        "--record", nargs="?", type=Path, const=RECORD, metavar="FILE", help="keep the tables (default: peers.json)"
    )
    chosen = parser.parse_args(arguments)
    if chosen.small and chosen.record == RECORD:
        parser.error("--record with --small needs a FILE, since the figures of a trial mean nothing")
    machine = tables.machine()
    print(machine, flush=True)
    measured = []
    for measure in (
        lambda: peers_otway.main(
            ["--seconds", chosen.seconds, *(["--sites", "8", "--effective", "400"] if chosen.small else [])]
        ),
        lambda: peers_bound.main(["--repeats", chosen.repeats, *(["--small"] if chosen.small else [])]),
        lambda: peers_adapters.main(["--repeats", chosen.repeats, *(["--runs", "5"] if chosen.small else [])]),
    ):
        print(flush=True)
        measured.append(measure())
    if chosen.record:
        tables.write(chosen.record, machine, measured)


if __name__ == "__main__":
    main()
