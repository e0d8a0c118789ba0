"""The runs of one model in a ledger: those that are known, and those that have just finished."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import GAVE_OUTPUTS, Evaluations, Floats, RunContext, Status
from invgp.ledger.claims import LOOKED_UP_AT_ONCE, Claims

if TYPE_CHECKING:
    from invgp.ledger.store import Ledger

FLOAT = np.dtype("<f8")  # whatever the machine
SECONDS_BETWEEN_SYNCS = 1.0

# A run that went well stays as it is. One that failed makes way for its next attempt.
_RECORD = """INSERT INTO runs (digest, model, label, inputs, outputs, status, attempts, seconds, worker, finished,
    message, directory) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (digest) DO UPDATE SET label = excluded.label, outputs = excluded.outputs, status = excluded.status,
    attempts = attempts + excluded.attempts, seconds = seconds + excluded.seconds, worker = excluded.worker,
    finished = excluded.finished, message = excluded.message, directory = excluded.directory
    WHERE status NOT IN ('ok', 'some outputs missing')"""


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
    """

    ledger: Ledger
    number: int
    digest: str
    output_size: int
    retries: int
    answer_failed: bool
    answered: int = 0
    synced: float = field(default_factory=time.monotonic)
    claims: Claims = field(init=False)

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
            stored, text, attempts, message = rows.get(digest, (None, "", 0, ""))
            if self._counts(text, attempts):
                found[i], status[i], messages[i] = True, self.ledger.status(text), message
                outputs[i] = self.ledger.numbers(stored, self.output_size)
        return Known(found, Evaluations(outputs, tuple(status), tuple(messages)))

    def earlier(self, inversion: str, most: int) -> tuple[Floats, Floats]:
        """Inputs (R, I) and outputs (R, P) of the latest runs that went well before an inversion first began.

        Parameters
        ----------
        inversion : names it; the ledger remembers when it began.
        most : runs.
        """
        begin = "INSERT OR IGNORE INTO inversions SELECT ?, COALESCE(MAX(run), 0) FROM runs"
        with self.ledger.transaction():
            self.ledger.connection.execute(begin, (inversion,))
        query = """SELECT inputs, outputs FROM runs WHERE model = ? AND status = 'ok'
            AND run <= (SELECT last FROM inversions WHERE inversion = ?) ORDER BY run DESC LIMIT ?"""
        rows = list(self.ledger.select(query, (self.number, inversion, most)))[::-1]
        outputs = np.asarray([self.ledger.numbers(gave, self.output_size) for _, gave in rows])
        inputs = np.asarray([np.frombuffer(given, FLOAT).astype(np.float64) for given, _ in rows])
        return inputs, outputs.reshape(len(rows), self.output_size)

    def record(self, values: Floats, context: RunContext, finished: Finished) -> None:
        """Add runs at rows of inputs, (B, I), all of them or none."""
        now, outcome = time.time(), finished.outcome
        inputs, outputs = (np.ascontiguousarray(a, dtype=FLOAT) for a in (values, outcome.outputs))
        rows = [
            (digest, self.number, label, row.tobytes(), gave.tobytes() if status in GAVE_OUTPUTS else None,
             status.value, attempts, finished.seconds, finished.worker, now, _text(message), _text(directory))
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

    def _version(self) -> int:
        """Another number if another connection has changed the file."""
        [(version,)] = self.ledger.select("PRAGMA data_version")
        return int(version)

    def _rows(self, digests: list[bytes]) -> dict[bytes, Any]:
        """Outputs, status, attempts and message of each run that is there."""
        if not list(self.ledger.select("SELECT 1 FROM runs LIMIT 1")):
            return {}
        rows: dict[bytes, Any] = {}
        for a in range(0, len(digests), LOOKED_UP_AT_ONCE):
            some = digests[a : a + LOOKED_UP_AT_ONCE]
            marks = ", ".join("?" * len(some))
            query = f"SELECT digest, outputs, status, attempts, message FROM runs WHERE digest IN ({marks})"  # noqa: S608
            rows |= {digest: row for digest, *row in self.ledger.select(query, some)}
        return rows

    def _counts(self, status: str, attempts: int) -> bool:
        """Whether a run need not be made. One that could not even be started says nothing of its inputs."""
        if status in ("", Status.NOT_STARTED.value):
            return False
        return status in GAVE_OUTPUTS or (self.answer_failed and attempts > self.retries)

    def _digests(self, values: Floats) -> list[bytes]:
        """Of model and inputs."""
        model = blake2b(self.digest.encode() + b"\0", digest_size=16)
        digests = []
        for row in np.ascontiguousarray(values, dtype=FLOAT):
            one = model.copy()
            one.update(row.data)
            digests.append(one.digest())
        return digests


def _text(words: str) -> str:
    """What SQLite can store: a name of a file that is no UTF-8 has characters that are none."""
    return words.encode(errors="backslashreplace").decode()


def _directories(context: RunContext, outcome: Evaluations) -> list[str]:
    """Where the runs that failed have left their files; empty for those that left none."""
    places = [""] * len(outcome.status)
    for i in np.flatnonzero(~outcome.ok).tolist():
        place = (context.directory / context.labels[i]).absolute()
        places[i] = str(place) if place.is_dir() else ""
    return places
