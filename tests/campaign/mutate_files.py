"""Damaged text files, JSON replies, NumPy files and ledgers, by a seeded generator: the same seed, the same damage."""

from __future__ import annotations

import random
import re
import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

PIECES = (
    *(
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n",
        b"\t",
        b" ",
        b"'",
        b'"',
        b"~",
        b"@",
        b"#",
        b"{",
        b"}",
        b"{{",
        b"%",
    ),
    *(b"nan", b"-inf", b"1e999", b"-1", b"0", b"9" * 400, b"l999999999999", b"[x]1:99999999", b"!dum!", b"(x)9:1"),
    *(b"ptf", b"pif", b"pcf", b"* parameter data", b"* model command line", b"../", b"/dev/zero", b"x" * 5000),
    *(b"{depth:99999999999d}", b"{depth!r}", b"{depth.real}", b"{depth[", b"{0}", b"\xc3\x28", "é".encode()),
)
WORD = re.compile(rb"[^\s{}~@,:\[\]]+")
NUMBERS = (b"nan", b"inf", b"-1", b"0", b"1e308", b"1e999", b"9" * 400, b"", b"x", b"0x10", b"1_0", b"1,0", b"1d400")
VALUES = (None, True, -1, 0, 2**63, 10**400, "", "text", [], [[]], {}, [1, "a"], "x" * 5000, 1.5, [None], {"a": {}})


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Replace, insert, remove, repeat or swap bytes."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed) + 1)
        match rng.choice(("flip", "put", "insert", "cut", "truncate", "repeat")):
            case "flip" if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case "put":
                piece = rng.choice(PIECES)
                changed[at : at + len(piece)] = piece
            case "insert":
                changed[at:at] = rng.choice(PIECES) * rng.choice((1, 1, 30))
            case "cut":
                del changed[at : at + rng.choice((1, 10, 200))]
            case "truncate":
                del changed[at:]
            case "repeat":
                changed[at:at] = changed[at : at + 100] * rng.choice((1, 50))
    return bytes(changed)


def mutate_text(content: bytes, rng: random.Random) -> bytes:
    """Change words or lines of a text, or its bytes."""
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    match rng.choice(("word", "word", "number", "line", "lines", "swap", "empty", "bytes", "bytes")):
        case "word" if words := list(WORD.finditer(content)):
            word, other = rng.choice(words), rng.choice(words)[0] if rng.random() < 0.3 else rng.choice(PIECES)
            return content[: word.start()] + other + content[word.end() :]
        case "number" if words := list(re.finditer(rb"[0-9]+", content)):
            word = rng.choice(words)
            return content[: word.start()] + rng.choice(NUMBERS) + content[word.end() :]
        case "line":
            del lines[place]
        case "lines":
            lines[place:place] = [lines[place]] * rng.choice((1, 1, 1000))
        case "swap":
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        case "empty":
            return rng.choice((b"", b"\n", b"\0" * 100, b"ptf", b"pif @", b"pcf\n"))
        case _:
            return mutate_bytes(content, rng)
    return b"\n".join(lines)


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Change one entry of what JSON holds."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        changed = dict(value) if isinstance(value, dict) else list(value)
        key = rng.choice(list(changed)) if isinstance(changed, dict) else rng.randrange(len(changed))
        match rng.choice(("change", "change", "change", "drop", "repeat")):
            case "change":
                changed[key] = mutate_json(changed[key], rng)
            case "drop":
                del changed[key]
            case "repeat" if isinstance(changed, list):
                changed += changed * rng.choice((1, 3))
        return changed
    return rng.choice(VALUES)


