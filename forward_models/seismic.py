"""Reflection seismics over a stack of layers, at vertical incidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def two_way_times(depth: ArrayLike, velocity: ArrayLike) -> NDArray[np.float64]:
    """Times at which the reflections of a layered earth come back to the surface.

    The wave travels vertically, and reflector ``p`` is the base of layer ``p``:
    ``t_p = t_{p-1} + 2 (d_p - d_{p-1}) / v_p`` with ``d_0 = 0`` and ``t_0 = 0``.

    Parameters
    ----------
    depth : array_like, shape (..., L)
        Depth of each reflector below the surface in m, positive downwards, the shallowest first.
    velocity : array_like, shape (..., L)
        Velocity in the layer above each reflector (its interval velocity) in m s-1.

    Returns
    -------
    ndarray, shape (..., L)
        Two-way travel time from the surface to each reflector and back in s.

    Notes
    -----
    The leading axes broadcast against each other. The formula is applied as it stands: crossing reflectors
    give a negative time in the layer between them, so that a sampler sees a smooth function there.

    Examples
    --------
    >>> two_way_times([1000.0, 3000.0], [2000.0, 4000.0])
    array([1., 2.])
    """
    thickness = np.diff(np.asarray(depth, dtype=np.float64), axis=-1, prepend=0.0)
    times: NDArray[np.float64] = np.cumsum(2.0 * thickness / np.asarray(velocity, dtype=np.float64), axis=-1)
    return times
