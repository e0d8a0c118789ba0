"""The runs of one model in a ledger: look up, claim and record."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import GAVE_OUTPUTS, Evaluations, Floats, RunContext, Status
from invgp.formatting import count_noun
from invgp.ledger.claims import ROWS_PER_QUERY, Claims
from invgp.ledger.ledger_file import LedgerFile
from invgp.ledger.rows import COLUMNS, FLOAT, INTACT, INVERSION_CHECKSUM, ROW, RunRow, row_expression, run_key
from invgp.ledger.sqlite_errors import damaged_ledger_error

SECONDS_BETWEEN_SYNCS = 1.0
LARGEST_RUN = 2**63 - 1  # of the numbers of runs in SQLite

_log = logging.getLogger(__name__)

_SUMS = ("attempts", "seconds")  # over all attempts
_VALUES = {
    name: f"excluded.{name} + IIF({INTACT}, {name}, 0)" if name in _SUMS else f"excluded.{name}" for name in COLUMNS
}

# A successful run is never replaced. A failed run is replaced by its next attempt, and so is a damaged row.
_RECORD = f"""INSERT INTO runs ({", ".join(COLUMNS)}, checksum) VALUES ({", ".join("?" * (len(COLUMNS) + 1))})
    ON CONFLICT (digest) DO UPDATE SET {", ".join(f"{name} = {value}" for name, value in _VALUES.items())},
    checksum = run_checksum({row_expression(**_VALUES)})
    WHERE status NOT IN ('ok', 'some outputs missing') OR NOT ({INTACT})"""  # noqa: S608 - ours


@dataclass(frozen=True)
class FinishedRuns:
    """The result of B runs.

    Parameters
    ----------
    outcome : Evaluations
        Outputs, status and message of each run.
    attempts : array of int, shape (B,)
        Number of times that each run was tried.
    seconds : float
        Mean duration of a run, in s.
    worker : str
        Host and process id of the worker.
    recorded : bool
        Whether the runs are in the ledger already.
    """

    outcome: Evaluations
    attempts: NDArray[np.int64]
    seconds: float
    worker: str
    recorded: bool = False


@dataclass(frozen=True)
class LookupResult:
    """The result of a lookup of B runs.

    Parameters
    ----------
    found : array of bool, shape (B,)
        Which runs are in the ledger.
    outcome : Evaluations
        Outcome of the runs; meaningless where `found` is False.
    """

    found: NDArray[np.bool_]
    outcome: Evaluations


@dataclass(frozen=True)
class ClaimResult(LookupResult):
    """The result of a lookup of B runs, and who makes the runs that are not in the ledger.

    Parameters
    ----------
    owners : tuple of str, length B
        The other process that makes a run; empty for a run that was found, and for a run that is claimed by us.
    """

    owners: tuple[str, ...]

    @property
    def ours(self) -> NDArray[np.bool_]:
        """Which runs are not in the ledger and are claimed by us, shape (B,)."""
        return np.asarray([not f and not o for f, o in zip(self.found, self.owners, strict=True)], dtype=bool)


@dataclass
class Recorder:
    """The runs of one model in a ledger; made by `Ledger.open_recorder`.

    Parameters
    ----------
    ledger : LedgerFile
    number : int
        Number of the model in the ledger.
    digest : str
        Digest of the model.
    input_size, output_size : int
        Number of inputs and outputs of a run.
    retries, answer_failed
        As in `Ledger.open_recorder`.

    Attributes
    ----------
    reused : int
        Number of runs that were taken from the ledger; `evaluate` counts them.
    damaged_keys : set of bytes
        Keys of the damaged rows that were looked up.
    """

    ledger: LedgerFile
    number: int
    digest: str
    input_size: int
    output_size: int
    retries: int
    answer_failed: bool
    reused: int = 0
    last_sync: float = field(default_factory=time.monotonic)
    claims: Claims = field(init=False)
    damaged_keys: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.claims = Claims(self.ledger)

    def claim(self, values: Floats) -> ClaimResult:
        """Look up runs, and claim those that are not in the ledger; `release` ends the claims.

        Parameters
        ----------
        values : array, shape (B, I)
            Inputs of the runs.
        """
        before = self._data_version()
        result = self.look_up(values)
        owners = [""] * len(values)
        if not result.found.all():
            with self.ledger.transaction():
                if self._data_version() != before:  # another process may have recorded them and released its claims
                    result = self.look_up(values)
                missing = np.flatnonzero(~result.found)
                for i, owner in zip(missing, self.claims.claim(self._run_keys(values[missing])), strict=True):
                    owners[i] = owner
        return ClaimResult(result.found, result.outcome, tuple(owners))

    def release(self) -> None:
        """Release all claims, so that other processes can make the runs that were not made."""
        self.claims.release()

    def look_up(self, values: Floats) -> LookupResult:
        """Look up runs.

        Parameters
        ----------
        values : array, shape (B, I)
            Inputs of the runs.
        """
        keys = self._run_keys(values)
        found = np.zeros(len(values), dtype=bool)
        outputs = np.full((len(values), self.output_size), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        rows = self._select_rows(keys)
        for i, key in enumerate(keys if rows else ()):
            row = rows.get(key)
            if row is None:
                continue
            text = row.status.decode(errors="replace")
            if self._is_final(text, row.attempts):
                found[i], status[i] = True, self.ledger.decode_status(text)
                messages[i] = row.message.decode(errors="backslashreplace")
                outputs[i] = self.ledger.decode_numbers(row.outputs, self.output_size)
        self._check_finite(outputs[found & np.asarray([s is Status.OK for s in status], dtype=bool)])
        return LookupResult(found, Evaluations(outputs, tuple(status), tuple(messages)))

    def read_earlier_runs(self, inversion: str | None, former: str, most: int) -> tuple[Floats, Floats]:
        """Read the latest successful runs that were recorded before an inversion started for the first time.

        Parameters
        ----------
        inversion : str or None
            Name of the inversion; the ledger remembers when it started. None for all runs so far.
        former : str
            Its name in a ledger of version 1.
        most : int
            Largest number of runs to read.

        Returns
        -------
        inputs : array, shape (R, I)
        outputs : array, shape (R, P)
        """
        last = LARGEST_RUN if inversion is None else self._last_run_before(inversion, former)
        query = f"""SELECT {ROW}, checksum FROM runs WHERE model = ? AND status = 'ok' AND run <= ?
            ORDER BY run DESC LIMIT ?"""  # noqa: S608 - no text of others in it
        selected = [(RunRow(*row), stored) for *row, stored in self.ledger.select(query, (self.number, last, most))]
        rows = [row for row, stored in selected if row.is_intact(stored)]
        inputs = [self.ledger.decode_numbers(row.inputs, self.input_size) for row in reversed(rows)]
        outputs = [self.ledger.decode_numbers(row.outputs, self.output_size) for row in reversed(rows)]
        found = np.asarray(outputs).reshape(len(rows), self.output_size)
        self._check_finite(found)
        return np.asarray(inputs).reshape(len(rows), self.input_size), found

    def _last_run_before(self, inversion: str, former: str) -> int:
        """Return the number of the last run before an inversion first started; record it if it starts now."""
        begin = """INSERT OR IGNORE INTO inversions (inversion, last)
            SELECT ?, COALESCE((SELECT last FROM inversions WHERE inversion = ?), MAX(run), 0) FROM runs"""
        with self.ledger.transaction():
            execute = self.ledger.connection.execute
            forget = f"DELETE FROM inversions WHERE (checksum = {INVERSION_CHECKSUM}) IS NOT TRUE"  # noqa: S608 - ours
            if execute(forget).rowcount:
                _log.warning(
                    "the ledger %r is damaged: it no longer records with which runs an inversion started, so "
                    "it may need other runs than before, and its posterior may differ slightly",
                    str(self.ledger.path),
                )
            if execute(begin, (inversion, former)).rowcount:
                keep = f"UPDATE inversions SET checksum = {INVERSION_CHECKSUM} WHERE inversion = ?"  # noqa: S608
                execute(keep, (inversion,))
            [(last,)] = execute("SELECT last FROM inversions WHERE inversion = ?", (inversion,))
        return int(last)

    def record(self, values: Floats, context: RunContext, finished: FinishedRuns) -> None:
        """Add runs in one transaction.

        Parameters
        ----------
        values : array, shape (B, I)
            Inputs of the runs.
        context : RunContext
            Labels and directory of the runs.
        finished : FinishedRuns
        """
        now, outcome = time.time(), finished.outcome
        inputs, outputs = (np.ascontiguousarray(a, dtype=FLOAT) for a in (values, outcome.outputs))
        rows = [
            RunRow(
                digest=key,
                model=self.number,
                label=_encode(context.labels[i]),
                inputs=inputs[i].tobytes(),
                outputs=outputs[i].tobytes() if outcome.status[i] in GAVE_OUTPUTS else None,
                status=outcome.status[i].value.encode(),
                attempts=int(finished.attempts[i]),
                seconds=float(finished.seconds),
                worker=_encode(finished.worker),
                finished=now,
                message=_encode(outcome.messages[i]),
                directory=_encode(_find_directory(context, outcome, i)),
            ).to_sql()
            for i, key in enumerate(self._run_keys(values))
        ]
        with self.ledger.transaction():
            self.ledger.connection.executemany(_RECORD, rows)
        if time.monotonic() - self.last_sync > SECONDS_BETWEEN_SYNCS:
            self.sync()

    def sync(self) -> None:
        """Wait until all runs that were looked up or recorded are on the disk. Only then may they be used."""
        self.ledger.sync()
        self.last_sync = time.monotonic()

    def _check_finite(self, outputs: Floats) -> None:
        """Raise an error unless the outputs (R, P) of successful runs are finite."""
        if not np.isfinite(outputs).all():
            reason = "a run that went well has an output that is not a finite number"
            raise damaged_ledger_error(self.ledger.path, reason)

    def _data_version(self) -> int:
        """Return a number that changes when another connection has changed the file."""
        [(version,)] = self.ledger.select("PRAGMA data_version")
        return int(version)

    def _select_rows(self, keys: list[bytes]) -> dict[bytes, RunRow]:
        """Return the intact rows by their key."""
        if not list(self.ledger.select("SELECT 1 FROM runs LIMIT 1")):
            return {}
        rows: dict[bytes, RunRow] = {}
        damaged: set[bytes] = set()
        for start in range(0, len(keys), ROWS_PER_QUERY):
            some = keys[start : start + ROWS_PER_QUERY]
            marks = ", ".join("?" * len(some))
            query = f"SELECT {ROW}, checksum FROM runs WHERE digest IN ({marks})"  # noqa: S608
            for *values, stored in self.ledger.select(query, some):
                row = RunRow(*values)
                if row.is_intact(stored):
                    rows[row.digest] = row
                else:
                    damaged.add(row.digest)
        if damaged - self.damaged_keys:
            _log.warning(
                "%s of the ledger %r damaged: made again",
                count_noun(len(damaged - self.damaged_keys), "run"),
                str(self.ledger.path),
            )
            self.damaged_keys |= damaged
        return rows

    def _is_final(self, status: str, attempts: int) -> bool:
        """Whether a run need not be repeated. A run that could not be started must be repeated."""
        if status == Status.NOT_STARTED.value:
            return False
        return status in GAVE_OUTPUTS or (self.answer_failed and attempts > self.retries)

    def _run_keys(self, values: Floats) -> list[bytes]:
        model = self.digest.encode()
        return [run_key(model, row.tobytes()) for row in np.ascontiguousarray(values, dtype=FLOAT)]


def _encode(text: str) -> bytes:
    """Encode text as UTF-8. A file name that is not UTF-8 contains surrogates, which are written as escapes."""
    return text.encode(errors="backslashreplace")


def _find_directory(context: RunContext, outcome: Evaluations, i: int) -> str:
    """Return the directory of a failed run; empty if it has none."""
    if outcome.ok[i]:
        return ""
    directory = (context.directory / context.labels[i]).absolute()
    return str(directory) if directory.is_dir() else ""
