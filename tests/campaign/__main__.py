"""The command: all parts of the campaign, or some, and one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # forked processes import the package as `campaign`

from campaign.faulty_runs import faulty_runs
from campaign.tally import Tally, table

PARTS = {"runs": faulty_runs}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/campaign", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="parts to run; all by default")
    parser.add_argument("--small", action="store_true", help="few cases per part, as in the test suite")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--folder", type=Path, help="where cases are kept that went wrong; a temporary one by default")
    parser.add_argument("--adapters", nargs="+", help="of the faulty runs; all by default")
    parser.add_argument("--pools", nargs="+", help="of the faulty runs; all by default")
    parser.add_argument("--faults", nargs="+", help="of the faulty runs; all by default")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="invgp-campaign-")) if options.folder is None else options.folder.absolute()
    tallies: list[Tally] = []
    for name in options.parts or PARTS:
        began = time.monotonic()
        chosen = {key: getattr(options, key) for key in ("adapters", "pools", "faults") if getattr(options, key)}
        tallies.append(PARTS[name](folder / name, small=options.small, seed=options.seed, **(chosen if name == "runs" else {})))
        print(f"{tallies[-1].part}: {time.monotonic() - began:.0f} s", flush=True)
    for tally in tallies:
        for note in tally.notes:
            print(f"{tally.part}: {note}")
    print(f"\n{table(tallies)}\n\ncases that went wrong are kept in {folder}")
    return int(any(tally.faults for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
