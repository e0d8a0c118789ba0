"""Travel times in a section, against closed forms and an independent program."""

from __future__ import annotations

import numpy as np
import pytest

from invgp.forward_models import first_arrivals, first_arrivals_with_jacobian, ray_lengths

WIDTH, DEPTH = 30.0, 60.0  # m
SOURCES = np.asarray([[0.0, 3.0], [0.0, 21.0], [7.3, 44.1]])
RECEIVERS = np.asarray([[30.0, 3.0], [30.0, 29.0], [30.0, 57.0], [12.6, 60.0]])
APART = np.linalg.norm(RECEIVERS - SOURCES[:, None], axis=-1)


def nodes(h: float) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(0.0, WIDTH + 0.5 * h, h)[:, None], np.arange(0.0, DEPTH + 0.5 * h, h)


def test_that_in_a_homogeneous_section_times_are_distances_over_the_velocity() -> None:
    velocity = np.asarray([1500.0, 4000.0])[:, None, None]
    found = first_arrivals(np.broadcast_to(velocity, (2, 16, 21)), (2.0, 3.0), SOURCES, RECEIVERS)
    np.testing.assert_allclose(found, APART / velocity, rtol=1e-9)


@pytest.mark.parametrize(("h", "error"), [(2.0, 4e-4), (1.0, 1e-4), (0.5, 3e-5)])
@pytest.mark.parametrize("along", [0, 1])
def test_that_a_velocity_that_grows_steadily_bends_rays_into_arcs(along: int, h: float, error: float) -> None:
    velocity = np.broadcast_to(1500.0 + 20.0 * nodes(h)[along], (round(WIDTH / h) + 1, round(DEPTH / h) + 1))
    at_source, at_receiver = (1500.0 + 20.0 * ends[:, along] for ends in (SOURCES, RECEIVERS))
    exact = np.arccosh(1.0 + (20.0 * APART) ** 2 / (2.0 * at_source[:, None] * at_receiver)) / 20.0
    # Along straight rays up to 0.5% later.
    np.testing.assert_allclose(first_arrivals(velocity, (h, h), SOURCES, RECEIVERS), exact, rtol=error)


@pytest.mark.parametrize(("h", "error"), [(2.0, 3e-3), (1.0, 1e-3)])
def test_that_first_arrivals_are_those_of_scikit_fmm(h: float, error: float) -> None:
    x, z = nodes(h)
    velocity = 2000.0 + 300.0 * np.sin(x / 6.0) * np.cos(z / 8.0) + 5.0 * z
    found = first_arrivals(velocity, (h, h), [[0.0, 10.0], [0.0, 40.0]], [[30.0, 10.0], [30.0, 30.0], [30.0, 50.0]])
    # skfmm.travel_time(distance from the source - 1 m, velocity, dx=0.025, order=2) + 1 m / velocity at the source, of
    # scikit-fmm 2025.6.23; half its dx changes no time by more than 5e-5.
    expected = [
        [0.014533731209936862, 0.016999111634800015, 0.024876125673062643],
        [0.020313814154330652, 0.01422213628467668, 0.014250814746811684],
    ]
    np.testing.assert_allclose(found, expected, rtol=error)


def test_that_there_and_back_takes_the_same_time() -> None:
    x, z = nodes(1.0)
    velocity = 2000.0 + 300.0 * np.sin(x / 6.0) * np.cos(z / 8.0) + 5.0 * z
    there = first_arrivals(velocity, (1.0, 1.0), SOURCES, RECEIVERS)
    np.testing.assert_allclose(first_arrivals(velocity, (1.0, 1.0), RECEIVERS, SOURCES).T, there, rtol=1.5e-3)


def test_that_runs_do_not_depend_on_other_runs_of_the_batch() -> None:
    rng = np.random.default_rng(0)
    velocity = 2000.0 * np.exp(0.1 * rng.standard_normal((3, 11, 21)))
    found = first_arrivals(velocity, (3.0, 3.0), SOURCES, RECEIVERS)
    assert found.shape == (3, 3, 4)
    alone = np.stack([first_arrivals(one, (3.0, 3.0), SOURCES, RECEIVERS) for one in velocity])
    np.testing.assert_allclose(alone, found, rtol=1e-6)


def test_that_derivatives_of_first_arrivals_are_differences() -> None:
    """In a section without shadows; where two rays arrive at the same time there is no derivative."""
    rng, (x, z) = np.random.default_rng(0), nodes(3.0)
    velocity = 2000.0 * np.exp(0.1 * np.sin(x / 9.0 + z / 7.0) + 0.05 * np.cos(z / 4.0))
    times, jacobian = first_arrivals_with_jacobian(velocity, (3.0, 3.0), SOURCES, RECEIVERS)
    np.testing.assert_allclose(times, first_arrivals(velocity, (3.0, 3.0), SOURCES, RECEIVERS), rtol=1e-12)
    change = rng.standard_normal(velocity.shape)
    both = [first_arrivals(velocity + step * change, (3.0, 3.0), SOURCES, RECEIVERS) for step in (1e-2, -1e-2)]
    numeric, found = (both[0] - both[1]) / 2e-2, np.einsum("srij,ij->sr", jacobian, change)
    off = np.abs(found - numeric) / np.abs(numeric).max()
    assert np.median(off) < 1e-5
    assert off.max() < 1e-4


def test_that_faster_rock_everywhere_shortens_times_in_proportion() -> None:
    """By Euler's theorem: the time has degree -1 in the velocity."""
    x, z = nodes(2.0)
    velocity = 1500.0 + 10.0 * x + 5.0 * z
    times, jacobian = first_arrivals_with_jacobian(velocity, (2.0, 2.0), SOURCES, RECEIVERS)
    np.testing.assert_allclose(np.einsum("srij,ij->sr", jacobian, velocity), -times, rtol=1e-5)


def test_that_the_parts_of_a_ray_add_up_and_lie_in_the_cells_it_crosses() -> None:
    lengths = ray_lengths([[0.0, 0.0], [0.0, 1.0]], [[4.0, 3.0], [4.0, 1.0]], [0.0, 2.0, 4.0], [0.0, 2.0, 3.0])
    # Along the diagonal of slope 3/4: at x = 2 it is at z = 1.5, and at z = 2 at x = 8/3.
    diagonal = 5.0 * np.asarray([[0.5, 0.0], [1.0 / 6.0, 1.0 / 3.0]])
    np.testing.assert_allclose(lengths, [diagonal, [[2.0, 0.0], [2.0, 0.0]]], atol=1e-12)


def test_that_rays_integrate_over_random_cells_as_many_points_do() -> None:
    rng = np.random.default_rng(1)
    edges = np.linspace(0.0, WIDTH, 8), np.linspace(0.0, DEPTH, 12)
    slowness = rng.uniform(2e-4, 8e-4, (7, 11))
    starts, ends = (np.column_stack([x, rng.uniform(0.0, DEPTH, 5)]) for x in (np.zeros(5), np.full(5, WIDTH)))
    share = (np.arange(200_000) + 0.5)[:, None] / 200_000
    for a, b, lengths in zip(starts, ends, ray_lengths(starts, ends, *edges), strict=True):
        points = a + share * (b - a)
        cell = [np.searchsorted(axis, points[:, i]) - 1 for i, axis in enumerate(edges)]
        by_points = slowness[*cell].mean() * np.linalg.norm(b - a)
        np.testing.assert_allclose(np.sum(slowness * lengths), by_points, rtol=1e-4)
