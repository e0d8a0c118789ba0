"""Data arrays with named dimensions and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.problem import Floats


def make_array(dims: tuple[str, ...], values: NDArray[np.generic], attributes: Mapping[str, Any]) -> xr.DataArray:
    """Return values as a DataArray with these dimensions and attributes."""
    return xr.DataArray(values, dims=dims, attrs=dict(attributes))


def label_array(
    values: Floats,
    dimension: str | None,
    attributes: Mapping[str, Any],
    leading: tuple[str, ...] = (),
    points: str | None = "site",
) -> xr.DataArray:
    """Return values of a variable with labels as a DataArray.

    Parameters
    ----------
    values : array, shape (..., N, L)
        Values at N points for L labels.
    dimension : str or None
        Dimension of the labels; None for a variable without labels, where L is 1.
    attributes : mapping
        Attributes of the array.
    leading : tuple of str
        Dimensions before those of the points.
    points : str
        Dimension of the points, ``"site"`` or ``"node"``; None for a scalar, whose value is that of the first point.

    Returns
    -------
    DataArray
    """
    dims: tuple[str, ...] = (*leading, *(() if points is None else (points,)))
    values = values if points is not None else values[..., 0, :]
    if dimension is None:
        return make_array(dims, np.asarray(values[..., 0]), attributes)
    return make_array((*dims, dimension), values, attributes)
