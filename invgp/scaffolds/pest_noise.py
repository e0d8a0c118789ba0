"""Data of a PEST case, with the covariance matrix of their noise if the case has one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from invgp.adapters import AdapterError
from invgp.adapters.pest.control import Control
from invgp.adapters.pest.files import find_file, read_bytes, read_setting
from invgp.adapters.pest.matrices import NamedCovariance, read_covariance
from invgp.adapters.readers.text import parse_number
from invgp.problem import Floats

# Beginnings of names of groups whose observations are limits in PEST++.
INEQUALITIES = ("l_", "less_", "g_", "greater_", "<@", ">@")
MOST_CORRELATED = 2_000  # observations with a covariance matrix in a project

Notes = list[tuple[str, str]]


@dataclass(frozen=True)
class Datum:
    """An observation that is used, with the standard deviation of its noise."""

    name: str
    value: float
    std: float
    group: str


def select_data(case: Control, read: set[str], notes: Notes) -> list[Datum]:
    """Return the observations that are used, and note why others are not.

    Parameters
    ----------
    case : Control
    read : set of str
        Names of the observations that instructions read.
    notes : list of tuple of str
        What became of each other observation with a weight is added to it.
    """
    found: list[Datum] = []
    for name, observation in case.observations.items():
        if observation.weight == 0.0:
            continue
        why = ""
        if name not in read:
            why = "no instruction reads it"
        elif not math.isfinite(observation.value) or not 0.0 < observation.weight < math.inf:
            why = "it has no finite value, or no positive weight"
        elif observation.group.startswith("regul"):
            why = "regularisation, for which the prior stands in"
        elif observation.group.startswith(INEQUALITIES):
            why = f"group {observation.group!r} states a limit, for which there is no counterpart"
        if why:
            notes.append((f"observation {name!r}", f"left out: {why}"))
            continue
        std = observation.std if observation.std > 0.0 else 1.0 / observation.weight
        found.append(Datum(name, observation.value, std, observation.group))
    return found


def noise_covariance(case: Control, folder: Path, data: Sequence[Datum], notes: Notes) -> Floats | None:
    """Return the covariance matrix (N, N) of the noise of the data; None if the noise is independent.

    Parameters
    ----------
    case : Control
        Its observation groups and its option ``obscov`` name files of covariance matrices, which replace the weights.
    folder : Path
        Directory of the control file.
    data : sequence of Datum
    notes : list of tuple of str
        Files that cannot be used are added to it.
    """
    order = {datum.name: place for place, datum in enumerate(data)}
    matrix = np.diag([datum.std**2 for datum in data])
    for what, file, members in _covariance_files(case):
        try:
            block = _read_block(find_file(folder, file), members)
        except AdapterError as error:
            notes.append((what, f"not used: {error.sentence}"))
            continue
        known = [(order[name], place) for place, name in enumerate(block.names) if name in order]
        if known:
            rows, places = (list(column) for column in zip(*known, strict=True))
            matrix[rows, :] = matrix[:, rows] = 0.0
            matrix[np.ix_(rows, rows)] = block.matrix[np.ix_(places, places)]
    if np.array_equal(matrix, np.diag([datum.std**2 for datum in data])):
        return None
    fault = ""
    if len(data) > MOST_CORRELATED:
        fault = f"there are more than {MOST_CORRELATED:,} observations"
    elif not np.allclose(matrix, matrix.T, rtol=1e-6):
        fault = "a matrix is not symmetric"
    elif np.linalg.eigvalsh(matrix)[0] <= 0.0:
        fault = "a matrix is not positive definite"
    if fault:
        for what, _, _ in _covariance_files(case):
            notes.append((what, f"not used, the weights are: {fault}"))
        return None
    return np.asarray(0.5 * (matrix + matrix.T))


def _covariance_files(case: Control) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield a description of each file, its name, and the observations of its group."""
    for group, file in case.observation_groups.items():
        if file:
            members = tuple(name for name, own in case.observations.items() if own.group == group)
            yield f"covariance matrix {file!r} of group {group!r}", file, members
    file = case.options.get("obscov", "")
    if file:
        yield f"option obscov({file})", file, tuple(case.observations)


def _read_block(path: Path, members: tuple[str, ...]) -> NamedCovariance:
    """Read a matrix with names, or one of a group of PEST: only numbers, in the order of the observations."""
    if path.suffix.lower() != ".unc" and b"\0" not in read_bytes("control", path):
        words = read_setting("control", path).split()
        if len(words) == len(members) ** 2 and "*" not in words:
            try:
                numbers = [parse_number(word, "the matrix") for word in words]
            except ValueError as error:
                raise AdapterError("control", f"{path}: {error}") from error
            return NamedCovariance(members, np.reshape(numbers, (len(members), len(members))))
    return read_covariance("control", path)
