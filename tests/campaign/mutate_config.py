"""Configs and surveys with faults in them, made from sound ones by a seeded generator.

A config is changed as a tree: a key is dropped, duplicated under another name, renamed or given a value of another
type or of extreme size; or its text is changed byte by byte. A survey is changed byte by byte, line by line and cell
by cell.
"""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

SITES = 5
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 10**6, 10**12, 10**18, 2**63 - 1, 2**63, -(2**63), 10**30),
    *(0.0, -0.0, 0.5, 1.0, 1e-320, 1e-200, 1e100, 1e155, 1e308, -1e308, math.inf, -math.inf, math.nan),
    *("", " ", "0", "nan", "15%", "-5%", "1e400%", "%", "m", "degC", "dB", "m\0", "\0", "é", "\U0001f30d", "a" * 300),
    *(
        "../..",
        "/",
        ".",
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "a/b/c",
        "x" * 5000,
        "{depth}",
        "{",
        "}{",
        "%s",
        "((",
    ),
    *(True, False, date(1979, 5, 27), time(7, 32), datetime(1979, 5, 27, 7, 32)),
    *([], [[]], [1, "a"], [1.0, math.nan], [0, 0, 0], ["a", "a"], [[1, 0.5], [0.5, 1]], [[1, 2], [3, 4]]),
    *({}, {"a": {}}, {"name": "depth"}, {"": 1}),
)
NAMES = ("", "site", "depth", "time", "x", "a b", "a.b", "é", "quantile", "elbo", "__class__", "a" * 300, "\0")
BYTES = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b'"',
    b"'",
    b"\n",
    b"\r",
    b",",
    b";",
    b"\t",
    b"[",
    b"]",
    b"=",
    b"#",
    b"\\",
    b"9" * 400,
)
CELLS = (
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "1e400",
    "-1e308",
    "1e-320",
    "0",
    "1_0",
    "1,5",
    "x",
    '"',
    "\0",
    "9" * 5000,
    "é",
)


@dataclass(frozen=True)
class Project:
    """A sound config, by its keys, with the files around it.

    Attributes
    ----------
    folder : Path
        What else the config names: templates, functions, control files.
    """

    name: str
    folder: Path
    keys: dict[str, Any]
    survey: str


def sound_projects(root: Path) -> list[Project]:
    """The configs of the case studies and of the projects to start from.

    Parameters
    ----------
    root : Path
        The top of the repository.
    """
    files = [*root.glob("case_studies/*/*.toml"), *root.glob("invgp/scaffolds/*/survey.toml")]
    return [_project(file) for file in sorted(files)]


def _project(file: Path) -> Project:
    keys = tomllib.loads(file.read_text(encoding="utf-8"))
    survey = file.parent / keys["survey"]["file"]
    text = survey.read_text(encoding="utf-8") if survey.is_file() else _table(keys)
    keys["survey"]["file"] = "sites.csv"
    return Project(f"{file.parent.name}-{file.stem}", file.parent, keys, text)


def _table(keys: dict[str, Any]) -> str:
    """A survey with all columns that a config names, for one whose data are made by a script."""
    survey = keys["survey"]
    names = [about.get("column", name) for name, about in survey["coordinates"].items()]
    names += [about.get("column", name) for name, about in survey.get("covariates", {}).items()]
    names += [column for about in survey["observations"].values() for column in about["columns"]]
    spreads = [spread for spread in keys["noise"].get("std", {}).values() if not isinstance(spread, int | float)]
    for spread in spreads:
        names += [
            one for one in (spread if isinstance(spread, list) else [spread]) if isinstance(one, str) and "%" not in one
        ]
    names = list(dict.fromkeys(names))
    rows = [[f"{1 + site + 0.1 * column:.2f}" for column in range(len(names))] for site in range(SITES)]
    return "\n".join(",".join(row) for row in [names, *rows]) + "\n"


