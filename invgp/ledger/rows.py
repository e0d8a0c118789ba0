"""Rows of a ledger and their checksums: a row that was changed by anything but invgp is not used."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

COLUMNS = (
    *("digest", "model", "label", "inputs", "outputs", "status"),
    *("attempts", "seconds", "worker", "finished", "message", "directory"),
)
_NUMBERS = {"model": "INTEGER", "attempts": "INTEGER", "seconds": "REAL", "finished": "REAL"}
_CHECKSUM_SIZE = 8  # bytes
_pack = struct.Struct("<2q2d8q").pack


def row_of(**values: str) -> str:
    """Write the columns of a run in SQL, some of them with other `values`.

    Text is read as bytes: in a damaged row it may not be UTF-8.
    """
    return ", ".join(f"CAST({values.get(name, name)} AS {_NUMBERS.get(name, 'BLOB')})" for name in COLUMNS)


# In SQL. A comparison with nothing is neither true nor false, hence IS TRUE.
ROW = row_of()
INTACT = f"(checksum = run_checksum({ROW})) IS TRUE"
MODEL_CHECKSUM = "text_checksum(CAST(digest AS BLOB), CAST(about AS BLOB))"
INVERSION_CHECKSUM = "text_checksum(CAST(inversion AS BLOB), CAST(last AS BLOB))"


def run_checksum(
    digest: bytes,
    model: int,
    label: bytes,
    inputs: bytes,
    outputs: bytes | None,
    status: bytes,
    attempts: int,
    seconds: float,
    worker: bytes,
    finished: float,
    message: bytes,
    directory: bytes,
) -> bytes | None:
    """Give the checksum of a run; None if a value is missing, as it can only be in a damaged row."""
    parts = digest, label, inputs, b"" if outputs is None else outputs, status, worker, message, directory
    try:
        numbers = _pack(model, attempts, seconds, finished, *map(len, parts))
        return blake2b(b"".join((numbers, *parts)), digest_size=_CHECKSUM_SIZE).digest()
    except (TypeError, struct.error):
        return None


def text_checksum(*parts: bytes | None) -> bytes | None:
    """Give the checksum of a row of texts; None if one is missing."""
    if None in parts:
        return None
    return blake2b(b"\0".join(part for part in parts if part is not None), digest_size=_CHECKSUM_SIZE).digest()


def is_intact(row: Sequence[Any], checksum: bytes | None) -> bool:
    """Whether the values of a run, in the order of `COLUMNS`, are as they were written."""
    return checksum is not None and checksum == run_checksum(*row)


def run_key(model: bytes, inputs: bytes) -> bytes:
    """Give the key of a run, of its model's digest and its inputs."""
    return blake2b(model + b"\0" + inputs, digest_size=16).digest()


def new_row(
    digest: bytes,
    model: int,
    label: str,
    inputs: bytes,
    outputs: bytes | None,
    status: str,
    attempts: int,
    seconds: float,
    worker: str,
    finished: float,
    message: str,
    directory: str,
) -> tuple[Any, ...]:
    """Give the values of a new row, in the order of `COLUMNS`, and its checksum."""
    checksum = run_checksum(
        *(digest, model, label.encode(), inputs, outputs, status.encode()),
        *(attempts, seconds, worker.encode(), finished, message.encode(), directory.encode()),
    )
    values = digest, model, label, inputs, outputs, status, attempts, seconds, worker, finished, message, directory
    return *values, checksum
