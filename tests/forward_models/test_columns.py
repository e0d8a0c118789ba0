"""Gravity and magnetics of layers, against choclo, closed forms and exact prisms."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.layered_bodies import (
    BASE,
    DENSITY,
    EAST_EDGES,
    FIELD,
    NORTH_EDGES,
    STATIONS,
    SUSCEPTIBILITY,
    TOPS,
)
from invgp.forward_models import ColumnResponse, boxes_gravity, columns_gravity, columns_magnetics, field_components
from invgp.forward_models.gravity import GRAVITATIONAL_CONSTANT

DEPTHS = np.concatenate([[0.0], np.geomspace(100.0, BASE, 50)])
FLAT_TOPS = TOPS.reshape(4, -1)
OF_CHOCLO = np.array([  # gravity in m s-2 and anomaly in nT of choclo 0.3.2, printed by `of_choclo.py`
    (0.0026053263902825257, 2.376077792095478),
    (0.00343989006688385, 3.682876832073329),
    (0.0035043662512669843, 6.3493134016103046),
    (0.0007960094127207104, 2.1197520487190205),
])  # fmt: skip


def gravity(depths: np.ndarray) -> ColumnResponse:
    return columns_gravity(STATIONS, EAST_EDGES, NORTH_EDGES, depths)


def magnetics(depths: np.ndarray) -> ColumnResponse:
    return columns_magnetics(STATIONS, FIELD, EAST_EDGES, NORTH_EDGES, depths)


def test_that_layers_agree_with_choclo() -> None:
    """Depths increase by 10%: errors far below those of any instrument, 1e-8 m s-2 and 1e-4 nT."""
    np.testing.assert_allclose(gravity(DEPTHS).of_layers(FLAT_TOPS, DENSITY), OF_CHOCLO[:, 0], rtol=0.0, atol=2e-10)
    np.testing.assert_allclose(
        magnetics(DEPTHS).of_layers(FLAT_TOPS, SUSCEPTIBILITY), OF_CHOCLO[:, 1], rtol=0.0, atol=5e-5
    )


def test_that_tops_at_depths_of_the_table_are_exact() -> None:
    depths = np.unique(np.append(FLAT_TOPS, BASE))
    np.testing.assert_allclose(gravity(depths).of_layers(FLAT_TOPS, DENSITY), OF_CHOCLO[:, 0], rtol=1e-10)
    np.testing.assert_allclose(magnetics(depths).of_layers(FLAT_TOPS, SUSCEPTIBILITY), OF_CHOCLO[:, 1], rtol=1e-9)


@pytest.mark.parametrize(("response", "of_layers"), [(gravity, DENSITY), (magnetics, SUSCEPTIBILITY)])
def test_that_the_error_between_depths_is_of_fourth_order(response: object, of_layers: np.ndarray) -> None:
    """Halving the spacing must divide the error by 16; the exact slopes of the table are tested by this."""
    at = np.unique(np.append(FLAT_TOPS, BASE))
    exact = response(at).of_layers(FLAT_TOPS, of_layers)
    errors = []
    for steps in (15, 30, 60):
        found = response(np.linspace(0.0, BASE, steps + 1)).of_layers(FLAT_TOPS, of_layers)
        errors.append(np.sqrt(np.mean((found - exact) ** 2)))
    assert errors[1] < errors[0] / 8.0
    assert errors[2] < errors[0] / 100.0


@pytest.mark.parametrize("width", [50.0, 500.0, 2000.0, 10_000.0])
@pytest.mark.parametrize("ratio", [1.05, 1.2])
def test_that_the_error_of_a_column_is_within_the_documented_bounds(width: float, ratio: float) -> None:
    """From stations above the column to stations two widths away; the distance to the first of two depths is 1 km."""
    edges, aside = [-0.5 * width, 0.5 * width], np.linspace(0.0, 2.0 * width, 41)
    stations = np.stack([aside, 0.3 * aside, np.full(41, -1.0)], axis=1)
    step = 1000.0 * (ratio - 1.0)
    tops = np.linspace(999.0, 999.0 + step, 11)
    layers = np.stack([np.zeros(11), tops], axis=1)[:, :, None]
    bounds = {
        "gravity": 2.0 * np.pi * GRAVITATIONAL_CONSTANT * step**4 / (500.0 * 1000.0**3),
        "magnetics": step**4 / 4e14,
    }
    for name, bound in bounds.items():
        found, exact = (
            columns_gravity(stations, edges, edges, depths)
            if name == "gravity"
            else columns_magnetics(stations, [0.3, 0.5, np.sqrt(0.66)], edges, edges, depths)
            for depths in ([0.0, tops[0], tops[-1]], [0.0, *tops])
        )
        error = np.max(np.abs(found.of_layers(layers, [0.0, 1.0]) - exact.of_layers(layers, [0.0, 1.0])))
        assert error <= bound, name


def test_that_layers_have_the_gravity_of_boxes() -> None:
    rng = np.random.default_rng(3)
    tops = np.sort(rng.uniform(300.0, BASE - 100.0, (4, 12)), axis=0)
    sides = [(EAST_EDGES[i], EAST_EDGES[i + 1], NORTH_EDGES[j], NORTH_EDGES[j + 1]) for i in range(4) for j in range(3)]
    bottoms = np.append(tops[1:], np.full((1, 12), BASE), axis=0)
    boxes = [(*sides[c], -bottoms[layer, c], -tops[layer, c]) for layer in range(4) for c in range(12)]
    exact = boxes_gravity(STATIONS[:, 0], STATIONS[:, 1], -STATIONS[:, 2], boxes, np.repeat(DENSITY, 12))
    np.testing.assert_allclose(gravity(DEPTHS).of_layers(tops, DENSITY), exact, rtol=1e-5)


def test_that_wide_layers_are_bouguer_slabs() -> None:
    response = columns_gravity(
        [[0.0, 0.0, 0.0], [30.0, 0.0, -5.0]], [-1e9, 0.0, 1e9], [-1e9, 1e9], [0.0, 500.0, 4000.0]
    )
    found = response.of_layers([[0.0, 0.0], [1300.0, 1300.0]], [2670.0, 2300.0])
    slabs = 2.0 * np.pi * GRAVITATIONAL_CONSTANT * (2670.0 * 1300.0 + 2300.0 * 2700.0)
    np.testing.assert_allclose(found, slabs, rtol=1e-5)


def ball(radius: float, depth: float, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges of the columns, and tops (3, cells squared) of the rock above a ball, of the ball and of the rock below."""
    edges = np.linspace(-radius, radius, cells + 1)
    centres = 0.5 * (edges[1:] + edges[:-1])
    x, y = np.meshgrid(centres, centres, indexing="ij")
    half = np.sqrt(np.maximum(radius**2 - x**2 - y**2, 0.0)).ravel()
    return edges, np.stack([np.zeros(half.size), depth - half, depth + half])


