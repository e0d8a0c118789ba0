"""Magnetotelluric soundings: closed forms, and the field equations solved another way."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from invgp.forward_models import magnetotelluric_sounding, surface_impedance

FREQUENCY = np.geomspace(0.01, 1e5, 15)  # Hz
MU_0 = 4e-7 * np.pi


def by_integration(resistivity: list[float], thickness: list[float], frequency: float) -> complex:
    """Riccati's equation of the impedance, dZ/dz = Z**2 / rho - i w mu with z downwards, from the half-space up."""
    induction = 2j * np.pi * frequency * MU_0
    impedance = np.sqrt(induction * resistivity[-1])
    for rho, h in zip(resistivity[-2::-1], thickness[::-1], strict=True):

        def upwards(_: float, Z: np.ndarray, rho: float = rho) -> np.ndarray:
            return induction - Z**2 / rho

        solved = solve_ivp(upwards, (0.0, h), [impedance], rtol=1e-10, atol=1e-14)
        impedance = complex(solved.y[0, -1])
    return impedance


@pytest.mark.parametrize("thickness", [[], [1.0, 10.0, 100.0]], ids=["half-space", "layers of one resistivity"])
def test_that_a_half_space_has_its_own_resistivity_and_45_degrees(thickness: list[float]) -> None:
    apparent, phase = magnetotelluric_sounding([42.0] * (len(thickness) + 1), thickness, FREQUENCY)
    np.testing.assert_allclose(apparent, 42.0, rtol=1e-12)
    np.testing.assert_allclose(phase, np.pi / 4.0, rtol=1e-12)


def test_that_two_layers_are_the_closed_form() -> None:
    """One reflection at the interface: Z = z1 (1 - r exp(-2 k1 h)) / (1 + r exp(-2 k1 h))."""
    top, bottom, h = 100.0, 10.0, 300.0
    induction = 2j * np.pi * FREQUENCY * MU_0
    r = (np.sqrt(top) - np.sqrt(bottom)) / (np.sqrt(top) + np.sqrt(bottom))
    decay = r * np.exp(-2.0 * np.sqrt(induction / top) * h)
    expected = np.sqrt(induction * top) * (1.0 - decay) / (1.0 + decay)
    np.testing.assert_allclose(surface_impedance([top, bottom], [h], FREQUENCY), expected, rtol=1e-12)


@pytest.mark.parametrize("frequency", [0.1, 10.0, 1000.0])
def test_that_four_layers_solve_the_field_equations(frequency: float) -> None:
    resistivity, thickness = [80.0, 20.0, 300.0, 5.0], [40.0, 150.0, 300.0]
    expected = by_integration(resistivity, thickness, frequency)
    found = surface_impedance(resistivity, thickness, [frequency])[0]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_that_four_layers_agree_with_empymod() -> None:
    """Values of empymod 2.6.1, by `of_empymod.py`: 30 km from a dipole, where its wave is plane to some 1e-4."""
    apparent, phase = magnetotelluric_sounding([80.0, 20.0, 300.0, 5.0], [4.0, 15.0, 30.0], [1e5, 1e4, 1e3])
    np.testing.assert_allclose(apparent, [42.12482, 31.92158, 27.49612], rtol=2e-4)
    np.testing.assert_allclose(np.degrees(phase), [57.3918, 41.5598, 60.1359], atol=0.02)


def test_that_a_thin_sheet_over_a_perfect_insulator_is_its_conductance() -> None:
    """At low frequencies Z is one over the conductance of what lies above the insulator."""
    found = surface_impedance([10.0, 1e16], [100.0], [1e-4])[0]
    np.testing.assert_allclose(found, 10.0 / 100.0, rtol=1e-3)


def test_that_a_layer_of_a_thousand_skin_depths_hides_what_is_below() -> None:
    apparent, phase = magnetotelluric_sounding([1.0, 1e4], [1e6], [1e5])
    np.testing.assert_allclose([apparent[0], phase[0]], [1.0, np.pi / 4.0], rtol=1e-12)


def test_that_the_phase_is_above_45_degrees_over_a_conductor() -> None:
    _, over_conductor = magnetotelluric_sounding([100.0, 1.0], [500.0], [100.0])
    _, over_insulator = magnetotelluric_sounding([100.0, 1e4], [500.0], [100.0])
    assert over_conductor[0] > np.pi / 4.0 > over_insulator[0]


def test_that_rows_do_not_depend_on_other_rows_of_the_batch() -> None:
    rng = np.random.default_rng(1)
    resistivity, thickness = rng.uniform(1.0, 500.0, (3, 5, 3)), rng.uniform(1.0, 50.0, (3, 5, 2))
    apparent, phase = magnetotelluric_sounding(resistivity, thickness, FREQUENCY)
    assert apparent.shape == phase.shape == (3, 5, FREQUENCY.size)
    alone = magnetotelluric_sounding(resistivity[2, 1], thickness[2, 1], FREQUENCY)
    np.testing.assert_allclose([apparent[2, 1], phase[2, 1]], alone, rtol=1e-12)
