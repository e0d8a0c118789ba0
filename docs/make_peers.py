"""Write docs/peers.md from what the benchmarks beside other packages measured: python docs/make_peers.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent / "tests" / "benchmarks"
# Records that `tests/benchmarks/tables.py` wrote, with the commands that measure them.
COMMANDS = {
    "peers.json": "python tests/benchmarks/peers.py --record",
    "estimator.json": "python tests/benchmarks/estimator.py --record",
}
INTRODUCTION = """# Comparison with other packages
This page compares the cost of invgp with that of other packages: simulator runs and seconds until an accurate
posterior, one evaluation of a bound with its gradient, one run of a program, and complete fits of models. The values of
each table were measured on one machine. The commands create a separate environment for each package. Compare ratios;
the seconds depend on the machine. `python docs/make_peers.py` generates this page from the output of the commands.
"""


def page(records: dict[str, dict[str, Any]]) -> str:
    """Return the whole page, from records by the command that measures them."""
    lines = [INTRODUCTION]
    for command, record in records.items():
        lines += [line for table in record["tables"] for line in section(table, command, record["machine"])]
    return "\n".join(lines).rstrip() + "\n"


def section(table: dict[str, Any], command: str, machine: str) -> Iterator[str]:
    """Yield the lines of the section of one table."""
    rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    used = ", ".join(f"{package} {number}" for package, number in table["versions"].items())
    reading = [f"- {sentence}" for sentence in table["reading"]]
    yield from (f"## {table['title']}", table["about"], "", *(f"| {' | '.join(row)} |" for row in rows), "")
    yield from (*reading, *([""] if reading else []))
    yield from (f"Command: `{command}`. Machine: {machine}. With {used}.", "")


def read_records() -> dict[str, dict[str, Any]]:
    """Read the records in the repository, by command."""
    return {command: json.loads((BENCHMARKS / name).read_text(encoding="utf-8")) for name, command in COMMANDS.items()}


def main() -> None:
    """Write the page."""
    (HERE / "peers.md").write_text(page(read_records()), encoding="utf-8")


if __name__ == "__main__":
    main()
