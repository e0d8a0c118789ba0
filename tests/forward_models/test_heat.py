"""Steady conduction of heat, against closed forms, manufactured solutions and a direct solution of the equations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

from invgp.forward_models import cells_temperature, layers_temperature

LENGTH, WIDTH, HEIGHT = 30_000.0, 20_000.0, 10_000.0  # m
SURFACE, BASAL = 290.0, 0.06  # K, W m-2
EDGES = np.linspace(0.0, LENGTH, 4), np.linspace(0.0, WIDTH, 3)
TOPS = np.array([0.0, 1830.0, 2410.0, 5260.0])  # m, of flat layers
CONDUCTIVITY = np.array([1.6, 2.9, 1.3, 2.5])  # W m-1 K-1
PRODUCTION = np.array([1.0e-6, 0.0, 1.8e-6, 5.0e-6])  # W m-3


def column(depth: np.ndarray, conductivity: np.ndarray, production: np.ndarray) -> np.ndarray:
    """Temperature of flat layers: the heat flow at the top of each is what comes from below and is produced below."""
    ends = np.append(TOPS[1:], HEIGHT)
    produced = production * (ends - TOPS)
    flow = BASAL + np.cumsum(produced[::-1])[::-1]
    found = np.full(depth.shape, SURFACE)
    for top, end, k, a, q in zip(TOPS, ends, conductivity, production, flow, strict=True):
        inside = np.clip(depth - top, 0.0, end - top)
        found += (q * inside - 0.5 * a * inside**2) / k
    return found


def of_layers(points: np.ndarray, cells: int, production: np.ndarray = PRODUCTION) -> np.ndarray:
    depths = np.linspace(0.0, HEIGHT, cells + 1)
    tops = np.repeat(TOPS[:, None], 6, axis=1)
    return layers_temperature(points, tops, CONDUCTIVITY, production, *EDGES, depths, SURFACE, BASAL)


def points_down() -> np.ndarray:
    depth = np.concatenate([[0.0, 10.0, 1830.0, HEIGHT], np.linspace(100.0, 9900.0, 40)])
    rng = np.random.default_rng(1)
    return np.column_stack([rng.uniform(0.0, LENGTH, depth.size), rng.uniform(0.0, WIDTH, depth.size), depth])


def test_that_flat_layers_without_heat_production_are_exact() -> None:
    """Layers cut cells anywhere: their thermal resistance is integrated."""
    at = points_down()
    expected = column(at[:, 2], CONDUCTIVITY, np.zeros(4))
    np.testing.assert_allclose(of_layers(at, 13, np.zeros(4)), expected, rtol=0.0, atol=1e-7)


def test_that_flat_layers_with_heat_production_converge_to_the_closed_form() -> None:
    at = points_down()
    expected = column(at[:, 2], CONDUCTIVITY, PRODUCTION)
    coarse, fine = (np.max(np.abs(of_layers(at, cells) - expected)) for cells in (25, 100))
    assert coarse < 0.3  # K, where the temperature reaches 500 K
    assert fine < coarse / 10.0  # second order: a 16th, but for where layers cut the cells


def test_that_heat_production_that_varies_along_a_line_agrees_with_its_closed_form() -> None:
    """A wave of the production, cos(c x): its temperature is A / (k c^2) cos(c x) (1 - cosh(c (H - z)) / cosh(c H))."""
    c, k, a = np.pi / LENGTH, 2.5, 4e-6
    errors = []
    for cells in (10, 20, 40):
        east, depths = np.linspace(0.0, LENGTH, cells + 1), np.linspace(0.0, HEIGHT, cells + 1)
        x, z = 0.5 * (east[1:] + east[:-1])[:, None, None], 0.5 * (depths[1:] + depths[:-1])
        production = np.broadcast_to(a * np.cos(c * x), (cells, 2, cells))
        found = cells_temperature(np.full_like(production, k), production, east, [0.0, 1.0, 2.0], depths, 0.0, 0.0)
        expected = a / (k * c**2) * np.cos(c * x) * (1.0 - np.cosh(c * (HEIGHT - z)) / np.cosh(c * HEIGHT))
        errors.append(np.max(np.abs(found - expected)))
    assert np.max(expected) > 50.0
    np.testing.assert_allclose(np.log2([errors[0] / errors[1], errors[1] / errors[2]]), 2.0, atol=0.1)


def manufactured_error(cells: int, stretch: float) -> float:
    """Root mean square error for smooth functions; cells are thinner at the surface by `stretch`."""
    east, north, s = (np.linspace(0.0, 1.0, cells + 1) for _ in range(3))
    depths = s * (1.0 - stretch * (1.0 - s))
    x, y, z = np.meshgrid(*(0.5 * (edges[1:] + edges[:-1]) for edges in (east, north, depths)), indexing="ij")
    pi = np.pi

    def conductivity(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return 2.0 + 0.5 * np.cos(2.0 * x) * np.sin(3.0 * y) + z**2

    def temperature(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return 3.0 + z * (1.0 + 0.3 * z) + np.cos(pi * x) * np.cos(2.0 * pi * y) * np.sin(2.0 * z)

    k = conductivity(x, y, z)
    wave = np.cos(pi * x) * np.cos(2.0 * pi * y)
    t_x = -pi * np.sin(pi * x) * np.cos(2.0 * pi * y) * np.sin(2.0 * z)
    t_y = -2.0 * pi * np.cos(pi * x) * np.sin(2.0 * pi * y) * np.sin(2.0 * z)
    t_z = 1.0 + 0.6 * z + 2.0 * wave * np.cos(2.0 * z)
    laplacian = 0.6 - (5.0 * pi**2 + 4.0) * wave * np.sin(2.0 * z)
    k_x, k_y, k_z = -np.sin(2.0 * x) * np.sin(3.0 * y), 1.5 * np.cos(2.0 * x) * np.cos(3.0 * y), 2.0 * z
    production = -(k * laplacian + k_x * t_x + k_y * t_y + k_z * t_z)
    x_b, y_b = x[..., 0], y[..., 0]
    basal = conductivity(x_b, y_b, np.ones(())) * (1.6 + 2.0 * np.cos(pi * x_b) * np.cos(2.0 * pi * y_b) * np.cos(2.0))
    found = cells_temperature(k, production, east, north, depths, 3.0, basal)
    return float(np.sqrt(np.mean((found - temperature(x, y, z)) ** 2)))


@pytest.mark.parametrize("stretch", [0.0, 0.4])
def test_that_a_manufactured_solution_is_approached_with_second_order(stretch: float) -> None:
    errors = np.array([manufactured_error(cells, stretch) for cells in (8, 16, 32)])
    orders = np.log2(errors[:-1] / errors[1:])
    np.testing.assert_allclose(orders, 2.0, atol=0.15)
    assert errors[-1] < 2e-3


def by_direct_solution(k: np.ndarray, production: np.ndarray, sizes: tuple[float, float, float]) -> np.ndarray:
    """The equations of cells of equal size written out face by face, and solved by elimination."""
    shape, number = k.shape, np.arange(k.size).reshape(k.shape)
    rows, columns, values = [], [], []
    right = np.full(shape, np.prod(sizes)) * production
    for axis in range(3):
        area_over_distance = np.prod(sizes) / sizes[axis] ** 2
        before, after = (
            [np.take(a, np.arange(start, shape[axis] - 1 + start), axis) for a in (number, k)] for start in (0, 1)
        )
        conductance = (area_over_distance * 2.0 * before[1] * after[1] / (before[1] + after[1])).ravel()
        i, j = before[0].ravel(), after[0].ravel()
        rows += [i, j, i, j]
        columns += [i, j, j, i]
        values += [conductance, conductance, -conductance, -conductance]
    to_surface = 2.0 * sizes[0] * sizes[1] * k[:, :, 0] / sizes[2]
    rows, columns, values = (
        [*rows, number[:, :, 0].ravel()],
        [*columns, number[:, :, 0].ravel()],
        [*values, to_surface.ravel()],
    )
    right[:, :, 0] += to_surface * SURFACE
    right[:, :, -1] += sizes[0] * sizes[1] * BASAL
    matrix = coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))))
    return spsolve(matrix.tocsc(), right.ravel()).reshape(shape)


def test_that_strong_contrasts_agree_with_a_direct_solution() -> None:
    """Conductivities that differ from cell to cell by up to a factor of 100."""
    rng = np.random.default_rng(4)
    k, production = np.exp(rng.uniform(-2.3, 2.3, (2, 6, 5, 9))), rng.uniform(0.0, 5e-6, (2, 6, 5, 9))
    edges = [size * np.arange(n + 1) for size, n in ((1500.0, 6), (900.0, 5), (400.0, 9))]
    found = cells_temperature(k, production, *edges, SURFACE, BASAL)
    for row in (0, 1):
        direct = by_direct_solution(k[row], production[row], (1500.0, 900.0, 400.0))
        np.testing.assert_allclose(found[row], direct, rtol=1e-9)


def granite(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges of square cells over the map, and the tops (2, cells squared) of a cover and of a dome below it, in m."""
    edges = np.linspace(0.0, LENGTH, cells + 1)
    centres = 0.5 * (edges[1:] + edges[:-1])
    x, y = np.meshgrid(centres, centres, indexing="ij")
    dome = 6000.0 - 3500.0 * np.exp(-((x - 12e3) ** 2 + (y - 17e3) ** 2) / 6e3**2)
    return edges, np.stack([np.zeros(x.size), dome.ravel()])


