"""A fit under way, in a file: all that it needs to go on to the same numbers as if it had never stopped.

The file also describes the data and the settings, so that it is not taken for that of another fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj

from invgp.archives import CHECKPOINT, Keys, read_archive, write_archive
from invgp.core.backend import Backend, to_numpy
from invgp.core.parameters import BLOCKS, Parameters
from invgp.core.training import Progress

FEW = 6  # numbers that are told one by one
FUNCTION = "the function "
KEYS: Keys = {"settings": dict, "round": int, "status": str, "optimiser": (dict, type(None))}


class Standing(NamedTuple):
    """Where a fit stands: its last round or epoch, and the bounds so far."""

    progress: Progress
    trace: list[float]


@dataclass(frozen=True)
class Checkpoint:
    """A file, and the description of the fit that it belongs to: what must be the same, by name."""

    path: Path
    settings: Mapping[str, str]

    def write(self, standing: Standing) -> None:
        """Replace what the file holds."""
        progress, state = standing.progress, standing.progress.optimiser
        arrays = {name: to_numpy(getattr(progress.parameters, name)) for name in BLOCKS}
        arrays["trace"] = np.asarray(standing.trace)
        numbers: dict[str, Any] = {}
        for part in () if state is None else fields(state):
            value = getattr(state, part.name)
            if is_array_api_obj(value):
                arrays[f"optimiser_{part.name}"] = to_numpy(value)
            else:
                numbers[part.name] = value
        about = {
            "settings": dict(self.settings),
            "round": progress.round,
            "converged": progress.converged,
            "status": progress.status,
            "optimiser": None if state is None else numbers,
        }
        write_archive(self.path, CHECKPOINT, about, arrays)

    def read(self, backend: Backend, state: type | None = None) -> Standing | None:
        """What the file holds; None if there is no file yet.

        Parameters
        ----------
        state : of the optimiser, a dataclass of arrays and numbers; None if it has none.

        Raises
        ------
        ValueError
            It is no checkpoint, or that of other data or settings.
        """
        if not self.path.exists():
            return None
        about, arrays = read_archive(self.path, CHECKPOINT, KEYS)
        self._compare(about["settings"])
        parameters = Parameters(*(backend.asarray(arrays[name]) for name in BLOCKS))
        trace, optimiser = arrays["trace"].tolist(), None
        if state is not None and about["optimiser"] is not None:
            held = {name: backend.asarray(arrays[key]) for name, key in _optimiser_arrays(arrays).items()}
            optimiser = state(**held, **about["optimiser"])
        standing = Progress(about["round"], trace[-1], parameters, _converged(about), about["status"], optimiser)
        return Standing(standing, trace)

    def _compare(self, settings: Mapping[str, str]) -> None:
        for name in {**self.settings, **settings}:
            now, must = self.settings.get(name, "absent"), settings.get(name, "absent")
            if now != must:
                raise ValueError(
                    f"{name} must be {must} to go on with the checkpoint {str(self.path)!r}, was {now}: "
                    "name another file to start afresh"
                )


def _converged(about: Mapping[str, Any]) -> bool:
    """Whether a fit had converged; earlier versions of invgp called this ``settled``."""
    return bool(about.get("converged", about.get("settled", False)))


def _optimiser_arrays(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Names of the fields of an optimiser's state that are arrays, and of these arrays in the file."""
    return {key.removeprefix("optimiser_"): key for key in arrays if key.startswith("optimiser_")}


def described(name: str, value: Any, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """A value in words that are the same whenever the value is, by name; the parts of an object by dotted names.

    Parameters
    ----------
    leave_out : parts of an object that do not count.
    """
    if is_array_api_obj(value):
        return {name: _array_in_words(to_numpy(value))}
    if isinstance(value, type(None) | bool | int | float | str):
        return {name: repr(value)}
    if isinstance(value, Sequence):
        return _sequence_described(name, value)
    if callable(value) and hasattr(value, "__qualname__"):
        return {name: f"{FUNCTION}{value.__qualname__}"}
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
    else:
        parts = getattr(value, "__dict__", {})
    words = {name: type(value).__name__}
    for part, inner in parts.items():
        if part not in leave_out:
            words |= described(f"{name}.{part}", inner)
    return words


def _sequence_described(name: str, values: Sequence[Any]) -> dict[str, str]:
    try:
        return {name: _array_in_words(np.asarray(values, dtype=np.float64))}
    except (TypeError, ValueError):
        return {name: repr(tuple(values))}


def _array_in_words(array: np.ndarray[Any, Any]) -> str:
    if array.size <= FEW:
        return str(array.tolist())
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"the array {array.shape} of SHA-256 {digest[:12]}"
