"""What a case study found, kept in its `results.json`; `docs/make_results.py` makes a page of all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FIGURES = 4  # that are kept of a number


def record(folder: Path, found: Mapping[str, Any]) -> None:
    """Put an entry in the place of an older one of the same experiment, and leave those of others."""
    path = folder / "results.json"
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    kept = {entry["experiment"]: entry for entry in entries} | {found["experiment"]: round_numbers(found)}
    write_whole(path, json.dumps(list(kept.values()), indent=2, ensure_ascii=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Put a file in the place of an older one when it is whole: an interruption leaves the older one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)  # noqa: PTH105 - the atomic one, by name
    finally:
        part.unlink(missing_ok=True)


def round_numbers(value: Any) -> Any:
    """The same, with every number to some figures: the last ones are another machine's."""
    if isinstance(value, Mapping):
        return {key: round_numbers(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(part) for part in value]
    if isinstance(value, int | str) or value is None:
        return value
    return float(f"{float(value):.{FIGURES}g}")
