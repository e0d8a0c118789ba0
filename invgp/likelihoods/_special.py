"""Special functions that the array API lacks; they are computed on the host."""

from __future__ import annotations

from scipy.special import gammaln

from invgp.core.backend import Array, array_namespace, device_of, to_numpy


def log_factorial(y: Array) -> Array:
    """Compute log y! of counts y of any shape, on the device and in the type of y."""
    xp = array_namespace(y)
    return xp.asarray(gammaln(to_numpy(y) + 1.0), dtype=y.dtype, device=device_of(y))
