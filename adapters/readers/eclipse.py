"""The reader of summary files of the reservoir simulators Eclipse and OPM Flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..protocol import AdapterError, Floats, Quantity
from ..quantities import did_you_mean, size_of
from .file_access import read_bytes
from .isolation import read_isolated
from .reader import OneFile, Rows, check_rows, pick_rows
from .text import count_error

_TIME = "TIME"
_SAME_TIME = 1e-5  # relative difference; times are in single precision


@dataclass(frozen=True)
class EclipseFile(OneFile):
    """Vectors of a unified, unformatted summary file (``.UNSMRY``).

    The file that describes the vectors (``.SMSPEC``) must be next to it. The package ``resfo-utilities`` reads both, in
    a helper process.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    vectors : tuple of str
        Names of vectors such as ``FOPR``, ``WOPR:PROD``, ``BPR:3,5,1`` or ``RPR:2``; they are read one after the other.
    row : int, tuple of int or None
        Which report steps, from 1; -1 for the last; None for all.
    times : tuple of float, optional
        Instead of `row`, the values of the vector ``TIME`` (usually days since the start) at which the simulator has
        written a step.
    timeout : float
        Time limit for reading in s. The timeout of the program also applies.
    """

    vectors: tuple[str, ...] = ()
    row: Rows = None
    times: tuple[float, ...] | None = None
    timeout: float = field(default=60.0, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_rows(self.row)
        if find_spec("resfo_utilities") is None:
            raise AdapterError(
                "format", "'eclipse' needs resfo-utilities, which is not installed: pip install 'invgp[eclipse]'"
            )
        if self.path is None or Path(self.path).suffix.upper() != ".UNSMRY":
            raise AdapterError("path", f"must be a file that ends with .UNSMRY; it is {self.path!r}")
        if not self.vectors or not all(self.vectors):
            raise AdapterError("vectors", f"must name vectors such as 'WOPR:PROD'; it is {list(self.vectors)!r}")
        if self.times is not None and self.row is not None:
            raise AdapterError("times", "must be left out if `row` is given")

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The file with the values, and the one that describes them."""
        return (self.path, self._specification)

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read the vectors, with the steps fastest."""
        files = [read_bytes(directory, path) for path in (self._specification, self.path)]
        numbers = read_isolated(read_vectors, *files, self.vectors, self.row, self.times, seconds=self.timeout)
        if len(numbers) != size_of(quantities):
            raise count_error(size_of(quantities), len(numbers))
        return numbers

    @property
    def _specification(self) -> str:
        path = Path(str(self.path))
        return str(path.with_suffix(".smspec" if path.suffix.islower() else ".SMSPEC"))


def read_vectors(
    specification: bytes, summary: bytes, vectors: Sequence[str], row: Rows, times: Sequence[float] | None
) -> Floats:
    """Read vectors from the contents of two summary files.

    Parameters
    ----------
    specification, summary : bytes
        Contents of the files.
    vectors, row, times
        As in `EclipseFile`.

    Returns
    -------
    array, shape (number of vectors times number of steps,)

    Raises
    ------
    ValueError
        A vector or step does not exist, or a file is damaged.
    """
    from resfo_utilities import InvalidSummaryError, SummaryReader  # noqa: PLC0415 - optional

    reader = SummaryReader(smspec=lambda: BytesIO(specification), summaries=[lambda: BytesIO(summary)])
    try:
        names = _name_vectors(reader)
        steps = list(reader.values(report_step_only=times is None))
    except InvalidSummaryError as error:
        raise ValueError(f"is damaged: {error}") from error
    for vector in vectors:
        if vector not in names:
            raise ValueError(f"has no vector {vector!r}; {did_you_mean(vector, names)}")
    if any(len(step) != len(names) for step in steps):
        raise ValueError(f"has steps that do not have {len(names)} numbers, one for each vector of its .SMSPEC file")
    table = np.asarray(steps, dtype=np.float64).reshape(len(steps), len(names))
    chosen = (
        pick_rows(range(len(table)), row, "report step")
        if times is None
        else _find_steps(table[:, names.index(_TIME)] if _TIME in names else None, times)
    )
    return table[np.ix_(chosen, [names.index(vector) for vector in vectors])].T.reshape(-1)


def _name_vectors(reader: Any) -> list[str]:
    """Return the name of each vector; empty for a place holder, which has no valid name."""
    from resfo_utilities import InvalidSummaryKeyError, make_summary_key  # noqa: PLC0415 - optional

    names = []
    nx, ny, _ = reader.dimensions or (None, None, None)
    for keyword in reader.summary_keywords:
        try:
            names.append(
                make_summary_key(
                    keyword.summary_variable,
                    keyword.number,
                    keyword.name,
                    nx,
                    ny,
                    keyword.lgr_name,
                    keyword.li,
                    keyword.lj,
                    keyword.lk,
                )
            )
        except InvalidSummaryKeyError:
            names.append("")
    return names


def _find_steps(written: Floats | None, times: Sequence[float]) -> list[int]:
    """Return the number of the step at each time."""
    if written is None or not len(written):
        raise ValueError("has no steps with the vector 'TIME'")
    found = []
    for time in times:
        step = int(np.argmin(np.abs(written - time)))
        if abs(written[step] - time) > _SAME_TIME * max(abs(time), 1.0):
            raise ValueError(f"has no step at time {time:g}; the nearest is at {written[step]:g}")
        found.append(step)
    return found
