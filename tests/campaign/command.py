"""The command: all parts of the campaign, or some, and one table."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from .damaged_inputs import damaged_inputs
from .faulty_runs import faulty_runs
from .moves import moves
from .signals import signals
from .tally import Tally, table

PARTS = {"runs": faulty_runs, "signals": signals, "moves": moves, "damage": damaged_inputs}
CHOICES = {"runs": ("adapters", "pools", "faults"), "signals": ("kinds",), "moves": ("kinds",), "damage": ("groups",)}


def main() -> int:
    """Run parts of the campaign and print the table; 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python tests/campaign", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--small", action="store_true", help="few cases per part, as in the test suite")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--folder", type=Path, help="where cases are kept that went wrong; a temporary one by default")
    for choice in ("adapters", "pools", "faults", "kinds", "groups"):
        parser.add_argument(f"--{choice}", nargs="+", help="to choose from; all by default")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"parts must be of {', '.join(PARTS)}, was {unknown.pop()!r}")
    folder = Path(tempfile.mkdtemp(prefix="invgp-campaign-") if options.folder is None else options.folder).absolute()
    tallies: list[Tally] = []
    for part in options.parts or PARTS:
        began = time.monotonic()
        chosen = {name: getattr(options, name) for name in CHOICES[part] if getattr(options, name)}
        tallies.append(PARTS[part](folder / part, small=options.small, seed=options.seed, **chosen))
        print(f"{tallies[-1].part}: {time.monotonic() - began:.0f} s", flush=True)
    (folder / "notes.txt").write_text("\n".join(f"{tally.part}: {note}" for tally in tallies for note in tally.notes))
    print(f"\n{table(tallies)}\n\ncases that went wrong, and notes about them, are kept in {folder}")
    return int(any(tally.faults for tally in tallies))
