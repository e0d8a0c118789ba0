"""The tables of a ledger, and what is checked before a file is believed to have them.

A ledger may come from somebody else, or from a disk that has lost some of it. Nothing but the tables of a known version
may be in the file, so that no view, trigger or expression of others is ever evaluated.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invgp.errors import LedgerError
from invgp.ledger.faults import DamagedError, not_a_ledger
from invgp.ledger.interrupts import keep_interrupts
from invgp.ledger.rows import COLUMNS, INVERSION_CHECKSUM, MODEL_CHECKSUM, ROW, run_checksum, run_key, text_checksum

VERSION = 2
APPLICATION = 0x696E7667  # "invg", in the header of the file

_TABLES = (
    "CREATE TABLE IF NOT EXISTS models (model INTEGER PRIMARY KEY, digest TEXT UNIQUE NOT NULL, about TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS runs (
        run INTEGER PRIMARY KEY, digest BLOB UNIQUE NOT NULL, model INTEGER NOT NULL REFERENCES models,
        label TEXT NOT NULL, inputs BLOB NOT NULL, outputs BLOB, status TEXT NOT NULL, attempts INTEGER NOT NULL,
        seconds REAL NOT NULL, worker TEXT NOT NULL, finished REAL NOT NULL, message TEXT NOT NULL,
        directory TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS failed ON runs (run) WHERE status <> 'ok'",
    "CREATE TABLE IF NOT EXISTS synced (at REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS inversions (inversion TEXT PRIMARY KEY, last INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS claims (digest BLOB PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID",
)
_LATE = ("inversions", "claims")  # that early files of version 1 lack
_OF_ANALYZE = {  # which a person may have run
    ("table", "sqlite_stat1"): "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    ("table", "sqlite_stat4"): "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}
_WITH_CHECKSUM = ("models", "runs", "inversions")  # since version 2

# Values of the wrong type are in a row, whose checksum tells: the file as such is sound.
_OF_ONE_ROW = re.compile(r"(NULL|NUMERIC|TEXT|BLOB|INT|REAL|non-\w+) value (in|missing from) ")
_MOST_FAULTS = 100
_SECONDS, _BYTES_PER_SECOND = 30.0, 1e6  # that checks may take
_SHARE_OF_PROCESSOR = 0.5  # of the time of a check; if it used less, it has waited for the disk
_LONGEST_STATEMENT = 1_000_000  # bytes


def distrust(connection: sqlite3.Connection) -> None:
    """Let nothing in the file call functions, attach other files or start triggers."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_STATEMENT)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.create_function("run_checksum", len(COLUMNS), run_checksum, deterministic=True)
    connection.create_function("text_checksum", 2, text_checksum, deterministic=True)
    connection.create_function("run_key", 2, run_key, deterministic=True)


def check(connection: sqlite3.Connection, path: Path) -> tuple[int, bool]:
    """Look at the whole file before anything in it is used.

    Returns
    -------
    version : of the ledger; 0 for a file in which there is nothing yet.
    indexed : whether the indexes agree with the tables; if not, they can be made anew.

    Raises
    ------
    ConfigError
        The file is no ledger of a known version.
    DamagedError
        It was one.
    LedgerError
        The disk is too slow to check it.
    """
    with _time_limit(connection, path):
        connection.execute("BEGIN")  # as it is at one moment: another process may be making it
        try:
            version = _version(connection, path)
            return version, version == 0 or _is_sound(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables of this version, within a transaction: in a new file, or of those of version 1."""
    [(version,)] = connection.execute("PRAGMA user_version")
    if version == VERSION:
        return
    for statement in _TABLES:
        connection.execute(statement)
    for table in _WITH_CHECKSUM:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN checksum BLOB")
    # Only rows that are as they were written get a checksum: their key tells of model and inputs.
    model = "(SELECT CAST(digest AS BLOB) FROM models WHERE models.model = runs.model)"
    same = f"digest = run_key(COALESCE({model}, x''), CAST(COALESCE(inputs, x'') AS BLOB))"
    connection.execute(f"UPDATE runs SET checksum = run_checksum({ROW}) WHERE {same}")  # noqa: S608 - nothing of others' in it
    connection.execute(f"UPDATE models SET checksum = {MODEL_CHECKSUM}")  # noqa: S608
    connection.execute(f"UPDATE inversions SET checksum = {INVERSION_CHECKSUM}")  # noqa: S608
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    [(application,)] = connection.execute("PRAGMA application_id")
    [(version,)] = connection.execute("PRAGMA user_version")
    found = {
        (kind, name): " ".join(str(statement).split())
        for kind, name, statement in connection.execute("SELECT type, name, sql FROM sqlite_master")
        if not (statement is None and kind == "index")  # SQLite's own, of a unique column
    }
    if application != APPLICATION:
        if application or version or found:
            raise not_a_ledger(path, "it is a SQLite file, but not a ledger of invgp")
        return 0
    if version > VERSION:
        raise not_a_ledger(path, f"its version is {version}, and this invgp knows {VERSION}; a later invgp wrote it")
    if version < 1:
        raise DamagedError(f"its version is {version}")
    expected = dict(_schema(version))
    for kind, name in sorted(found.keys() - expected.keys(), key=str, reverse=True):  # tables before their indexes
        raise DamagedError(f"it holds the {kind} {name!r}, which a ledger has not")
    for kind, name in sorted(expected.keys() - found.keys() - _OF_ANALYZE.keys(), key=str, reverse=True):
        if version > 1 or name not in _LATE:
            raise DamagedError(f"it has no {kind} {name!r}")
    for (kind, name), text in found.items():
        if text != expected[kind, name]:
            raise DamagedError(f"its {kind} {name!r} has other columns than that of a ledger")
    return int(version)


def _schema(version: int) -> Iterator[tuple[tuple[str, str], str]]:
    """Kind, name and statement of all that is in a ledger, as SQLite keeps them."""
    for statement in _TABLES:
        text = " ".join(statement.replace(" IF NOT EXISTS", "").split())
        _, kind, name, *_ = text.split()
        if version > 1 and name in _WITH_CHECKSUM:
            text = text.removesuffix(")") + ", checksum BLOB)"
        yield (kind.lower(), name), text
    yield from _OF_ANALYZE.items()


def _is_sound(connection: sqlite3.Connection) -> bool:
    """Whether the indexes agree with the tables; raise `DamagedError` if the tables themselves are not whole."""
    faults = _faults(connection, "integrity_check")
    if not faults:
        return True
    for fault in _faults(connection, "quick_check"):  # it leaves the indexes out
        if not _OF_ONE_ROW.match(fault):
            raise DamagedError(" ".join(fault.split()))
    return all(_OF_ONE_ROW.match(fault) for fault in faults)


def _faults(connection: sqlite3.Connection, check: str) -> list[str]:
    found = connection.execute(f"PRAGMA {check}({_MOST_FAULTS})")
    return [str(fault) for (fault,) in found if fault != "ok"]


@contextmanager
def _time_limit(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """A file whose pages refer to each other in circles would be read for ever."""
    seconds = _SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    start, worked = time.monotonic(), time.thread_time()

    def is_over() -> bool:
        return time.monotonic() - start > seconds

    try:
        with keep_interrupts(connection, is_over):
            yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT or not is_over():
            raise
        if time.thread_time() - worked < _SHARE_OF_PROCESSOR * seconds:
            raise LedgerError(
                path, f"its disk is too slow: {seconds:.0f} s were not enough to check the file"
            ) from error
        raise DamagedError("its pages refer to each other without end") from error
