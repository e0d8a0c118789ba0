"""The tables of a ledger, and the checks of a file before it is used.

A ledger may come from another person, or from a damaged disk. A file is used only if it contains the tables of a known
version and nothing else, so that no foreign view, trigger or expression is ever evaluated.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invgp.errors import LedgerError
from invgp.ledger.rows import COLUMNS, INVERSION_CHECKSUM, MODEL_CHECKSUM, ROW, run_checksum, run_key, text_checksum
from invgp.ledger.sqlite_errors import DamagedError, stop_when_interrupted, unusable_ledger_error

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
_LATE = ("inversions", "claims")  # missing in early files of version 1
_OF_ANALYZE = {  # tables made by the statement ANALYZE, which a user may have executed
    ("table", "sqlite_stat1"): "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    ("table", "sqlite_stat4"): "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}
_WITH_CHECKSUM = ("models", "runs", "inversions")  # since version 2

# Faults of one row, for example a value of the wrong type. The checksum of the row detects them.
_ROW_FAULT = re.compile(r"(NULL|NUMERIC|TEXT|BLOB|INT|REAL|non-\w+) value (in|missing from) ")
_MOST_FAULTS = 100
_SECONDS, _BYTES_PER_SECOND = 30.0, 1e6  # time limit of the checks
_SHARE_OF_PROCESSOR = 0.5  # of the time of a check; a smaller share means that it waited for the disk
_LONGEST_STATEMENT = 1_000_000  # bytes


def restrict_connection(connection: sqlite3.Connection) -> None:
    """Prevent the file from calling functions, attaching other files and starting triggers; add our functions."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_STATEMENT)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.create_function("run_checksum", len(COLUMNS), run_checksum, deterministic=True)
    connection.create_function("text_checksum", 2, text_checksum, deterministic=True)
    connection.create_function("run_key", 2, run_key, deterministic=True)


def check_file(connection: sqlite3.Connection, path: Path) -> tuple[int, bool]:
    """Check the whole file.

    Parameters
    ----------
    connection : sqlite3.Connection
    path : Path
        The file.

    Returns
    -------
    version : int
        Version of the ledger; 0 for an empty file.
    indexed : bool
        Whether the indexes agree with the tables. If not, they can be rebuilt.

    Raises
    ------
    ConfigError
        The file is not a ledger of a known version.
    DamagedError
        The file is a damaged ledger.
    LedgerError
        The disk is too slow to check the file.
    """
    with _time_limit(connection, path):
        connection.execute("BEGIN")  # a consistent state: another process may be creating the tables
        try:
            version = _read_version(connection, path)
            return version, version == 0 or _has_sound_indexes(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of this version, within a transaction, in an empty file or from those of version 1."""
    [(version,)] = connection.execute("PRAGMA user_version")
    if version == VERSION:
        return
    for statement in _TABLES:
        connection.execute(statement)
    for table in _WITH_CHECKSUM:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN checksum BLOB")
    # Only rows whose key agrees with their model and inputs get a checksum.
    model = "(SELECT CAST(digest AS BLOB) FROM models WHERE models.model = runs.model)"
    same = f"digest = run_key(COALESCE({model}, x''), CAST(COALESCE(inputs, x'') AS BLOB))"
    connection.execute(f"UPDATE runs SET checksum = run_checksum({ROW}) WHERE {same}")  # noqa: S608 - no text of others in it
    connection.execute(f"UPDATE models SET checksum = {MODEL_CHECKSUM}")  # noqa: S608
    connection.execute(f"UPDATE inversions SET checksum = {INVERSION_CHECKSUM}")  # noqa: S608
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    [(application,)] = connection.execute("PRAGMA application_id")
    [(version,)] = connection.execute("PRAGMA user_version")
    found = {
        (kind, name): " ".join(str(statement).split())
        for kind, name, statement in connection.execute("SELECT type, name, sql FROM sqlite_master")
        if not (statement is None and kind == "index")  # SQLite makes an index for a unique column
    }
    if application != APPLICATION:
        if application or version or found:
            raise unusable_ledger_error(path, "it is a SQLite file, but not a ledger of invgp")
        return 0
    if version > VERSION:
        raise unusable_ledger_error(
            path, f"its version is {version}, and this invgp knows {VERSION}; a later invgp wrote it"
        )
    if version < 1:
        raise DamagedError(f"its version is {version}")
    expected = dict(_schema(version))
    for kind, name in sorted(found.keys() - expected.keys(), key=str, reverse=True):  # tables before their indexes
        raise DamagedError(f"it contains the {kind} {name!r}, which is not part of a ledger")
    for kind, name in sorted(expected.keys() - found.keys() - _OF_ANALYZE.keys(), key=str, reverse=True):
        if version > 1 or name not in _LATE:
            raise DamagedError(f"it has no {kind} {name!r}")
    for (kind, name), text in found.items():
        if text != expected[kind, name]:
            raise DamagedError(f"its {kind} {name!r} has other columns than in a ledger")
    return int(version)


def _schema(version: int) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield kind, name and statement of every table and index of a ledger, as SQLite stores them."""
    for statement in _TABLES:
        text = " ".join(statement.replace(" IF NOT EXISTS", "").split())
        _, kind, name, *_ = text.split()
        if version > 1 and name in _WITH_CHECKSUM:
            text = text.removesuffix(")") + ", checksum BLOB)"
        yield (kind.lower(), name), text
    yield from _OF_ANALYZE.items()


def _has_sound_indexes(connection: sqlite3.Connection) -> bool:
    """Whether the indexes agree with the tables; raise `DamagedError` if the tables themselves are damaged."""
    faults = _list_faults(connection, "integrity_check")
    if not faults:
        return True
    for fault in _list_faults(connection, "quick_check"):  # without the indexes
        if not _ROW_FAULT.match(fault):
            raise DamagedError(" ".join(fault.split()))
    return all(_ROW_FAULT.match(fault) for fault in faults)


def _list_faults(connection: sqlite3.Connection, check: str) -> list[str]:
    found = connection.execute(f"PRAGMA {check}({_MOST_FAULTS})")
    return [str(fault) for (fault,) in found if fault != "ok"]


@contextmanager
def _time_limit(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Limit the time of a check. If the pages of a file refer to each other in a circle, it would not end."""
    seconds = _SECONDS + path.stat().st_size / _BYTES_PER_SECOND
    start, worked = time.monotonic(), time.thread_time()

    def is_over() -> bool:
        return time.monotonic() - start > seconds

    try:
        with stop_when_interrupted(connection, is_over):
            yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT or not is_over():
            raise
        if time.thread_time() - worked < _SHARE_OF_PROCESSOR * seconds:
            raise LedgerError(
                path, f"its disk is too slow: {seconds:.0f} s were not enough to check the file"
            ) from error
        raise DamagedError("its pages refer to each other without end") from error
