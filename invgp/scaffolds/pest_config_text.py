"""Text of the configuration for a PEST case, and of its table of points."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from invgp.adapters.pest.pilot_points import Point
from invgp.adapters.pest.prior_information import PriorEquation
from invgp.scaffolds.column_roles import identifier
from invgp.scaffolds.pest_priors import ParameterPrior

OBSERVATION = "observation"
LARGE_COPY = 50 * 2**20  # bytes that each run copies, above which there is a remark
WIDEST = math.log(1e3) / 4.0  # standard deviation of the logarithm of a parameter from which on there is a remark


@dataclass(frozen=True)
class Group:
    """Parameters that become one latent: numbers, or a field.

    Attributes
    ----------
    name : str
        Name of the latent.
    parameters : tuple of str
    log : bool
    points : tuple of tuple of float
        Coordinates of the parameters of a field; empty for numbers.
    kernel : str
        Kind of the kernel of a field.
    length_scale : float
        Of a field, in the unit of the coordinates.
    correlation : tuple of tuple of float
        Prior correlation matrix of numbers, or of their logarithms; empty if they are independent.
    bounded : bool
        Whether the bounds limit the values of numbers.
    """

    name: str
    parameters: tuple[str, ...]
    log: bool
    points: tuple[Point, ...] = ()
    kernel: str = ""
    length_scale: float = 0.0
    correlation: tuple[tuple[float, ...], ...] = ()
    bounded: bool = False


@dataclass(frozen=True)
class CaseConfig:
    """What the configuration of a case contains.

    Attributes
    ----------
    control : str
        Path of the control file, relative to the configuration.
    notes : sequence of tuple of str
        Each feature of the control file and what became of it.
    groups : sequence of Group
    priors : mapping of str to ParameterPrior
    equations : sequence of PriorEquation
        Prior information that becomes direct data.
    files : sequence of str
        Files beside the control file that each run needs.
    copied : int
        Their size in bytes.
    correlated : bool
        Whether the noise has a covariance matrix.
    """

    control: str
    notes: Sequence[tuple[str, str]]
    groups: Sequence[Group]
    priors: Mapping[str, ParameterPrior]
    equations: Sequence[PriorEquation]
    files: Sequence[str]
    copied: int
    correlated: bool = False


def config_lines(case: CaseConfig) -> Iterator[str]:
    """Yield the lines of the configuration."""
    stem = Path(case.control).stem
    yield f"# Created from {Path(case.control).name}. The page 'From a PEST case to a posterior' of invgp explains it."
    yield "# What became of each feature of the control file:"
    for feature, fate in case.notes:
        yield "#   " + "".join(c if c.isprintable() else "?" for c in f"{feature}: {fate}")
    yield ""
    yield "version = 1"
    yield f"title = {_toml(stem)}"
    yield ""
    yield "[survey]"
    yield f"file = {_toml(f'{stem}_observations.csv')}   # one row per observation with a weight"
    yield ""
    yield f"[survey.observations.{OBSERVATION}]"
    yield 'columns = ["value"]'
    yield 'unit = "1"   # PEST knows no units'
    labelled = [group for group in case.groups if not group.points and len(group.parameters) > 1]
    if labelled:
        yield ""
        yield "[dimensions]"
        for group in labelled:
            yield f"{group.name}_name = [{', '.join(_toml(name) for name in group.parameters)}]"
    if any(group.points for group in case.groups):
        yield ""
        yield "[grid]"
        yield f"file = {_toml(f'{stem}_points.csv')}"
        yield 'coordinates.x.unit = "m"'
        yield 'coordinates.y.unit = "m"'
    for group in case.groups:
        yield ""
        yield from _latent_lines(group, case.priors)
    yield from _direct_lines(case)
    yield ""
    yield "[forward]"
    yield 'kind = "field"   # one run takes all parameters and returns all observations'
    yield 'adapter = "pest"'
    yield f"control = {_toml(case.control)}"
    if case.copied > LARGE_COPY:
        megabytes = f"{case.copied / 2**20:,.0f} MB"
        yield f"# Each run copies {megabytes}: use {{ source = ..., link = true }} for files that are only read."
    if case.files:
        yield f"files = [{', '.join(map(_file, case.files))}]   # all that may be read by the model"
    yield "# timeout = 600   # s: a run that takes longer has failed"
    yield f"inputs = [{', '.join(_input(group) for group in case.groups)}]"
    yield f'outputs = [{{ name = "{OBSERVATION}", names = {{ column = "name" }} }}]'
    yield ""
    yield "[noise]"
    yield _noise_line(case, stem)
    yield ""
    yield "[output]"
    yield 'file = "posterior.nc"'


def _noise_line(case: CaseConfig, stem: str) -> str:
    if case.correlated:
        return f"covariance = {_toml(f'{stem}_noise.csv')}   # of all observations: from files, or else 1 / weight^2"
    return f'std.{OBSERVATION} = "std"   # 1 / weight, or the standard deviation in the control file'


def _latent_lines(group: Group, known: Mapping[str, ParameterPrior]) -> Iterator[str]:
    priors = [known[name] for name in group.parameters]
    yield f"[latents.{group.name}]"
    yield 'unit = "1"'
    if group.points:
        priors = priors[:1]
        yield f'kernel = {{ kind = "{group.kernel}", length_scale = {group.length_scale!r} }}'
    else:
        yield 'domain = "scalar"'
        if len(priors) > 1:
            yield f"dimension = {_toml(f'{group.name}_name')}"
    spread = max((prior.spread for prior in priors if prior.log), default=0.0)
    if spread >= WIDEST:
        decades = f"{4.0 * spread / math.log(10.0):.0f} orders of magnitude"
        yield f"# The prior spans {decades}: a narrower one needs fewer runs. Narrow it if you know more."
    yield f"mean = {_numbers([prior.mean for prior in priors])}"
    yield f"std = {_numbers([prior.std for prior in priors])}"
    if group.log:
        medians = [math.exp(prior.centre) for prior in priors]
        yield f'link = "log"   # log-normal, median {_short(medians)}'
    elif group.bounded:
        yield 'link = "truncated normal"'
        yield f"lower = {_numbers([prior.lower for prior in priors])}"
        yield f"upper = {_numbers([prior.upper for prior in priors])}"
    if group.correlation:
        yield "label_correlation = ["
        for row in group.correlation:
            yield f"    [{', '.join(f'{value:.10g}' for value in row)}],"
        yield "]"


def _direct_lines(case: CaseConfig) -> Iterator[str]:
    owner = {
        name: group.name if len(group.parameters) == 1 else f"{group.name}[{json.dumps(name)}]"
        for group in case.groups
        for name in group.parameters
    }
    for place, equation in enumerate(case.equations, start=1):
        if place == 1:
            yield ""
            yield "[direct.prior_information]"
        text = " + ".join(f"{factor!r} * {owner[name]}" for name, factor in equation.factors.items())
        name = f"{identifier(equation.name)}_{place}"
        yield (
            f"values.{name} = {{ quantity = {_toml(text, quote=True)}, value = {equation.value!r}, "
            f"std = {1.0 / equation.weight!r} }}"
        )


def points_table(fields: Sequence[Group]) -> str:
    """Return the table of the points of the fields, with the names of their parameters."""
    header = ["x", "y", *(group.name for group in fields)]
    rows = [
        [f"{x!r}", f"{y!r}", *(quote_csv(group.parameters[place]) for group in fields)]
        for place, (x, y) in enumerate(fields[0].points)
    ]
    return "\n".join(",".join(row) for row in [header, *rows]) + "\n"


def points_name(control: Path) -> str:
    """Return the name of the table of the points of a case."""
    return f"{control.stem}_points.csv"


def read_points_table(path: Path) -> dict[str, Point]:
    """Return the coordinates of each parameter in a table of points; empty without such a table, as it was written."""
    if not path.is_file():
        return {}
    found: dict[str, Point] = {}
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        try:
            point = (float(row.pop("x")), float(row.pop("y")))
        except (KeyError, ValueError):
            return {}  # the table was edited
        found |= dict.fromkeys(row.values(), point)
    return found


def _input(group: Group) -> str:
    if group.points:
        return f'{{ name = "{group.name}", names = {{ column = "{group.name}" }} }}'
    names = '"{label}"' if len(group.parameters) > 1 else _toml(group.parameters[0])
    return f'{{ name = "{group.name}", names = {names} }}'


def _file(name: str) -> str:
    """Return a file for each run; without ``path``, it would be in the directory of the run itself."""
    return f"{{ source = {_toml(name)}, path = {_toml(name)} }}" if "/" in name else _toml(name)


def _numbers(values: Sequence[float]) -> str:
    return repr(values[0]) if len(values) == 1 else f"[{', '.join(repr(value) for value in values)}]"


def _short(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def quote_csv(text: str) -> str:
    """Return a cell of a CSV file."""
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if re.search(r'[",\s]', text) else text


def _toml(text: str, *, quote: bool = False) -> str:
    """Return a text in the notation of TOML; with `quote`, in single quotes if it contains double ones."""
    return f"'{text}'" if quote and "'" not in text else json.dumps(text, ensure_ascii=False)