def mutate_npy(content: bytes, rng: random.Random) -> bytes:
    """Change the header of a NumPy file, or its bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(content, rng)
    shape = rng.choice(
        ("(-1, 3)", "(10000000000000,)", "(2**40, 2**40)", "()", "(0, 0)", "(3,)", "3", "(3, 3, 3)", "'a'")
    )
    kind = rng.choice(
        ("<f8", "<f8", "|O", "<U5", "<c16", "|b1", "<M8[s]", "|V9999999", "<f16", ">f4", "x", "[('a', 'O')]")
    )
    order = rng.choice(("False", "True", "None", "[]"))
    header = f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    if rng.random() < 0.1:
        header = rng.choice((b"(" * 5000, b"__import__('os')", b"{", b"\xff" * 64, b"{'descr': " + b"9" * 9000 + b"}"))
    length = rng.choice((len(header), len(header), len(header), 2**16 - 1, 0))
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"))
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", length)
    return b"\x93NUMPY" + version + size + header + content[128:]


def mutate_ledger(content: bytes, target: Path, rng: random.Random) -> str:
    """Write a damaged ledger: by SQL, as another program would damage it, or by bytes."""
    target.write_bytes(content)
    if rng.random() < 0.4:
        target.write_bytes(mutate_bytes(content, rng) if rng.random() < 0.7 else b"")
        return "bytes"
    statement = rng.choice(
        (
            "DROP TABLE runs",
            "DROP TABLE models",
            "DROP TABLE claims",
            "DROP TABLE inversions",
            "DROP TABLE synced",
            "ALTER TABLE runs RENAME TO other",
            "ALTER TABLE runs RENAME COLUMN outputs TO results",
            "ALTER TABLE runs RENAME COLUMN inputs TO results",
            "DELETE FROM models",
            "DELETE FROM runs WHERE run % 2",
            "UPDATE models SET about = 'nothing'",
            "UPDATE models SET about = '{}'",
            "UPDATE models SET about = '[' || about",
            "UPDATE models SET about = replace(about, '\"unit\"', '\"unity\"')",
            "UPDATE models SET about = NULL",
            "UPDATE models SET digest = 'x'",
            "UPDATE runs SET outputs = x'00'",
            "UPDATE runs SET outputs = 'text'",
            "UPDATE runs SET outputs = NULL",
            "UPDATE runs SET outputs = zeroblob(1000000)",
            "UPDATE runs SET outputs = randomblob(length(outputs)) WHERE run = 2",
            "UPDATE runs SET inputs = randomblob(length(inputs)) WHERE run = 2",
            "UPDATE runs SET inputs = 1.5",
            "UPDATE runs SET status = 'fine'",
            "UPDATE runs SET status = x'ff'",
            "UPDATE runs SET attempts = 'many'",
            "UPDATE runs SET attempts = -1",
            "UPDATE runs SET seconds = 'long'",
            "UPDATE runs SET seconds = 9e999",
            "UPDATE runs SET finished = -9e99",
            "UPDATE runs SET finished = 'yesterday'",
            "UPDATE runs SET message = x'ff00fe'",
            "UPDATE runs SET label = 5, worker = 7, directory = 9",
            "UPDATE runs SET directory = char(0)",
            "UPDATE runs SET model = 99",
            "UPDATE runs SET model = 'x'",
            "UPDATE runs SET digest = randomblob(20)",
            "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
            "PRAGMA user_version = 99",
            "PRAGMA user_version = 0",
            "PRAGMA user_version = -1",
            "PRAGMA application_id = 5",
            "PRAGMA journal_mode = DELETE",
            "DROP TABLE runs; CREATE TABLE runs (run)",
            "DROP TABLE runs; CREATE VIEW runs AS SELECT * FROM models",
            "DROP TABLE runs; CREATE VIEW runs AS WITH RECURSIVE c(run) AS (SELECT 1 UNION ALL SELECT run + 1 FROM c) "
            "SELECT run, run AS digest, 1 AS model, '' AS label, x'' AS inputs, x'' AS outputs, 'ok' AS status, "
            "1 AS attempts, 0.0 AS seconds, '' AS worker, 0.0 AS finished, '' AS message, '' AS directory FROM c",
            "DROP TABLE models; CREATE VIEW models AS SELECT 1 AS model, 'x' AS digest, '{}' AS about",
        )
    )
    with closing(sqlite3.connect(target, isolation_level=None)) as connection, suppress(sqlite3.Error):
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for one in statement.split("; "):
            connection.execute(one)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return statement