def test_that_a_ball_of_columns_has_the_gravity_of_a_point_mass() -> None:
    stations = np.array([[0.0, 0.0, 0.0], [900.0, -400.0, -50.0]])
    edges, tops = ball(500.0, 1500.0, 60)
    response = columns_gravity(stations, edges, edges, np.linspace(0.0, 2500.0, 51))
    mass = 300.0 * 4.0 / 3.0 * np.pi * 500.0**3
    down = 1500.0 - stations[:, 2]
    distance = np.sqrt(stations[:, 0] ** 2 + stations[:, 1] ** 2 + down**2)
    expected = GRAVITATIONAL_CONSTANT * mass * down / distance**3
    np.testing.assert_allclose(response.of_layers(tops, [0.0, 300.0, 0.0]), expected, rtol=2e-3)


def test_that_a_ball_of_columns_has_the_anomaly_of_a_dipole() -> None:
    """A uniformly magnetised ball: B = mu0 / (4 pi) (3 (m.r) r / r^5 - m / r^3) outside of it."""
    stations = np.array([[0.0, 0.0, 0.0], [900.0, -400.0, -50.0], [-1500.0, 300.0, 0.0]])
    edges, tops = ball(500.0, 1500.0, 60)
    field = field_components(54000.0, -64.0, 8.0)
    response = columns_magnetics(stations, field, edges, edges, np.linspace(1.0, 2500.0, 51))
    offset = stations * [1.0, 1.0, -1.0] - [0.0, 0.0, -1500.0]
    r = np.linalg.norm(offset, axis=1, keepdims=True)
    moment = 0.02 * field * 4.0 / 3.0 * np.pi * 500.0**3 / (4.0 * np.pi)  # times mu0 / (4 pi), nT m3
    anomaly = 3.0 * (offset @ moment)[:, None] * offset / r**5 - moment / r**3
    expected = anomaly @ field / np.linalg.norm(field)
    np.testing.assert_allclose(
        response.of_layers(tops, [0.0, 0.02, 0.0]), expected, atol=3e-3 * np.max(np.abs(expected))
    )


