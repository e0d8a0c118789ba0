"""A reader of output files with PEST instructions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..flat_names import file_names, match_names
from ..protocol import AdapterError, Floats, Quantity
from ..readers.text import read_text
from .files import read_setting
from .instructions import InstructionError, Instructions


def load_instructions(setting: str, path: Path, delimiters: str = "") -> Instructions:
    """Read an instruction file; `setting` is named in an error, `delimiters` are those of `Instructions`."""
    try:
        return Instructions(read_setting(setting, path), delimiters)
    except InstructionError as error:
        raise AdapterError(setting, f"{path}, {error}") from error


@dataclass(frozen=True)
class InstructionFile:
    """Output files read by PEST instructions.

    Observations are assigned to outputs by name, see `file_names`. Other observations are read and ignored.

    Parameters
    ----------
    files : tuple of tuple
        Pairs of instructions and their output file, relative to the run directory.
    outputs : tuple of str, optional
        Names of the quantities in the files; None for all.
    """

    files: tuple[tuple[Instructions, str | None], ...]
    outputs: tuple[str, ...] | None = None

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The output files."""
        return tuple(path for _, path in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all observations of the instructions, in lower case."""
        return tuple(name for instructions, _ in self.files for name in instructions.names)

    def check(self, quantities: tuple[Quantity, ...]) -> None:
        """Raise `AdapterError` unless each quantity is an observation that is read once."""
        for name, times in Counter(self.names).items():
            if times > 1:
                raise AdapterError("instructions", f"the observation {name!r} is read {times} times")
        match_names("outputs", quantities, self.names, "an observation of the instructions")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Read each file with its instructions."""
        numbers: dict[str, float] = {}
        for instructions, path in self.files:
            try:
                numbers.update(instructions.read(read_text(directory, path)))
            except (FileNotFoundError, ValueError) as error:
                if len(self.files) == 1:
                    raise
                what = "was not written" if isinstance(error, FileNotFoundError) else str(error)
                raise ValueError(f"{path!r}: {what}") from error
        return np.array([_find_number(numbers, names) for names in file_names(quantities).values()])


def _find_number(numbers: dict[str, float], names: tuple[str, ...]) -> float:
    return next(numbers[name] for name in names if name in numbers)
