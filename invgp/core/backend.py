"""The few bridges between the array API standard and the libraries behind it (NumPy, CuPy).

Everything else in `invgp.core` is written against the standard, through `array_namespace`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace, is_cupy_namespace, is_numpy_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

__all__ = [
    "Array",
    "DeviceError",
    "Place",
    "array_namespace",
    "cholesky",
    "device_of",
    "place",
    "place_of",
    "solve_triangular",
    "to_numpy",
]

Array = Any  # an array of whichever array-API library; the standard has no common static type yet

# Powers of the working precision, relative to the mean of the diagonal: 1e-12 to 1e-6 in double precision.
# A smooth kernel on a dense line is singular to working precision.
JITTER_POWERS = (0.75, 0.625, 0.5, 0.375)


class DeviceError(RuntimeError):
    """The device asked for is not there."""


@dataclass(frozen=True)
class Place:
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


def place(device: str) -> Place:
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


def _cpu() -> Place:
    return Place(array_namespace(np.empty(0)), "cpu")


def _cuda() -> Place:
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
    return Place(array_namespace(cupy.empty(0)), cupy.cuda.Device())


def place_of(array: Array) -> Place:
    """The place where an array lives."""
    xp = array_namespace(array)
    return Place(xp, device_of(array), "float64" if array.dtype == xp.float64 else "float32")


def to_numpy(array: Array) -> NDArray[Any]:
    """Copy an array to the host, if it is not there already."""
    xp = array_namespace(array)
    if is_numpy_namespace(xp):
        return np.asarray(array)
    if is_cupy_namespace(xp):
        return np.asarray(array.get())
    cpu = xp.__array_namespace_info__().default_device()
    return np.asarray(array.to_device(cpu))


def cholesky(matrices: Array) -> Array:
    """Lower Cholesky factors of positive definite matrices (..., N, N), with as little jitter as it takes.

    The jitter is a share of the mean of the diagonals, the same for all matrices of the stack.
    """
    xp = array_namespace(matrices)
    size = matrices.shape[-1]
    eye = xp.eye(size, dtype=matrices.dtype, device=device_of(matrices))
    scale = xp.mean(xp.linalg.diagonal(matrices), axis=-1)[..., None, None]
    precision = float(xp.finfo(matrices.dtype).eps)
    for jitter in (0.0, *(precision**power for power in JITTER_POWERS)):
        try:
            factors = xp.linalg.cholesky(matrices + (jitter * scale) * eye)
        except np.linalg.LinAlgError:
            continue
        # CuPy returns NaN where NumPy raises.
        if bool(xp.all(xp.isfinite(factors))):
            return factors
    raise np.linalg.LinAlgError(
        f"a covariance of {size} x {size} is not positive definite, even with a jitter of {jitter:.1g} of its diagonal"
    )


def solve_triangular(factors: Array, right: Array, *, transposed: bool = False) -> Array:
    """Solve L x = b, or L^T x = b, for lower triangular L (..., M, M) and b (..., M, B)."""
    xp = array_namespace(factors, right)
    if is_numpy_namespace(xp):
        solve: Any = scipy.linalg.solve_triangular
        return solve(factors, right, lower=True, trans=int(transposed), check_finite=False)
    if is_cupy_namespace(xp):
        import cupyx.scipy.linalg  # noqa: PLC0415 - needs cuBLAS at import

        return cupyx.scipy.linalg.solve_triangular(factors, right, lower=True, trans=int(transposed))
    return xp.linalg.solve(xp.matrix_transpose(factors) if transposed else factors, right)
