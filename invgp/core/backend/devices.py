"""Where arrays live: the libraries, their devices, and the way to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace as any_namespace
from array_api_compat import device as device_of
from array_api_compat import is_cupy_namespace, is_numpy_namespace
from numpy.typing import NDArray

Array = Any  # an array of whichever array-API library; the standard has no common static type yet
NUMPY = any_namespace(np.empty(0))


def array_namespace(*arrays: Array) -> Any:
    """The namespace of arrays; NumPy's is known at a glance, and is asked for hundreds of times an evaluation."""
    return NUMPY if all(type(array) is np.ndarray for array in arrays) else any_namespace(*arrays)


class DeviceError(RuntimeError):
    """The device asked for is not there."""


@dataclass(frozen=True)
class Backend:
    """Where arrays live: a namespace, a device of it, and the floating-point type in use."""

    namespace: Any
    device: Any = None
    dtype: str = "float64"

    def asarray(self, array: Any) -> Array:
        """`array` as a floating-point array in this place."""
        xp = self.namespace
        return xp.asarray(array, dtype=getattr(xp, self.dtype), device=self.device)

    def asmask(self, array: Any) -> Array:
        """`array` as a Boolean array in this place."""
        return self.namespace.asarray(array, dtype=self.namespace.bool, device=self.device)


def select_backend(device: str) -> Backend:
    """Turn ``"cpu"``, ``"cuda"`` or ``"auto"`` into a place.

    Raises
    ------
    DeviceError
        CUDA is asked for and is not available.
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
    """The place where an array lives."""
    xp = array_namespace(array)
    return Backend(xp, device_of(array), "float64" if array.dtype == xp.float64 else "float32")


def to_numpy(array: Array) -> NDArray[Any]:
    """Copy an array to the host, if it is not there already."""
    xp = array_namespace(array)
    if is_numpy_namespace(xp):
        return np.asarray(array)
    if is_cupy_namespace(xp):
        return np.asarray(array.get())
    cpu = xp.__array_namespace_info__().default_device()
    return np.asarray(array.to_device(cpu))
