"""Configuration file as TOML, and checks that apply to the value of any key."""

from __future__ import annotations

import math
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import key_path, suggest

LARGEST_FILE = 2**24  # bytes
DEEPEST = 32  # tables and lists within each other
SMALLEST, LARGEST = 1e-100, 1e100  # whose squares are numbers, too
LARGEST_INTEGER = 2**63 - 1  # what TOML promises, and netCDF and SQLite can hold


def read_document(path: Path) -> tuple[str, dict[str, Any]]:
    """Read a config file into its text and the keys in it; raise `ConfigError` if it cannot be read or is no TOML."""
    text = read_text(path)
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"the config {str(path)!r} is not TOML that can be read: it is nested too deeply") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise ConfigError(f"the config {str(path)!r} is not TOML: {error}") from error


def change_key(keys: dict[str, Any], name: str, value: object) -> None:
    """Replace the value of a key such as ``latents.depth.std``, or add it to its table, which must exist.

    Raises
    ------
    ArgumentError
        There is no such table.
    """
    *path, last = name.split(".")
    table: Any = keys
    for depth, part in enumerate(path):
        inner = table.get(part) if isinstance(table, dict) else None
        if not isinstance(inner, dict):
            known = [key for key, item in table.items() if isinstance(item, dict)] if isinstance(table, dict) else []
            where = ".".join([*path[:depth], part])
            hint = suggest(part, known)
            raise ArgumentError(f"changes: must be keys in tables of the config, which has no {where!r}{hint}")
        table = inner
    if not last or not isinstance(table, dict):
        raise ArgumentError(f"changes: must be a key such as 'latents.depth.std', was {name!r}")
    table[last] = value


def read_text(path: Path) -> str:
    """Read the text of a config, which must be a regular file, since a pipe might never end."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as stream:
            regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            content = stream.read(LARGEST_FILE + 1) if regular else b""
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        if isinstance(error, UnicodeDecodeError) and path.suffix.lower() != ".toml":
            reason = f"{reason}; give the configuration, a file that ends in .toml"
        raise ConfigError(f"the config {str(path)!r} cannot be read: {reason}") from error
    if not regular or len(content) > LARGEST_FILE:
        must = f"have at most {LARGEST_FILE // 2**20} MiB" if regular else "be a regular file"
        raise ConfigError(f"the config {str(path)!r} cannot be read: it must {must}")
    return text


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # otherwise a pipe without a writer would block


def check_values(keys: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for values that no file, program or library takes, whatever their key."""
    wrong = [f"{key_path(*where) or 'the config'}: {sentence}" for where, sentence in _faults(keys, (), 0)]
    if wrong:
        raise ConfigError(wrong)


def is_usable(number: float) -> bool:
    """Return whether the square and the reciprocal of a number are finite in floating point."""
    return number == 0.0 or SMALLEST <= abs(number) <= LARGEST


def _faults(value: object, where: tuple[str | int, ...], depth: int) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield each invalid key with a message."""
    if isinstance(value, str) and "\0" in value:
        yield where, "must not hold the character NUL"
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        yield where, f"must be a whole number between -{LARGEST_INTEGER} and {LARGEST_INTEGER}"
    elif isinstance(value, float) and math.isfinite(value) and not is_usable(value):
        yield where, f"must be 0, or a number between {SMALLEST:g} and {LARGEST:g} but for its sign, was {value:g}"
    elif isinstance(value, Mapping | list):
        if depth == DEEPEST:
            yield where, f"must not be nested more than {DEEPEST} levels deep"
            return
        named = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in named:
            if "\0" in str(key):
                yield where, "must not have a key with the character NUL"
                continue
            yield from _faults(item, (*where, key), depth + 1)
