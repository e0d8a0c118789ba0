"""Tables of measurements: as text for a person, and as JSON for `docs/make_peers.py`."""

from __future__ import annotations

import json
import os
import platform
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

WIDTH = 110  # characters
BUSY = 0.5  # cores: with more of them at other work, a measurement says so


@dataclass(frozen=True)
class Table:
    """What was measured, in cells as they are shown.

    Attributes
    ----------
    about : sentences that say what is measured, above the table.
    reading : sentences that say what came out, below it.
    versions : of the packages that took part.
    """

    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    reading: tuple[str, ...] = ()

    def __str__(self) -> str:
        columns = list(zip(self.columns, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        right = [all(cell.lstrip("> ")[:1].isdigit() for cell in cells) for _, *cells in columns]
        lines = [
            "  ".join(
                cell.rjust(width) if numbers else cell.ljust(width)
                for cell, width, numbers in zip(row, widths, right, strict=True)
            ).rstrip()
            for row in (self.columns, *self.rows)
        ]
        used = "with " + ", ".join(f"{package} {number}" for package, number in self.versions.items())
        printed = ["\n".join(textwrap.wrap(text, WIDTH)) for text in (self.about, *self.reading, used)]
        return "\n".join([self.title, printed[0], "", *lines, "", *printed[1:]])


def machine() -> str:
    """Where this was measured, and what else went on there."""
    cores = len(os.sched_getaffinity(0))
    threads = "one thread of BLAS" if os.environ.get("OPENBLAS_NUM_THREADS") == "1" else "as many threads as cores"
    load = os.getloadavg()[0]
    beside = f"; other programs had {load:.1f} of the cores at the start" if load > BUSY else ""
    return f"Python {platform.python_version()}, {platform.machine()}, {cores} cores, {threads}{beside}"


def write(path: Path, measured_on: str, tables: Iterable[Table]) -> None:
    """All of them, as JSON."""
    kept = {"machine": measured_on, "tables": [asdict(table) for table in tables]}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tell(step: str) -> None:
    """What is being measured, apart from the table."""
    print(f"measuring {step} ...", file=sys.stderr, flush=True)
