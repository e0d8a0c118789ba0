"""The SQLite file of a ledger: opening, transactions, queries and the numbers in its rows."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from invgp.adapters.protocol import Floats, Status
from invgp.errors import LedgerError
from invgp.ledger.rows import FLOAT
from invgp.ledger.schema import VERSION, check_file, create_tables, restrict_connection
from invgp.ledger.sqlite_errors import (
    damaged_ledger_error,
    stop_when_interrupted,
    translate_errors,
    unusable_ledger_error,
)

PATIENCE = 30.0  # s, while another process writes
ROWS_PER_FETCH = 1000

_log = logging.getLogger(__name__)


class LedgerFile:
    """A SQLite file of runs that several processes of one machine can use at the same time.

    Parameters
    ----------
    path : str or Path
        The file. It is created if it does not exist, unless `read_only` is set.
    read_only : bool
        Whether to leave the file unchanged.
    patience : float
        Time limit in seconds to wait while another process writes.
    skip_check : bool
        Whether to skip the check of the whole file, because another process has just made it.

    Raises
    ------
    ConfigError
        The file is not a ledger of a known version, or it is damaged. It is left unchanged.
    LedgerError
        The file cannot be read or written: for example, the disk is full or another process keeps it locked.
    """

    def __init__(
        self, path: str | Path, *, read_only: bool = False, patience: float = PATIENCE, skip_check: bool = False
    ) -> None:
        self.path, self.patience = Path(path), patience
        self._check_path(read_only=read_only)
        with translate_errors(self.path):
            address = f"{self.path.absolute().as_uri()}?{self._mode(read_only=read_only)}"
            self.connection = sqlite3.connect(address, timeout=patience, isolation_level=None, uri=True)
        try:
            with translate_errors(self.path):
                restrict_connection(self.connection)
                self._version, indexed = (VERSION, True) if skip_check else check_file(self.connection, self.path)
            if read_only:
                self._begin_to_read(indexed=indexed)
            else:
                self._begin_to_write(indexed=indexed)
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def select(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query."""
        with translate_errors(self.path), stop_when_interrupted(self.connection):
            cursor = self.connection.execute(query, values)
        while True:
            with translate_errors(self.path), stop_when_interrupted(self.connection):
                some = cursor.fetchmany(ROWS_PER_FETCH)
            if not some:
                return
            yield from some

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Execute the block in a transaction."""
        with translate_errors(self.path), stop_when_interrupted(self.connection):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def sync(self) -> None:
        """Wait until everything that any process has committed is on the disk."""
        with translate_errors(self.path):
            self.connection.execute("PRAGMA synchronous = FULL")
            self.connection.execute("INSERT OR REPLACE INTO synced (rowid, at) VALUES (1, ?)", (time.time(),))
            self.connection.execute("PRAGMA synchronous = NORMAL")

    def decode_numbers(self, stored: bytes | None, size: int) -> Floats:
        """Return the inputs or outputs of a run, shape (size,); NaN if there are none.

        Parameters
        ----------
        stored : bytes or None
        size : int
            Number of inputs or outputs.

        Returns
        -------
        array, shape (size,)
        """
        if stored is None:
            return np.full(size, np.nan)
        if len(stored) != size * FLOAT.itemsize:
            reason = f"a run has {len(stored)} bytes where {size} numbers are expected"
            raise unusable_ledger_error(self.path, reason)
        return np.frombuffer(stored, FLOAT).astype(np.float64)

    def decode_status(self, text: str) -> Status:
        """Return the status with this value."""
        try:
            return Status(text)
        except ValueError:
            reason = f"a run has the status {text!r}, which this version does not know"
            raise unusable_ledger_error(self.path, reason) from None

    def _check_path(self, *, read_only: bool) -> None:
        if self.path.is_dir():
            raise unusable_ledger_error(self.path, f"it is a directory{_suggest_ledger(self.path)}")
        if self.path.exists() and not self.path.is_file():
            raise unusable_ledger_error(self.path, "it is no regular file")
        if not read_only:
            self._make_directory()
        elif not self.path.exists():
            raise unusable_ledger_error(self.path, "no such file")

    def _mode(self, *, read_only: bool) -> str:
        """Return how SQLite opens the file. A reader opens it for writing if possible, to leave no log beside it."""
        if not read_only:
            return "mode=rwc"
        if os.access(self.path, os.W_OK) and os.access(self.path.absolute().parent, os.W_OK):
            return "mode=rw"
        # Without a log no process is writing, and the shared memory, which cannot be created, is not needed.
        log = self.path.with_name(f"{self.path.name}-wal")
        return "mode=ro" if log.exists() else "mode=ro&immutable=1"

    def _make_directory(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(self.path, str(error.strerror)) from error

    def _begin_to_read(self, *, indexed: bool) -> None:
        if self._version == 0:
            raise unusable_ledger_error(self.path, "it is empty")
        if not indexed:
            raise damaged_ledger_error(self.path, "its indexes do not agree with its rows; `invgp run` rebuilds them")
        with translate_errors(self.path):
            self.connection.execute("PRAGMA query_only = ON")

    def _begin_to_write(self, *, indexed: bool) -> None:
        with translate_errors(self.path):
            self._enable_shared_access()
            self.connection.execute("PRAGMA synchronous = NORMAL")
        if self._version < VERSION:
            with self.transaction():
                create_tables(self.connection)
            self._version = VERSION
        if not indexed:
            self._rebuild_indexes()

    def _rebuild_indexes(self) -> None:
        with self.transaction():
            self.connection.execute("REINDEX")
        _log.warning("the indexes of the ledger %r were damaged and have been rebuilt", str(self.path))

    def _enable_shared_access(self) -> None:
        """Allow reading during writing. Two processes that create the file at the same time may fail at first."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return


def _suggest_ledger(directory: Path) -> str:
    found = sorted(directory.glob("*.ledger.sqlite"))
    return f"; did you mean {str(found[0])!r}?" if found else ""
