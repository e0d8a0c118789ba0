"""Maps of draws from the exact posterior, against closed forms: bent posteriors and modes between the sites."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import invgp
from helpers.exact_posterior import joint_posterior
from helpers.problems import linear_problem
from invgp.errors import ConfigError
from invgp.maps.predict import predict
from invgp.maps.read_posterior_field import read_posterior_field
from invgp.maps.select_mode import select_mode

SITES, DATA, NOISE, SCALE = np.asarray([0.0, 4.0]), np.asarray([1.0, 1.44]), 0.2, 3.0
MEAN = 0.3
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)
LINE = "x=-2:6:1"


def square(a):
    return a**2


def correlation(lag):
    r = np.sqrt(3.0) * np.abs(lag) / SCALE
    return (1.0 + r) * np.exp(-r)


@pytest.fixture(scope="module")
def linear():
    return invgp.invert(linear_problem(posterior="sampled"))


@pytest.fixture(scope="module")
def two_signs():
    """The posterior of a field whose square is known at two sites: four modes, two of which keep the sign."""
    problem = invgp.define(
        {"x": SITES, "y": DATA},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={"a": {"unit": "1", "mean": MEAN, "std": 1.0, "kernel": {"kind": "matern 3/2", "length_scale": SCALE}}},
        noise={"std": {"y": NOISE}},
        forward=square,
        inference={"posterior": "sampled"},
    )
    return invgp.invert(problem)


class Exact:
    """The exact posterior of `two_signs`: a sum over the values at both sites, and Gaussian conditionals elsewhere."""

    def __init__(self):
        axis = np.linspace(-4.0, 4.0, 641)
        self.values = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        self.K = correlation(SITES[:, None] - SITES)
        offset = self.values - MEAN
        log_prior = -0.5 * np.einsum("ni,ij,nj->n", offset, np.linalg.inv(self.K), offset)
        log_density = log_prior - 0.5 * np.sum(((DATA - self.values**2) / NOISE) ** 2, axis=1)
        self.weight = np.exp(log_density - log_density.max())
        self.weight /= self.weight.sum()

    def summary(self, x, sign=0):
        """Mean, standard deviation, quantiles and exceedance of 0.5 at x; of all modes or where all have a sign."""
        kept = (self.weight > 1e-9) & (np.all(sign * self.values > 0.0, axis=1) if sign else True)
        weight = self.weight[kept] / self.weight[kept].sum()
        gain = np.linalg.solve(self.K, correlation(x - SITES))
        means = MEAN + (self.values[kept] - MEAN) @ gain
        std = np.sqrt(max(1.0 - correlation(x - SITES) @ gain, 1e-8))
        mean = weight @ means
        quantiles = [brentq(lambda t, p=p: weight @ norm.cdf((t - means) / std) - p, -8, 8) for p in LEVELS]
        spread = np.sqrt(std**2 + weight @ (means - mean) ** 2)
        return [mean, spread, *quantiles, weight @ norm.sf((0.5 - means) / std)]

    def probability(self, sign):
        return self.weight[np.all(sign * self.values > 0.0, axis=1)].sum()


def summaries(found):
    return np.stack([found["a"], found["a_std"], *found["a_quantile"].values, found["a_exceedance"].values[0]], axis=-1)


@pytest.mark.slow
def test_that_a_map_of_draws_is_the_exact_posterior_of_a_linear_problem(linear):
    found = predict(linear, grid="easting=0:100:20,northing=-20:120:35", exceed=["depth > 6"])
    northing, easting = np.meshgrid(found["northing"], found["easting"], indexing="ij")
    X = np.stack([easting.ravel(), northing.ravel()], axis=-1)
    mean, covariance = joint_posterior(linear_problem(), X)
    std = np.sqrt(np.diag(covariance))
    prior = {"velocity": 2.0, "depth": 1.5}
    for j, name in enumerate(("velocity", "depth")):
        part = slice(j * len(X), (j + 1) * len(X))
        np.testing.assert_allclose((found[name].values.ravel() - mean[part]) / std[part], 0.0, atol=0.1)
        np.testing.assert_allclose(found[f"{name}_std"].values.ravel() / std[part], 1.0, atol=0.05)
        for level in (0.05, 0.95):
            expected = mean[part] + norm.ppf(level) * std[part]
            quantile = found[f"{name}_quantile"].sel(quantile=level).values.ravel()
            np.testing.assert_allclose((quantile - expected) / std[part], 0.0, atol=0.17)
        information = 1.0 - (std[part] / prior[name]) ** 2
        np.testing.assert_allclose(found[f"{name}_information"].values.ravel(), information, atol=0.05)
    above = norm.sf((6.0 - mean[len(X) :]) / std[len(X) :])
    np.testing.assert_allclose(found["depth_exceedance"].values.ravel(), above, atol=0.05)


@pytest.mark.slow
def test_that_joint_draws_of_a_sampled_posterior_have_the_exact_covariance(linear):
    found = predict(linear, grid="easting=10:90:20,northing=0:100:25", draws=2000)
    northing, easting = np.meshgrid(found["northing"], found["easting"], indexing="ij")
    X = np.stack([easting.ravel(), northing.ravel()], axis=-1)
    mean, covariance = joint_posterior(linear_problem(), X)
    draws = np.concatenate([found[f"{n}_sample"].values.reshape(2000, -1) for n in ("velocity", "depth")], axis=1)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance)), 0.0, atol=0.12)
    prior = np.repeat([2.0, 1.5], len(X))
    assert np.abs((np.cov(draws.T) - covariance) / (prior[:, None] * prior)).max() < 0.09


@pytest.mark.slow
def test_that_far_from_the_sites_a_map_of_draws_is_the_prior(linear):
    found = predict(linear, grid="easting=5000,northing=5000", exceed=["depth > 6"])
    for name, mean, std in (("velocity", 7.0, 2.0), ("depth", 6.0, 1.5)):
        np.testing.assert_allclose(found[name], mean, rtol=1e-6)
        np.testing.assert_allclose(found[f"{name}_std"], std, rtol=1e-6)
        np.testing.assert_allclose(found[f"{name}_information"], 0.0, atol=1e-6)
        np.testing.assert_allclose(
            found[f"{name}_quantile"].values.ravel(), norm.ppf([0.05, 0.5, 0.95], mean, std), rtol=0.01
        )
    assert float(found["depth_exceedance"].squeeze()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_that_two_modes_are_right_between_the_sites(two_signs):
    found = predict(two_signs, LINE, exceed=["a > 0.5"])
    expected = np.asarray([Exact().summary(x) for x in found["x"].values])
    values = summaries(found)
    np.testing.assert_allclose(values[:, :2], expected[:, :2], atol=0.08)
    # The quartiles lie between the modes at some points, where the density is small and quantiles are uncertain.
    np.testing.assert_allclose(values[:, [2, 4, 6]], expected[:, [2, 4, 6]], atol=0.15)
    np.testing.assert_allclose(values[:, 7], expected[:, 7], atol=0.04)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "sign"), [(1, 1), (2, -1)])
def test_that_each_mode_is_right_between_the_sites(two_signs, mode, sign):
    exact = Exact()
    found = predict(two_signs, LINE, exceed=["a > 0.5"], mode=mode)
    expected = np.asarray([exact.summary(x, sign) for x in found["x"].values])
    np.testing.assert_allclose(summaries(found), expected, atol=0.05)
    assert found.attrs["invgp_mode"] == mode
    assert found.attrs["invgp_mode_probability"] == pytest.approx(exact.probability(sign), abs=0.04)
    draws = predict(two_signs, LINE, mode=mode, draws=200)
    assert (sign * draws["a_sample"].sel(x=[0.0, 4.0]) > 0.0).all()
    assert (draws["mode"] == mode).all()


@pytest.mark.slow
def test_that_draws_on_a_map_are_joint_over_its_points(two_signs):
    # With noise that is drawn point by point, neighbouring points would differ by its standard deviation.
    found = predict(two_signs, "x=1:3:0.02", draws=100)["a_sample"]
    exact = np.sqrt(2.0 * (1.0 - correlation(0.02)))
    steps = found.diff("x")
    assert float(np.sqrt((steps**2).mean())) < 1.2 * exact


@pytest.mark.slow
def test_that_the_posterior_of_a_mode_replaces_all_summaries(two_signs):
    found = select_mode(two_signs, 2)
    exact = Exact()
    for site, x in enumerate(SITES):
        mean, std, *quantiles, _ = exact.summary(x, -1)
        assert float(found["a"][site]) == pytest.approx(mean, abs=0.02)
        assert float(found["a_std"][site]) == pytest.approx(std, abs=0.02)
        np.testing.assert_allclose(found["a_quantile"][:, site], quantiles, atol=0.05)
    assert (found["a_sample"] < 0.0).all()
    assert (found["mode"] == 2).all()
    assert found.attrs["invgp_mode"] == 2


@pytest.mark.slow
def test_that_a_missing_mode_is_refused(two_signs, linear):
    with pytest.raises(ConfigError, match=r"^mode: must be from 1 to 4, was 5$"):
        predict(two_signs, LINE, mode=5)
    with pytest.raises(ConfigError, match=r"^mode: must be 1, since the posterior has one mode, was 2$"):
        select_mode(linear, 2)


def test_that_a_gaussian_posterior_has_no_modes():
    gaussian = invgp.invert(linear_problem())
    with pytest.raises(ConfigError, match=r"^mode: must not be given, since the posterior is a Gaussian, was 1$"):
        predict(gaussian, mode=1)


def test_that_draws_of_a_gaussian_give_the_summaries_of_the_gaussian(rng):
    """A sampled posterior whose draws come from the Gaussian approximation itself, for each link."""
    for link in ("identity", "log"):
        gaussian = invgp.invert(linear_problem(link=link))
        field = read_posterior_field(gaussian)
        [group] = field.draw_inducing(rng, 4000)
        sampled = gaussian.assign(
            whitened_sample=(("draw", "process", "site"), group.whitened.astype(np.float32)),
            draw_mode=("draw", np.ones(4000, dtype=np.int32)),
        )
        expressions = {"derive": ["both = 2 * depth + velocity * quantity(1, 's')"], "exceed": ["velocity > 7"]}
        one, other = (predict(ds, "easting=0:100:25,northing=0:100:50", **expressions) for ds in (gaussian, sampled))
        for name in ("velocity", "depth", "both"):
            std = one[f"{name}_std"]
            np.testing.assert_allclose((other[name] - one[name]) / std, 0.0, atol=0.07)
            np.testing.assert_allclose(other[f"{name}_std"] / std, 1.0, atol=0.07)
            np.testing.assert_allclose((other[f"{name}_quantile"] - one[f"{name}_quantile"]) / std, 0.0, atol=0.15)
        np.testing.assert_allclose(other["velocity_exceedance"], one["velocity_exceedance"], atol=0.04)
        np.testing.assert_allclose(other["depth_information"], one["depth_information"], atol=0.05)


def test_that_groups_of_draws_with_the_same_prior_are_one_mixture(rng):
    gaussian = invgp.invert(linear_problem())
    whole = read_posterior_field(
        gaussian.assign(whitened_sample=(("draw", "process", "site"), rng.standard_normal((30, 2, 15))))
    )
    [group] = whole.groups
    parts = type(whole)(
        whole.fields,
        whole.prior,
        whole.centre,
        whole.roots,
        tuple(
            type(group)(group.prior, group.whitened[part], group.mode[part]) for part in (slice(0, 10), slice(10, 30))
        ),
    )
    X = rng.uniform(0.0, 100.0, (5, 2))
    for process in (0, 1):
        for one, other in zip(whole.at(X, [0, 1]).mixture(process), parts.at(X, [0, 1]).mixture(process), strict=True):
            np.testing.assert_allclose(np.broadcast_to(one, other.shape), other, rtol=1e-12)
    drawn = parts.draw_inducing(rng, 12)
    assert sum(len(part.whitened) for part in drawn) == 12
