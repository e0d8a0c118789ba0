"""Text for numbers, names and values: counts, durations, units, lists, suggestions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import date, time
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr

LONGEST_VALUE = 60
MOST_NAMES = 12
# Words of other programs, and the name of the same thing, or of the nearest one, here.
SYNONYMS = {
    "gaussian": "squared exponential",
    "rbf": "squared exponential",
    "matern 1/2": "exponential",
    "ln": "log",
    "python": "callable",
    "function": "callable",
    "program": "executable",
}
MOST_COMPARED = 10_000  # names
SIMILARITY = 0.6


def count_noun(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: ``1 site``, ``2 sites``.

    Parameters
    ----------
    count : int
    one : str
        Singular noun.
    many : str
        Plural noun; by default the singular with an ``s``.

    Returns
    -------
    str

    Examples
    --------
    >>> count_noun(1200, "site")
    '1,200 sites'
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def append_unit(text: str, unit: str) -> str:
    """Return a number with its unit, ``5 m``; the unit ``1`` is left out."""
    return text if unit == "1" else f"{text} {unit}"


def format_duration(seconds: float) -> str:
    """Return a duration with a suitable unit: ``20 µs``, ``3 ms``, ``5 s``, ``3 min``, ``2.5 h`` or ``4 days``."""
    if seconds < 0.9995e-3:  # three digits would round it up to the next unit
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:,.0f} days"


def convergence_advice(posterior: xr.Dataset) -> str:
    """Return what a user should know about a posterior that has not converged.

    The standard deviations of a field model include the uncertainty due to the small number of runs; those of a site
    model do not.
    """
    if "node" in posterior.dims:
        return "more runs may change its mean and reduce its standard deviations"
    return "do not rely on its standard deviations yet"


def shorten(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return a text that comes from a user or a file, cut to a maximum length."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def one_line(text: str) -> str:
    """Replace the line breaks of a text, such as that of an exception, by spaces."""
    return " ".join(text.split())


def key_path(*parts: str | int) -> str:
    """Return ``survey.observations.time.columns[2]`` from its parts."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{_key(part)}"
    return text.lstrip(".")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(shorten(name), ensure_ascii=False)


def format_value(value: object, longest: int = LONGEST_VALUE) -> str:
    """Return a value as in TOML, truncated, on one line."""
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


def join_names(names: Iterable[object], word: str = "and") -> str:
    """Return ``'a', 'b' and 'c'``; a long list ends with the number of the others."""
    names = list(names)
    quoted = [shorten(repr(n)) for n in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        quoted = [*quoted[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    if len(quoted) <= 1:
        return "".join(quoted) or "none"
    return f"{', '.join(quoted[:-1])} {word} {quoted[-1]}"


def suggest(name: object, valid: Sequence[str]) -> str:
    """Return ``; valid: 'columns' and 'unit'; did you mean 'columns'?``."""
    return f"; valid: {join_names(valid)}{did_you_mean(name, valid)}"


def did_you_mean(name: object, valid: Sequence[str], similarity: float = SIMILARITY) -> str:
    """Return ``; did you mean 'columns'?``, or an empty text if no name is similar."""
    near = nearest_name(name, valid, similarity)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest_name(name: object, valid: Sequence[str], similarity: float = SIMILARITY) -> str | None:
    """Return the valid name that a misspelt one probably stands for; `similarity` is 1 for the same name."""
    if len(valid) > MOST_COMPARED or len(str(name)) > LONGEST_VALUE:  # it would take long
        return None
    if SYNONYMS.get(str(name).lower()) in valid:
        return SYNONYMS[str(name).lower()]
    by_lower_case = {v.lower(): v for v in valid if len(v) <= LONGEST_VALUE}
    close = get_close_matches(str(name).lower(), by_lower_case, n=1, cutoff=similarity)
    return by_lower_case[close[0]] if close else None
