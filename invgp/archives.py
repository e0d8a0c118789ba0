"""NumPy archives without pickles: arrays and what they are about, written whole or not at all."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgp.errors import WriteError

FORMAT = 1
MODEL = "a saved model"
CHECKPOINT = "the checkpoint of a fit"


def write_archive(path: Path, kind: str, about: Mapping[str, Any], arrays: Mapping[str, ArrayLike]) -> None:
    """Write arrays with a description that JSON can hold; the file is there whole, or as it was."""
    described = json.dumps({"format": FORMAT, "kind": kind, **about})
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, about=described, **arrays)  # type: ignore[arg-type]  # one of its keywords is no array
        os.replace(part, path)  # noqa: PTH105 - the atomic one, by name
    except OSError as error:
        raise WriteError(f"{kind} could not be written to {str(path)!r}: {error}") from error
    finally:
        if part.exists():
            part.unlink()


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description and the arrays of a file of this kind."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about: dict[str, Any] = json.loads(str(arrays.pop("about")))
        found, version = about.get("kind", MODEL), about["format"]
    except (AttributeError, EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        reason = "a file that invgp did not write" if path.exists() else "no file at all"
        raise ValueError(f"{str(path)!r} must be {kind}, was {reason}") from error
    if version > FORMAT:
        raise ValueError(f"{str(path)!r} was written by a newer invgp (format {version}, this one reads {FORMAT})")
    if found != kind:
        raise ValueError(f"{str(path)!r} must be {kind}, was {found}")
    return about, arrays
