"""What SQLite says when something is wrong, as a sentence for the person who must mend it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invgp.errors import ConfigError, LedgerError

_NO_LEDGER = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
_REASONS = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_BUSY": "another process has kept it locked for too long",
    "SQLITE_LOCKED": "another process has kept it locked for too long",
    "SQLITE_READONLY": "it is not allowed to be written",
    "SQLITE_PERM": "it is not allowed to be written",
    "SQLITE_CANTOPEN": "it cannot be opened",
}


@contextmanager
def sentences(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into a `ConfigError` about a file that is no ledger, or a `LedgerError`."""
    try:
        yield
    except sqlite3.Error as error:
        # A name such as SQLITE_IOERR_WRITE starts with that of its kind.
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(_NO_LEDGER):
            raise not_a_ledger(path, f"it is damaged, or no SQLite file ({error})") from error
        known = (reason for name, reason in _REASONS.items() if code.startswith(name))
        raise LedgerError(path, next(known, str(error))) from error


def not_a_ledger(path: Path, reason: str) -> ConfigError:
    """For a file that must not be touched."""
    return ConfigError(f"the ledger {str(path)!r} cannot be used: {reason}")
