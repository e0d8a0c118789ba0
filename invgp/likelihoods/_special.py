"""Special functions that the array API lacks; they are computed on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from invgp.core.backend import Array, array_namespace, device_of, to_numpy


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
