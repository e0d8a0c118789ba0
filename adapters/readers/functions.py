"""A reader that is a Python function of a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..function_imports import import_function
from ..protocol import Floats, Quantity
from ..quantities import digest_of, size_of
from .file_access import locate_file
from .reader import OneFile
from .text import count_error


@dataclass(frozen=True)
class PythonFile(OneFile):
    """Numbers that a Python function reads from a file.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    function : str
        Name such as ``"package.module:function"``, imported again in each worker process. The function is called with
        the path of the file, and returns the numbers in the order of the outputs, or a dict by name of output.
    search_path : Path, optional
        Directory that is put at the start of ``sys.path`` for the import.
    """

    function: str = ""
    search_path: Path | None = field(default=None, repr=False)
    source: str = field(init=False)
    """Digest of the module of the function, if it can be read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", digest_of([_source(self._load())]))

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Call the function."""
        path = locate_file(directory, self.path)
        try:
            result = self._load()(path)
            if isinstance(result, Mapping):
                result = np.concatenate([np.ravel(result[quantity.name]) for quantity in quantities])
            numbers = np.asarray(result, dtype=np.float64).reshape(-1)
        except (Exception, SystemExit) as error:
            raise ValueError(f"reader {self.function!r} raised {type(error).__name__}: {error}") from error
        if len(numbers) != size_of(quantities):
            raise count_error(size_of(quantities), len(numbers))
        return numbers

    def _load(self) -> Callable[..., Any]:
        return import_function(self.function, self.search_path)


def _source(function: Callable[..., Any]) -> bytes:
    file = getattr(inspect.getmodule(inspect.unwrap(function)), "__file__", None)
    return Path(file).read_bytes() if file is not None and Path(file).is_file() else b""
