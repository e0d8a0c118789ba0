"""Checks and helpers for quantities, batches and digests, for all adapters."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter

import numpy as np

from .protocol import AdapterError, Floats, Quantity, RunContext

Label = str | int | None

_MOST_COMPARED, _MOST_LISTED, _LONGEST = 1000, 20, 60  # choices, choices, characters


def check_quantities(setting: str, quantities: tuple[Quantity, ...]) -> None:
    """Raise `AdapterError` unless there is at least one quantity, and names and labels are unique.

    Parameters
    ----------
    setting : str
        Name of the setting, for the error.
    quantities : tuple of Quantity
    """
    if not quantities:
        raise AdapterError(setting, "must name at least one quantity, but is empty")
    seen: set[str] = set()
    for quantity in quantities:
        if not quantity.name:
            raise AdapterError(setting, "holds a quantity without a name")
        if quantity.name in seen:
            raise AdapterError(setting, f"names must differ, but {quantity.name!r} comes twice")
        seen.add(quantity.name)
        _check_file_names(setting, quantity)
        if quantity.labels is None:
            continue
        if not quantity.labels:
            raise AdapterError(setting, f"{quantity.name!r} has an empty tuple of labels; a single number has None")
        # Templates and messages write labels as text, where 1 and "1" are the same.
        if len({str(label) for label in quantity.labels}) < len(quantity.labels):
            raise AdapterError(setting, f"the labels of {quantity.name!r} must differ, but are {quantity.labels}")


def _check_file_names(setting: str, quantity: Quantity) -> None:
    names = quantity.names
    if names is None:
        return
    if len(names) != quantity.size:
        raise AdapterError(setting, f"the names of {quantity.name!r} must be {quantity.size}, but are {len(names)}")
    if len({name.lower() for name in names}) < len(names):
        twice = next(name for name in names if [other.lower() for other in names].count(name.lower()) > 1)
        raise AdapterError(setting, f"the names of {quantity.name!r} must differ, but {twice!r} comes twice")


def size_of(quantities: Iterable[Quantity]) -> int:
    """Return the number of columns of `quantities`.

    Parameters
    ----------
    quantities : iterable of Quantity

    Returns
    -------
    int
    """
    return sum(map(attrgetter("size"), quantities))


def columns_of(quantities: Iterable[Quantity]) -> list[tuple[str, Label]]:
    """Return name and label (None without one) of each column, in order.

    Parameters
    ----------
    quantities : iterable of Quantity

    Returns
    -------
    list of (str, label)
    """
    return [(q.name, label) for q in quantities for label in (q.labels or (None,))]


def column_name(name: str, label: Label) -> str:
    """Return the name of a column, such as ``depth`` or ``depth[1]``.

    Parameters
    ----------
    name : str
        Name of the quantity.
    label : str, int or None
        Its label.

    Returns
    -------
    str
    """
    return name if label is None else f"{name}[{label}]"


def describe_nonfinite(quantities: Iterable[Quantity], row: Floats) -> str | None:
    """Describe the first number of a row that is not finite, such as ``depth[1] is nan``; None if all are finite.

    Parameters
    ----------
    quantities : iterable of Quantity
        Columns of the row.
    row : array, shape (P,)
    """
    finite = np.isfinite(row)
    if finite.all():
        return None
    bad = np.flatnonzero(~finite)
    name, label = columns_of(quantities)[bad[0]]
    return f"{column_name(name, label)} is {row[bad[0]]}"


def check_batch(inputs: tuple[Quantity, ...], values: Floats, context: RunContext) -> Floats:
    """Check the arguments of `ForwardModel.evaluate`.

    Parameters
    ----------
    inputs : tuple of Quantity
    values : array, shape (B, I)
    context : RunContext

    Returns
    -------
    array of float64, shape (B, I)
        The values.

    Raises
    ------
    ValueError
        The values have another shape, or the labels are not B different ones.
    """
    values = np.asarray(values, dtype=np.float64)
    columns = columns_of(inputs)
    if values.ndim != 2 or values.shape[1] != len(columns):
        names = ", ".join(column_name(*column) for column in columns)
        raise ValueError(
            f"values must have shape (B, {len(columns)}), one column for each of {names}; got {values.shape}"
        )
    if len(context.labels) != len(values):
        raise ValueError(f"context.labels must name {len(values)} runs, but names {len(context.labels)}")
    if len(set(context.labels)) < len(values):
        raise ValueError("context.labels must be unique, but a label comes twice")
    return values


def type_name(value: object) -> str:
    """Return the type of a value with its article, such as ``an int`` or ``a list``.

    Parameters
    ----------
    value : object

    Returns
    -------
    str
    """
    name = type(value).__name__
    # An ndarray is an "n-d array".
    return f"an {name}" if name[0] in "aeioAEIO" or name == "ndarray" else f"a {name}"


def closest_match(word: str, choices: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the choice that is most similar to a word.

    Parameters
    ----------
    word : str
    choices : iterable of str
    similarity : float
        Smallest similarity, between 0 and 1.

    Returns
    -------
    str or None
        None if no choice is similar.
    """
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=similarity)
    return close[0] if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown word: the most similar choice, or the first choices.

    Parameters
    ----------
    word : str
        The unknown word.
    choices : iterable of str
        The valid words.

    Returns
    -------
    str
    """
    # The choices may come from a file of any size, and the comparison takes time with the square of the length.
    known = [str(choice)[:_LONGEST] for choice in islice(choices, _MOST_COMPARED)]
    near = closest_match(word, known)
    if near is not None:
        return f"did you mean {near!r}?"
    more = " and more" if len(known) > _MOST_LISTED else ""
    return f"there is {', '.join(map(repr, known[:_MOST_LISTED]))}{more}" if known else "there is none"


def digest_of(parts: Iterable[str | bytes]) -> str:
    """Compute a digest.

    Parameters
    ----------
    parts : iterable of str or bytes
        Everything that affects the outputs of a model. The boundaries between parts matter.

    Returns
    -------
    str
        SHA-256 in hexadecimal digits.
    """
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()
