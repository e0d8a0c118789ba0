"""Rows of a ledger and their checksums, and the run directories that they name.

A row whose checksum is wrong is not used.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FLOAT = np.dtype("<f8")  # the type of inputs and outputs, on every machine
_CHECKSUM_SIZE = 8  # bytes
_KEY_SIZE = 16  # bytes
_TYPES = {"model": "INTEGER", "attempts": "INTEGER", "seconds": "REAL", "finished": "REAL"}  # all others are BLOB
_TEXTS = ("label", "status", "worker", "message", "directory")
_pack = struct.Struct("<2q2d8q").pack


class RunRow(NamedTuple):
    """One row of the table ``runs``.

    Text is read as bytes, because the text of a damaged row may not be UTF-8. In a damaged row, any value may be None.

    Attributes
    ----------
    digest : bytes
        Key of the run, see `run_key`.
    model : int
        Number of the model in the table ``models``.
    label : bytes
        Label of the run.
    inputs : bytes
        Inputs as 64-bit floats, little-endian.
    outputs : bytes or None
        Outputs likewise; None for a failed run.
    status : bytes
        Value of a `Status`.
    attempts : int
        Number of times that the run was tried.
    seconds : float
        Total duration of all attempts, in s.
    worker : bytes
        Host and process id.
    finished : float
        Time at which the run was recorded, in seconds since 1970.
    message : bytes
        Cause of a failure.
    directory : bytes
        Directory of a failed run.
    """

    digest: bytes
    model: int
    label: bytes
    inputs: bytes
    outputs: bytes | None
    status: bytes
    attempts: int
    seconds: float
    worker: bytes
    finished: float
    message: bytes
    directory: bytes

    def checksum(self) -> bytes | None:
        """Compute the checksum; None if a value is missing, as only in a damaged row."""
        outputs = b"" if self.outputs is None else self.outputs
        parts = (
            *(self.digest, self.label, self.inputs, outputs),
            *(self.status, self.worker, self.message, self.directory),
        )
        try:
            numbers = _pack(self.model, self.attempts, self.seconds, self.finished, *map(len, parts))
            return blake2b(b"".join((numbers, *parts)), digest_size=_CHECKSUM_SIZE).digest()
        except (TypeError, struct.error):
            return None

    def is_intact(self, checksum: bytes | None) -> bool:
        """Whether the stored checksum agrees with the values."""
        return checksum is not None and checksum == self.checksum()

    def to_sql(self) -> tuple[Any, ...]:
        """Return the values to insert, with text as `str`, and the checksum."""
        values = [value.decode() if name in _TEXTS else value for name, value in self._asdict().items()]
        return *values, self.checksum()


COLUMNS = RunRow._fields


def row_expression(**values: str) -> str:
    """Return a SQL expression for the columns of a run, some of them replaced by the expressions in `values`."""
    return ", ".join(f"CAST({values.get(name, name)} AS {_TYPES.get(name, 'BLOB')})" for name in COLUMNS)


# Expressions in SQL. A comparison with NULL is neither true nor false, so IS TRUE is needed.
ROW = row_expression()
INTACT = f"(checksum = run_checksum({ROW})) IS TRUE"
MODEL_CHECKSUM = "text_checksum(CAST(digest AS BLOB), CAST(about AS BLOB))"
INVERSION_CHECKSUM = "text_checksum(CAST(inversion AS BLOB), CAST(last AS BLOB))"


def run_checksum(*values: Any) -> bytes | None:
    """Compute the checksum of the values of a run, in the order of `COLUMNS`; a function of SQL."""
    return RunRow(*values).checksum()


def text_checksum(*parts: bytes | None) -> bytes | None:
    """Compute the checksum of texts; None if one is missing."""
    if None in parts:
        return None
    return blake2b(b"\0".join(part for part in parts if part is not None), digest_size=_CHECKSUM_SIZE).digest()


def run_key(model: bytes, inputs: bytes) -> bytes:
    """Compute the key of a run from the digest of its model and its inputs.

    Parameters
    ----------
    model : bytes
        Digest of the model.
    inputs : bytes
        Inputs of the run.

    Returns
    -------
    bytes
    """
    return blake2b(model + b"\0" + inputs, digest_size=_KEY_SIZE).digest()


_DIRECTORY = "; directory: "


def without_removed_directory(message: str, *, temporary: bool = False) -> str:
    """Return the message of a run without the name of a directory that no longer exists.

    Parameters
    ----------
    message : str
        Message as it was recorded.
    temporary : bool
        Whether the directory exists, but will be removed soon.
    """
    cause, found, directory = message.rpartition(_DIRECTORY)
    if found and (temporary or not directory_exists(directory)):
        return f"{cause}; its directory was removed"
    return message


def directory_exists(directory: str) -> bool:
    """Whether there is such a directory; False for text that is not a valid path."""
    try:
        return Path(directory).is_dir()
    except (OSError, ValueError):
        return False
