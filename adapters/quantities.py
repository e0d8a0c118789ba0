"""What every adapter asks of its quantities, its batches and its digest."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable
from itertools import islice

import numpy as np

from .protocol import AdapterError, Floats, Quantity, RunContext

Label = str | int | None

_COMPARED, _LISTED, _LONGEST = 1000, 20, 60  # choices, choices, characters


def check_quantities(setting: str, quantities: tuple[Quantity, ...]) -> None:
    """Raise `AdapterError` unless there are quantities, with unique names and unique labels."""
    if not quantities:
        raise AdapterError(setting, "must name at least one quantity, but is empty")
    seen: set[str] = set()
    for quantity in quantities:
        if not quantity.name:
            raise AdapterError(setting, "holds a quantity without a name")
        if quantity.name in seen:
            raise AdapterError(setting, f"names must differ, but {quantity.name!r} comes twice")
        seen.add(quantity.name)
        if quantity.labels is None:
            continue
        if not quantity.labels:
            raise AdapterError(setting, f"{quantity.name!r} has an empty tuple of labels; a single number has None")
        # Templates and messages write labels as text, where 1 and "1" are the same.
        if len({str(label) for label in quantity.labels}) < len(quantity.labels):
            raise AdapterError(setting, f"the labels of {quantity.name!r} must differ, but are {quantity.labels}")


def size_of(quantities: Iterable[Quantity]) -> int:
    """How many numbers a row of `quantities` takes."""
    return sum(q.size for q in quantities)


def columns_of(quantities: Iterable[Quantity]) -> list[tuple[str, Label]]:
    """Name and label (None if it has none) of each column, in order."""
    return [(q.name, label) for q in quantities for label in (q.labels or (None,))]


def written(name: str, label: Label) -> str:
    """A column as people write it: ``depth``, ``depth[1]``."""
    return name if label is None else f"{name}[{label}]"


def first_bad_output(outputs: Iterable[Quantity], row: Floats) -> str | None:
    """Say which number of `row`, (P,), is the first that is not finite; None if all are."""
    finite = np.isfinite(row)
    if finite.all():
        return None
    bad = np.flatnonzero(~finite)
    name, label = columns_of(outputs)[bad[0]]
    return f"output {written(name, label)} is {row[bad[0]]}"


def check_batch(inputs: tuple[Quantity, ...], values: Floats, context: RunContext) -> Floats:
    """Return `values` as float64, (B, I); raise `ValueError` if they or the labels do not fit."""
    values = np.asarray(values, dtype=np.float64)
    columns = size_of(inputs)
    if values.ndim != 2 or values.shape[1] != columns:
        names = ", ".join(written(*column) for column in columns_of(inputs))
        raise ValueError(f"values must have shape (B, {columns}), one column for each of {names}; got {values.shape}")
    if len(context.labels) != len(values):
        raise ValueError(f"context.labels must name {len(values)} runs, but names {len(context.labels)}")
    if len(set(context.labels)) < len(values):
        raise ValueError("context.labels must be unique, but a label comes twice")
    return values


def kind_of(value: object) -> str:
    """A value's type with its article: ``an int``, ``a list``."""
    name = type(value).__name__
    # A NumPy array is called an n-d array.
    return f"an {name}" if name[0] in "aeioAEIO" or name == "ndarray" else f"a {name}"


def nearest(word: str, choices: Iterable[str], likeness: float = 0.6) -> str | None:
    """Give the choice that is most like `word`; None if none has that likeness, of 1 for the same word."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=likeness)
    return close[0] if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """End a sentence about an unknown word: the nearest choice, or the first of them."""
    # Choices may come from a file of any size: to compare words takes the square of their length.
    known = [str(choice)[:_LONGEST] for choice in islice(choices, _COMPARED)]
    near = nearest(word, known)
    if near is not None:
        return f"did you mean {near!r}?"
    more = " and more" if len(known) > _LISTED else ""
    return f"there is {', '.join(map(repr, known[:_LISTED]))}{more}" if known else "there is none"


def digest_of(parts: Iterable[str | bytes]) -> str:
    """Return the sha256, in hexadecimal, of a sequence of texts; their borders count."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()