def test_that_a_dome_agrees_with_fine_cells_that_are_cover_or_dome() -> None:
    """Layers that cut cells of 500 m, and cells of 50 m that are in one layer."""
    k, production = np.array([1.8, 3.2]), np.array([1e-6, 6e-6])
    edges, tops = granite(30)
    centres = 0.5 * (edges[1:] + edges[:-1])
    column = np.array([[12, 17], [6, 9], [28, 1]])
    depths = np.linspace(0.0, HEIGHT, 201)
    level = np.array([47, 70, 99])
    at = np.column_stack([centres[column], 0.5 * (depths[level] + depths[level + 1])])
    found = layers_temperature(at, tops, k, production, edges, edges, np.linspace(0.0, HEIGHT, 21), SURFACE, BASAL)
    inside = (0.5 * (depths[1:] + depths[:-1]) > tops[1][:, None]).astype(int).reshape(30, 30, 200)
    cells = cells_temperature(k[inside], production[inside], edges, edges, depths, SURFACE, BASAL)
    expected = cells[column[:, 0], column[:, 1], level]
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=0.5)  # K
    assert np.ptp(expected) > 30.0


def test_that_the_temperature_is_a_continuous_function_of_the_tops() -> None:
    """A top that moves through the centre and an edge of a cell by 2 m steps."""
    edges, tops = granite(6)
    moved = np.stack([tops + np.array([[0.0], [shift]]) for shift in np.arange(-300.0, 300.0, 2.0)])
    found = layers_temperature(
        [[13e3, 14e3, 2500.0]],
        moved,
        [1.8, 3.2],
        [1e-6, 6e-6],
        edges,
        edges,
        np.linspace(0.0, HEIGHT, 26),
        SURFACE,
        BASAL,
    )[:, 0]
    assert np.ptp(found) > 5.0
    assert np.max(np.abs(np.diff(found))) < 4.0 * np.median(np.abs(np.diff(found)))


