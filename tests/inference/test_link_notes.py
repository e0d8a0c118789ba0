"""Suggestions of a log link: where it straightens the posterior, and only there."""

import numpy as np
import pytest

import invgp

SITES, NOISE = 8, 0.4


def product(a, b):
    return a * b


def total(a, b):
    return a + b


def ratio(a, b):
    return a / b


def invert(function, link="identity", noise=NOISE, a=(5.0, 1.5), b=(4.0, 1.2)):
    rng = np.random.default_rng(4)
    truth = 5.0 + 0.5 * rng.standard_normal(SITES), 4.0 + 0.4 * rng.standard_normal(SITES)
    problem = invgp.define(
        {"x": np.arange(float(SITES)), "y": function(*truth) + noise * rng.standard_normal(SITES)},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={
            name: {"unit": "1", "mean": mean, "std": std, "link": link, "kernel": {"length_scale": 0.01}}
            for name, (mean, std) in (("a", a), ("b", b))
        },
        noise={"std": {"y": noise}},
        forward=function,
        inference={"posterior": "coupled gaussian", "runs_per_site": 12},
    )
    return problem, invgp.invert(problem)


def suggestions(posterior):
    return [line for line in posterior.attrs["invgp_diagnostics"].splitlines() if "link = 'log'" in line]


def exact_moments(y):
    """Mean and standard deviation of the logarithm of a, with log-normal priors, by a sum over a grid."""
    moments = []
    for mean, std in ((5.0, 1.5), (4.0, 1.2)):
        variance = np.log1p((std / mean) ** 2)
        moments.append((np.log(mean) - variance / 2.0, np.sqrt(variance)))
    f, g = (m + s * np.linspace(-5.0, 5.0, 1201) for m, s in moments)
    log_density = -0.5 * ((y - np.exp(f[:, None] + g[None])) / NOISE) ** 2
    for values, (m, s) in zip((f[:, None], g[None]), moments, strict=True):
        log_density = log_density - 0.5 * ((values - m) / s) ** 2
    weight = np.exp(log_density - log_density.max())
    a = np.exp(f)[:, None]
    mean = np.sum(weight * a) / weight.sum()
    return mean, np.sqrt(np.sum(weight * (a - mean) ** 2) / weight.sum())


def test_that_following_the_suggestion_makes_the_gaussian_right():
    _, before = invert(product)
    [sentence] = suggestions(before)
    assert sentence.startswith("The posterior correlation of a and b is about -0.9")
    problem, after = invert(product, link="log")
    assert not suggestions(after)
    for n, y in enumerate(problem.survey.Y[:, 0]):
        mean, std = exact_moments(y)
        assert after["a"].values[n] == pytest.approx(mean, abs=0.1 * std)
        assert after["a_std"].values[n] == pytest.approx(std, rel=0.05)
    assert "not Gaussian" in before.attrs["invgp_diagnostics"]
    assert "not Gaussian" not in after.attrs["invgp_diagnostics"]


def test_that_a_ratio_is_suggested_too():
    assert suggestions(invert(ratio, noise=0.03)[1])


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        pytest.param(total, {}, id="a sum is linear as it is"),
        pytest.param(product, {"a": (5.0, 4.0)}, id="a quantity that may be negative"),
        pytest.param(product, {"a": (5.0, 0.1), "b": (4.0, 0.1)}, id="a prior so narrow that nothing bends"),
    ],
)
def test_that_nothing_is_suggested_where_it_would_not_help(function, changes):
    assert not suggestions(invert(function, **changes)[1])
