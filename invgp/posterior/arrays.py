"""Arrays with names of their dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.problem import Floats


def array(dims: tuple[str, ...], values: NDArray[np.generic], attributes: Mapping[str, Any]) -> xr.DataArray:
    """Along the dimensions."""
    return xr.DataArray(values, dims=dims, attrs=dict(attributes))


def labelled(
    values: Floats,
    dimension: str | None,
    attributes: Mapping[str, Any],
    leading: tuple[str, ...] = (),
    points: str = "site",
) -> xr.DataArray:
    """(..., N, L) along the points and the dimension; without a dimension, L = 1 is dropped."""
    if dimension is None:
        return array((*leading, points), values[..., 0], attributes)
    return array((*leading, points, dimension), values, attributes)