def test_that_an_inclination_below_the_horizontal_points_down() -> None:
    np.testing.assert_allclose(field_components(2.0, 30.0, 90.0), [np.sqrt(3.0), 0.0, -1.0], atol=1e-12)


def test_that_a_layer_that_crosses_the_one_above_it_starts_there() -> None:
    """The lower of two crossing tops gives way, and what is above the surface or below the base is cut off."""
    crossing, clipped = FLAT_TOPS.copy(), FLAT_TOPS.copy()
    crossing[2, 5], clipped[2, 5] = crossing[1, 5] - 400.0, crossing[1, 5]
    crossing[3, 7], clipped[3, 7] = BASE + 3000.0, BASE
    crossing[0, 2], clipped[0, 2] = -70.0, 0.0
    response = gravity(DEPTHS)
    np.testing.assert_array_equal(response.of_layers(crossing, DENSITY), response.of_layers(clipped, DENSITY))


def test_that_rows_do_not_depend_on_other_rows_of_the_batch() -> None:
    rng = np.random.default_rng(2)
    tops = FLAT_TOPS + rng.uniform(0.0, 300.0, (3, 2, 4, 12))
    density = DENSITY + rng.uniform(-50.0, 50.0, (3, 2, 4))
    found = gravity(DEPTHS).of_layers(tops, density)
    assert found.shape == (3, 2, len(STATIONS))
    np.testing.assert_array_equal(found[2, 1], gravity(DEPTHS).of_layers(tops[2, 1], density[2, 1]))
    shared = gravity(DEPTHS).of_layers(FLAT_TOPS, density)
    np.testing.assert_array_equal(shared[1, 0], gravity(DEPTHS).of_layers(FLAT_TOPS, density[1, 0]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stations": [[0.0, 0.0]]}, "stations: must be finite, with easting, northing and depth in each row"),
        (
            {"stations": [[0.0, 0.0, 10.0]]},
            "stations: must be at least 0 m above the first depth, 0 m, one is at -10 m",
        ),
        ({"east_edges": [0.0, 2.0, 1.0]}, "east_edges: must be at least two increasing numbers in m"),
        ({"depths": [0.0, np.nan]}, "depths: must be at least two increasing numbers in m"),
    ],
)
def test_that_a_wrong_argument_is_named(change: dict[str, object], words: str) -> None:
    arguments = {"stations": STATIONS, "east_edges": EAST_EDGES, "north_edges": NORTH_EDGES, "depths": DEPTHS}
    with pytest.raises(ValueError, match=words):
        columns_gravity(**(arguments | change))


def test_that_layers_of_a_wrong_shape_are_named() -> None:
    response = gravity(DEPTHS)
    with pytest.raises(ValueError, match=r"tops: must have the shape \(..., layers, 12\), was \(4, 11\)"):
        response.of_layers(FLAT_TOPS[:, :11], DENSITY)
    with pytest.raises(ValueError, match="properties: must have one value for each of 4 layers"):
        response.of_layers(FLAT_TOPS, DENSITY[:3])
    with pytest.raises(ValueError, match="tops: must be finite"):
        response.of_layers(FLAT_TOPS * np.nan, DENSITY)
    with pytest.raises(ValueError, match="field: must be the components east, north and up in nT"):
        columns_magnetics(STATIONS, [0.0, 0.0, 0.0], EAST_EDGES, NORTH_EDGES, DEPTHS)
    with pytest.raises(ValueError, match=r"stations: must be at least 0.001 m above the first depth"):
        columns_magnetics([[0.0, 0.0, 0.0]], FIELD, EAST_EDGES, NORTH_EDGES, DEPTHS)
