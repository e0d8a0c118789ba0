"""A config for a survey file, with what can be guessed filled in and what cannot marked EDIT."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np

from invgp.problem import Floats
from invgp.scaffolds.guessing import Column, Guess
from invgp.units import IDENTITY, conversion

SHARE_OF_EXTENT = 3  # a length-scale is a third of the survey
SHARE_OF_NOISE = 0.05
SIMULATOR = '''"""Your simulator. EDIT this function, its arguments and its return value."""


def simulate(field):
    """Compute the data of a site from the values of the latents at that site, for B models at once.

    field : (B,), or (B, L) for a latent with a dimension of L labels. Returns an array (B,), or (B, L) for an
    observation with a dimension, or a dictionary with one array per observation.
    """
    raise NotImplementedError("write your simulator in simulator.py")
'''


def config(guess: Guess, file: str, title: str) -> str:
    """The text of the config of a survey in `file`, as seen from the config."""
    return "\n".join(_lines(guess, file, title)) + "\n"


def _lines(guess: Guess, file: str, title: str) -> Iterator[str]:
    yield "# Created from the columns of the survey file. Check each line that is marked EDIT."
    yield "# docs/config.md of invgp describes every key."
    yield ""
    yield "version = 1"
    yield f"title = {_text(title)}"
    yield ""
    yield "[survey]"
    yield f"file = {_text(file)}"
    yield '# crs = "EPSG:4326"   # EDIT: the coordinate reference system, if there is one'
    if guess.others:
        yield f"# columns that are not used: {', '.join(_text(name) for name in guess.others)}"
    for number, column in enumerate(guess.coordinates):
        yield from _column("coordinates", column, "" if guess.sure or number else "   # EDIT: is this the coordinate?")
    for column in guess.covariates:
        yield from _column("covariates", column, "")
    dimensions = _dimensions(guess)
    for name, columns in guess.observations.items():
        yield ""
        yield f"[survey.observations.{name}]   # {_range(columns)}"
        yield f"columns = [{', '.join(_text(c.header.column) for c in columns)}]"
        yield _unit(columns[0])
        if len(columns) > 1:
            yield f"dimension = {_text(dimensions[name][0])}"
    yield from _dimension_table(dimensions.values())
    yield from _latent(guess)
    yield ""
    yield "[forward]"
    yield 'adapter = "callable"                 # EDIT: or "executable", "pest", ...: docs/simulators.md of invgp'
    yield 'function = "simulator:simulate"      # the function simulate in simulator.py, next to this file'
    yield 'inputs = ["field"]                   # EDIT: the latents, coordinates and covariates that the function takes'
    yield f"outputs = [{', '.join(_text(name) for name in guess.observations)}]"
    yield ""
    yield "[noise]"
    for name, columns in guess.observations.items():
        yield _noise(name, columns, guess.spreads.get(name))
    yield ""
    yield "[output]"
    yield 'file = "posterior.nc"'


def _column(kind: str, column: Column, mark: str) -> Iterator[str]:
    yield ""
    yield f"[survey.{kind}.{column.header.name}]   # {_range([column])}{mark}"
    yield f"column = {_text(column.header.column)}"
    yield _unit(column)


def _unit(column: Column) -> str:
    if column.header.unit:
        return f"unit = {_text(column.header.unit)}"
    return 'unit = "1"   # EDIT: the header contains no unit'


def _range(columns: Iterable[Column]) -> str:
    """What there is, in words."""
    values = np.concatenate([column.values for column in columns])
    there = values[np.isfinite(values)]
    missing = f", {len(values) - len(there)} missing" if len(there) < len(values) else ""
    return f"{there.min():.6g} to {there.max():.6g}{missing}"


def _dimensions(guess: Guess) -> dict[str, tuple[str, list[int]]]:
    """For each observation of several columns its dimension with the labels; the same labels are the same dimension."""
    names: dict[tuple[int, ...], str] = {}
    found = {}
    for name, columns in guess.observations.items():
        labels = tuple(c.header.number for c in columns if c.header.number is not None)
        if len(columns) > 1:
            own = names.setdefault(labels, "channel" if not names else f"channel{len(names) + 1}")
            found[name] = own, list(labels)
    return found


def _dimension_table(dimensions: Iterable[tuple[str, list[int]]]) -> Iterator[str]:
    if not dimensions:
        return
    yield ""
    yield "[dimensions]"
    for name, labels in dict(dimensions).items():
        yield f"{name} = {labels}   # EDIT: a better name, such as layer, gate or spacing"


def _latent(guess: Guess) -> Iterator[str]:
    scales = [_two_digits(np.ptp(c.values[np.isfinite(c.values)]) / SHARE_OF_EXTENT) or 1 for c in guess.coordinates]
    units = [column.header.unit or "1" for column in guess.coordinates]
    alike = all(conversion(unit, units[0]) == IDENTITY for unit in units)
    length_scale = f"{max(scales):g}" if alike else f"[{', '.join(f'{scale:g}' for scale in scales)}]"
    yield ""
    yield "[latents.field]   # EDIT: an unknown field with its prior; one table per field"
    yield 'unit = "1"        # EDIT'
    yield "mean = 1.0        # EDIT"
    yield 'std = "30%"       # EDIT: of the mean, or a number'
    yield f"kernel = {{ length_scale = {length_scale} }}   # EDIT: the distance over which the field hardly changes"
    yield '# link = "log"    # for a positive quantity'


def _noise(name: str, columns: list[Column], spreads: list[Column] | None) -> str:
    if spreads:
        return f"std.{name} = [{', '.join(_text(c.header.column) for c in spreads)}]   # columns of the survey file"
    found = [_two_digits(SHARE_OF_NOISE * _size(column.values)) or 1.0 for column in columns]
    numbers = f"{found[0]:g}" if len(found) == 1 else f"[{', '.join(f'{number:g}' for number in found)}]"
    return f"std.{name} = {numbers}   # EDIT: in its unit; this is {SHARE_OF_NOISE:.0%} of the observed values"


def _size(values: Floats) -> float:
    return float(np.nanmedian(np.abs(values)))


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}") if np.isfinite(number) else 0.0


def _text(value: str) -> str:
    """As TOML writes it."""
    return json.dumps(value, ensure_ascii=False)
