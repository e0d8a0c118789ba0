"""The case of another program, such as PEST, from which a model was made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .quantities import Label


@dataclass(frozen=True)
class CaseParameter:
    """A parameter of a case: ``ratio`` times an input of the model, or a constant.

    Parameters
    ----------
    name : str
        Name in the control file, in lower case.
    column : tuple of str and label, optional
        Name and label of the input; None for a constant.
    ratio : float
        Ratio to the input; 1 unless the parameter is tied.
    value : float
        Value without an input.
    """

    name: str
    column: tuple[str, Label] | None
    ratio: float
    value: float


@dataclass(frozen=True)
class PestCase:
    """The case from which a model was made.

    Parameters
    ----------
    control : Path
        The control file.
    features : tuple of tuple of str
        Each feature of the control file that concerns the model, and what became of it.
    parameters : tuple of CaseParameter
        All parameters, in the order of the control file.
    """

    control: Path
    features: tuple[tuple[str, str], ...]
    parameters: tuple[CaseParameter, ...]
