"""Helpers of all likelihoods: devices, missing values, shape checks, copies of instances, special functions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from array_api_compat import is_array_api_obj
from numpy.typing import NDArray
from scipy.special import gammaln

from invgp.core.backend import Array, array_namespace, device_of, to_numpy, zero_where

T = TypeVar("T")
COUNTS = "counts, whole numbers of at least 0,"
MAX_SHOWN = 12  # numbers of an argument in the text of a likelihood


def as_floats(name: str, values: Any) -> Array:
    """Convert `values` to a floating-point array; an array stays on its device, other values go to the host.

    Raises
    ------
    ValueError
        A value is not a finite number.
    """
    if not is_array_api_obj(values):
        try:
            values = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be finite numbers, was {values!r}") from None
    xp = array_namespace(values)
    if not xp.isdtype(values.dtype, "real floating"):
        values = xp.astype(values, xp.__array_namespace_info__().default_dtypes()["real floating"])
    if not bool(xp.all(xp.isfinite(values))):
        raise ValueError(f"{name} must be finite numbers, was {values}")
    return values


def convert_like(values: Array, like: Array) -> Array:
    """Convert `values` to the library, device and type of `like`, without a copy if they agree already."""
    xp = array_namespace(like)
    if array_namespace(values) is xp and device_of(values) == device_of(like):
        return xp.astype(values, like.dtype, copy=False)
    return xp.asarray(to_numpy(values), dtype=like.dtype, device=device_of(like))


def fill_missing(y: Array) -> Array:
    """Replace missing values (NaN) of y by 0, so that no NaN enters the arithmetic."""
    xp = array_namespace(y)
    return xp.where(xp.isnan(y), xp.zeros_like(y), y)


def mask_missing(y: Array, terms: Array) -> Array:
    """Set `terms` (..., N, P) to 0 where y (N, P) is missing; `terms` may be overwritten."""
    return zero_where(array_namespace(y).isnan(y), terms)


def no_gradient(f: Array) -> Array:
    """Return an empty gradient (S, N, 0) for a likelihood without parameters."""
    xp = array_namespace(f)
    return xp.zeros((*f.shape[:2], 0), dtype=f.dtype, device=device_of(f))


def check_latents(f: Array, latents: int) -> None:
    """Raise `ValueError` unless f is (S, N, latents)."""
    if f.ndim != 3 or f.shape[2] != latents:
        raise ValueError(f"f must have shape (samples, sites, {latents}), was {tuple(f.shape)}")


def check_shapes(y: Array, f: Array, *, outputs: int, latents: int) -> None:
    """Raise `ValueError` unless y is (N, outputs) and f is (S, N, latents)."""
    check_latents(f, latents)
    if tuple(y.shape) != (f.shape[1], outputs):
        raise ValueError(f"y must have shape ({f.shape[1]}, {outputs}) for f of shape {f.shape}, was {tuple(y.shape)}")


def check_parameters(parameters: Array, count: int) -> Array:
    """Convert `parameters` to an array; raise `ValueError` unless its shape is (count,)."""
    if not is_array_api_obj(parameters):
        parameters = np.asarray(parameters, dtype=np.float64)
    if tuple(parameters.shape) != (count,):
        raise ValueError(f"parameters must have shape ({count},), was {tuple(parameters.shape)}")
    return parameters


def check_values(likelihood: object, y: NDArray[Any], possible: NDArray[np.bool_], must: str) -> None:
    """Raise `ValueError` unless all values of y that are not missing are possible; `must` describes such values."""
    wrong = y[~np.isnan(y) & ~possible]
    if wrong.size:
        others = f" and {wrong.size - 1} other invalid value{'s' * (wrong.size > 2)}" if wrong.size > 1 else ""
        raise ValueError(f"y must be {must} for {type(likelihood).__name__}, had {wrong[0]:g}{others}")


def are_counts(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values are whole numbers of at least 0."""
    return np.asarray((y >= 0) & (y == np.floor(y)))


def format_call(instance: object, **arguments: Any) -> str:
    """Format an instance as a call of its class; arguments that are None are omitted."""
    shown = (f"{name}={_format_argument(value)}" for name, value in arguments.items() if value is not None)
    return f"{type(instance).__name__}({', '.join(shown)})"


def _format_argument(value: Any) -> str:
    if not is_array_api_obj(value) and not isinstance(value, float):
        return repr(value)
    numbers = np.asarray(to_numpy(value) if is_array_api_obj(value) else value)
    if numbers.size > MAX_SHOWN:
        return f"array {numbers.shape}"
    if numbers.ndim == 0:
        return f"{float(numbers):.6g}"
    return str(np.vectorize(lambda number: float(f"{number:.6g}"))(numbers).tolist())


def set_fields(instance: object, **values: Any) -> None:
    """Set fields of a frozen dataclass that has its own `__init__`."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def replace_fields(instance: T, **values: Any) -> T:
    """Copy a frozen instance with other fields; unlike `dataclasses.replace`, it does not run `__init__`."""
    clone = copy.copy(instance)
    set_fields(clone, **values)
    return clone


def log_factorial(y: Array) -> Array:
    """Compute log y! of counts y of any shape, on the device and in the type of y."""
    xp = array_namespace(y)
    return xp.asarray(gammaln(to_numpy(y) + 1.0), dtype=y.dtype, device=device_of(y))


def on_host(function: Callable[[NDArray[np.float64]], NDArray[np.float64]], values: Array) -> Array:
    """Apply a function of NumPy arrays, such as one of `scipy.special`, to an array of any library and device."""
    xp = array_namespace(values)
    if isinstance(values, np.ndarray):
        return np.asarray(function(values), dtype=values.dtype)
    return xp.asarray(function(to_numpy(values)), dtype=values.dtype, device=device_of(values))
