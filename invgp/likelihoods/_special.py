"""Special functions that the array API lacks: the data go to the host and back."""

from __future__ import annotations

from scipy.special import gammaln

from invgp.core.backend import Array, array_namespace, device_of, to_numpy


def log_factorial(y: Array) -> Array:
    """Log y! of counts y, of any shape, where y lives and of its type."""
    xp = array_namespace(y)
    return xp.asarray(gammaln(to_numpy(y) + 1.0), dtype=y.dtype, device=device_of(y))
