"""The address of a ledger, for workers that record their own runs."""

from __future__ import annotations

import platform
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path

from invgp.ledger.recorder import Recorder
from invgp.ledger.store import Ledger

_thread = threading.local()  # SQLite allows the use of a connection only in the thread that opened it


class _OpenLedger:
    """The recorder of one thread. It closes its ledger when the thread ends or opens another ledger."""

    def __init__(self, address: LedgerAddress, recorder: Recorder | None) -> None:
        self.address, self.recorder = address, recorder

    def __del__(self, error: type[Exception] = sqlite3.Error) -> None:  # the module may be gone at the exit of Python
        try:
            if self.recorder is not None:
                self.recorder.ledger.connection.close()
        except error:  # Python exits before the thread ends; no other thread may close the connection
            return


@dataclass(frozen=True)
class LedgerAddress:
    """Everything that a worker needs to record runs of one model; it can be pickled.

    SQLite shares a file only between processes of one machine. On another machine, or in a container that has another
    file at this path, `open_recorder` returns None, and the process that submitted the runs records them.

    Attributes
    ----------
    path : Path
    host : str
        Name of the machine.
    device, inode : int
        Identity of the file.
    number : int
        Number of the model in the ledger.
    digest : str
        Digest of the model.
    input_size, output_size : int
        Number of inputs and outputs of a run.
    retries, answer_failed
        As in `Ledger.open_recorder`.
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
    def from_recorder(recorder: Recorder) -> LedgerAddress:
        """Return the address of the ledger of a recorder of this process."""
        path = recorder.ledger.path.absolute()
        file = path.stat()
        return LedgerAddress(
            path,
            platform.node(),
            file.st_dev,
            file.st_ino,
            recorder.number,
            recorder.digest,
            recorder.input_size,
            recorder.output_size,
            recorder.retries,
            recorder.answer_failed,
        )

    def open_recorder(self) -> Recorder | None:
        """Return the recorder of this thread; None if the ledger cannot be reached from this process."""
        current: _OpenLedger | None = getattr(_thread, "ledger", None)
        if current is None or current.address != self:
            current = _thread.ledger = _OpenLedger(self, self._open())
        return current.recorder

    def _open(self) -> Recorder | None:
        if platform.node() != self.host:
            return None
        try:
            file = self.path.stat()
        except OSError:
            return None
        if (file.st_dev, file.st_ino) != (self.device, self.inode):
            return None
        sizes = self.input_size, self.output_size
        ledger = Ledger(self.path, skip_check=True)
        return Recorder(ledger, self.number, self.digest, *sizes, self.retries, self.answer_failed)
