"""The runs and the simulators in a ledger.

The file has one row per run. After a commit, a row survives the end of the process. After `sync`, it is on the disk and
survives a power failure.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from invgp.adapters.protocol import Floats, ForwardModel, Quantity, Status, former_digest, input_size, output_size
from invgp.formatting import count_noun
from invgp.ledger.ledger_file import LedgerFile
from invgp.ledger.recorder import Recorder
from invgp.ledger.rows import FLOAT, INTACT, MODEL_CHECKSUM, ROW, RunRow, row_expression, run_key, text_checksum

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


class Ledger(LedgerFile):
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
            outputs=self.decode_outputs(row.outputs, model),
            status=self.decode_status(decode(row.status)),
            attempts=row.attempts,
            seconds=row.seconds,
            worker=decode(row.worker),
            finished=row.finished,
            message=decode(row.message),
            directory=decode(row.directory),
        )

    def decode_outputs(self, stored: bytes | None, model: RecordedModel) -> Floats:
        """Return the outputs (P,) of a run, without the Jacobian that follows them; NaN if there are none.

        Parameters
        ----------
        stored : bytes or None
        model : RecordedModel

        Returns
        -------
        array, shape (P,)
        """
        inputs, values = (sum(quantity.size for quantity in side) for side in (model.inputs, model.outputs))
        with_jacobian = values * (1 + inputs)
        if stored is not None and len(stored) == with_jacobian * FLOAT.itemsize:
            return self.decode_numbers(stored, with_jacobian)[:values]
        return self.decode_numbers(stored, values)

    def _rename(self, former: str, digest: str) -> None:
        """Keep the runs of a model whose digest was computed in another way for ledgers of version 1."""
        known = dict(
            self.connection.execute("SELECT digest, model FROM models WHERE digest IN (?, ?)", (former, digest))
        )
        if former not in known or digest in known:
            return
        number = known[former]
        self.connection.execute("UPDATE models SET digest = ?, checksum = NULL WHERE model = ?", (digest, number))
        # An assignment uses the old values, so the checksum is computed with the new key.
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
