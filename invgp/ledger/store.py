"""The file of a ledger: open, read and write.

The file has one row per run. After a commit, a row survives the end of the process. After `sync`, it is on the disk and
survives a power failure.
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
from invgp.ledger.interrupted_statements import stop_when_interrupted
from invgp.ledger.recorder import FLOAT, Recorder
from invgp.ledger.rows import INTACT, MODEL_CHECKSUM, ROW, RunRow, row_expression, run_key, text_checksum
from invgp.ledger.schema import VERSION, check_file, create_tables, restrict_connection
from invgp.ledger.sqlite_errors import damaged_ledger_error, translate_errors, unusable_ledger_error

PATIENCE = 30.0  # s, while another process writes
ROWS_PER_FETCH = 1000

_log = logging.getLogger(__name__)


class RecordedModel(NamedTuple):
    """A simulator that has runs in a ledger.

    Attributes
    ----------
    number : int
        Number of the simulator in the ledger.
    digest : str
        Digest of the simulator.
    name : str
    inputs, outputs : tuple of Quantity
    """

    number: int
    digest: str
    name: str
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]


@dataclass(frozen=True)
class RecordedRun:
    """A run in a ledger.

    Attributes
    ----------
    run : int
        Number of the run in the ledger.
    model : RecordedModel
    label : str
        Purpose, site and sample of the run.
    inputs : array, shape (I,)
        In the units of the inputs of the model.
    outputs : array, shape (P,)
        In the units of the outputs of the model; NaN for a failed run.
    status : Status
    attempts : int
        Number of times that the run was tried.
    seconds : float
        Total duration of all attempts, in s.
    worker : str
        Host and process id of the worker.
    finished : float
        Time at which the run was recorded, in seconds since 1970.
    message : str
        Cause of a failure.
    directory : str
        Directory of a failed run; empty if it has none.
    """

    run: int
    model: RecordedModel
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

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def open_recorder(self, model: ForwardModel, *, retries: int = 0, answer_failed: bool = True) -> Recorder:
        """Return a recorder of the runs of one model.

        Parameters
        ----------
        model : ForwardModel
        retries : int
            A failed run is repeated unless it was tried more than this many times.
        answer_failed : bool
            Whether failed runs are found at all; if not, they are repeated.

        Returns
        -------
        Recorder
        """
        quantities = {"inputs": _describe_quantities(model.inputs), "outputs": _describe_quantities(model.outputs)}
        about = json.dumps({"name": model.name, **quantities})
        checksum = text_checksum(model.digest.encode(), about.encode())
        with self.transaction():
            self._rename(former_digest(model), model.digest)
            self._restore(model.digest)
            insert = f"""INSERT INTO models (digest, about, checksum) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE
                SET about = excluded.about, checksum = excluded.checksum
                WHERE (checksum = {MODEL_CHECKSUM}) IS NOT TRUE"""  # noqa: S608 - no text of others in it
            self.connection.execute(insert, (model.digest, about, checksum))
            [(number,)] = self.connection.execute("SELECT model FROM models WHERE digest = ?", (model.digest,))
        return Recorder(self, number, model.digest, input_size(model), output_size(model), retries, answer_failed)

    def models(self) -> list[RecordedModel]:
        """Return the simulators that have runs, in the order of their numbers, without damaged descriptions."""
        intact = "1" if self._version == 1 else f"(checksum = {MODEL_CHECKSUM}) IS TRUE"
        found = self.select(
            f"SELECT model, CAST(digest AS BLOB), CAST(about AS BLOB) FROM models WHERE {intact} "  # noqa: S608
            "AND model IN (SELECT model FROM runs) ORDER BY model"
        )
        models = (_parse_model(number, digest, about) for number, digest, about in found)
        return [model for model in models if model is not None]

    def runs(
        self, *, failed: bool = False, model: RecordedModel | None = None, run: int | None = None
    ) -> Iterator[RecordedRun]:
        """Yield the runs in the order in which they were recorded.

        Damaged rows are left out, and a warning in the log states their number.

        Parameters
        ----------
        failed : bool
            Whether to yield failed runs only.
        model : RecordedModel, optional
            Yield the runs of this simulator only.
        run : int, optional
            Yield the run with this number only.
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
        query = f"SELECT run, {ROW}, {stored} FROM runs WHERE {where} ORDER BY run"  # noqa: S608 - no text of others
        damaged = 0
        for number, *values, checksum in self.select(query, [value for some in chosen.values() for value in some]):
            row = RunRow(*values)
            if row.model not in models:  # its first run was recorded after the query
                models |= {m.number: m for m in self.models()}
            if row.model in models and self._is_intact(models[row.model], row, checksum):
                yield self._parse_run(number, models[row.model], row)
            else:
                damaged += 1
        if damaged:
            _log.warning(
                "%s of the ledger %r left out: damaged; an inversion that needs them makes them again",
                count_noun(damaged, "run"),
                str(self.path),
            )

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
        """Return the inputs or outputs of a run, shape (size,); NaN if there are none."""
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

    def _is_intact(self, model: RecordedModel, row: RunRow, checksum: bytes | None) -> bool:
        """Whether a row is unchanged, and belongs to the model that it names."""
        if self._version > 1 and not row.is_intact(checksum):
            return False
        return None not in (row.digest, row.inputs) and row.digest == run_key(model.digest.encode(), row.inputs)

    def _parse_run(self, number: int, model: RecordedModel, row: RunRow) -> RecordedRun:
        def decode(text: bytes) -> str:
            return text.decode(errors="backslashreplace")

        return RecordedRun(
            run=number,
            model=model,
            label=decode(row.label),
            inputs=self.decode_numbers(row.inputs, sum(quantity.size for quantity in model.inputs)),
            outputs=self.decode_numbers(row.outputs, sum(quantity.size for quantity in model.outputs)),
            status=self.decode_status(decode(row.status)),
            attempts=row.attempts,
            seconds=row.seconds,
            worker=decode(row.worker),
            finished=row.finished,
            message=decode(row.message),
            directory=decode(row.directory),
        )

    def _rename(self, former: str, digest: str) -> None:
        """Keep the runs of a model whose digest was computed in another way for ledgers of version 1."""
        known = dict(
            self.connection.execute("SELECT digest, model FROM models WHERE digest IN (?, ?)", (former, digest))
        )
        if former not in known or digest in known:
            return
        number = known[former]
        self.connection.execute("UPDATE models SET digest = ?, checksum = NULL WHERE model = ?", (digest, number))
        # An assignment uses the old values, hence the new key in the checksum.
        key = "run_key(:digest, CAST(inputs AS BLOB))"
        renew = f"UPDATE runs SET digest = {key}, checksum = run_checksum({row_expression(digest=key)})"  # noqa: S608 - our own
        values = {"digest": digest.encode(), "number": number}
        self.connection.execute(f"{renew} WHERE model = :number AND {INTACT}", values)

    def _restore(self, digest: str) -> None:
        """Restore the digest of a damaged description if its runs belong to the model."""
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


def _describe_quantities(quantities: Iterable[Quantity]) -> list[dict[str, Any]]:
    return [{"name": q.name, "unit": q.unit, "labels": q.labels} for q in quantities]


def _parse_model(number: int, digest: bytes, about: bytes) -> RecordedModel | None:
    """Return the model of a row; None if the row is damaged."""

    def quantities(found: Any) -> tuple[Quantity, ...]:
        return tuple(Quantity(str(q["name"]), str(q["unit"]), _parse_labels(q["labels"])) for q in found)

    try:
        found = json.loads(about)
        sides = quantities(found["inputs"]), quantities(found["outputs"])
        return RecordedModel(number, digest.decode(), str(found["name"]), *sides)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _parse_labels(found: Any) -> tuple[str, ...] | tuple[int, ...] | None:
    if found is None:
        return None
    if not all(isinstance(label, str | int) for label in found):
        raise TypeError("labels are words or numbers")
    return tuple(found)
