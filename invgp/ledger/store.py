"""The file of a ledger: who may open it, and what it holds.

A row a run. A commit is in the hands of the operating system, and so survives the end of the process; before a result
is used, `sync` has it on the disk, where it survives a power cut.
"""

from __future__ import annotations

import json
import logging
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

from invgp.adapters.protocol import Floats, ForwardModel, Quantity, Status, former_digest, input_size, output_size
from invgp.errors import LedgerError
from invgp.formatting import count_noun
from invgp.ledger.faults import damaged_ledger, not_a_ledger, sentences
from invgp.ledger.interrupts import keep_interrupts
from invgp.ledger.recorder import FLOAT, Recorder
from invgp.ledger.rows import INTACT, MODEL_CHECKSUM, ROW, is_intact, row_of, run_key, text_checksum
from invgp.ledger.schema import VERSION, check, distrust, prepare

PATIENCE = 30.0  # s, while another process writes
FETCHED_AT_ONCE = 1000  # rows

_log = logging.getLogger(__name__)


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
    checked : whether somebody has opened the file just now, so that it need not be looked at again as a whole.

    Raises
    ------
    ConfigError
        There is a file, and it is no ledger of this version; it is left alone.
    LedgerError
        The file cannot be read or written: the disk is full, or another process keeps it locked.
    """

    def __init__(
        self, path: str | Path, *, read_only: bool = False, patience: float = PATIENCE, checked: bool = False
    ) -> None:
        self.path, self.patience = Path(path), patience
        self._check_path(read_only=read_only)
        with sentences(self.path):
            address = f"{self.path.absolute().as_uri()}?{self._mode(read_only=read_only)}"
            self.connection = sqlite3.connect(address, timeout=patience, isolation_level=None, uri=True)
        try:
            with sentences(self.path):
                distrust(self.connection)
                self._version, indexed = (VERSION, True) if checked else check(self.connection, self.path)
            if read_only:
                self._begin_to_read(indexed=indexed)
            else:
                self._begin_to_write(indexed=indexed)
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
        about = json.dumps({"name": model.name, "inputs": _told(model.inputs), "outputs": _told(model.outputs)})
        checksum = text_checksum(model.digest.encode(), about.encode())
        with self.transaction():
            self._rename(former_digest(model), model.digest)
            self._restore(model.digest)
            insert = f"""INSERT INTO models (digest, about, checksum) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE
                SET about = excluded.about, checksum = excluded.checksum
                WHERE (checksum = {MODEL_CHECKSUM}) IS NOT TRUE"""  # noqa: S608 - nothing of others' in it
            self.connection.execute(insert, (model.digest, about, checksum))
            [(number,)] = self.connection.execute("SELECT model FROM models WHERE digest = ?", (model.digest,))
        return Recorder(self, number, model.digest, input_size(model), output_size(model), retries, answer_failed)

    def models(self) -> list[Model]:
        """The simulators that have runs here, the first one first; those whose description is damaged are left out."""
        intact = "1" if self._version == 1 else f"(checksum = {MODEL_CHECKSUM}) IS TRUE"
        found = self.select(
            f"SELECT model, CAST(digest AS BLOB), CAST(about AS BLOB) FROM models WHERE {intact} "  # noqa: S608
            "AND model IN (SELECT model FROM runs) ORDER BY model"
        )
        described = (_described(number, digest, about) for number, digest, about in found)
        return [model for model in described if model is not None]

    def runs(self, *, failed: bool = False, model: Model | None = None, run: int | None = None) -> Iterator[Run]:
        """Runs in the order in which they were recorded; of them those that failed, of one model, of one number.

        Rows that are damaged are left out, and a warning in the log states how many.
        """
        models = {m.number: m for m in self.models()}
        wanted = {
            "status <> 'ok' AND status <> 'some outputs missing'": () if failed else None,
            "model = ?": None if model is None else (model.number,),
            "run = ?": None if run is None else (run,),
        }
        chosen = {condition: values for condition, values in wanted.items() if values is not None}
        where = " AND ".join(chosen) or "1"
        stored = "NULL" if self._version == 1 else "checksum"
        query = f"SELECT run, {ROW}, {stored} FROM runs WHERE {where} ORDER BY run"  # noqa: S608 - nothing of others'
        damaged = 0
        for number, *row, checksum in self.select(query, [value for values in chosen.values() for value in values]):
            if row[1] not in models:  # its first run was recorded while we were reading
                models |= {m.number: m for m in self.models()}
            if row[1] in models and self._is_whole(models[row[1]], row, checksum):
                yield self._run(number, models[row[1]], *row[2:])
            else:
                damaged += 1
        if damaged:
            _log.warning(
                "%s of the ledger %r left out: damaged; an inversion that needs them makes them again",
                count_noun(damaged, "run"),
                str(self.path),
            )

    def select(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query."""
        with sentences(self.path), keep_interrupts(self.connection):
            cursor = self.connection.execute(query, values)
        while True:
            with sentences(self.path), keep_interrupts(self.connection):
                some = cursor.fetchmany(FETCHED_AT_ONCE)
            if not some:
                return
            yield from some

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What happens within is there whole, or not at all."""
        with sentences(self.path), keep_interrupts(self.connection):
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
            self.connection.execute("INSERT OR REPLACE INTO synced (rowid, at) VALUES (1, ?)", (time.time(),))
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

    def _is_whole(self, model: Model, row: Sequence[Any], checksum: bytes | None) -> bool:
        """Whether a row is as it was written, and a run of the model that it names."""
        if self._version > 1 and not is_intact(row, checksum):
            return False
        return None not in (row[0], row[3]) and row[0] == run_key(model.digest.encode(), row[3])

    def _run(
        self,
        run: int,
        model: Model,
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
    ) -> Run:
        into, out = (sum(q.size for q in quantities) for quantities in (model.inputs, model.outputs))
        words = [text.decode(errors="backslashreplace") for text in (label, status, worker, message, directory)]
        given, gave, about = self.numbers(inputs, into), self.numbers(outputs, out), self.status(words[1])
        return Run(run, model, words[0], given, gave, about, attempts, seconds, words[2], finished, *words[3:])

    def _rename(self, former: str, digest: str) -> None:
        """Keep the runs of a model whose digest an invgp of version 1 computed otherwise."""
        known = dict(
            self.connection.execute("SELECT digest, model FROM models WHERE digest IN (?, ?)", (former, digest))
        )
        if former not in known or digest in known:
            return
        number = known[former]
        self.connection.execute("UPDATE models SET digest = ?, checksum = NULL WHERE model = ?", (digest, number))
        # An assignment sees the values from before, hence the new key in the checksum.
        key = "run_key(?1, CAST(inputs AS BLOB))"
        renew = f"UPDATE runs SET digest = {key}, checksum = run_checksum({row_of(digest=key)})"  # noqa: S608 - ours
        self.connection.execute(f"{renew} WHERE model = ? AND {INTACT}", (digest.encode(), number))

    def _restore(self, digest: str) -> None:
        """Give a description that is damaged its digest again, if its runs are those of the model."""
        if self.connection.execute("SELECT 1 FROM models WHERE digest = ?", (digest,)).fetchone():
            return
        damaged = self.connection.execute(f"SELECT model FROM models WHERE (checksum = {MODEL_CHECKSUM}) IS NOT TRUE")  # noqa: S608
        for (number,) in damaged.fetchall():
            query = "SELECT CAST(digest AS BLOB), CAST(inputs AS BLOB) FROM runs WHERE model = ? LIMIT 10"
            if any(
                key == run_key(digest.encode(), inputs or b"")
                for key, inputs in self.connection.execute(query, (number,))
            ):
                self.connection.execute("UPDATE models SET digest = ? WHERE model = ?", (digest, number))
                return

    def _check_path(self, *, read_only: bool) -> None:
        if self.path.is_dir():
            raise not_a_ledger(self.path, f"it is a directory{_ledgers_in(self.path)}")
        if self.path.exists() and not self.path.is_file():
            raise not_a_ledger(self.path, "it is no regular file")
        if not read_only:
            self._make_folder()
        elif not self.path.exists():
            raise not_a_ledger(self.path, "no such file")

    def _mode(self, *, read_only: bool) -> str:
        """How SQLite opens the file. One who may not write leaves a log beside it, so even readers may, if they can."""
        if not read_only:
            return "mode=rwc"
        if os.access(self.path, os.W_OK) and os.access(self.path.absolute().parent, os.W_OK):
            return "mode=rw"
        # Without a log nobody is writing, and the shared memory that cannot be made is not needed.
        log = self.path.with_name(f"{self.path.name}-wal")
        return "mode=ro" if log.exists() else "mode=ro&immutable=1"

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(self.path, str(error.strerror)) from error

    def _begin_to_read(self, *, indexed: bool) -> None:
        if self._version == 0:
            raise not_a_ledger(self.path, "it is empty")
        if not indexed:
            raise damaged_ledger(self.path, "its indexes do not agree with its rows; `invgp run` makes them anew")
        with sentences(self.path):
            self.connection.execute("PRAGMA query_only = ON")

    def _begin_to_write(self, *, indexed: bool) -> None:
        with sentences(self.path):
            self._share()
            self.connection.execute("PRAGMA synchronous = NORMAL")
        if self._version < VERSION:
            with self.transaction():
                prepare(self.connection)
            self._version = VERSION
        if not indexed:
            self._index_again()

    def _index_again(self) -> None:
        with self.transaction():
            self.connection.execute("REINDEX")
        _log.warning("the indexes of the ledger %r were damaged and have been rebuilt", str(self.path))

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


def _described(number: int, digest: bytes, about: bytes) -> Model | None:
    """A model by its row; None if that cannot be."""

    def quantities(told: Any) -> tuple[Quantity, ...]:
        return tuple(Quantity(str(q["name"]), str(q["unit"]), _labels(q["labels"])) for q in told)

    try:
        found = json.loads(about)
        sides = quantities(found["inputs"]), quantities(found["outputs"])
        return Model(number, digest.decode(), str(found["name"]), *sides)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _labels(told: Any) -> tuple[str, ...] | tuple[int, ...] | None:
    if told is None:
        return None
    if not all(isinstance(label, str | int) for label in told):
        raise TypeError("labels are words or numbers")
    return tuple(told)
