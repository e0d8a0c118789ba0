"""A ledger as its workers reach it: they write their rows themselves, if the file is theirs to write."""

from __future__ import annotations

import platform
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path

from invgp.ledger.recorder import Recorder
from invgp.ledger.store import Ledger

_mine = threading.local()  # a connection of SQLite stays in its thread


class _Opened:
    """The recorder of one thread, which closes its ledger when the thread ends or opens another one."""

    def __init__(self, reach: Reach, recorder: Recorder | None) -> None:
        self.reach, self.recorder = reach, recorder

    def __del__(self, error: type[Exception] = sqlite3.Error) -> None:  # the module may be gone when Python ends
        try:
            if self.recorder is not None:
                self.recorder.ledger.connection.close()
        except error:  # Python ends before the thread: another thread may not close it, and need not
            return


@dataclass(frozen=True)
class Reach:
    """What a worker needs to know of the runs of one model in a ledger; it travels to where the worker is.

    SQLite's shared memory works among the processes of one machine only. On another one, or in a container that has
    another file under this name, the rows are left to whoever gave out the work.
    """

    path: Path
    host: str
    device: int
    inode: int
    number: int
    digest: str
    input_size: int
    output_size: int
    retries: int
    answer_failed: bool

    @staticmethod
    def of(recorder: Recorder) -> Reach:
        """The file as it is seen here."""
        path = recorder.ledger.path.absolute()
        about = path.stat()
        return Reach(
            path,
            platform.node(),
            about.st_dev,
            about.st_ino,
            recorder.number,
            recorder.digest,
            recorder.input_size,
            recorder.output_size,
            recorder.retries,
            recorder.answer_failed,
        )

    def recorder(self) -> Recorder | None:
        """To record in this thread of this process; None if the ledger is out of reach."""
        mine: _Opened | None = getattr(_mine, "opened", None)
        if mine is None or mine.reach != self:
            mine = _mine.opened = _Opened(self, self._opened())
        return mine.recorder

    def _opened(self) -> Recorder | None:
        if platform.node() != self.host:
            return None
        try:
            about = self.path.stat()
        except OSError:
            return None
        if (about.st_dev, about.st_ino) != (self.device, self.inode):
            return None
        sizes = self.input_size, self.output_size
        ledger = Ledger(self.path, checked=True)
        return Recorder(ledger, self.number, self.digest, *sizes, self.retries, self.answer_failed)
