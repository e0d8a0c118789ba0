"""The file of a ledger: its tables, who may open it, and what it holds.

A row a run. A commit is in the hands of the operating system, and so survives the end of the process; before a result
is used, `sync` has it on the disk, where it survives a power cut.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from invgp.adapters.protocol import Floats, ForwardModel, Quantity, Status, output_size
from invgp.errors import LedgerError
from invgp.ledger import claims
from invgp.ledger.faults import not_a_ledger, sentences
from invgp.ledger.recorder import FLOAT, Recorder

VERSION = 1
APPLICATION = 0x696E7667  # "invg", in the header of the file
PATIENCE = 30.0  # s, while another process writes
FETCHED_AT_ONCE = 1000  # rows

_TABLES = (
    "CREATE TABLE models (model INTEGER PRIMARY KEY, digest TEXT UNIQUE NOT NULL, about TEXT NOT NULL)",
    """CREATE TABLE runs (
        run INTEGER PRIMARY KEY, digest BLOB UNIQUE NOT NULL, model INTEGER NOT NULL REFERENCES models,
        label TEXT NOT NULL, inputs BLOB NOT NULL, outputs BLOB, status TEXT NOT NULL, attempts INTEGER NOT NULL,
        seconds REAL NOT NULL, worker TEXT NOT NULL, finished REAL NOT NULL, message TEXT NOT NULL,
        directory TEXT NOT NULL)""",
    "CREATE INDEX failed ON runs (run) WHERE status <> 'ok'",
    "CREATE TABLE synced (at REAL NOT NULL)",
    "INSERT INTO synced VALUES (0)",
)
_INVERSIONS = "CREATE TABLE IF NOT EXISTS inversions (inversion TEXT PRIMARY KEY, last INTEGER NOT NULL)"

_COLUMNS = "run, label, inputs, outputs, status, attempts, seconds, worker, finished, message, directory"


class Model(NamedTuple):
    """A simulator that has runs in a ledger."""

    number: int
    digest: str
    name: str
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]


@dataclass(frozen=True)
class Run:
    """A row of a ledger.

    Attributes
    ----------
    inputs, outputs : (I,) and (P,), in the units of the model's quantities; outputs are NaN for a run that failed.
    attempts : how often it was tried in all.
    seconds : that it took, all attempts together.
    worker : host and process that ran it.
    finished : when it was recorded, in seconds since 1970.
    directory : of a run that failed; empty if it had none.
    """

    run: int
    model: Model
    label: str
    inputs: Floats
    outputs: Floats
    status: Status
    attempts: int
    seconds: float
    worker: str
    finished: float
    message: str
    directory: str


class Ledger:
    """Runs in a SQLite file, which several processes of one machine may use at once.

    Parameters
    ----------
    path : made if it is not there, unless it is only read.
    read_only : leave the file as it is.
    patience : seconds to wait while another process writes.

    Raises
    ------
    ConfigError
        There is a file, and it is no ledger of this version; it is left alone.
    LedgerError
        The file cannot be read or written: the disk is full, or another process keeps it locked.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, patience: float = PATIENCE) -> None:
        self.path, self.patience = Path(path), patience
        if self.path.is_dir():
            raise not_a_ledger(self.path, f"it is a directory{_ledgers_in(self.path)}")
        if read_only and not self.path.is_file():
            raise not_a_ledger(self.path, "no such file")
        if not read_only:
            self._make_folder()
        with sentences(self.path):
            address = f"{self.path.absolute().as_uri()}?mode={self._mode(read_only=read_only)}"
            self.connection = sqlite3.connect(address, timeout=patience, isolation_level=None, uri=True)
        try:
            with sentences(self.path):
                self._check()
                if read_only:
                    self.connection.execute("PRAGMA query_only = ON")
                else:
                    self._prepare()
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def of(self, model: ForwardModel, *, retries: int = 0, answer_failed: bool = True) -> Recorder:
        """The runs of one model, to look up and to add to.

        Parameters
        ----------
        retries : a run that failed counts as known only once it was tried again that often.
        answer_failed : whether a run that failed counts as known at all.
        """
        about = {"name": model.name, "inputs": _told(model.inputs), "outputs": _told(model.outputs)}
        with self.transaction():
            self.connection.execute(
                "INSERT INTO models (digest, about) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (model.digest, json.dumps(about)),
            )
            [(number,)] = self.connection.execute("SELECT model FROM models WHERE digest = ?", (model.digest,))
        return Recorder(self, number, model.digest, output_size(model), retries, answer_failed)

    def models(self) -> list[Model]:
        """The simulators that have runs here, the first one first."""
        found = self.select("SELECT model, digest, about FROM models WHERE model IN (SELECT model FROM runs)")
        return [Model(number, digest, **_asked(json.loads(about))) for number, digest, about in found]

    def runs(self, *, failed: bool = False, model: Model | None = None, run: int | None = None) -> Iterator[Run]:
        """Runs in the order in which they were recorded; of them those that failed, of one model, of one number."""
        models = {m.number: m for m in self.models()}
        wanted = {
            "status <> 'ok' AND status <> 'some outputs missing'": () if failed else None,
            "model = ?": None if model is None else (model.number,),
            "run = ?": None if run is None else (run,),
        }
        chosen = {condition: values for condition, values in wanted.items() if values is not None}
        where = " AND ".join(chosen) or "1"
        query = f"SELECT model, {_COLUMNS} FROM runs WHERE {where} ORDER BY run"  # noqa: S608 - nothing of others' in it
        for number, *row in self.select(query, [value for values in chosen.values() for value in values]):
            if number not in models:  # its first run was recorded while we were reading
                models |= {m.number: m for m in self.models()}
            yield self._run(models[number], *row)

    def select(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query."""
        with sentences(self.path):
            cursor = self.connection.execute(query, values)
        while True:
            with sentences(self.path):
                some = cursor.fetchmany(FETCHED_AT_ONCE)
            if not some:
                return
            yield from some

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What happens within is there whole, or not at all."""
        with sentences(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def sync(self) -> None:
        """Return when all that was committed, by any process, is on the disk."""
        with sentences(self.path):
            self.connection.execute("PRAGMA synchronous = FULL")
            self.connection.execute("UPDATE synced SET at = ?", (time.time(),))
            self.connection.execute("PRAGMA synchronous = NORMAL")

    def numbers(self, stored: bytes | None, size: int) -> Floats:
        """The numbers (size,) of a run; NaN where there are none."""
        if stored is None:
            return np.full(size, np.nan)
        if len(stored) != size * FLOAT.itemsize:
            raise not_a_ledger(self.path, f"a run holds {len(stored)} bytes, where {size} numbers are expected")
        return np.frombuffer(stored, FLOAT).astype(np.float64)

    def status(self, text: str) -> Status:
        """A status by its name."""
        try:
            return Status(text)
        except ValueError:
            raise not_a_ledger(self.path, f"a run has the status {text!r}, which this version does not know") from None

    def _run(
        self, model: Model, run: int, label: str, inputs: bytes, outputs: bytes | None, status: str, *rest: Any
    ) -> Run:
        into, out = (sum(q.size for q in quantities) for quantities in (model.inputs, model.outputs))
        given, gave = self.numbers(inputs, into), self.numbers(outputs, out)
        return Run(run, model, label, given, gave, self.status(status), *rest)

    def _mode(self, *, read_only: bool) -> str:
        """How SQLite opens the file. One who may not write leaves a log beside it, so even readers may, if they can."""
        if not read_only:
            return "rwc"
        return "rw" if os.access(self.path, os.W_OK) and os.access(self.path.absolute().parent, os.W_OK) else "ro"

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(self.path, str(error.strerror)) from error

    def _check(self) -> None:
        """Raise unless the file is a ledger, or nothing yet."""
        self.connection.execute("BEGIN")  # as it is at one moment: another process may be making it
        try:
            [(application,)] = self.connection.execute("PRAGMA application_id")
            [(version,)] = self.connection.execute("PRAGMA user_version")
            [(tables,)] = self.connection.execute("SELECT COUNT(*) FROM sqlite_master")
        finally:
            self.connection.execute("ROLLBACK")
        if application != APPLICATION and (application or version or tables):
            raise not_a_ledger(self.path, "it is a SQLite file, but not a ledger of invgp")
        if version > VERSION:
            raise not_a_ledger(
                self.path, f"its version is {version}, and this invgp knows {VERSION}; a later invgp wrote it"
            )

    def _prepare(self) -> None:
        self._share()
        self.connection.execute("PRAGMA synchronous = NORMAL")
        with self.transaction():
            [(version,)] = self.connection.execute("PRAGMA user_version")
            for table in (_INVERSIONS, claims.TABLE):  # which earlier files of this version lack
                self.connection.execute(table)
            if version == VERSION:
                return
            for statement in _TABLES:
                self.connection.execute(statement)
            self.connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self.connection.execute(f"PRAGMA user_version = {VERSION}")

    def _share(self) -> None:
        """Let others read while one writes. Two that make a file at once get in each other's way, for a moment."""
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


def _ledgers_in(directory: Path) -> str:
    found = sorted(directory.glob("*.ledger.sqlite"))
    return f"; did you mean {str(found[0])!r}?" if found else ""


def _told(quantities: Iterable[Quantity]) -> list[dict[str, Any]]:
    return [{"name": q.name, "unit": q.unit, "labels": q.labels} for q in quantities]


def _asked(about: dict[str, Any]) -> dict[str, Any]:
    def quantities(told: list[dict[str, Any]]) -> tuple[Quantity, ...]:
        return tuple(Quantity(q["name"], q["unit"], q["labels"] and tuple(q["labels"])) for q in told)

    return {
        "name": about["name"],
        "inputs": quantities(about["inputs"]),
        "outputs": quantities(about["outputs"]),
    }