def test_that_rows_do_not_depend_on_other_rows_of_the_batch() -> None:
    rng = np.random.default_rng(3)
    tops = np.repeat(TOPS[:, None], 6, axis=1) + rng.uniform(0.0, 400.0, (2, 3, 4, 6))
    k = CONDUCTIVITY * rng.uniform(0.5, 2.0, (2, 3, 4))
    depths = np.linspace(0.0, HEIGHT, 11)
    found = layers_temperature(points_down(), tops, k, PRODUCTION, *EDGES, depths, SURFACE, BASAL)
    assert found.shape == (2, 3, len(points_down()))
    alone = layers_temperature(points_down(), tops[1, 2], k[1, 2], PRODUCTION, *EDGES, depths, SURFACE, BASAL)
    np.testing.assert_allclose(found[1, 2], alone, rtol=1e-13)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"points": [[0.0, 0.0]]}, "points: must have easting, northing and depth in each row"),
        ({"points": [[0.0, 0.0, 5.0], [0.0, 0.0, 11e3]]}, "points: must be inside the edges, but point 2 is not"),
        ({"tops": [[0.0] * 5]}, r"tops: must have the shape \(..., layers, 6\), was \(1, 5\)"),
        ({"conductivity": [1.0, 2.0]}, "conductivity: must have one value for each of 1 layers"),
        ({"conductivity": [-1.0]}, "conductivity: must be positive and finite, but the least is -1"),
        ({"east_edges": [0.0, 1.0, 3.0, 4.0]}, "east_edges: must be at equal distances"),
        ({"depth_edges": [5.0, 1.0]}, "depth_edges: must be at least two increasing numbers"),
    ],
)
def test_that_a_wrong_argument_is_named(change: dict[str, object], words: str) -> None:
    arguments = {
        "points": [[0.0, 0.0, 5.0]], "tops": [[0.0] * 6], "conductivity": [2.0], "heat_production": [0.0],
        "east_edges": EDGES[0], "north_edges": EDGES[1], "depth_edges": [0.0, HEIGHT],
        "surface_temperature": SURFACE, "basal_heat_flow": BASAL,
    }  # fmt: skip
    with pytest.raises(ValueError, match=words):
        layers_temperature(**(arguments | change))
    with pytest.raises(ValueError, match=r"conductivity: must have the shape \(..., 3, 2, 1\) of the cells"):
        cells_temperature(np.ones((3, 2)), np.ones((3, 2)), *EDGES, [0.0, HEIGHT], SURFACE, BASAL)
