"""NumPy archives without pickles: arrays with a description, written completely or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgp.files.atomic_files import atomic_file

FORMAT = 1
MODEL = "a saved model"
CHECKPOINT = "the checkpoint of a fit"

Keys = Mapping[str, type | tuple[type, ...]]


def write_archive(path: Path, kind: str, about: Mapping[str, Any], arrays: Mapping[str, ArrayLike]) -> None:
    """Write arrays with a JSON description; if this fails, an existing file stays unchanged."""
    held = {name: np.asarray(array) for name, array in arrays.items()}
    described = json.dumps({"format": FORMAT, "kind": kind, "digest": _digest(held), **about})
    with atomic_file(kind, path) as part, part.open("wb") as file:
        np.savez(file, about=described, **held)  # type: ignore[arg-type]  # one of its keywords is no array


def read_archive(path: Path, kind: str, keys: Keys) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read an archive of a kind, and check its content.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        `MODEL` or `CHECKPOINT`.
    keys : mapping of str to types
        Required keys of the description, with the types of their values.

    Returns
    -------
    about : dict
        The description.
    arrays : dict of array

    Raises
    ------
    ValueError
        The file is damaged, or is of another kind.
    """
    try:
        _check_regular(path)
        arrays = _members(path)
        about: dict[str, Any] = json.loads(str(arrays.pop("about")))
        found, version = about.get("kind", MODEL), int(about["format"])
    except Exception as error:  # which of them, NumPy and the archive reader decide by version and by byte
        reason = "a file that is damaged, or that invgp did not write" if path.exists() else "no file at all"
        raise ValueError(f"{str(path)!r} must be {kind}, was {reason}") from error
    if version > FORMAT:
        raise ValueError(f"{str(path)!r} was written by a newer invgp (format {version}, this one reads {FORMAT})")
    if found != kind:
        raise ValueError(f"{str(path)!r} must be {kind}, was {found}")
    if about.get("digest") != _digest(arrays):
        raise ValueError(f"{str(path)!r} holds other numbers than were written to it: it is damaged, or was changed")
    for name, types in keys.items():
        if not isinstance(about.get(name), types):
            sentence = f"{str(path)!r} must be {kind}, was a file whose description lacks {name!r}"
            raise ValueError(sentence)  # noqa: TRY004 - of the file, not of an argument
    return about, arrays


def read_array(path: Path) -> NDArray[Any]:
    """Read the array of a .npy file as a memory map, so that a false shape in the header allocates no memory.

    Raises
    ------
    ValueError
        The file contains no array.
    """
    _check_regular(path)
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # which of them, NumPy decides by version and by byte
        reason = "it is empty" if not path.stat().st_size else "it is damaged, or holds objects"
        raise ValueError(f"no array can be read from it: {reason}") from error
    if not isinstance(found, np.ndarray):
        raise ValueError("it is an archive of arrays")  # noqa: TRY004 - of the file, not of an argument
    return found


def _check_regular(path: Path) -> None:
    """Raise `ValueError` for a pipe, which might never end, a device or a directory."""
    if not path.is_file():
        raise ValueError("it is not a regular file")


def _members(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive; raise `ValueError` if they are larger than the file."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        # As `write_archive` writes them. A compressed member, or two in one place, may hold far more than the file.
        if any(m.compress_type != zipfile.ZIP_STORED for m in members):
            raise ValueError("a member is compressed")
        if sum(m.file_size for m in members) > path.stat().st_size:
            raise ValueError("the members are larger than the file")
        return {m.filename.removesuffix(".npy"): _array(archive.read(m)) for m in members}


def _array(content: bytes) -> NDArray[Any]:
    """Read the array from the bytes of a .npy file."""
    stream = BytesIO(content)
    np.lib.format.read_magic(stream)
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError("the size does not agree with the shape")
    stream.seek(0)
    found: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return found


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Compute the SHA-256 digest of the names, types, shapes and values of arrays."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()
