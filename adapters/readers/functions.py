"""A user's own reader: a Python function of a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..imports import import_function
from ..protocol import Floats, Quantity
from ..quantities import digest_of, size_of
from .base import OneFile
from .files import locate
from .text import wrong_count


@dataclass(frozen=True)
class PythonFile(OneFile):
    """Whatever a Python function makes of a file.

    Parameters
    ----------
    path, outputs : as of `OneFile`.
    function : ``"package.module:function"``, imported again in each worker process. It is called with the file's
        path, and returns the numbers in the order of the outputs, or a dict of them by name of output.
    search_path : directory put at the front of ``sys.path`` to import it.
    """

    function: str = ""
    search_path: Path | None = field(default=None, repr=False)
    source: str = field(init=False)
    """Digest of the function's module, as far as it can be read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", digest_of([_source(self._load())]))

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Call the function."""
        path = locate(directory, self.path)
        try:
            result = self._load()(path)
            if isinstance(result, Mapping):
                result = np.concatenate([np.ravel(result[quantity.name]) for quantity in quantities])
            numbers = np.asarray(result, dtype=np.float64).reshape(-1)
        except (Exception, SystemExit) as error:
            raise ValueError(f"reader {self.function!r} raised {type(error).__name__}: {error}") from error
        if len(numbers) != size_of(quantities):
            raise wrong_count(size_of(quantities), len(numbers))
        return numbers

    def _load(self) -> Callable[..., Any]:
        return import_function(self.function, self.search_path)


def _source(function: Callable[..., Any]) -> bytes:
    file = getattr(inspect.getmodule(inspect.unwrap(function)), "__file__", None)
    return Path(file).read_bytes() if file is not None and Path(file).is_file() else b""
