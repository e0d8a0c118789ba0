"""Names of columns without brackets, as PEST and Dakota use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .protocol import AdapterError, Quantity
from .quantities import Label, column_name, columns_of, did_you_mean

Column = tuple[str, Label]


def spellings(name: str, label: Label) -> tuple[str, ...]:
    """Return the names, in lower case, that a column may have.

    ``depth`` without a label is ``depth``; ``depth`` with label 1 is ``depth[1]``, ``depth_1`` or ``depth1``; with
    label ``"sand"`` it may also be ``sand``.
    """
    if label is None:
        return (name.lower(),)
    own = (label,) if isinstance(label, str) else ()
    return tuple(text.lower() for text in (f"{name}[{label}]", f"{name}_{label}", f"{name}{label}", *own))


def file_names(quantities: Iterable[Quantity]) -> dict[Column, tuple[str, ...]]:
    """Return the names, in lower case, that each column may have in a file: its own, or else its `spellings`."""
    found: dict[Column, tuple[str, ...]] = {}
    for quantity in quantities:
        columns = columns_of([quantity])
        if quantity.names is None:
            found |= {column: spellings(*column) for column in columns}
        else:
            found |= {column: (name.lower(),) for column, name in zip(columns, quantity.names, strict=True)}
    return found


def match_names(setting: str, quantities: Iterable[Quantity], known: Iterable[str], what: str) -> dict[str, Column]:
    """Find the name of each column of `quantities`, regardless of case.

    Parameters
    ----------
    setting : str
        Setting that an error names.
    quantities : iterable of Quantity
    known : iterable of str
        Existing names.
    what : str
        Description of the names in an error, for example "a parameter of x".

    Returns
    -------
    dict of str to tuple
        Column by name, in lower case.

    Raises
    ------
    AdapterError
        A column has no name, or several, or shares its name with another column.
    """
    names = {name.lower(): name for name in known}
    found: dict[str, Column] = {}
    for column, possible in file_names(quantities).items():
        own = [spelling for spelling in dict.fromkeys(possible) if spelling in names]
        shown = column_name(*column)
        if not own:
            called = shown if possible[0] == shown.lower() else f"{possible[0]} ({shown})"
            raise AdapterError(setting, f"{called!r} is not {what}; {did_you_mean(possible[0], names)}")
        if len(own) > 1:
            raise AdapterError(setting, f"{shown!r} may be {own[0]!r} or {own[1]!r}, each {what}")
        if own[0] in found:
            raise AdapterError(setting, f"{shown!r} and {column_name(*found[own[0]])!r} are both {own[0]!r}, {what}")
        found[own[0]] = column
    return found


def flatten_values(values: Mapping[str, float | Mapping[str | int, float]]) -> dict[str, float]:
    """Return the numbers of a row by all of their names."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        labelled: Mapping[Label, float] = value if isinstance(value, Mapping) else {None: value}  # type: ignore[assignment]
        for label, number in labelled.items():
            numbers.update(dict.fromkeys(spellings(name, label), number))
    return numbers
