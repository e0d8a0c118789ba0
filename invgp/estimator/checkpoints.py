"""Checkpoints of a fit: files from which an interrupted fit continues with bit-identical results.

The file also describes the data and the settings, so that a fit cannot continue from the checkpoint of another one.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj

from invgp.core.backend import Array, Backend, to_numpy
from invgp.core.kernels import Kernel
from invgp.core.parameters import BLOCKS, Parameters
from invgp.core.training import Progress
from invgp.estimator.arguments import Floats
from invgp.estimator.settings import ModelSettings
from invgp.files.archives import CHECKPOINT, Keys, read_archive, write_archive

MAX_LISTED = 6  # numbers: longer arrays are described by their shape and a hash
FUNCTION = "the function "
CODE = " (code)"  # end of the name under which the digest of a function is listed
KEYS: Keys = {"settings": dict, "round": int, "status": str, "optimiser": (dict, type(None))}
EARLIER_SETTINGS = {"method.anew": "method.profile_posterior"}  # names in files of earlier versions
FIT_LENGTHS = ("rounds", "epochs", "final_epochs")  # settings of a method that may change when a fit continues


class FitState(NamedTuple):
    """State of a fit: its last round or epoch, and the bound after each one so far."""

    progress: Progress
    trace: list[float]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint file of one fit.

    Parameters
    ----------
    path : Path
        The file; it need not exist yet.
    settings : mapping of str to str
        Descriptions of the data and settings, by name. They must be equal to those in the file.
    """

    path: Path
    settings: Mapping[str, str]

    def write(self, fit_state: FitState) -> None:
        """Replace the content of the file by this state."""
        progress, state = fit_state.progress, fit_state.progress.optimiser
        arrays = {name: to_numpy(getattr(progress.parameters, name)) for name in BLOCKS}
        arrays["trace"] = np.asarray(fit_state.trace)
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
            "samples": progress.samples,
            "optimiser": None if state is None else numbers,
        }
        write_archive(self.path, CHECKPOINT, about, arrays)

    def read(self, backend: Backend, prior_mean: Array, state: type | None = None) -> FitState | None:
        """Read the state of the fit.

        Parameters
        ----------
        backend : Backend
            Where the arrays are created.
        prior_mean : array, shape (Q,)
            Used if the file is of an earlier version, which did not store it.
        state : type, optional
            Class of the optimiser's state, a dataclass of arrays and numbers; None if the optimiser has no state.

        Returns
        -------
        FitState or None
            None if the file does not exist.

        Raises
        ------
        ValueError
            The file is not a checkpoint, or the data or settings differ from those of the checkpoint.
        """
        if not self.path.exists():
            return None
        about, arrays = read_archive(self.path, CHECKPOINT, KEYS)
        self._compare(about["settings"])
        arrays["kernels"] = arrays["kernels"].ravel()  # earlier versions wrote one row per latent
        arrays.setdefault("prior_mean", to_numpy(prior_mean))
        parameters = Parameters(*(backend.asarray(arrays[name]) for name in BLOCKS))
        trace, optimiser = arrays["trace"].tolist(), None
        if state is not None and about["optimiser"] is not None:
            held = {name: backend.asarray(arrays[key]) for name, key in _optimiser_arrays(arrays).items()}
            optimiser = state(**held, **about["optimiser"])
        fit_state = Progress(
            about["round"],
            trace[-1],
            parameters,
            _read_converged(about),
            about["status"],
            optimiser,
            about.get("samples", 0),
        )
        return FitState(fit_state, trace)

    def _compare(self, settings: Mapping[str, str]) -> None:
        settings = {EARLIER_SETTINGS.get(name, name): value for name, value in settings.items()}
        for name in {**self.settings, **settings}:
            if name.endswith(CODE) and name not in settings:  # in files of earlier versions
                continue
            now, must = self.settings.get(name, "absent"), settings.get(name, "absent")
            if now != must:
                raise ValueError(
                    f"{name} must be {must} to continue from the checkpoint {str(self.path)!r}, was {now}: "
                    "use another file to start a new fit"
                )


