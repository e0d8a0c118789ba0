"""Write docs/peers.md from what the benchmark beside other packages measured: python docs/make_peers.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "tests" / "benchmarks" / "peers.json"
COMMAND = "python tests/benchmarks/peers.py --record"
INTRODUCTION = """# Comparison with other packages
This page compares the cost of invgp with that of other packages: simulator runs and seconds until an accurate
posterior, one evaluation of a bound with its gradient, and one run of a program. All values were measured in one run on
one machine. The command creates a separate environment for each package. Compare ratios; the seconds depend on the
machine. `python docs/make_peers.py` generates this page from the output of the command.
"""


def page(record: dict[str, Any]) -> str:
    """The whole page, of a record that `tests/benchmarks/tables.py` wrote."""
    lines = [INTRODUCTION, f"Command: `{COMMAND}`. Machine: {record['machine']}.", ""]
    for table in record["tables"]:
        rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
        used = ", ".join(f"{package} {number}" for package, number in table["versions"].items())
        reading = [f"- {sentence}" for sentence in table["reading"]]
        lines += [f"## {table['title']}", table["about"], "", *(f"| {' | '.join(row)} |" for row in rows), ""]
        lines += [*reading, *([""] if reading else []), f"With {used}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write the page."""
    (HERE / "peers.md").write_text(page(json.loads(RECORD.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
