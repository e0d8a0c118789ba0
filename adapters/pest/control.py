"""PEST control files, of both styles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..protocol import AdapterError
from ..readers.text import parse_number
from .control_sections import SETTING, ControlSections, Row, split_words
from .files import convert_path
from .prior_information import PriorEquation, read_equations

_TRANSFORMS = ("none", "log", "fixed", "tied")


@dataclass(frozen=True)
class ControlParameter:
    """A parameter of a control file.

    Parameters
    ----------
    transform : {"none", "log", "fixed", "tied"}
        The logarithm affects only the search of PEST, not the values.
    value : float
        Initial value.
    scale, offset : float
        The model reads ``value * scale + offset``.
    tied_to : str
        Name, in lower case, of the parameter to which a tied one has a fixed ratio; otherwise empty.
    lower, upper : float
        Bounds; infinite if the file has none.
    group : str
        Parameter group, in lower case.
    columns : mapping of str to str
        Other columns of an external table, such as coordinates.
    """

    transform: str
    value: float
    scale: float = 1.0
    offset: float = 0.0
    tied_to: str = ""
    lower: float = -math.inf
    upper: float = math.inf
    group: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ControlObservation:
    """An observation of a control file.

    Parameters
    ----------
    value : float
        Measured value; NaN if the file has none.
    weight : float
        Weight; 1 if the file has none.
    group : str
        Observation group, in lower case.
    std : float
        Standard deviation of the noise, from the column ``standard_deviation``; NaN if the file has none.
    columns : mapping of str to str
        Other columns of an external table.
    """

    value: float
    weight: float = 1.0
    group: str = ""
    std: float = math.nan
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Control:
    """The content of a control file.

    Parameters
    ----------
    parameters : mapping of str to ControlParameter
        By name, in lower case.
    observations : mapping of str to ControlObservation
        By name, in lower case.
    commands : tuple of str
        Model command lines, which are run one after the other.
    files : tuple of tuple of str
        Pairs of a template or instruction file, relative to the control file, and the file of the model.
    equations : tuple of PriorEquation
        Prior information.
    observation_groups : mapping of str to str
        Names of the groups, in lower case, each with the file of its covariance matrix or an empty text.
    options : mapping of str to str
        Options of PEST++ (lines that start with ``++``) and the keywords of the control data, in lower case.
    sections : tuple of str
        Names of all sections, in lower case.
    unused_commands : tuple of str
        Command lines that PEST uses for derivatives only (NUMCOM).
    surplus : tuple of str
        Numbers in the control data that are smaller than those of the file.
    unread : tuple of tuple of str
        Parts of the file that were not understood, and why.
    """

    parameters: Mapping[str, ControlParameter]
    observations: Mapping[str, ControlObservation]
    commands: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    equations: tuple[PriorEquation, ...] = ()
    observation_groups: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[str, ...] = ()
    unused_commands: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


def read_control(path: Path) -> Control:
    """Read a control file of the older or the newer style, with its external tables.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Control

    Raises
    ------
    AdapterError
        It is invalid; the setting is ``control``.
    """
    sections = ControlSections(path)
    commands = [line for _, line in sections.lines("model command line")]
    if not commands:
        raise AdapterError(SETTING, f"{path} has no model command line; it must have at least one")
    numbered = _control_words(sections, 2)[4:5]  # NUMCOM: one command line for the model, others for derivatives
    run = 1 if numbered and numbered[0].isdecimal() and int(numbered[0]) > 1 else len(commands)
    pairs = [
        (row["pest_file"], convert_path(row["model_file"]))
        for section in ("model input/output", "model input", "model output")
        for row in sections.rows(section)
    ]
    options = dict(sections.options)
    if len(mode := _control_words(sections, 0)) > 1:
        options.setdefault("pestmode", mode[1].lower())
    parameters = _parameters(sections)
    case = Control(
        parameters,
        _observations(sections),
        tuple(commands[:run]),
        tuple(pairs),
        read_equations(sections, parameters),
        _observation_groups(sections),
        options,
        sections.names,
        tuple(commands[run:]),
        unread=tuple(sections.unread),
    )
    return replace(case, surplus=tuple(_check_counts(sections, case)))


def _control_words(sections: ControlSections, index: int) -> list[str]:
    lines = sections.lines("control data")
    return split_words(lines[index][1]) if index < len(lines) else []


def _check_counts(sections: ControlSections, case: Control) -> Iterator[str]:
    """Raise `AdapterError` if a number in the control data is too large, because the file may be incomplete.

    PEST++ does not read these numbers, so that files with numbers that are too small are in use; they are yielded.
    """
    for (position, line), names in zip(
        sections.lines("control data")[1:3], ("NPAR and NOBS", "NTPLFLE and NINSFLE"), strict=False
    ):
        first, second = (*line.split()[:2], "", "")[:2]
        if not (first.isdecimal() and second.isdecimal()):
            raise sections.error(position, f"must start with the whole numbers {names}, was {line!r}")
        counts = {"template and instruction files": (int(first) + int(second), len(case.files))}
        if "NPAR" in names:
            counts = {
                "parameters": (int(first), len(case.parameters)),
                "observations": (int(second), len(case.observations)),
            }
        for what, (expected, found) in counts.items():
            stated = f"says {expected} {what} ({names}), but the file has {found}"
            if expected > found:
                raise sections.error(position, stated)
            if expected < found:
                yield f"line {position} {stated}"


def _parameters(sections: ControlSections) -> dict[str, ControlParameter]:
    parameters: dict[str, ControlParameter] = {}
    ties: dict[str, str] = {}
    for row in sections.rows("parameter data"):
        name = _name(sections, row, "parnme")
        if "partied" in row:
            ties[name] = row["partied"].lower()
        if "parval1" in row:
            if name in parameters:
                raise AdapterError(SETTING, f"{sections.path}: the parameter {name!r} comes twice")
            parameters[name] = _parameter(sections.path, name, row)
        elif "partied" not in row:
            raise AdapterError(SETTING, f"{sections.path}: the parameter {name!r} has no value (parval1)")
    for name, parameter in parameters.items():
        if parameter.transform == "tied":
            parent = ties.get(name, "")
            if parent not in parameters or parameters[parent].transform == "tied":
                must = "which must be a parameter that is not tied itself"
                raise AdapterError(SETTING, f"{sections.path}: {name!r} is tied to {parent!r}, {must}")
            parameters[name] = replace(parameter, tied_to=parent)
    if not parameters:
        raise AdapterError(SETTING, f"{sections.path} has no parameters")
    return parameters


def _parameter(path: Path, name: str, row: Row) -> ControlParameter:
    transform = row.get("partrans", "none").lower()
    if transform not in _TRANSFORMS:
        raise AdapterError(SETTING, f"{path}: the transform of {name!r} is {transform!r}, none of {_TRANSFORMS}")
    standard = {"parval1": "", "scale": "1", "offset": "0", "parlbnd": "-inf", "parubnd": "inf"}
    value, scale, offset, lower, upper = _numbers(path, f"parameter {name!r}", row, standard)
    if not (math.isfinite(value) and math.isfinite(scale) and math.isfinite(offset)):
        raise AdapterError(SETTING, f"{path}: parameter {name!r} has a number that is not finite")
    handled = {*standard, "parnme", "partrans", "pargp", "partied", "parchglim", "dercom"}
    others = {key: entry for key, entry in row.items() if key not in handled}
    return ControlParameter(transform, value, scale, offset, "", lower, upper, row.get("pargp", "").lower(), others)


def _observations(sections: ControlSections) -> dict[str, ControlObservation]:
    observations: dict[str, ControlObservation] = {}
    standard = {"obsval": "nan", "weight": "1", "standard_deviation": "nan"}
    for row in sections.rows("observation data"):
        name = _name(sections, row, "obsnme")
        if name in observations:
            raise AdapterError(SETTING, f"{sections.path}: the observation {name!r} comes twice")
        value, weight, std = _numbers(sections.path, f"observation {name!r}", row, standard)
        others = {key: entry for key, entry in row.items() if key not in {*standard, "obsnme", "obgnme"}}
        observations[name] = ControlObservation(value, weight, row.get("obgnme", "").lower(), std, others)
    return observations


def _observation_groups(sections: ControlSections) -> dict[str, str]:
    """Return the file of the covariance matrix of each group; a number before it (GTARG) is a target."""
    words = (split_words(line) for _, line in sections.lines("observation groups"))
    return {name.lower(): next((word for word in rest if not _is_number(word)), "") for name, *rest in words if name}


def _is_number(word: str) -> bool:
    try:
        parse_number(word, "")
    except ValueError:
        return False
    return True


def _name(sections: ControlSections, row: Row, column: str) -> str:
    if column not in row:
        raise AdapterError(SETTING, f"{sections.path}: a row of an external table has no {column}")
    return row[column].lower()


def _numbers(path: Path, owner: str, row: Row, standard: Mapping[str, str]) -> list[float]:
    try:
        return [parse_number(row.get(key, text), key) for key, text in standard.items()]
    except ValueError as error:
        raise AdapterError(SETTING, f"{path}: {owner}, {error}") from error
