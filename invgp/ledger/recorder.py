"""The runs of one model in a ledger: those that are known, and those that have just finished."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import GAVE_OUTPUTS, Evaluations, Floats, RunContext, Status
from invgp.formatting import count_noun
from invgp.ledger.claims import LOOKED_UP_AT_ONCE, Claims
from invgp.ledger.faults import damaged_ledger
from invgp.ledger.rows import COLUMNS, INTACT, INVERSION_CHECKSUM, ROW, is_intact, new_row, row_of, run_key

if TYPE_CHECKING:
    from invgp.ledger.store import Ledger

FLOAT = np.dtype("<f8")  # whatever the machine
SECONDS_BETWEEN_SYNCS = 1.0

_log = logging.getLogger(__name__)

_ADDED = ("attempts", "seconds")  # over all attempts
_VALUES = {
    name: f"excluded.{name} + IIF({INTACT}, {name}, 0)" if name in _ADDED else f"excluded.{name}" for name in COLUMNS
}

# A run that went well stays as it is. One that failed makes way for its next attempt, and so does a damaged row.
_RECORD = f"""INSERT INTO runs ({", ".join(COLUMNS)}, checksum) VALUES ({", ".join("?" * (len(COLUMNS) + 1))})
    ON CONFLICT (digest) DO UPDATE SET {", ".join(f"{name} = {value}" for name, value in _VALUES.items())},
    checksum = run_checksum({row_of(**_VALUES)})
    WHERE status NOT IN ('ok', 'some outputs missing') OR NOT ({INTACT})"""  # noqa: S608 - ours


@dataclass(frozen=True)
class Finished:
    """A batch of B runs that came back.

    Parameters
    ----------
    attempts : (B,), how often each was tried.
    seconds : that each took, on average.
    worker : host and process that ran them.
    recorded : whether they are in the ledger already.
    """

    outcome: Evaluations
    attempts: NDArray[np.int64]
    seconds: float
    worker: str
    recorded: bool = False


@dataclass(frozen=True)
class Known:
    """What a ledger knows of B runs: where `found` (B,) is False, nothing."""

    found: NDArray[np.bool_]
    outcome: Evaluations


@dataclass(frozen=True)
class Claimed(Known):
    """What a ledger knows of B runs, and who makes the others.

    Parameters
    ----------
    makers : B of them: the process that makes a run, empty for those that are known or ours to make.
    """

    makers: tuple[str, ...]

    @property
    def ours(self) -> NDArray[np.bool_]:
        """(B,) which runs nobody knows, and nobody else makes."""
        return np.asarray([not f and not m for f, m in zip(self.found, self.makers, strict=True)], dtype=bool)


@dataclass
class Recorder:
    """The runs of one model in a ledger; `Ledger.of` gives it.

    Attributes
    ----------
    answered : runs that were taken from the ledger, as whoever asks for them counts.
    damaged : keys of runs that were asked for, and whose rows are not as they were written.
    """

    ledger: Ledger
    number: int
    digest: str
    input_size: int
    output_size: int
    retries: int
    answer_failed: bool
    answered: int = 0
    synced: float = field(default_factory=time.monotonic)
    claims: Claims = field(init=False)
    damaged: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.claims = Claims(self.ledger)

    def claim(self, values: Floats) -> Claimed:
        """Look up rows of inputs, (B, I), and claim those that are not known; `release` them in the end."""
        before = self._version()
        known = self.known(values)
        makers = [""] * len(values)
        if not known.found.all():
            with self.ledger.transaction():
                if self._version() != before:  # somebody may have finished them, and let go, in between
                    known = self.known(values)
                missing = np.flatnonzero(~known.found)
                for i, maker in zip(missing, self.claims.take(self._digests(values[missing])), strict=True):
                    makers[i] = maker
        return Claimed(known.found, known.outcome, tuple(makers))

    def release(self) -> None:
        """Let others make what was claimed and is not known."""
        self.claims.release()

    def known(self, values: Floats) -> Known:
        """Look up rows of inputs, (B, I)."""
        digests = self._digests(values)
        found = np.zeros(len(values), dtype=bool)
        outputs = np.full((len(values), self.output_size), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        rows = self._rows(digests)
        for i, digest in enumerate(digests if rows else ()):
            stored, text, attempts, message = rows.get(digest, (None, "", 0, b""))
            if self._counts(text, attempts):
                found[i], status[i] = True, self.ledger.status(text)
                messages[i] = message.decode(errors="backslashreplace")
                outputs[i] = self.ledger.numbers(stored, self.output_size)
        self._check_finite(outputs[found & np.asarray([s is Status.OK for s in status], dtype=bool)])
        return Known(found, Evaluations(outputs, tuple(status), tuple(messages)))

    def earlier(self, inversion: str, former: str, most: int) -> tuple[Floats, Floats]:
        """Inputs (R, I) and outputs (R, P) of the latest runs that went well before an inversion first began.

        Parameters
        ----------
        inversion : names it; the ledger remembers when it began.
        former : its name in a ledger of version 1.
        most : runs.
        """
        last = self._last_before(inversion, former)
        query = f"""SELECT {ROW}, checksum FROM runs WHERE model = ? AND status = 'ok' AND run <= ?
            ORDER BY run DESC LIMIT ?"""  # noqa: S608 - nothing of others' in it
        rows = [row for *row, stored in self.ledger.select(query, (self.number, last, most)) if is_intact(row, stored)]
        given, gave = COLUMNS.index("inputs"), COLUMNS.index("outputs")
        inputs = [self.ledger.numbers(row[given], self.input_size) for row in reversed(rows)]
        outputs = [self.ledger.numbers(row[gave], self.output_size) for row in reversed(rows)]
        found = np.asarray(outputs).reshape(len(rows), self.output_size)
        self._check_finite(found)
        return np.asarray(inputs).reshape(len(rows), self.input_size), found

    def _last_before(self, inversion: str, former: str) -> int:
        """The number of the last run before an inversion first began; if that is now, it is written down."""
        begin = """INSERT OR IGNORE INTO inversions (inversion, last)
            SELECT ?, COALESCE((SELECT last FROM inversions WHERE inversion = ?), MAX(run), 0) FROM runs"""
        with self.ledger.transaction():
            execute = self.ledger.connection.execute
            forget = f"DELETE FROM inversions WHERE (checksum = {INVERSION_CHECKSUM}) IS NOT TRUE"  # noqa: S608 - ours
            if execute(forget).rowcount:
                _log.warning(
                    "damage to the ledger %r: it no longer knows which runs an inversion began with, so that the "
                    "inversion may ask for other runs than before, and its posterior may differ slightly",
                    str(self.ledger.path),
                )
            if execute(begin, (inversion, former)).rowcount:
                keep = f"UPDATE inversions SET checksum = {INVERSION_CHECKSUM} WHERE inversion = ?"  # noqa: S608
                execute(keep, (inversion,))
            [(last,)] = execute("SELECT last FROM inversions WHERE inversion = ?", (inversion,))
        return int(last)

    def record(self, values: Floats, context: RunContext, finished: Finished) -> None:
        """Add runs at rows of inputs, (B, I), all of them or none."""
        now, outcome = time.time(), finished.outcome
        inputs, outputs = (np.ascontiguousarray(a, dtype=FLOAT) for a in (values, outcome.outputs))
        about = float(finished.seconds), _text(finished.worker), now
        rows = [
            new_row(digest, self.number, _text(label), row.tobytes(),
                    gave.tobytes() if status in GAVE_OUTPUTS else None, status.value, attempts, *about,
                    _text(message), _text(directory))
            for digest, label, row, gave, status, attempts, message, directory in zip(
                self._digests(values), context.labels, inputs, outputs, outcome.status, finished.attempts.tolist(),
                outcome.messages, _directories(context, outcome), strict=True,
            )
        ]  # fmt: skip
        with self.ledger.transaction():
            self.ledger.connection.executemany(_RECORD, rows)
        if time.monotonic() - self.synced > SECONDS_BETWEEN_SYNCS:
            self.sync()

    def sync(self) -> None:
        """Return when all that was found or recorded is on the disk: from then on it may be used."""
        self.ledger.sync()
        self.synced = time.monotonic()

    def _check_finite(self, outputs: Floats) -> None:
        """Raise unless runs that went well have outputs (R, P) that are finite."""
        if not np.isfinite(outputs).all():
            raise damaged_ledger(self.ledger.path, "a run that went well has an output that is not a finite number")

    def _version(self) -> int:
        """Another number if another connection has changed the file."""
        [(version,)] = self.ledger.select("PRAGMA data_version")
        return int(version)

    def _rows(self, digests: list[bytes]) -> dict[bytes, Any]:
        """Outputs, status, attempts and message of each run that is there as it was written."""
        if not list(self.ledger.select("SELECT 1 FROM runs LIMIT 1")):
            return {}
        rows: dict[bytes, Any] = {}
        damaged: set[bytes] = set()
        for a in range(0, len(digests), LOOKED_UP_AT_ONCE):
            some = digests[a : a + LOOKED_UP_AT_ONCE]
            marks = ", ".join("?" * len(some))
            query = f"SELECT {ROW}, checksum FROM runs WHERE digest IN ({marks})"  # noqa: S608
            for *row, stored in self.ledger.select(query, some):
                if is_intact(row, stored):
                    rows[row[0]] = row[4], row[5].decode(errors="replace"), row[6], row[10]
                else:
                    damaged.add(row[0])
        if damaged - self.damaged:
            _log.warning(
                "%s of the ledger %r damaged: made again",
                count_noun(len(damaged - self.damaged), "run"),
                str(self.ledger.path),
            )
            self.damaged |= damaged
        return rows

    def _counts(self, status: str, attempts: int) -> bool:
        """Whether a run need not be made. One that could not even be started says nothing of its inputs."""
        if status in ("", Status.NOT_STARTED.value):
            return False
        return status in GAVE_OUTPUTS or (self.answer_failed and attempts > self.retries)

    def _digests(self, values: Floats) -> list[bytes]:
        """Of model and inputs."""
        model = self.digest.encode()
        return [run_key(model, row.tobytes()) for row in np.ascontiguousarray(values, dtype=FLOAT)]


def _text(words: str) -> str:
    """What SQLite can store: a name of a file that is no UTF-8 has characters that are none."""
    return words if words.isascii() else words.encode(errors="backslashreplace").decode()


def _directories(context: RunContext, outcome: Evaluations) -> list[str]:
    """Where the runs that failed have left their files; empty for those that left none."""
    places = [""] * len(outcome.status)
    for i in np.flatnonzero(~outcome.ok).tolist():
        place = (context.directory / context.labels[i]).absolute()
        places[i] = str(place) if place.is_dir() else ""
    return places
