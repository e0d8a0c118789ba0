"""What the other sites say about a site, against closed forms."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import invgp
from helpers.inversions import SearchUnderWay, sites_on_a_line
from helpers.line_problems import line_problem
from helpers.problems import map_problem
from invgp.core.kernels import Matern52
from invgp.inference.diagnostics import DEFAULTS, Cavity, diagnose, doubtful_latents, neighbour_score
from invgp.problem import Noise

SLOPE, NOISE = 2.0, 0.5


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    """The posterior of a linear problem at five sites, a length-scale of 2 apart from 1; with its data."""
    line = sites_on_a_line(np.arange(5.0), (2.0,))
    y = np.asarray([[1.0], [-0.5], [2.0], [0.3], [4.0]])
    problem = replace(
        line,
        survey=replace(line.survey, observations=(replace(line.survey.observations[0], values=y),)),
        noise=Noise("gaussian", {"t": np.full((5, 1), NOISE)}),
        latents=(replace(line.latents[0], mean=np.ones(1), std=np.full(1, 3.0)),),
    )
    search = SearchUnderWay(lambda f: SLOPE * f, problem, tmp_path_factory.mktemp("runs"))
    return search.find(1.0).posterior, y


def test_that_the_cavity_is_the_posterior_without_the_site(posterior):
    found, y = posterior
    cavity = Cavity(found, np.asarray([1, 4]), np.random.default_rng(0), 64)
    x = np.arange(5.0)
    K = 9.0 * np.exp(-0.5 * ((x[:, None] - x) / 2.0) ** 2)
    for i, n in enumerate((1, 4)):
        others = np.delete(np.arange(5), n)
        gain = SLOPE * np.linalg.solve(SLOPE**2 * K[np.ix_(others, others)] + NOISE**2 * np.eye(4), K[others, n])
        assert cavity.others[0][i, 0] == pytest.approx(1.0 + gain @ (y[others, 0] - SLOPE), rel=1e-4)
        assert cavity.others[1][i, 0, 0] == pytest.approx(K[n, n] - SLOPE * gain @ K[others, n], rel=1e-4)
    assert cavity.latents.shape == (64, 2, 1)


@pytest.mark.parametrize("rest", [-5.0, 1e-9])
def test_that_other_sites_never_leave_a_site_far_wider_than_its_prior(rest):
    """Two latents of very different units, and a site that says nearly all there is about both, or more."""
    std = np.asarray([100.0, 0.1])
    precision = np.asarray([[[10.0, 3.0], [3.0, 10.0]]]) / np.outer(std, std)
    kernel = Matern52(np.asarray(1.0), np.ones(1))
    posterior = SimpleNamespace(
        marginals=(np.zeros((1, 2)), np.linalg.inv(precision)),
        sites=(precision - rest * np.eye(2) / std**2, np.zeros((1, 2))),
        prior=SimpleNamespace(mean=np.zeros(2), kernels=[replace(kernel, variance=np.asarray(s**2)) for s in std]),
    )
    cavity = Cavity(posterior, np.arange(1), np.random.default_rng(0), 8)
    np.testing.assert_allclose(np.sqrt(np.diagonal(cavity.others[1][0])) / std, np.sqrt(10.0))


def test_that_the_latents_and_layers_whose_shape_is_in_doubt_are_named():
    problem = map_problem()  # resistivity of two layers, and a thickness
    errors = np.zeros((12, 3))
    errors[[4, 7], 1], errors[2, 0] = (0.3, 0.4), np.nan
    assert doubtful_latents(problem, errors) == ["resistivity 2"]
    predicted = np.nan_to_num(problem.survey.Y)
    printed = diagnose(
        problem,
        predicted,
        0.0 * predicted,
        np.nan_to_num(errors).max(axis=1),
        latents=doubtful_latents(problem, errors),
    ).sentences
    doubt = "At 2 of 12 sites the posterior of resistivity 2 is not Gaussian in shape"
    assert [s for s in printed if s.startswith(doubt) and "site 8, 5." in s]
    errors[4] = 0.3
    assert doubtful_latents(problem, errors) == []  # all of them: there is nothing to tell apart


def test_that_of_two_latents_the_bent_one_is_named():
    """A latent that only its square tells of, beside one that is measured itself."""
    problem, _ = line_problem(lambda a, b: {"t": np.stack([a, b**2], axis=-1)}, sites=1)
    values = np.asarray([[0.5, 1.0]])
    survey = replace(problem.survey, observations=(replace(problem.survey.observations[0], values=values),))
    posterior = invgp.invert(replace(problem, survey=survey, inference=problem.inference.replace(emulator=False)))
    assert "the posterior of b is not Gaussian in shape" in posterior.attrs["invgp_diagnostics"]


def two_outputs(count, bias, seed):
    """A site model with two outputs of one latent; the second one has a smooth error that no latent explains."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 1000.0, count)
    truth = 10.0 + 2.0 * np.sin(x / 200.0)
    first, second = (truth + rng.standard_normal(count) for _ in range(2))
    return invgp.define(
        {"x": x, "a": first, "b": second + bias * np.sin(x / 90.0)},
        coordinates={"x": "m"},
        observations={"a": "1", "b": "1"},
        latents={"depth": {"unit": "m", "mean": 10, "std": 3, "kernel": {"length_scale": 250.0}}},
        forward=lambda depth: {"a": depth, "b": depth},
        noise={"a": 1.0, "b": 1.0},
        inference={"posterior": "coupled gaussian"},
    )


def test_that_a_bias_of_the_simulator_is_reported():
    posterior = invgp.invert(two_outputs(120, 2.0, 1), seed=0)
    assert "are similar at neighbouring sites" in posterior.attrs["invgp_diagnostics"]
    right = invgp.invert(two_outputs(120, 0.0, 1), seed=0)
    assert "similar" not in right.attrs["invgp_diagnostics"]


def test_that_independent_residuals_are_not_reported_as_a_bias():
    rng = np.random.default_rng(8)
    scores = [neighbour_score(rng.random((n, d)), s * rng.standard_normal(n))
              for n in (20, 100, 400) for d in (1, 2) for s in (0.1, 1.0, 5.0) for _ in range(100)]  # fmt: skip
    assert max(scores) < DEFAULTS.biased
    assert abs(np.mean(scores)) < 0.1
    outliers = rng.standard_t(2.1, (200, 60))
    assert max(neighbour_score(np.arange(60.0)[:, None], row) for row in outliers) < DEFAULTS.biased
