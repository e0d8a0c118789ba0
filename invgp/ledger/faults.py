"""What SQLite says when something is wrong, as a sentence for the person who must mend it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invgp.disk_space import NO_SPACE, find_write_error
from invgp.errors import ConfigError, LedgerError

# What keeps the file from being read or written, and says nothing of what it holds.
_REASONS = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_BUSY": "another process has kept it locked for too long",
    "SQLITE_LOCKED": "another process has kept it locked for too long",
    "SQLITE_PROTOCOL": "another process has kept it locked for too long",
    "SQLITE_READONLY": "it is not allowed to be written",
    "SQLITE_PERM": "it is not allowed to be written",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_NOMEM": "the memory is full",
    "SQLITE_INTERRUPT": "a statement was interrupted",
}
_IO_FAULT = "SQLITE_IOERR"
_LIKE_DAMAGE = ("SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS")


class DamagedError(Exception):
    """A ledger that is not whole; the text says what is wrong with it."""


@contextmanager
def sentences(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into a `ConfigError` about a file that is no ledger, or a `LedgerError`."""
    try:
        yield
    except DamagedError as damage:
        raise damaged_ledger(path, str(damage)) from damage
    except UnicodeDecodeError as error:  # SQLite quotes the file in its message
        raise damaged_ledger(path, "a text in it is not UTF-8") from error
    except sqlite3.ProgrammingError:  # a fault of ours
        raise
    except sqlite3.Error as error:
        # A name such as SQLITE_IOERR_WRITE starts with that of its kind.
        code = getattr(error, "sqlite_errorname", "")
        known = next((reason for name, reason in _REASONS.items() if code.startswith(name)), None)
        if known is None and code.startswith(_IO_FAULT) and code not in _LIKE_DAMAGE:
            known = _explain_io_error(path, error)
        if known is not None:
            raise LedgerError(path, known) from error
        if code == "SQLITE_NOTADB":
            raise not_a_ledger(path, f"it is damaged, or no SQLite file ({error})") from error
        raise damaged_ledger(path, str(error)) from error


def _explain_io_error(path: Path, error: sqlite3.Error) -> str:
    # SQLite reports "disk I/O error" if it has no space for a file beside the ledger.
    cause = find_write_error(path.parent)
    return _REASONS["SQLITE_FULL"] if cause is not None and cause.errno in NO_SPACE else str(error)


def not_a_ledger(path: Path, reason: str) -> ConfigError:
    """For a file that must not be touched."""
    return ConfigError(f"the ledger {str(path)!r} cannot be used: {reason}")


def damaged_ledger(path: Path, reason: str) -> ConfigError:
    """For a file that is not whole; it is left as it is."""
    return not_a_ledger(path, f"it is damaged ({reason}); restore it from a copy, or move it away to begin anew")
