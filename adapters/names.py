"""The columns of a model under the flat names that PEST and Dakota give to numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .protocol import AdapterError, Quantity
from .quantities import Label, columns_of, did_you_mean, written

Column = tuple[str, Label]


def spellings(name: str, label: Label) -> tuple[str, ...]:
    """Names, in lower case, that a flat list of numbers may give to a column.

    ``depth`` without a label is ``depth``; ``depth`` with label 1 is ``depth[1]``, ``depth_1`` or ``depth1``; with
    label ``"sand"`` it may also be ``sand``.
    """
    if label is None:
        return (name.lower(),)
    own = (label,) if isinstance(label, str) else ()
    return tuple(text.lower() for text in (f"{name}[{label}]", f"{name}_{label}", f"{name}{label}", *own))


def match_names(setting: str, quantities: Iterable[Quantity], known: Iterable[str], what: str) -> dict[str, Column]:
    """Find each column of `quantities` among `known` names, whatever their case.

    Returns
    -------
    The column of each name, in lower case, that has one.

    Raises
    ------
    AdapterError
        If a column has no such name, or several, or shares one; `what` says what the names are, "a parameter of x".
    """
    names = {name.lower(): name for name in known}
    found: dict[str, Column] = {}
    for column in columns_of(quantities):
        own = [spelling for spelling in dict.fromkeys(spellings(*column)) if spelling in names]
        shown = written(*column)
        if not own:
            hint = did_you_mean(spellings(*column)[0], names)
            raise AdapterError(setting, f"{shown!r} is not {what}; {hint}")
        if len(own) > 1:
            raise AdapterError(setting, f"{shown!r} may be {own[0]!r} or {own[1]!r}, each {what}")
        if own[0] in found:
            raise AdapterError(setting, f"{shown!r} and {written(*found[own[0]])!r} are both {own[0]!r}, {what}")
        found[own[0]] = column
    return found


def flat(values: Mapping[str, float | Mapping[str | int, float]]) -> dict[str, float]:
    """Each number of a row under all of its spellings."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        labelled: Mapping[Label, float] = value if isinstance(value, Mapping) else {None: value}  # type: ignore[assignment]
        for label, number in labelled.items():
            numbers.update(dict.fromkeys(spellings(name, label), number))
    return numbers
