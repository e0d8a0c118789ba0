import numpy as np
import pytest

from invgp.core.backend import select_backend, to_numpy
from invgp.core.point_sets import Points


def standard_normals(rng, samples, sites, latents):
    """The points of every site at once, (samples, sites, latents)."""
    return Points.draw(rng, samples, sites, latents, select_backend("cpu")).normals()


def test_that_the_points_are_standard_normal_and_more_even_than_random_ones(rng):
    z = standard_normals(rng, 256, 50, 4)
    assert z.shape == (256, 50, 4)
    assert np.all(np.isfinite(z))
    root_mean_square = np.sqrt(np.mean(z.mean(axis=0) ** 2))
    assert root_mean_square < 0.25 / np.sqrt(256)
    np.testing.assert_allclose(z.var(axis=0).mean(), 1.0, atol=0.02)


def test_that_sites_have_points_of_their_own(rng):
    z = standard_normals(rng, 64, 2, 3)
    assert np.abs(z[:, 0] - z[:, 1]).max() > 0.1
    np.testing.assert_allclose(np.linalg.norm(z[:, 0], axis=-1), np.linalg.norm(z[:, 1], axis=-1))


@pytest.mark.parametrize("samples", [1, 5, 100])
def test_that_any_number_of_points_can_be_drawn(samples, rng):
    assert standard_normals(rng, samples, 2, 1).shape == (samples, 2, 1)


def test_that_the_same_seed_gives_the_same_points():
    first, second = (standard_normals(np.random.default_rng(3), 32, 4, 2) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_that_the_points_of_a_range_of_sites_are_theirs_among_all(backend, rng):
    points = Points.draw(rng, 16, 7, 3, backend)
    some = to_numpy(points.at(2, 5).normals())
    np.testing.assert_allclose(some, to_numpy(points.normals())[:, 2:5], rtol=1e-6)


def test_that_samples_are_the_normals_scaled_and_moved(backend, tolerance, rng):
    points = Points.draw(rng, 16, 7, 3, backend)
    mean, scale = rng.standard_normal((7, 3)), rng.random((7, 3))
    samples = points.samples(backend.asarray(mean), backend.asarray(scale))
    expected = mean + scale * to_numpy(points.normals())
    np.testing.assert_allclose(to_numpy(samples), expected, atol=tolerance(backend, 1e-14, 1e-5))


@pytest.mark.parametrize("latents", [1, 2, 3])
def test_that_rotations_have_no_preferred_direction(latents, numpy_backend, rng):
    rotations = Points.draw(rng, 16, 4000, latents, numpy_backend).rotations
    # Each entry of a uniform rotation has mean 0 and variance 1 / Q.
    assert np.abs(rotations.mean(axis=0)).max() < 5 / np.sqrt(4000 * latents)
