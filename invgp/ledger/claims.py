"""Who makes a run that is not known yet: one process at a time, for as long as it lives.

Before a batch is run, its rows are claimed. A row that another process has claimed is not run: its outcome will be in
the ledger. Nobody waits while he has claims of his own, so that no two can wait for each other. A claim ends with the
batch or with the process, however that ends: whoever wants the row looks whether the process is still there. SQLite
shares a file among the processes of one machine only, so that is all that need be looked at.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psutil

from invgp.errors import LedgerError

if TYPE_CHECKING:
    from invgp.ledger.store import Ledger

LOOKED_UP_AT_ONCE = 500
_RELEASE = "DELETE FROM claims WHERE owner = ?"
SECONDS_BETWEEN_ATTEMPTS = 2.0  # to give up claims, after the first has failed
SECONDS_OF_DOUBT = 2.0  # about when a process began: the clock of the machine may be set


_holding: set[str] = set()  # those of this process that have claims


class Claims:
    """The claims of one user of a ledger, among those of others."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._owner = f"{_place()} {os.getpid()} {psutil.Process().create_time()} {uuid4().hex}"

    def take(self, digests: Sequence[bytes]) -> list[str]:
        """Claim runs, within a transaction; for each the process that has it, nobody for those that are now ours."""
        theirs = self._of_others(digests)
        for owner in {owner for owner in theirs.values() if not _is_alive(owner)}:
            name = owner.encode(errors="surrogateescape")  # as it is in the file, which may be no UTF-8
            self._ledger.connection.execute("DELETE FROM claims WHERE CAST(owner AS BLOB) = ?", (name,))
            theirs = {digest: other for digest, other in theirs.items() if other != owner}
        _holding.add(self._owner)
        ours = [(digest, self._owner) for digest in digests if digest not in theirs]
        self._ledger.connection.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?)", ours)
        return [_shown(theirs[digest]) if digest in theirs else "" for digest in digests]

    def release(self) -> None:
        """Give up all claims; if the file cannot be written now, as soon as it can.

        Raises
        ------
        LedgerError
            The file cannot be written now.
        """
        if self._owner not in _holding:
            return
        _holding.discard(self._owner)  # within this process they count no more in any case
        try:
            with self._ledger.transaction():
                self._ledger.connection.execute(_RELEASE, (self._owner,))
        except LedgerError:
            path = self._ledger.path.absolute()
            threading.Thread(target=_release_later, args=(path, self._owner), daemon=True).start()
            raise

    def _of_others(self, digests: Sequence[bytes]) -> dict[bytes, str]:
        if not list(self._ledger.select("SELECT 1 FROM claims LIMIT 1")):
            return {}
        found: dict[bytes, str] = {}
        for a in range(0, len(digests), LOOKED_UP_AT_ONCE):
            some = digests[a : a + LOOKED_UP_AT_ONCE]
            marks = ", ".join("?" * len(some))
            query = f"SELECT digest, CAST(owner AS BLOB) FROM claims WHERE owner <> ? AND digest IN ({marks})"  # noqa: S608
            rows = self._ledger.select(query, (self._owner, *some))
            found |= {digest: owner.decode(errors="surrogateescape") for digest, owner in rows}
        return found


def _release_later(path: Path, owner: str) -> None:
    """Give up claims that others would wait for as long as this process lives, once the file can be written again."""
    address = f"{path.as_uri()}?mode=rw"
    while path.exists():
        time.sleep(SECONDS_BETWEEN_ATTEMPTS)
        with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as connection, connection:
            connection.execute(_RELEASE, (owner,))
            return


def _place() -> str:
    """Where a number names a process: a machine, or a container on it."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it is no path
    return f"{platform.node()}/{namespace}".replace(" ", "_")


def _is_alive(owner: str) -> bool:
    try:
        place, pid, began, _ = owner.split(" ")
        if place != _place():
            return False
        if int(pid) == os.getpid():
            return owner in _holding
        process = psutil.Process(int(pid))
        return abs(process.create_time() - float(began)) < SECONDS_OF_DOUBT and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError, OverflowError):  # a damaged row names no process
        return False
    except psutil.AccessDenied:
        return True


def _shown(owner: str) -> str:
    return f"process {owner.split(' ')[1]}"