def describe_fit(settings: ModelSettings, X: Floats, Y: Floats, weights: Floats | None) -> Checkpoint | None:
    """Describe data and settings of a fit for its checkpoint; only the device and the length of the fit may change.

    Parameters
    ----------
    settings : ModelSettings
        The model.
    X : array, shape (N, D)
        Inputs.
    Y : array, shape (N, P)
        Observations.
    weights : array, shape (N,), optional
        Weights of the sites.

    Returns
    -------
    Checkpoint or None
        None for a model without a checkpoint.
    """
    if settings.checkpoint is None:
        return None
    words = (
        describe_value("X", X)
        | describe_value("y", Y)
        | ({} if weights is None else describe_value("sample_weight", weights))
        | describe_value("method", settings._method, leave_out=FIT_LENGTHS)
    )
    for setting in fields(settings):
        if setting.name not in ("method", "device", "checkpoint", "verbose"):
            words |= describe_value(setting.name, getattr(settings, setting.name))
    return Checkpoint(Path(settings.checkpoint), words)


def _read_converged(about: Mapping[str, Any]) -> bool:
    """Whether a fit had converged; earlier versions of invgp called this ``settled``."""
    return bool(about.get("converged", about.get("settled", False)))


def _optimiser_arrays(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Map the array fields of the optimiser's state to the names of their arrays in the file."""
    return {key.removeprefix("optimiser_"): key for key in arrays if key.startswith("optimiser_")}


def describe_value(name: str, value: Any, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """Describe a value by strings that are equal if and only if (up to hash collisions) the values are equal.

    Parameters
    ----------
    name : str
        Name of the value.
    value : Any
        An array, number, string, sequence, function or object.
    leave_out : sequence of str
        Attributes of an object to ignore.

    Returns
    -------
    dict of str to str
        Descriptions by name; the attributes of an object have dotted names.
    """
    if is_array_api_obj(value):
        return {name: _describe_array(to_numpy(value))}
    if isinstance(value, type(None) | bool | int | float | str | Kernel):
        return {name: json.dumps(value.describe()) if isinstance(value, Kernel) else repr(value)}
    if isinstance(value, Mapping):
        words = {name: str(len(value))}
        for part, inner in value.items():
            words |= describe_value(f"{name}[{part!r}]", inner)
        return words
    if isinstance(value, Sequence):
        return _describe_sequence(name, value)
    if callable(value) and hasattr(value, "__qualname__"):
        return {name: f"{FUNCTION}{value.__qualname__}", f"{name}{CODE}": digest_function(value)}
    if isinstance(value, partial):
        parts: dict[str, Any] = {"func": value.func, "args": value.args, "keywords": value.keywords}
    elif is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
    else:
        parts = getattr(value, "__dict__", {})
    words = {name: type(value).__name__}
    for part, inner in parts.items():
        if part not in leave_out:
            words |= describe_value(f"{name}.{part}", inner)
    return words


def digest_function(function: Callable[..., Any]) -> str:
    """Compute a digest of the code of a function, of its default values and of the variables that it encloses.

    The source is used where it can be read, without comments and layout; otherwise, and for lambda expressions, the
    bytecode, which depends on the version of Python. Global variables are included if they are numbers, strings or
    arrays; called functions are not.
    """
    parts = [_code(function), repr(getattr(function, "__defaults__", None))]
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    for name in () if code is None else code.co_names:
        value = known.get(name)
        if isinstance(value, bool | int | float | str) or is_array_api_obj(value):
            parts.append(repr(describe_value(name, value)))
    for cell in getattr(function, "__closure__", None) or ():
        try:
            parts.append(repr(sorted(describe_value("", cell.cell_contents).items())))
        except ValueError:  # an empty cell
            parts.append("empty")
    return f"SHA-256 {hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"


def _code(function: Callable[..., Any]) -> str:
    if getattr(function, "__name__", "<lambda>") != "<lambda>":
        with suppress(OSError, TypeError, SyntaxError):
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            body = getattr(tree.body[0], "body", [])
            if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                del body[0]  # the docstring
            return ast.dump(tree)
    code = getattr(function, "__code__", None)
    return type(function).__name__ if code is None else _bytecode(code)


def _bytecode(code: CodeType) -> str:
    constants = [_bytecode(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _describe_sequence(name: str, values: Sequence[Any] | Kernel) -> dict[str, str]:
    if isinstance(values, Kernel):
        return {name: json.dumps(values.describe())}
    try:
        return {name: _describe_array(np.asarray(values, dtype=np.float64))}
    except (TypeError, ValueError):
        texts = [json.dumps(one.describe()) if isinstance(one, Kernel) else repr(one) for one in values]
        return {name: f"({', '.join(texts)}{',' * (len(texts) == 1)})"}


def _describe_array(array: np.ndarray[Any, Any]) -> str:
    if array.size <= MAX_LISTED:
        return str(array.tolist())
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"the array {array.shape} of SHA-256 {digest[:12]}"
