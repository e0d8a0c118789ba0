"""Direct-current resistivity soundings over a layered earth."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from .layers import halfspace_and_layers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FILTER_RANGE = 6.0  # of log(wave number x spacing), either way
FILTER_POINTS_PER_DECADE = 8


def resistivity_transform(resistivity: ArrayLike, thickness: ArrayLike, wave_number: ArrayLike) -> NDArray[np.float64]:
    """Koefoed's resistivity transform T of a layered earth.

    From the half-space up, with ``T`` below layer ``j``:
    ``T_j = rho_j (T + rho_j tanh(k h_j)) / (rho_j + T tanh(k h_j))``.

    Parameters
    ----------
    resistivity : array_like, shape (..., L)
        Resistivity of each layer in ohm m, from the surface down; the last is the half-space.
    thickness : array_like, shape (..., L - 1)
        Thickness of each layer above the half-space in m.
    wave_number : array_like, shape (K,)
        Horizontal wave number in rad m-1.

    Returns
    -------
    ndarray, shape (..., K)
        In ohm m: the resistivity of the first layer at large wave numbers, of the half-space at small ones.
    """
    halfspace, layers = halfspace_and_layers(resistivity, thickness)
    k = np.asarray(wave_number, dtype=np.float64)
    transform: NDArray[np.float64] = halfspace + np.zeros_like(k)
    for rho, h in layers:
        tanh = np.tanh(k * h)
        transform = rho * (transform + rho * tanh) / (rho + transform * tanh)
    return transform


def schlumberger_sounding(resistivity: ArrayLike, thickness: ArrayLike, half_spacing: ArrayLike) -> NDArray[np.float64]:
    """Apparent resistivity of a Schlumberger array, with potential electrodes that are close together.

    The Hankel integral ``rho_a = s**2 int T(k) J1(k s) k dk`` of the resistivity transform, by a digital linear filter.

    Parameters
    ----------
    resistivity : array_like, shape (..., L)
        Resistivity of each layer in ohm m, from the surface down; the last is the half-space.
    thickness : array_like, shape (..., L - 1)
        Thickness of each layer above the half-space in m.
    half_spacing : array_like, shape (S,)
        Half the distance between the current electrodes, AB / 2, in m.

    Returns
    -------
    ndarray, shape (..., S)
        Apparent resistivity in ohm m.

    Notes
    -----
    The filter errs by less than 1e-6 of the largest resistivity.

    Examples
    --------
    >>> schlumberger_sounding([100.0, 10.0], [5.0], [1.0, 1000.0]).round(2)
    array([99.85, 10.  ])
    """
    points, weights = schlumberger_filter()
    spacing = np.asarray(half_spacing, dtype=np.float64)
    wave_number = (points / spacing[..., None]).ravel()
    transform = resistivity_transform(resistivity, thickness, wave_number)
    apparent: NDArray[np.float64] = transform.reshape(*transform.shape[:-1], *spacing.shape, -1) @ weights
    return apparent


@cache
def schlumberger_filter() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wave numbers times spacing, and the weights of the transform there.

    They solve, by least squares, for what is known exactly: an image at depth ``d``, whose transform is
    ``exp(-2 k d)``, adds ``(1 + (2 d / s)**2)**-1.5``, and a constant stays as it is. The transform of any earth whose
    thicknesses have a common measure is a sum of such images.
    """
    count = round(2.0 * FILTER_RANGE / np.log(10.0) * FILTER_POINTS_PER_DECADE) + 1
    points = np.exp(np.linspace(-FILTER_RANGE, FILTER_RANGE, count))
    depth = np.append(np.exp(np.linspace(-1.5 * FILTER_RANGE, 1.5 * FILTER_RANGE, 14 * count)), 0.0)  # over spacing
    images = np.exp(-2.0 * depth[:, None] * points)
    weights = np.linalg.lstsq(images, (1.0 + (2.0 * depth) ** 2) ** -1.5, rcond=1e-12)[0]
    return points, np.asarray(weights, dtype=np.float64)
