"""A simulator that is a Python function."""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from .device_arrays import Convert, converter, to_host
from .function_imports import import_function
from .protocol import AdapterError, Evaluations, Floats, Quantity, RunContext, Status, output_size
from .quantities import check_batch, check_quantities, digest_of, size_of, type_name
from .run_errors import RunError, check_outputs

_log = logging.getLogger(__name__)
_ONE_AT_A_TIME = "; if the function takes one row at a time, set `vectorised` to false"
_ARRAY_ERROR = re.compile(r"ambiguous|broadcast|shape|dimension|array element|size-1|inhomogeneous", re.IGNORECASE)


class _BadResultError(Exception):
    """The return value of a function does not contain the outputs."""


@dataclass(frozen=True)
class CallableModel:
    """A Python function with one keyword argument per input.

    A vectorised function takes a batch: an array of shape (B,) for an input without labels, and (B, size) for one with
    labels. It returns an array of shape (B, size) for each output, or (B,) for an output of a single number. If it
    raises an exception, it is called again row by row, so that only the rows that cause it fail; if it does not return
    an array for a row, it is not vectorised, and all rows fail. Another function takes
    one row: a float, or an array of shape (size,), for each input. It returns a float, or an array of shape (size,),
    for each output. With several outputs, the function returns a tuple in their order, or a dict by name.

    With `jacobian`, the function returns a pair: the outputs as above, and their derivatives by the inputs. The latter
    are an array of shape (B, P, I), with all P numbers of the outputs and all I numbers of the inputs in order, or a
    dict with an array of shape (B, P, size) for each input. Derivatives by inputs that are not in the dict are zero. An
    input without labels may have the shape (B, P). A function that takes one row returns them without the axis B.

    Parameters
    ----------
    function : callable or str
        The function, or its name as ``"package.module:function"``. A name is imported again in each worker process; a
        function itself must be picklable.
    inputs, outputs : tuple of Quantity
    vectorised : bool
        Whether the function takes a batch.
    partial : bool
        Whether a run that lacks some of its outputs (NaN) succeeds.
    rows : int, optional
        Number of rows per task; by default 4096 for a vectorised function and 64 for another.
    jacobian : bool
        Whether the function also returns the Jacobian of its outputs.
    jacobian_cost : float
        Cost of a Jacobian in runs, at least 0.
    arrays : str
        Library of the arrays that the function receives, on its default device: ``"numpy"``, ``"cupy"``, ``"jax"``,
        ``"torch"``, or another module with `asarray`. A number of a function that takes one row is then an array of
        shape (). Results may be arrays of any library with DLPack, on any device.
    search_path : Path, optional
        Directory that is put at the start of ``sys.path`` to import `function` by name.
    name : str
        Name in messages and provenance; by default the name of the function.

    Raises
    ------
    AdapterError
        There is no such function, it does not take these inputs, or the quantities are invalid.

    Notes
    -----
    The digest covers the source of the module of the function, if it can be read. It covers neither the imports of that
    module nor the values in a closure or an object.
    """

    function: Callable[..., Any] | str
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]
    vectorised: bool = True
    partial: bool = False
    rows: int | None = None
    jacobian: bool = False
    jacobian_cost: float = 0.0
    arrays: str = "numpy"
    search_path: Path | None = None
    name: str = ""
    digest: str = field(init=False, repr=False)
    _call: Callable[..., Any] = field(init=False, repr=False, compare=False)
    _convert: Convert = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_quantities("inputs", self.inputs)
        check_quantities("outputs", self.outputs)
        if not (math.isfinite(self.jacobian_cost) and self.jacobian_cost >= 0.0):
            raise AdapterError("jacobian_cost", f"must be a number of runs, at least 0, was {self.jacobian_cost!r}")
        call = self._resolve()
        self._check_parameters(call)
        # The only assignments to a frozen instance: values that the settings determine.
        object.__setattr__(self, "_call", call)
        object.__setattr__(self, "_convert", converter(self.arrays))
        object.__setattr__(self, "name", self.name or _qualified_name(call).rpartition(".")[2])
        object.__setattr__(self, "digest", self._compute_digest(call))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_convert"]
        if isinstance(self.function, str):
            del state["_call"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        object.__setattr__(self, "_convert", converter(self.arrays))
        if "_call" in state:
            return
        call = self._resolve()
        if self._compute_digest(call) != self.digest:
            raise AdapterError("function", f"the module of {self.function!r} has changed since the model was made")
        object.__setattr__(self, "_call", call)

    @property
    def rows_per_task(self) -> int:
        """Number of rows per task."""
        return self.rows or (4096 if self.vectorised else 64)

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Call the function for `values`, shape (B, I), in the units of the inputs."""
        values = check_batch(self.inputs, values, context)
        with np.errstate(all="ignore"):  # the status of a row reports a number that is not finite
            if self.vectorised and len(values) > 1:
                return self._evaluate_batch(values, context)
            return self._evaluate_rows(values, context)

    def _evaluate_batch(self, values: Floats, context: RunContext) -> Evaluations:
        try:
            outputs = self._call_function(values)
        except _BadResultError as error:
            messages = tuple(f"run {label}: {error}" for label in context.labels)
            nothing = np.full((len(values), output_size(self)), np.nan)
            return Evaluations(nothing, (Status.UNREADABLE,) * len(values), messages)
        except (Exception, SystemExit) as error:
            result = self._evaluate_rows(values, context)
            if Status.UNREADABLE in result.status:  # the other rows are right by chance: it does not take a batch
                found = result.messages[result.status.index(Status.UNREADABLE)].partition(": ")[2]
                raised = f"the function raised {type(error).__name__}: {error} for a batch of {len(values)} rows"
                messages = tuple(f"run {label}: {raised}, and {found}" for label in context.labels)
                nothing = np.full((len(values), output_size(self)), np.nan)
                return Evaluations(nothing, (Status.UNREADABLE,) * len(values), messages)
            if Status.RAISED not in result.status:
                _log.warning(
                    "%s raised %s: %s for a batch, but not for its rows one by one; is it vectorised?",
                    self.name, type(error).__name__, error,
                )  # fmt: skip
            return result
        return self._check(outputs, context)

    def _evaluate_rows(self, values: Floats, context: RunContext) -> Evaluations:
        nothing = np.full((1, output_size(self)), np.nan)
        parts = [Evaluations(nothing[:0], (), ())]
        for i, label in enumerate(context.labels):
            try:
                part = self._check(self._call_function(values[i : i + 1]), context.rows(i, i + 1))
            except _BadResultError as error:
                part = Evaluations(nothing, (Status.UNREADABLE,), (f"run {label}: {error}",))
            except (Exception, SystemExit) as error:
                message = f"run {label}: {type(error).__name__}: {error}{self._vectorised_hint(error)}"
                part = Evaluations(nothing, (Status.RAISED,), (message,))
            parts.append(part)
        return Evaluations.concatenate(parts)

    def _call_function(self, values: Floats) -> Floats:
        """Call the function once, with a batch (B, I) or a single row (1, I); return the outputs and the Jacobians."""
        result, rows = self._call(**self._arguments(values)), len(values)
        parts = []
        if self.jacobian:
            if not isinstance(result, tuple) or len(result) != 2:
                count = f" of {len(result)}" if isinstance(result, tuple | list) else ""
                expected = "a tuple of the outputs and the Jacobian"
                raise _BadResultError(f"the function returned {type_name(result)}{count}, expected {expected}")
            result, jacobian = result
            parts = [self._join_jacobian(jacobian, rows)]
        named = self._name_outputs(result)
        columns = starmap(self._reshape, [(q, named[q.name], rows) for q in self.outputs])
        return np.concatenate([*columns, *parts], axis=1)

    def _join_jacobian(self, jacobian: Any, rows: int) -> Floats:
        """Return the Jacobians as columns (B, P I)."""
        values, sizes = size_of(self.outputs), {q.name: q.size for q in self.inputs}
        batch = (rows,) if self.vectorised else ()
        if not isinstance(jacobian, Mapping):
            whole = _as_floats("jacobian", jacobian)
            expected = (*batch, values, sum(sizes.values()))
            if whole.shape != expected:
                raise _BadResultError(f"the Jacobian came with shape {whole.shape}, expected {expected}")
            return whole.reshape(rows, -1)
        if unknown := [name for name in jacobian if name not in sizes]:
            raise _BadResultError(f"the Jacobian has the inputs {unknown}, expected some of {list(sizes)}")
        parts = []
        for quantity in self.inputs:
            if quantity.name not in jacobian:
                parts.append(np.zeros((rows, values, quantity.size)))
                continue
            part = _as_floats(f"jacobian[{quantity.name!r}]", jacobian[quantity.name])
            allowed = [(*batch, values, quantity.size), *([(*batch, values)] if quantity.size == 1 else [])]
            if part.shape not in allowed:
                raise _BadResultError(
                    f"the Jacobian by {quantity.name} came with shape {part.shape}, expected "
                    + " or ".join(str(shape) for shape in allowed)
                )
            parts.append(part.reshape(rows, values, quantity.size))
        return np.concatenate(parts, axis=2).reshape(rows, -1)

    def _arguments(self, values: Floats) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        start = 0
        for quantity in self.inputs:
            # A copy, because the function may change it in place.
            part = values[:, start : start + quantity.size].copy()
            if self.vectorised:
                arguments[quantity.name] = self._convert(part[:, 0] if quantity.labels is None else part)
            elif quantity.labels is None and self.arrays == "numpy":
                arguments[quantity.name] = float(part[0, 0])
            else:
                arguments[quantity.name] = self._convert(part[0, 0, ...] if quantity.labels is None else part[0])
            start += quantity.size
        return arguments

    def _name_outputs(self, result: Any) -> Mapping[str, Any]:
        names = [quantity.name for quantity in self.outputs]
        if isinstance(result, Mapping):
            if set(result) != set(names):
                raise _BadResultError(f"the function returned a dict of {list(result)}, expected {names}")
            return result
        if len(names) == 1:
            return {names[0]: result}
        if not isinstance(result, tuple | list) or len(result) != len(names):
            count = f" of {len(result)}" if isinstance(result, tuple | list) else ""
            raise _BadResultError(
                f"the function returned {type_name(result)}{count}, expected a tuple or dict of {names}"
            )
        return dict(zip(names, result, strict=True))

    def _reshape(self, quantity: Quantity, result: Any, rows: int) -> Floats:
        array = _as_floats(quantity.name, result)
        allowed: list[tuple[int, ...]] = [(rows, quantity.size)] if self.vectorised else [(quantity.size,)]
        if quantity.size == 1:
            allowed.append((rows,) if self.vectorised else ())
        if array.shape not in allowed:
            expected = " or ".join(str(shape) for shape in allowed)
            hint = f", for a batch of {rows}{_ONE_AT_A_TIME}" if self.vectorised else ""
            raise _BadResultError(f"output {quantity.name} came with shape {array.shape}, expected {expected}{hint}")
        return array.reshape(rows, quantity.size)

    def _vectorised_hint(self, error: BaseException) -> str:
        """Return advice if the function may have raised because it received arrays with an axis of rows."""
        confused = isinstance(error, TypeError | IndexError) or bool(_ARRAY_ERROR.search(str(error)))
        if not self.vectorised or not confused:
            return ""
        labels = self.inputs[0].labels
        shape = "(1,)" if labels is None else f"(1, {len(labels)})"
        return f" (the argument {self.inputs[0].name!r} was an array of shape {shape}{_ONE_AT_A_TIME})"

    def _check(self, outputs: Floats, context: RunContext) -> Evaluations:
        values = size_of(self.outputs)
        bad = ~np.isfinite(outputs).all(axis=1)
        status, messages = [Status.OK] * len(outputs), [""] * len(outputs)
        for i in np.flatnonzero(bad).tolist():
            try:
                status[i], missing = check_outputs(self.outputs, outputs[i, :values], partial=self.partial)
            except RunError as error:
                status[i], missing, outputs[i] = error.status, str(error), np.nan
            if not missing:  # the outputs are finite
                status[i], missing, outputs[i] = Status.NAN, "the Jacobian has a number that is not finite", np.nan
            messages[i] = f"run {context.labels[i]}: {missing}"
        return Evaluations(outputs, tuple(status), tuple(messages))

    def _resolve(self) -> Callable[..., Any]:
        if isinstance(self.function, str):
            return import_function(self.function, self.search_path)
        if not callable(self.function):
            raise AdapterError("function", f"is {type_name(self.function)}, which cannot be called")
        return self.function

    def _check_parameters(self, call: Callable[..., Any]) -> None:
        try:
            # The signature of a decorator counts, not that of the decorated function, because it is called.
            signature = inspect.signature(call, follow_wrapped=False)
        except (TypeError, ValueError):  # a compiled function may have none
            return
        names = [quantity.name for quantity in self.inputs]
        try:
            signature.bind(**dict.fromkeys(names))
        except TypeError as error:
            short = _qualified_name(call).rpartition(".")[2]
            takes = ", ".join(repr(name) for name in signature.parameters) or "nothing"
            given = ", ".join(repr(name) for name in names)
            raise AdapterError(
                "inputs",
                f"must have the names that the function {short!r} knows: it takes {takes}, was given {given} ({error})",
            ) from error

    def _compute_digest(self, call: Callable[..., Any]) -> str:
        flags = [name for name in ("partial", "jacobian") if getattr(self, name)]
        flags += [] if self.arrays == "numpy" else [self.arrays]
        settings = (self.inputs, self.outputs, self.vectorised, *flags)
        return digest_of([_qualified_name(call), _source(call), repr(settings)])


def _as_floats(name: str, result: Any) -> Floats:
    result = to_host(result)
    if isinstance(result, np.ma.MaskedArray):
        result = np.ma.filled(result.astype(np.float64), np.nan)
    try:
        if np.iscomplexobj(result):
            raise _BadResultError(f"output {name} came with complex numbers, expected real ones")
        return np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _BadResultError(f"output {name} came as {type_name(result)} that holds no numbers: {error}") from error


def _qualified_name(call: Callable[..., Any]) -> str:
    named = call if hasattr(call, "__qualname__") else type(call)
    return f"{named.__module__}.{named.__qualname__}"


def _source(call: Callable[..., Any]) -> bytes:
    """Return the bytes of the file of the module, or else the source of the function; empty without both."""
    module = inspect.getmodule(inspect.unwrap(call))
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_file():
        return Path(file).read_bytes()
    try:
        return inspect.getsource(call).encode()
    except (
        OSError,
        TypeError,
        SyntaxError,
        TokenError,
    ):  # built in, typed at a prompt, or in a file that is not Python
        return b""
