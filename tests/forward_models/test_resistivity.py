"""Schlumberger soundings: closed forms, the integral itself, images, and an independent program."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import j1

from invgp.forward_models import resistivity_transform, schlumberger_sounding

SPACING = np.geomspace(1.0, 1000.0, 13)  # m


def by_images(top: float, bottom: float, thickness: float, spacing: np.ndarray) -> np.ndarray:
    """The series of images of the current electrodes in the two interfaces of a layer."""
    n = np.arange(1, 20_000)
    reflection = (bottom - top) / (bottom + top)
    depth = 2.0 * n * thickness / spacing[:, None]
    return top * (1.0 + 2.0 * np.sum(reflection**n * (1.0 + depth**2) ** -1.5, axis=1))


def by_quadrature(resistivity: np.ndarray, thickness: np.ndarray, spacing: float) -> float:
    """The Hankel integral, over the intervals between zeros of what oscillates."""

    def integrand(u: float) -> float:
        wave_number = np.asarray([u / spacing])
        return float(resistivity_transform(resistivity, thickness, wave_number)[0] - resistivity[0]) * j1(u) * u

    last = 20.0 * spacing / thickness[0]  # beyond, the transform is that of the first layer: exp(-40)
    edges = np.append(np.arange(0.0, last, np.pi), last)
    parts = [quad(integrand, a, b, epsabs=1e-10, epsrel=1e-10)[0] for a, b in pairwise(edges)]
    return resistivity[0] + sum(parts)


def test_that_a_half_space_has_its_own_resistivity_at_every_spacing() -> None:
    np.testing.assert_allclose(schlumberger_sounding([42.0], [], SPACING), 42.0, rtol=1e-7)


def test_that_layers_of_one_resistivity_are_a_half_space() -> None:
    np.testing.assert_allclose(schlumberger_sounding([42.0] * 4, [1.0, 10.0, 100.0], SPACING), 42.0, rtol=1e-7)


@pytest.mark.parametrize(("top", "bottom"), [(100.0, 10.0), (10.0, 100.0), (100.0, 1.0), (5.0, 500.0)])
def test_that_two_layers_are_the_series_of_images(top: float, bottom: float) -> None:
    expected = by_images(top, bottom, 7.0, SPACING)
    found = schlumberger_sounding([top, bottom], [7.0], SPACING)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-6 * max(top, bottom))


def test_that_four_layers_are_the_hankel_integral() -> None:
    resistivity, thickness = np.array([80.0, 20.0, 300.0, 5.0]), np.array([4.0, 15.0, 30.0])
    for spacing in (2.0, 20.0, 200.0):
        expected = by_quadrature(resistivity, thickness, spacing)
        np.testing.assert_allclose(schlumberger_sounding(resistivity, thickness, [spacing])[0], expected, rtol=1e-5)


def test_that_four_layers_agree_with_empymod() -> None:
    """Values of empymod 2.6.1, by `of_empymod.py`; its own half-space is off by 2e-5."""
    spacing = [3.0, 10.0, 30.0, 100.0, 300.0]
    of_empymod = [76.178421, 42.260128, 34.450763, 66.903017, 35.144131]
    found = schlumberger_sounding([80.0, 20.0, 300.0, 5.0], [4.0, 15.0, 30.0], spacing)
    np.testing.assert_allclose(found, of_empymod, rtol=3e-5)


def test_that_rows_do_not_depend_on_other_rows_of_the_batch() -> None:
    rng = np.random.default_rng(1)
    resistivity, thickness = rng.uniform(1.0, 500.0, (3, 5, 3)), rng.uniform(1.0, 50.0, (3, 5, 2))
    together = schlumberger_sounding(resistivity, thickness, SPACING)
    assert together.shape == (3, 5, SPACING.size)
    alone = schlumberger_sounding(resistivity[2, 1], thickness[2, 1], SPACING)
    np.testing.assert_allclose(together[2, 1], alone, rtol=1e-12)


def test_that_one_thickness_serves_all_rows() -> None:
    resistivity = np.array([[10.0, 50.0], [70.0, 20.0]])
    both = schlumberger_sounding(resistivity, [5.0], SPACING)
    np.testing.assert_allclose(both[1], schlumberger_sounding(resistivity[1], [5.0], SPACING), rtol=1e-12)


def test_that_a_thickness_for_the_half_space_is_refused() -> None:
    with pytest.raises(ValueError, match="thickness: must have one layer less than resistivity"):
        schlumberger_sounding([10.0, 20.0], [5.0, 5.0], SPACING)
