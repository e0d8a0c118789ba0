"""Gravity of rectangles and boxes, against closed forms, an independent program and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad

from invgp.forward_models.gravity import GRAVITATIONAL_CONSTANT, boxes_gravity, rectangles_gravity

BOX = np.asarray([-1000.0, 500.0, -300.0, 800.0, -2000.0, -100.0])  # m


@pytest.mark.parametrize(
    ("station", "expected"),
    [  # of choclo 0.3.2, `-choclo.prism.gravity_u(*station, *BOX, 300)`; one station is above a corner of the box
        ((0.0, 0.0, 0.0), 5.704209191394424e-05),
        ((1500.0, -700.0, 20.0), 5.429075632316017e-06),
        ((-1000.0, -300.0, 0.0), 2.7308987620631313e-05),
        ((500.0, 800.0, 50.0), 2.61652765649632e-05),
    ],
)
def test_that_the_gravity_of_a_box_agrees_with_choclo(station: tuple[float, float, float], expected: float) -> None:
    found = boxes_gravity(*([part] for part in station), BOX[None], [300.0])
    np.testing.assert_allclose(found, [expected], rtol=1e-10)


def test_that_the_gravity_of_a_rectangle_agrees_with_its_double_integral() -> None:
    integral, _ = dblquad(lambda x, z: z / (x**2 + z**2), 200.0, 1500.0, -700.0, 900.0)
    found = rectangles_gravity([0.0], [-700.0, 900.0], [200.0], [1500.0], 400.0)
    np.testing.assert_allclose(found, [2.0 * GRAVITATIONAL_CONSTANT * 400.0 * integral], rtol=1e-9)


def test_that_a_long_box_is_a_rectangle() -> None:
    box = np.asarray([[-1000.0, 500.0, -1e6, 1e6, -2000.0, -100.0]])
    long = boxes_gravity([0.0, 700.0], [0.0, 0.0], [0.0, 0.0], box, [300.0])
    np.testing.assert_allclose(
        rectangles_gravity([0.0, 700.0], [-1000.0, 500.0], [100.0], [2000.0], 300.0), long, rtol=1e-5
    )


def test_that_a_wide_row_of_rectangles_is_a_bouguer_slab() -> None:
    edges = np.linspace(-1e9, 1e9, 11)
    found = rectangles_gravity([0.0, 30.0], edges, np.zeros((2, 10)), np.full((2, 10), 800.0), 2670.0)
    slab = 2.0 * np.pi * GRAVITATIONAL_CONSTANT * 2670.0 * 800.0
    assert found.shape == (2, 2)
    np.testing.assert_allclose(found, slab, rtol=1e-5)
