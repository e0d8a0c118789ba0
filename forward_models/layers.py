"""What the models of a layered earth share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray


def halfspace_and_layers(
    resistivity: ArrayLike, thickness: ArrayLike
) -> tuple[NDArray[np.float64], Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]]:
    """The half-space's resistivity (..., 1), and resistivity and thickness (..., 1) of the layers above, lowest first.

    Raises
    ------
    ValueError
        There is not one thickness less than there are resistivities.
    """
    rho, h = np.asarray(resistivity, dtype=np.float64), np.asarray(thickness, dtype=np.float64)
    if rho.ndim == 0 or h.ndim == 0 or h.shape[-1] != rho.shape[-1] - 1:
        raise ValueError(
            f"thickness: must have one layer less than resistivity, which has the shape {rho.shape}, was {h.shape}"
        )
    above = range(h.shape[-1] - 1, -1, -1)
    return rho[..., -1:], ((rho[..., j : j + 1], h[..., j : j + 1]) for j in above)
