"""Arrays of other libraries, such as CuPy, JAX and PyTorch, which may be on a device, as arguments and results."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .protocol import AdapterError, Floats

HOST = 1  # of the device types of DLPack
NAMESPACES = {"jax": "jax.numpy"}  # modules of libraries that are not those of their arrays
Convert = Callable[[Floats], Any]


def converter(library: str) -> Convert:
    """Return the function that converts NumPy arrays to arrays of a library, on its default device.

    Parameters
    ----------
    library : str
        A module with `asarray`, such as ``"torch"``; ``"jax"`` stands for ``jax.numpy``.

    Raises
    ------
    AdapterError
        There is no such module.
    """
    if library == "numpy":
        return np.asarray
    try:
        module = importlib.import_module(NAMESPACES.get(library, library))
    except ImportError as error:
        raise AdapterError("arrays", f"needs the package {library!r}, which cannot be imported: {error}") from error
    if not hasattr(module, "asarray"):
        raise AdapterError("arrays", f"must be a library of arrays such as 'torch', was {library!r}")
    convert: Convert = module.asarray
    return convert


def to_host(array: Any) -> Any:
    """Return an array of any library on the host: without a copy if it is there, by one copy from a device.

    Anything else is returned as it is.

    Parameters
    ----------
    array : object
    """
    if isinstance(array, np.ndarray | np.generic) or not hasattr(array, "__dlpack__"):
        return array
    if hasattr(array, "detach"):  # PyTorch exports no array that records derivatives
        array = array.detach()
    if array.__dlpack_device__()[0] == HOST:
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError):  # a type that NumPy does not have
            return array
    for move in ("get", "cpu"):  # of CuPy and PyTorch
        if hasattr(array, move):
            return np.asarray(getattr(array, move)())
    return array  # JAX copies in `numpy.asarray`
