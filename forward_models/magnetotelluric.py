"""Magnetotellurics over a layered earth: a plane wave from above, measured at the surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .layers import halfspace_and_layers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MU_0 = 4e-7 * np.pi  # H m-1, magnetic permeability


def surface_impedance(resistivity: ArrayLike, thickness: ArrayLike, frequency: ArrayLike) -> NDArray[np.complex128]:
    """Ratio of the horizontal electric field to the magnetic field across it, at the surface.

    Wait's recursion, from the half-space up: layer ``j`` has the intrinsic impedance ``z = sqrt(i w mu rho_j)`` and
    the wave number ``k = sqrt(i w mu / rho_j)``, and with ``Z`` below it
    ``Z_j = z (Z + z tanh(k h_j)) / (z + Z tanh(k h_j))``. Displacement currents are left out.

    Parameters
    ----------
    resistivity : array_like, shape (..., L)
        Resistivity of each layer in ohm m, from the surface down; the last is the half-space.
    thickness : array_like, shape (..., L - 1)
        Thickness of each layer above the half-space in m.
    frequency : array_like, shape (F,)
        Frequency in Hz.

    Returns
    -------
    ndarray, shape (..., F)
        Impedance E / H in ohm, for fields that go as exp(i w t).

    Examples
    --------
    >>> np.abs(surface_impedance([100.0], [], [10.0])).round(6)
    array([0.088858])
    """
    halfspace, layers = halfspace_and_layers(resistivity, thickness)
    induction = 2j * np.pi * MU_0 * np.asarray(frequency, dtype=np.float64)  # i w mu
    impedance: NDArray[np.complex128] = np.sqrt(induction * halfspace)
    for rho, h in layers:
        # tanh written with what dies away, so that a layer of many skin depths does not overflow.
        decay = np.exp(-2.0 * np.sqrt(induction / rho) * h)
        tanh, own = (1.0 - decay) / (1.0 + decay), np.sqrt(induction * rho)
        impedance = own * (impedance + own * tanh) / (own + impedance * tanh)
    return impedance


def magnetotelluric_sounding(
    resistivity: ArrayLike, thickness: ArrayLike, frequency: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Apparent resistivity and phase of a magnetotelluric sounding.

    Parameters
    ----------
    resistivity, thickness, frequency :
        As of `surface_impedance`.

    Returns
    -------
    ndarray, shape (..., F)
        Apparent resistivity ``abs(Z)**2 / (w mu)`` in ohm m.
    ndarray, shape (..., F)
        Phase of the impedance in rad: pi / 4 over a half-space, more where deeper layers conduct better.

    Examples
    --------
    >>> apparent, phase = magnetotelluric_sounding([100.0, 100.0], [50.0], [1.0, 1000.0])
    >>> apparent.round(6), np.degrees(phase).round(6)
    (array([100., 100.]), array([45., 45.]))
    """
    impedance = surface_impedance(resistivity, thickness, frequency)
    angular = 2.0 * np.pi * np.asarray(frequency, dtype=np.float64)
    return np.abs(impedance) ** 2 / (angular * MU_0), np.angle(impedance)
