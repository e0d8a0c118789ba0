"""Claims: which process makes a run that is not in the ledger yet.

A process claims the rows of a batch before it runs them. A process that needs a row that another process has claimed
waits until the outcome is in the ledger. A process that waits holds no claims, so two processes cannot wait for each
other. A claim ends with the batch, or with the process: a process that needs the row checks whether its owner is still
alive. SQLite shares a file only between processes of one machine, so this check is sufficient.
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
from uuid import uuid4

import psutil

from invgp.errors import LedgerError
from invgp.ledger.ledger_file import LedgerFile

ROWS_PER_QUERY = 500
_RELEASE = "DELETE FROM claims WHERE owner = ?"
SECONDS_BETWEEN_RELEASES = 2.0  # after the first attempt to release claims has failed
CLOCK_TOLERANCE = 2.0  # s, in the start time of a process: the clock of the machine may be changed


_owners: set[str] = set()  # the owners in this process that hold claims


class Claims:
    """The claims of one owner.

    Parameters
    ----------
    ledger : LedgerFile
    """

    def __init__(self, ledger: LedgerFile) -> None:
        self._ledger = ledger
        self._owner = f"{_process_namespace()} {os.getpid()} {psutil.Process().create_time()} {uuid4().hex}"

    def claim(self, keys: Sequence[bytes]) -> list[str]:
        """Claim runs, within a transaction.

        Parameters
        ----------
        keys : sequence of bytes
            Keys of the runs.

        Returns
        -------
        list of str
            For each run, a description of the other process that has claimed it; empty if this owner has it.
        """
        others = self._select_others(keys)
        for owner in {owner for owner in others.values() if not _is_alive(owner)}:
            name = owner.encode(errors="surrogateescape")  # as in the file, which may not be UTF-8
            self._ledger.connection.execute("DELETE FROM claims WHERE CAST(owner AS BLOB) = ?", (name,))
            others = {key: other for key, other in others.items() if other != owner}
        _owners.add(self._owner)
        ours = [(key, self._owner) for key in keys if key not in others]
        self._ledger.connection.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?)", ours)
        return [_describe_owner(others[key]) if key in others else "" for key in keys]

    def release(self) -> None:
        """Release all claims. If the file cannot be written at present, a thread tries again later.

        Raises
        ------
        LedgerError
            The file cannot be written at present.
        """
        if self._owner not in _owners:
            return
        _owners.discard(self._owner)  # in this process, the claims end here in any case
        try:
            with self._ledger.transaction():
                self._ledger.connection.execute(_RELEASE, (self._owner,))
        except LedgerError:
            path = self._ledger.path.absolute()
            threading.Thread(target=_release_later, args=(path, self._owner), daemon=True).start()
            raise

    def _select_others(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        if not list(self._ledger.select("SELECT 1 FROM claims LIMIT 1")):
            return {}
        found: dict[bytes, str] = {}
        for start in range(0, len(keys), ROWS_PER_QUERY):
            some = keys[start : start + ROWS_PER_QUERY]
            marks = ", ".join("?" * len(some))
            query = f"SELECT digest, CAST(owner AS BLOB) FROM claims WHERE owner <> ? AND digest IN ({marks})"  # noqa: S608
            rows = self._ledger.select(query, (self._owner, *some))
            found |= {key: owner.decode(errors="surrogateescape") for key, owner in rows}
        return found


def _release_later(path: Path, owner: str) -> None:
    """Release claims as soon as the file can be written; other processes would wait for them."""
    address = f"{path.as_uri()}?mode=rw"
    while path.exists():
        time.sleep(SECONDS_BETWEEN_RELEASES)
        with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as connection, connection:
            connection.execute(_RELEASE, (owner,))
            return


def _process_namespace() -> str:
    """Return the name of the machine or container in which process ids are unique."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the target is not a path
    return f"{platform.node()}/{namespace}".replace(" ", "_")


def _is_alive(owner: str) -> bool:
    try:
        namespace, pid, start, _ = owner.split(" ")
        if namespace != _process_namespace():
            return False
        if int(pid) == os.getpid():
            return owner in _owners
        process = psutil.Process(int(pid))
        return abs(process.create_time() - float(start)) < CLOCK_TOLERANCE and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError, OverflowError):  # a damaged row does not name a process
        return False
    except psutil.AccessDenied:
        return True


def _describe_owner(owner: str) -> str:
    return f"process {owner.split(' ')[1]}"
