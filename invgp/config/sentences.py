"""Sentences about what is wrong: which key, what it must be, what it was, what would be valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import date, time
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from invgp.formatting import shorten

LONGEST_VALUE = 60
MOST_NAMES = 12
MOST_COMPARED = 10_000  # names
LIKENESS = 0.6

# pydantic's own findings, in words of a person who writes TOML; the braces take what pydantic says of the limit.
_WORDS = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le:,}",
    "too_short": "must hold {min_length} at least",
    "too_long": "must hold {max_length} at most",
}


_COMMANDS = ("command", "driver", "fallback")


def path_of(*parts: str | int) -> str:
    """``survey.observations.time.columns[2]`` from its parts."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{_key(part)}"
    return text.lstrip(".")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(shorten(name), ensure_ascii=False)


def shown(value: object, longest: int = LONGEST_VALUE) -> str:
    """A value as its TOML reads: short, on one line."""
    return shorten(_toml(value), longest)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k} = {_toml(v)}' for k, v in value.items())}}}"
    return repr(value)


def listed(names: Iterable[object], word: str = "and") -> str:
    """``'a', 'b' and 'c'``; a long list ends in how many more there are."""
    names = list(names)
    quoted = [shorten(repr(n)) for n in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        quoted = [*quoted[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    if len(quoted) <= 1:
        return "".join(quoted) or "none"
    return f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"


def suggestion(name: object, valid: Sequence[str]) -> str:
    """``; valid: 'columns' and 'unit'; did you mean 'columns'?``."""
    return f"; valid: {listed(valid)}{did_you_mean(name, valid)}"


def did_you_mean(name: object, valid: Sequence[str], likeness: float = LIKENESS) -> str:
    """``; did you mean 'columns'?``, or nothing if no name is near."""
    near = nearest(name, valid, likeness)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: object, valid: Sequence[str], likeness: float = LIKENESS) -> str | None:
    """The valid name that a misspelt one probably stands for; `likeness` is 1 for the same name."""
    if len(valid) > MOST_COMPARED or len(str(name)) > LONGEST_VALUE:  # it would take long
        return None
    by_lower_case = {v.lower(): v for v in valid if len(v) <= LONGEST_VALUE}
    close = get_close_matches(str(name).lower(), by_lower_case, n=1, cutoff=likeness)
    return by_lower_case[close[0]] if close else None


def one_line(text: str) -> str:
    """A text of others (an exception's, say) without its line breaks."""
    return " ".join(text.split())


class WholeSentenceError(ValueError):
    """Sentences that start with a key of the section and need no value added."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("; ".join(texts))
        self.sentences = tuple(texts)


def sentences(error: ValidationError, but: str = "") -> list[str]:
    """One sentence for each thing that pydantic found, but for things of one type."""
    return [sentence for item in error.errors() if item["type"] != but for sentence in _of(item)]


def _of(item: ErrorDetails) -> list[str]:
    where = _where(item["loc"])
    # Validators of ours write the sentence; pydantic's own errors get ours.
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, WholeSentenceError):
        return [f"{where}.{text}".lstrip(".") for text in cause.sentences]
    text = str(cause) if cause else _words(item)
    # Of a table with too many tables in it, the names tell more than what is in them.
    names_only = item["type"] in ("too_short", "too_long") and isinstance(item["input"], dict)
    was = listed(item["input"]) if names_only else shown(item["input"])
    return [f"{where}: {text}, was {was}{_nearest(item)}"]


def _where(location: tuple[int | str, ...]) -> str:
    parts = list(location)
    if parts[:1] == ["forward"]:
        del parts[1:2]  # pydantic's name for the branch it took
    if "output_files" in parts[:2]:
        branch = parts.index("output_files") + 2
        del parts[branch : branch + 1]  # the same, for the format
    if parts[-1:] == ["[key]"]:
        parts.pop()  # the name of a table is at fault, not what the table holds
    return path_of(*parts)


def _words(item: ErrorDetails) -> str:
    context: dict[str, Any] = item.get("ctx", {})
    # Limits as a person writes them: 1, not 1.0.
    context = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in context.items()}
    if item["type"] == "list_type" and item["loc"][-1] in _COMMANDS and isinstance(item["input"], str):
        return f"must be a list of words, such as {json.dumps(item['input'].split())}"
    if item["type"] in _WORDS:
        return _WORDS[item["type"]].format(**context)
    return one_line(item["msg"]).replace("Input should", "must")


def _nearest(item: ErrorDetails) -> str:
    if item["type"] != "literal_error" or not isinstance(item["input"], str):
        return ""
    expected = str(item.get("ctx", {})["expected"])
    return did_you_mean(item["input"], [part for part in expected.split("'")[1::2] if part])