def damaged_projects(root: Path, directory: Path, count: int, seed: int) -> Iterator[tuple[str, Path]]:
    """Write projects with faults one after the other, each in the place of the last.

    Parameters
    ----------
    root : Path
        The top of the repository.
    directory : Path
        Where they are written.

    Yields
    ------
    tuple of str and Path
        What was done, and the config.
    """
    projects = sound_projects(root)
    for number in range(count):
        rng = random.Random(f"{seed}-{number}")
        project = projects[number % len(projects)]
        folder = directory / project.name
        if not folder.exists():
            shutil.copytree(project.folder, folder, ignore=shutil.ignore_patterns("data", "results", "build", "*.png"))
            _write_program(folder, project.keys["forward"].get("command", [""])[0])
        keys, content, what = project.keys, project.survey.encode(), f"{project.name}, fault {number} of seed {seed}"
        text = to_toml(keys).encode()
        kind = rng.choice(("keys", "keys", "keys", "text", "survey", "survey"))
        if kind == "keys":
            keys = copy.deepcopy(keys)
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                mutate_keys(keys, rng)
            text = to_toml(keys).encode(errors="surrogateescape")
        elif kind == "text":
            text = mutate_bytes(text, rng)
        else:
            content = mutate_table(content, rng)
        (folder / "sites.csv").write_bytes(content)
        (folder / "config.toml").write_bytes(text)
        yield f"{what}: {kind}", folder / "config.toml"


def _write_program(folder: Path, command: str) -> None:
    """Something to run, for a config whose program is made by a script."""
    program = folder / command
    if "/" in command and not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)


def mutate_keys(keys: dict[str, Any], rng: random.Random) -> None:
    """Change one key of a tree in place."""
    table, key = rng.choice(list(_places(keys)))
    match rng.choice(("drop", "duplicate", "rename", "value", "value", "value", "wrap", "nest", "repeat")):
        case "drop":
            del table[key]
        case "duplicate" if isinstance(table, dict):
            table[rng.choice(NAMES)] = copy.deepcopy(table[key])
        case "rename" if isinstance(table, dict):
            table[rng.choice(NAMES)] = table.pop(key)
        case "wrap":
            table[key] = [table[key]]
        case "nest":
            for _ in range(rng.choice((3, 40))):
                table[key] = {"a": table[key]} if rng.random() < 0.5 else [table[key]]
        case "repeat" if isinstance(table[key], list):
            table[key] = table[key] * rng.choice((0, 2, 200))
        case _:
            table[key] = copy.deepcopy(rng.choice(VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every table and list of a tree, with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change some bytes: put others in their place, between them, or leave a part out."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 10))):
        at = rng.randrange(len(changed) + 1)
        match rng.choice(("put", "insert", "cut", "flip", "truncate")):
            case "put":
                piece = rng.choice(BYTES)
                changed[at : at + len(piece)] = piece
            case "insert":
                changed[at:at] = rng.choice(BYTES) * rng.choice((1, 1, 50))
            case "cut":
                del changed[at : at + rng.choice((1, 10, 200))]
            case "flip" if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case _ if rng.random() < 0.2:
                del changed[at:]
    return bytes(changed)


def mutate_table(content: bytes, rng: random.Random) -> bytes:
    """Change cells or lines of a CSV file, its encoding, or its bytes."""
    lines = [line.split(",") for line in content.decode().splitlines()]
    row = rng.choice(lines)
    match rng.choice(("cell", "cell", "cell", "row", "rows", "column", "encoding", "bytes", "bytes")):
        case "cell":
            row[rng.randrange(len(row))] = rng.choice(CELLS)
        case "row":
            row[:] = row * 2 if rng.random() < 0.5 else row[:-1]
        case "rows":
            del lines[rng.randrange(3) :]
        case "column":
            lines = [[*line, *line] if rng.random() < 0.9 else line for line in lines]
        case "encoding":
            text = content.decode().replace("\n", rng.choice(("\r\n", "\r", "\n\n")))
            return (text + "é").encode(rng.choice(("utf-16", "latin-1", "utf-8-sig", "utf-32")))
        case _:
            return mutate_bytes(content, rng)
    return "\n".join(",".join(line) for line in lines).encode()


def to_toml(keys: dict[str, Any]) -> str:
    """A tree as TOML, one line for each key at its top."""
    return "\n".join(f"{json.dumps(key)} = {_value(value)}" for key, value in keys.items()) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return value.isoformat() if isinstance(value, date | time) else repr(value)
