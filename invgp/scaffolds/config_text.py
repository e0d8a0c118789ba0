"""Configuration for a survey file, with guessed values and marks (EDIT) where the user must check."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np

from invgp.problem import Floats
from invgp.scaffolds.column_roles import ColumnRoles, SurveyColumn
from invgp.units import IDENTITY, conversion

SHARE_OF_EXTENT = 3  # extent of the survey over the length-scale
SHARE_OF_NOISE = 0.05  # noise over the observed values
SIMULATOR = '''"""Your simulator. EDIT this function, its arguments and its return value."""


def simulate(field):
    """Compute the data of a site from the values of the latents at that site, for B models at once.

    field : (B,), or (B, L) for a latent with a dimension of L labels. Returns an array (B,), or (B, L) for an
    observation with a dimension, or a dictionary with one array per observation.
    """
    raise NotImplementedError("write your simulator in simulator.py")
'''


def config_text(roles: ColumnRoles, file: str, title: str) -> str:
    """Return the text of a configuration.

    Parameters
    ----------
    roles : ColumnRoles
    file : str
        Path of the survey file relative to the configuration.
    title : str

    Returns
    -------
    str
    """
    return "\n".join(_config_lines(roles, file, title)) + "\n"


def _config_lines(roles: ColumnRoles, file: str, title: str) -> Iterator[str]:
    yield "# Created from the columns of the survey file. Check each line that is marked EDIT."
    yield "# docs/config.md of invgp describes every key."
    yield ""
    yield "version = 1"
    yield f"title = {_toml_text(title)}"
    yield ""
    yield "[survey]"
    yield f"file = {_toml_text(file)}"
    yield f"# crs = {_toml_text(_example_crs(roles))}   # an example: the coordinate reference system, if there is one"
    if roles.others:
        yield f"# columns that are not used: {', '.join(_toml_text(name) for name in roles.others)}"
    for number, column in enumerate(roles.coordinates):
        yield from _column_lines(
            "coordinates", column, "" if roles.sure or number else "   # EDIT: is this the coordinate?"
        )
    for column in roles.covariates:
        yield from _column_lines("covariates", column, "")
    dimensions = _find_dimensions(roles)
    for name, columns in roles.observations.items():
        yield ""
        yield f"[survey.observations.{name}]   # {_describe_values(columns)}"
        yield f"columns = [{', '.join(_toml_text(c.header.column) for c in columns)}]"
        yield _unit_line(columns[0])
        if len(columns) > 1:
            yield f"dimension = {_toml_text(dimensions[name][0])}"
    yield from _dimension_lines(dimensions.values())
    yield from _latent_lines(roles)
    yield ""
    yield "[forward]"
    yield 'adapter = "callable"                 # EDIT: or "executable", "pest", ...: docs/simulators.md of invgp'
    yield 'function = "simulator:simulate"      # the function simulate in simulator.py, next to this file'
    yield 'inputs = ["field"]                   # EDIT: the latents, coordinates and covariates that the function takes'
    yield f"outputs = [{', '.join(_toml_text(name) for name in roles.observations)}]"
    yield ""
    yield "[noise]"
    for name, columns in roles.observations.items():
        yield _noise_line(name, columns, roles.std_columns.get(name))
    yield ""
    yield "[output]"
    yield 'file = "posterior.nc"'


def _example_crs(roles: ColumnRoles) -> str:
    """Return a system that fits the unit of the coordinates: in degrees, or a UTM zone."""
    return "EPSG:4326" if conversion(roles.coordinates[0].header.unit or "1", "degrees") else "EPSG:32754"


def _column_lines(kind: str, column: SurveyColumn, mark: str) -> Iterator[str]:
    yield ""
    yield f"[survey.{kind}.{column.header.name}]   # {_describe_values([column])}{mark}"
    yield f"column = {_toml_text(column.header.column)}"
    yield _unit_line(column)


def _unit_line(column: SurveyColumn) -> str:
    if column.header.unit:
        return f"unit = {_toml_text(column.header.unit)}"
    return 'unit = "1"   # EDIT: the header contains no unit'


def _describe_values(columns: Iterable[SurveyColumn]) -> str:
    """Return the range of the values and the number of missing ones, as a comment."""
    values = np.concatenate([column.values for column in columns])
    present = values[np.isfinite(values)]
    missing = f", {len(values) - len(present)} missing" if len(present) < len(values) else ""
    return f"{present.min():.6g} to {present.max():.6g}{missing}"


def _find_dimensions(roles: ColumnRoles) -> dict[str, tuple[str, list[int]]]:
    """Return the dimension and the labels of each observation with several columns."""
    names: dict[tuple[int, ...], str] = {}
    found = {}
    for name, columns in roles.observations.items():
        labels = tuple(c.header.number for c in columns if c.header.number is not None)
        if len(columns) > 1:
            own = names.setdefault(labels, "channel" if not names else f"channel{len(names) + 1}")
            found[name] = own, list(labels)
    return found


def _dimension_lines(dimensions: Iterable[tuple[str, list[int]]]) -> Iterator[str]:
    if not dimensions:
        return
    yield ""
    yield "[dimensions]"
    for name, labels in dict(dimensions).items():
        yield f"{name} = {labels}   # EDIT: a better name, such as layer, gate or spacing"


def _latent_lines(roles: ColumnRoles) -> Iterator[str]:
    scales = [
        _round_to_two_digits(np.ptp(c.values[np.isfinite(c.values)]) / SHARE_OF_EXTENT) or 1 for c in roles.coordinates
    ]
    units = [column.header.unit or "1" for column in roles.coordinates]
    same_unit = all(conversion(unit, units[0]) == IDENTITY for unit in units)
    length_scale = f"{max(scales):g}" if same_unit else f"[{', '.join(f'{scale:g}' for scale in scales)}]"
    yield ""
    yield "[latents.field]   # EDIT: an unknown field with its prior; one table per field"
    yield 'unit = "1"        # EDIT'
    yield "mean = 1.0        # EDIT"
    yield 'std = "30%"       # EDIT: of the mean, or a number'
    yield f"kernel = {{ length_scale = {length_scale} }}   # EDIT: the distance over which the field hardly changes"
    yield '# link = "log"    # for a positive quantity'


def _noise_line(name: str, columns: list[SurveyColumn], std_columns: list[SurveyColumn] | None) -> str:
    if std_columns:
        names = ", ".join(_toml_text(column.header.column) for column in std_columns)
        return f"std.{name} = [{names}]   # columns of the survey file"
    found = [_round_to_two_digits(SHARE_OF_NOISE * _typical_size(column.values)) or 1.0 for column in columns]
    numbers = f"{found[0]:g}" if len(found) == 1 else f"[{', '.join(f'{number:g}' for number in found)}]"
    return f"std.{name} = {numbers}   # EDIT: in its unit; this is {SHARE_OF_NOISE:.0%} of the observed values"


def _typical_size(values: Floats) -> float:
    return float(np.nanmedian(np.abs(values)))


def _round_to_two_digits(number: float) -> float:
    return float(f"{number:.2g}") if np.isfinite(number) else 0.0


def _toml_text(value: str) -> str:
    """Return a text in the notation of TOML."""
    return json.dumps(value, ensure_ascii=False)
