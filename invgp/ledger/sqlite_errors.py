"""Errors of SQLite as messages for users, and signals that arrive while SQLite executes a statement.

SQLite calls Python functions, and Python may execute a signal handler in them. SQLite drops an exception that is raised
there, so a Ctrl-C would be lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from invgp.errors import ConfigError, LedgerError
from invgp.operating_system import NO_SPACE, delay_interrupts, find_write_error

# Errors that prevent reading or writing. They do not mean that the file is damaged.
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
_IO_ERROR = "SQLITE_IOERR"
_DAMAGE = ("SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_CORRUPTFS")


class DamagedError(Exception):
    """A ledger is damaged; the text describes the damage."""


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite within the block.

    Parameters
    ----------
    path : Path
        File of the ledger.

    Raises
    ------
    ConfigError
        The file is not a ledger, or it is damaged.
    LedgerError
        The file cannot be read or written at present.
    """
    try:
        yield
    except DamagedError as damage:
        raise damaged_ledger_error(path, str(damage)) from damage
    except UnicodeDecodeError as error:  # SQLite quotes the file in its message
        raise damaged_ledger_error(path, "a text in it is not UTF-8") from error
    except sqlite3.ProgrammingError:  # a bug of invgp
        raise
    except sqlite3.Error as error:
        # A specific name such as SQLITE_IOERR_WRITE starts with the name of its group.
        code = getattr(error, "sqlite_errorname", "")
        reason = next((reason for name, reason in _REASONS.items() if code.startswith(name)), None)
        if reason is None and code.startswith(_IO_ERROR) and code not in _DAMAGE:
            reason = _explain_io_error(path, error)
        if reason is not None:
            raise LedgerError(path, reason) from error
        if code == "SQLITE_NOTADB":
            raise unusable_ledger_error(path, f"it is damaged, or no SQLite file ({error})") from error
        raise damaged_ledger_error(path, str(error)) from error


def unusable_ledger_error(path: Path, reason: str) -> ConfigError:
    """Return the error for a file that cannot be used as a ledger."""
    return ConfigError(f"the ledger {str(path)!r} cannot be used: {reason}")


def damaged_ledger_error(path: Path, reason: str) -> ConfigError:
    """Return the error for a damaged ledger."""
    return unusable_ledger_error(
        path, f"it is damaged ({reason}); restore it from a copy, or move it away to start again without its runs"
    )


def _explain_io_error(path: Path, error: sqlite3.Error) -> str:
    # SQLite reports "disk I/O error" if it has no space for a file next to the ledger.
    cause = find_write_error(path.parent)
    return _REASONS["SQLITE_FULL"] if cause is not None and cause.errno in NO_SPACE else str(error)


_INSTRUCTIONS = 100_000  # of SQLite's virtual machine between two calls of the progress handler


@contextmanager
def stop_when_interrupted(
    connection: sqlite3.Connection, is_over: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Stop a statement when a signal arrives, and raise the exception of its handler at the end of the block.

    Parameters
    ----------
    connection : sqlite3.Connection
    is_over : callable
        Returns whether a statement must be stopped for another reason. SQLite then raises an error with the code
        SQLITE_INTERRUPT.
    """
    with delay_interrupts() as raised:
        connection.set_progress_handler(lambda: bool(raised) or is_over(), _INSTRUCTIONS)
        try:
            yield
        finally:
            connection.set_progress_handler(None, 0)
