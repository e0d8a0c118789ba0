"""Likelihood from a Python function of NumPy arrays."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of, to_numpy
from invgp.core.checks import check_integer
from invgp.likelihoods._arrays import (
    as_floats,
    check_latents,
    check_parameters,
    check_shapes,
    replace_fields,
    set_fields,
)

Function = Callable[..., Any]
READ_ONLY = "read-only"  # in the message of NumPy when a read-only array is changed


@dataclass(frozen=True, eq=False, init=False)
class BlackBox:
    """A likelihood that is defined by a Python function.

    The function gets NumPy arrays in double precision; its result is converted back to the library and device of the
    data. It must not change y and the parameters, which are read-only; f is a copy of its own. A site without
    observations contributes 0, whatever the function returns for it. An error is raised if the function returns NaN at
    a site at which only some outputs are NaN.

    Parameters
    ----------
    log_density : callable
        Called as ``log_density(y, f)``, or ``log_density(y, f, parameters)`` if there are parameters, with y (N, P) and
        f (S, N, Q), in this order. It returns an array (S, N) and must treat sites and samples independently.
    latents, outputs : int
        Q and P.
    parameters : array, shape (K,), optional
        Initial values of unconstrained parameters that can be learnt, by finite differences.
    moments : callable, optional
        Called as ``moments(f)``, or ``moments(f, parameters)``. It returns mean and variance of y, (S, N, P) each.
        Prediction of observations needs it.

    Raises
    ------
    ValueError
        An argument is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import BlackBox
    >>> def log_density(y, f):
    ...     return -0.5 * (y[:, 0] - f[..., 0] ** 2) ** 2 - 0.5 * np.log(2.0 * np.pi)
    >>> likelihood = BlackBox(log_density, latents=1, outputs=1)
    >>> likelihood.log_density(np.array([[4.0]]), np.array([[[2.0]]])).round(4)
    array([[-0.9189]])
    """

    latents: int
    outputs: int
    function: Function
    moments_function: Function | None
    parameters: Array

    def __init__(
        self,
        log_density: Function,
        latents: int,
        outputs: int,
        parameters: Array | None = None,
        moments: Function | None = None,
    ) -> None:
        for name, function in (("log_density", log_density), ("moments", moments)):
            if not (callable(function) or (name == "moments" and function is None)):
                raise ValueError(f"{name} must be a function, was {function!r}")
        check_integer("latents", latents, 1)
        check_integer("outputs", outputs, 1)
        parameters = as_floats("parameters", [] if parameters is None else parameters)
        if parameters.ndim != 1:
            raise ValueError(f"parameters must have shape (K,), was {tuple(parameters.shape)}")
        extra = ("parameters",) if parameters.shape[0] else ()
        _check_arguments("log_density", log_density, ("y", "f", *extra))
        if moments is not None:
            _check_arguments("moments", moments, ("f", *extra))
        set_fields(
            self,
            latents=latents,
            outputs=outputs,
            function=log_density,
            moments_function=moments,
            parameters=parameters,
        )

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with other parameters, (K,)."""
        return replace_fields(self, parameters=check_parameters(parameters, self.parameters.shape[0]))

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for y (N, P) and f (S, N, Q)."""
        check_shapes(y, f, outputs=self.outputs, latents=self.latents)
        there = _read_only(y)
        missing = np.isnan(there)
        found = self._call("log_density", self.function, there, _to_host(f))
        values = self._check_shape(found, f.shape[:2], "log_density")
        some = missing.any(axis=-1) & ~missing.all(axis=-1)
        undecided = some & np.isnan(values).all(axis=0)
        if undecided.any():
            raise ValueError(
                f"log_density is NaN at site {np.flatnonzero(undecided)[0]}, at which some outputs are missing "
                "(NaN in y): it must ignore these outputs"
            )
        return _to_device(f, np.where(missing.all(axis=-1), 0.0, values))

    def parameter_gradient(self, y: Array, f: Array) -> None:
        """Return None: the derivatives are unknown."""

    def moments(self, f: Array) -> tuple[Array, Array] | None:
        """Compute mean and variance of y given f, (S, N, P) each; None without a function `moments`."""
        check_latents(f, self.latents)
        if self.moments_function is None:
            return None
        shape = (*f.shape[:2], self.outputs)
        found = self._call("moments", self.moments_function, _to_host(f))
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise ValueError(f"the black box's moments must be a mean and a variance, was {reprlib.repr(found)}")
        mean, variance = found
        return _to_device(f, self._check_shape(mean, shape, "mean")), _to_device(
            f, self._check_shape(variance, shape, "variance")
        )

    def _call(self, name: str, function: Function, *arrays: NDArray[np.float64]) -> Any:
        extra = (_read_only(self.parameters),) if self.parameters.shape[0] else ()
        try:
            return function(*arrays, *extra)
        except ValueError as error:
            if READ_ONLY not in str(error):
                raise
            raise ValueError(
                f"the black box's {name} must not change y or the parameters: work on a copy, such as y.copy()"
            ) from error

    def _check_shape(self, values: Any, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
        result = np.asarray(values, dtype=np.float64)
        if result.shape != tuple(shape):
            raise ValueError(f"the black box's {name} must have shape {tuple(shape)}, was {result.shape}")
        return result


def _check_arguments(name: str, function: Function, arguments: tuple[str, ...]) -> None:
    """Raise `ValueError` unless a function can be called with these arguments, by position."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have none
        return
    wanted = f"{name}({', '.join(arguments)})"
    try:
        bound = signature.bind(*arguments).arguments
    except TypeError as error:
        raise ValueError(
            f"{name} must be a function that is called as {wanted}, was {name}{signature}: {error}"
        ) from None
    if list(bound)[: len(arguments)] == ["f", "y", *arguments[2:]]:
        raise ValueError(f"{name} must be a function that is called as {wanted}, in this order, was {name}{signature}")


def _read_only(array: Array) -> NDArray[np.float64]:
    """Return an array on the host that cannot be changed."""
    view = np.asarray(to_numpy(array), dtype=np.float64).view()
    view.flags.writeable = False
    return view


def _to_host(array: Array) -> NDArray[np.float64]:
    return np.array(to_numpy(array), dtype=np.float64)


def _to_device(f: Array, values: NDArray[np.float64]) -> Array:
    return array_namespace(f).asarray(values, dtype=f.dtype, device=device_of(f))
