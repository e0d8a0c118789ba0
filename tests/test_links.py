import numpy as np
import pytest
from scipy.stats import norm, truncnorm

from invgp.bounded_links import TruncatedNormal, Uniform, link_attributes, link_from_attributes
from invgp.links import LINKS, normal_draws

MEAN, STD = np.asarray([1.5, 200.0]), np.asarray([0.4, 250.0])
EVERY_LINK = pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())


@EVERY_LINK
def test_that_the_prior_has_the_mean_and_spread_that_the_user_gave(link):
    mean, std = link.process_to_prior(*link.prior_to_process(MEAN, STD))
    np.testing.assert_allclose(mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(std, STD, rtol=1e-12)


@EVERY_LINK
def test_that_moments_and_quantiles_are_those_of_draws(link):
    mean, covariance = np.asarray([[0.3, -0.2]]), np.asarray([[[0.25, 0.1], [0.1, 0.2]]])
    draws = link(np.random.default_rng(0).multivariate_normal(mean[0], covariance[0], 400_000))
    found_mean, found_std = link.moments(mean, covariance)
    np.testing.assert_allclose(found_mean[0], draws.mean(axis=0), rtol=0.01)
    np.testing.assert_allclose(found_std[0], draws.std(axis=0), rtol=0.01)
    levels = np.asarray([0.025, 0.5, 0.975])
    found, spread = link.quantiles(mean, covariance, levels)[:, 0], draws.std(axis=0)
    np.testing.assert_allclose(found / spread, np.quantile(draws, levels, axis=0) / spread, atol=0.03)
    for limit in (-0.3, 0.9, 1.6):
        found = link.exceedance(mean, covariance, limit)[0]
        np.testing.assert_allclose(found, np.mean(draws > limit, axis=0), atol=4e-3)


def test_that_draws_keep_the_spread_of_each_latent_in_any_unit():
    covariance = np.diag([1e6, 1e-6, 0.0]) + np.asarray([[0, 0.8, 0], [0.8, 0, 0], [0, 0, 0]])  # correlation 0.8
    [draws] = normal_draws(np.asarray([[2000.0, 0.01, 5.0]]), covariance[None])
    np.testing.assert_allclose(draws[0].std(axis=0), [1e3, 1e-3, 0.0], rtol=2e-3)
    assert np.corrcoef(draws[0, :, :2].T)[0, 1] == pytest.approx(0.8, abs=2e-3)


@EVERY_LINK
def test_that_the_inverse_leads_back(link):
    f = np.random.default_rng(2).standard_normal((5, 3))
    np.testing.assert_allclose(link.inverse(link(f)), f, atol=1e-12)


def test_that_a_log_link_keeps_values_positive():
    assert np.all(LINKS["log"](np.asarray([-50.0, 0.0, 3.0])) > 0)


def test_that_an_increasing_link_orders_its_labels():
    f = np.random.default_rng(0).standard_normal((50, 4))
    assert np.all(np.diff(LINKS["increasing"](f)) > 0)


BOUNDS = [(0.0, np.inf), (-np.inf, -3.0), (8.0, 9.0), (-1.0, 2.0), (20.0, np.inf), (-30.0, -20.0)]


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_that_a_truncated_normal_has_the_quantiles_and_moments_of_scipy(lower, upper):
    link = TruncatedNormal(*(np.asarray([number]) for number in (1.0, 2.0, lower, upper)))
    expected = truncnorm((lower - 1.0) / 2.0, (upper - 1.0) / 2.0, 1.0, 2.0)
    f = np.linspace(-3.0, 3.0, 13)[:, None]
    np.testing.assert_allclose(link(f), expected.ppf(norm.cdf(f)), rtol=1e-10)
    np.testing.assert_allclose(link.inverse(link(2.0 * f)), 2.0 * f, atol=1e-5)
    mean, std = link.moments(np.zeros((1, 1)), np.ones((1, 1, 1)))
    np.testing.assert_allclose([mean.item(), std.item()], [expected.mean(), expected.std()], rtol=1e-9)
    limit = expected.ppf(0.3)
    assert link.exceedance(np.zeros((1, 1)), np.ones((1, 1, 1)), limit).item() == pytest.approx(0.7)
    assert link.exceedance(np.zeros((1, 1)), np.ones((1, 1, 1)), lower - 1.0 if lower > -99 else -1e9) > 1.0 - 1e-12


def test_that_a_uniform_link_is_uniform_and_leads_back():
    link = Uniform(np.asarray([2.0, -1.0]), np.asarray([5.0, 0.0]))
    mean, std = link.moments(np.zeros((1, 2)), np.eye(2)[None])
    np.testing.assert_allclose(mean[0], [3.5, -0.5], rtol=1e-12)
    np.testing.assert_allclose(std[0], np.asarray([3.0, 1.0]) / np.sqrt(12.0), rtol=1e-9)
    f = np.linspace(-6.0, 6.0, 13)[:, None] * np.ones(2)
    np.testing.assert_allclose(link.inverse(link(f)), f, atol=1e-7)
    assert not np.isfinite(link.inverse(np.asarray([2.0, 0.5]))).any()
    np.testing.assert_allclose(link.exceedance(np.zeros((1, 2)), np.eye(2)[None], 4.0), [[1.0 / 3.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"link": "cubic"}, "must be 'identity'"),
        ({"link": "uniform", "link_lower": 1.0}, "'link_upper' must be 1 numbers"),
        ({"link": "uniform", "link_lower": 1.0, "link_upper": 0.0}, "below"),
        (
            {"link": "truncated normal", "link_lower": 0.0, "link_upper": np.inf, "link_mean": 1.0, "link_std": -1},
            "positive",
        ),
    ],
)
def test_that_damaged_attributes_of_a_link_are_named(attributes, sentence):
    with pytest.raises(ValueError, match=sentence):
        link_from_attributes(attributes, 1)


def test_that_attributes_of_a_link_lead_back():
    for link in (Uniform(np.zeros(2), np.ones(2)), TruncatedNormal(np.zeros(2), np.ones(2), -np.ones(2), np.ones(2))):
        found = link_from_attributes(link_attributes(link), 2)
        f = np.asarray([[-0.3, 1.2]])
        np.testing.assert_array_equal(found(f), link(f))
