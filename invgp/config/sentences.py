"""Sentences about what is wrong: which key, what it must be, what it was, what would be valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pydantic import ValidationError

LONGEST_VALUE = 60


def path_of(*parts: str | int) -> str:
    """``survey.observations.time.columns[2]`` from its parts."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def shown(value: object) -> str:
    """A value as a sentence shows it: short, on one line."""
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def listed(names: Iterable[object]) -> str:
    """``'a', 'b' and 'c'``."""
    quoted = [repr(n) for n in names]
    if len(quoted) <= 1:
        return "".join(quoted) or "none"
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def suggestion(name: object, valid: Sequence[str]) -> str:
    """``; did you mean 'columns'?`` or nothing, then what would be valid."""
    close = get_close_matches(str(name), valid, n=1)
    return (f"; did you mean {close[0]!r}?" if close else ";") + f" valid: {listed(valid)}"


def sentences(error: ValidationError) -> list[str]:
    """One sentence for each thing that pydantic found."""
    found = []
    for item in error.errors():
        # Validators of ours write the whole sentence; pydantic's own errors get the key and the value added.
        cause = item.get("ctx", {}).get("error")
        location = [part for part in item["loc"] if part not in ("callable", "executable")]
        where = path_of(*location)
        if isinstance(cause, WholeSentenceError):
            found += [f"{where}.{text}".lstrip(".") for text in cause.sentences]
        else:
            text = str(cause) if cause else item["msg"].replace("Input should be", "must be")
            found.append(f"{where}: {text}, was {shown(item['input'])}")
    return found


class WholeSentenceError(ValueError):
    """Sentences that start with a key of the section and need no value added."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("; ".join(texts))
        self.sentences = tuple(texts)
