"""Array libraries, their devices, and copies to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace as any_namespace
from array_api_compat import device as device_of
from array_api_compat import is_cupy_namespace, is_numpy_namespace
from numpy.typing import NDArray

Array = Any  # an array of any array-API library; the standard has no static type yet
NUMPY = any_namespace(np.empty(0))


def array_namespace(*arrays: Array) -> Any:
    """Return the namespace of arrays, with a shortcut for NumPy, because it is called very often."""
    for array in arrays:
        if type(array) is not np.ndarray:
            return any_namespace(*arrays)
    return NUMPY


class DeviceError(RuntimeError):
    """The requested device is not available."""


@dataclass(frozen=True)
class Backend:
    """An array library with a device and a floating-point type.

    Parameters
    ----------
    namespace : module
        Array-API namespace of the library.
    device : object, optional
        A device of the library; None for its default.
    dtype : {"float64", "float32"}
        Floating-point type.
    """

    namespace: Any
    device: Any = None
    dtype: str = "float64"

    def asarray(self, array: Any) -> Array:
        """Convert `array` to a floating-point array on this backend.

        Parameters
        ----------
        array : array or nested sequence of numbers

        Returns
        -------
        Array
        """
        xp = self.namespace
        return xp.asarray(array, dtype=getattr(xp, self.dtype), device=self.device)

    def asmask(self, array: Any) -> Array:
        """Convert `array` to a Boolean array on this backend.

        Parameters
        ----------
        array : array or nested sequence of bool

        Returns
        -------
        Array
        """
        return self.namespace.asarray(array, dtype=self.namespace.bool, device=self.device)


def select_backend(device: str) -> Backend:
    """Select the backend for ``"cpu"``, ``"cuda"`` or ``"auto"`` (CUDA if available).

    Parameters
    ----------
    device : {"cpu", "cuda", "auto"}
        The device.

    Returns
    -------
    Backend

    Raises
    ------
    DeviceError
        CUDA is requested and is not available, or the name is unknown.
    """
    if device == "cpu":
        return _cpu()
    if device == "cuda":
        return _cuda()
    if device == "auto":
        try:
            return _cuda()
        except DeviceError:
            return _cpu()
    raise DeviceError(f"device must be 'cpu', 'cuda' or 'auto', was {device!r}")


def _cpu() -> Backend:
    return Backend(NUMPY, "cpu")


def _cuda() -> Backend:
    try:
        import cupy  # noqa: PLC0415 - importing CuPy takes seconds, and it is an optional dependency
    except ImportError as error:
        raise DeviceError(
            "device 'cuda' needs CuPy, which is not installed: pip install 'invgp[cuda12]' "
            "(or cuda13), or use device 'cpu'"
        ) from error
    if not cupy.cuda.is_available():
        raise DeviceError(
            "device 'cuda' needs an NVIDIA GPU and its driver, and CuPy finds none on this machine: "
            "use device 'cpu' or 'auto'"
        )
    return Backend(array_namespace(cupy.empty(0)), cupy.cuda.Device())


def backend_of(array: Array) -> Backend:
    """Return the backend of an array.

    Parameters
    ----------
    array : array
        Of any array library and device.

    Returns
    -------
    Backend
    """
    xp = array_namespace(array)
    return Backend(xp, device_of(array), "float64" if array.dtype == xp.float64 else "float32")


def to_numpy(array: Array) -> NDArray[Any]:
    """Convert an array to NumPy; it is copied to the host if necessary.

    Parameters
    ----------
    array : array
        Of any array library and device.

    Returns
    -------
    numpy.ndarray
    """
    xp = array_namespace(array)
    if is_numpy_namespace(xp):
        return np.asarray(array)
    if is_cupy_namespace(xp):
        return np.asarray(array.get())
    cpu = xp.__array_namespace_info__().default_device()
    return np.asarray(array.to_device(cpu))
