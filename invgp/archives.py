"""NumPy archives without pickles: arrays and what they are about, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgp.atomic_files import atomic_file

FORMAT = 1
MODEL = "a saved model"
CHECKPOINT = "the checkpoint of a fit"
CHAINS = "the chains of a reference"


def write_archive(path: Path, kind: str, about: Mapping[str, Any], arrays: Mapping[str, ArrayLike]) -> None:
    """Write arrays with a description that JSON can hold; the file is there whole, or as it was."""
    held = {name: np.asarray(array) for name, array in arrays.items()}
    described = json.dumps({"format": FORMAT, "kind": kind, "digest": _digest(held), **about})
    with atomic_file(kind, path) as part, part.open("wb") as file:
        np.savez(file, about=described, **held)  # type: ignore[arg-type]  # one of its keywords is no array


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description and the arrays of a file of this kind."""
    try:
        # Opened here: NumPy leaves a file open that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about: dict[str, Any] = json.loads(str(arrays.pop("about")))
        found, version = about.get("kind", MODEL), about["format"]
    except Exception as error:  # which of them, NumPy and the archive reader decide by version and by byte
        reason = "a file that is damaged, or that invgp did not write" if path.exists() else "no file at all"
        raise ValueError(f"{str(path)!r} must be {kind}, was {reason}") from error
    if version > FORMAT:
        raise ValueError(f"{str(path)!r} was written by a newer invgp (format {version}, this one reads {FORMAT})")
    if found != kind:
        raise ValueError(f"{str(path)!r} must be {kind}, was {found}")
    if about.get("digest") != _digest(arrays):
        raise ValueError(f"{str(path)!r} holds other numbers than were written to it: it is damaged, or was changed")
    return about, arrays


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Of the names, shapes, types and numbers."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()
