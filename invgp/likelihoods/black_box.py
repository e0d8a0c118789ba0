"""Any Python function of NumPy arrays as a likelihood."""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False, init=False)
class BlackBox:
    """A likelihood known only by the function that computes it.

    The functions get copies of the data as NumPy arrays in double precision, and the results go back to where the data
    are. A site without any observation adds nothing, whatever the function says of it; a function that cannot deal with
    a site of which *some* outputs are NaN is told so by an error.

    Parameters
    ----------
    log_density : called as log_density(y, f), or log_density(y, f, parameters) if there are parameters, with y (N, P)
        and f (S, N, Q); returns (S, N). Each site and sample for itself.
    latents, outputs : Q and P.
    parameters : start of what may be learnt, (K,), free to take any real value. There are no gradients for them.
    moments : called as moments(f), or moments(f, parameters); returns mean and variance of y, (S, N, P) each.
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
        set_fields(
            self,
            latents=latents,
            outputs=outputs,
            function=log_density,
            moments_function=moments,
            parameters=parameters,
        )

    def with_parameters(self, parameters: Array) -> Self:
        """The same likelihood with other parameters, (K,)."""
        return replace_fields(self, parameters=check_parameters(parameters, self.parameters.shape[0]))

    def log_density(self, y: Array, f: Array) -> Array:
        """Log p(y_n | f_sn), (S, N), for y (N, P) and f (S, N, Q)."""
        check_shapes(y, f, outputs=self.outputs, latents=self.latents)
        there = _to_host(y)
        missing = np.isnan(there)
        values = self._check_shape(self.function(there, _to_host(f), *self._extra()), f.shape[:2], "log_density")
        some = missing.any(axis=-1) & ~missing.all(axis=-1)
        undecided = some & np.isnan(values).all(axis=0)
        if undecided.any():
            raise ValueError(
                f"log_density is NaN at site {np.flatnonzero(undecided)[0]}, of which some outputs are missing "
                "(NaN in y): it must leave those outputs out"
            )
        return _to_device(f, np.where(missing.all(axis=-1), 0.0, values))

    def parameter_gradient(self, y: Array, f: Array) -> None:
        """None: nobody knows."""

    def moments(self, f: Array) -> tuple[Array, Array] | None:
        """Mean and variance of y given f, (S, N, P) each; None if there is no function for them."""
        check_latents(f, self.latents)
        if self.moments_function is None:
            return None
        shape = (*f.shape[:2], self.outputs)
        mean, variance = self.moments_function(_to_host(f), *self._extra())
        return _to_device(f, self._check_shape(mean, shape, "mean")), _to_device(
            f, self._check_shape(variance, shape, "variance")
        )

    def _extra(self) -> tuple[NDArray[np.float64], ...]:
        return (_to_host(self.parameters),) if self.parameters.shape[0] else ()

    def _check_shape(self, values: Any, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
        result = np.asarray(values, dtype=np.float64)
        if result.shape != tuple(shape):
            raise ValueError(f"the black box's {name} must have shape {tuple(shape)}, was {result.shape}")
        return result


def _to_host(array: Array) -> NDArray[np.float64]:
    return np.array(to_numpy(array), dtype=np.float64)


def _to_device(f: Array, values: NDArray[np.float64]) -> Array:
    return array_namespace(f).asarray(values, dtype=f.dtype, device=device_of(f))
