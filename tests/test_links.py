import numpy as np
import pytest

from invgp.links import LINKS

MEAN, STD = np.asarray([1.5, 200.0]), np.asarray([0.4, 250.0])


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_that_the_prior_has_the_mean_and_spread_that_the_user_gave(link):
    mean, std = link.moments(*link.gaussian(MEAN, STD))
    np.testing.assert_allclose(mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(std, STD, rtol=1e-12)


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_that_moments_are_those_of_draws(link):
    z = np.random.default_rng(0).standard_normal((400_000, 1))
    draws = link(np.asarray([0.3]) + 0.5 * z)
    mean, std = link.moments(np.asarray([0.3]), np.asarray([0.5]))
    np.testing.assert_allclose([draws.mean(), draws.std()], [mean[0], std[0]], rtol=0.01)


def test_that_a_log_link_keeps_values_positive():
    assert np.all(LINKS["log"](np.asarray([-50.0, 0.0, 3.0])) > 0)
