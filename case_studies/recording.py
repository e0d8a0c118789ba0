"""Results of a case study in its `results.json`; `docs/make_results.py` generates a page from all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FIGURES = 4  # significant digits of a number


def record(folder: Path, found: Mapping[str, Any]) -> None:
    """Replace the entry of the same experiment, and keep those of others."""
    path = folder / "results.json"
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    kept = {entry["experiment"]: entry for entry in entries} | {found["experiment"]: round_numbers(found)}
    write_whole(path, json.dumps(list(kept.values()), indent=2, ensure_ascii=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Replace a file once the new one is complete; an interruption leaves the old one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)  # noqa: PTH105 - the atomic one, by name
    finally:
        part.unlink(missing_ok=True)


def round_numbers(value: Any) -> Any:
    """Round every number to a few digits; the others differ between machines."""
    if isinstance(value, Mapping):
        return {key: round_numbers(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(part) for part in value]
    if isinstance(value, int | str) or value is None:
        return value
    return float(f"{float(value):.{FIGURES}g}")
