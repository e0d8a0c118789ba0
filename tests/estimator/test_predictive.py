"""Predictive densities, and likelihoods that know each site."""

import numpy as np
import pytest
from scipy.stats import norm, t

from invgp import SAVIGP
from invgp.core.training import Blocks, MiniBatches
from invgp.likelihoods import Beta, Gaussian, Logistic, Ordinal, Poisson, Softmax, StudentT, Warped

RNG = np.random.default_rng(5)
X = np.linspace(0, 3, 30)[:, None]
Y = np.sin(X[:, 0]) + 0.01 * RNG.standard_normal(30)
FAR = np.asarray([1.5, 3.5, 4.0, 5.0, 8.0])[:, None]
POSTERIOR_ONLY = Blocks(learn=("posterior",))


def fit_model(likelihood, y=Y, **settings):
    return SAVIGP(likelihood, length_scale=1.0, method=POSTERIOR_ONLY, **settings).fit(X, y)


def test_that_a_noise_narrower_than_the_latent_leaves_the_density_exact():
    model = fit_model(Gaussian(0.01, learn=False))
    mean, variance = model.predict_latent(FAR)
    y = np.sin(FAR)
    exact = norm.logpdf(y, mean, np.sqrt(variance + 0.01**2))[:, 0]
    np.testing.assert_allclose(model.log_predictive_density(FAR, y), exact, rtol=1e-9)
    assert model.score(FAR, y) == pytest.approx(exact.mean())


def test_that_a_warp_keeps_it_exact():
    model = fit_model(Warped(0.01, a=[1.0], b=[1.0], c=[0.0], learn="nothing"))
    mean, variance = model.predict_latent(FAR)
    y = np.linspace(-1.0, 1.0, 5)
    exact = norm.logpdf(y + np.tanh(y), mean[:, 0], np.sqrt(variance[:, 0] + 0.01**2)) + np.log1p(np.cosh(y) ** -2.0)
    np.testing.assert_allclose(model.log_predictive_density(FAR, y), exact, rtol=1e-9)


@pytest.mark.slow
def test_that_heavy_tails_and_several_outputs_are_those_of_many_draws():
    model = fit_model(StudentT(0.05, outputs=2), np.stack([Y, -Y], axis=1))
    mean, variance = model.predict_latent(FAR)
    y = mean + 0.5
    f = mean + np.sqrt(variance) * RNG.standard_normal((400_000, *mean.shape))
    exact = np.log(np.mean(t.pdf(y, 4, f, 0.05), axis=0)).sum(axis=1)
    np.testing.assert_allclose(model.log_predictive_density(FAR, y)[1:], exact[1:], atol=0.05)


def test_that_missing_observations_are_left_out_of_the_score():
    model = fit_model(Gaussian(0.01, learn=False))
    y = np.where(np.arange(30) % 2 == 0, np.nan, Y)
    assert model.score(X, y) == pytest.approx(model.score(X[1::2], Y[1::2]))
    assert np.isnan(model.log_predictive_density(X, y)[0])
    with pytest.raises(ValueError, match="y must have at least one observation"):
        model.score(X, np.full(30, np.nan))


def test_that_a_label_with_a_gap_is_missing():
    labels = np.eye(3)[np.digitize(Y, [0.3, 0.7])]
    model = fit_model(Softmax(3), labels, inducing=8)
    gappy = labels.copy()
    gappy[0, 1] = np.nan
    assert model.score(X, gappy) == pytest.approx(model.score(X[1:], labels[1:]), abs=1e-3)


def test_that_noise_per_site_must_be_given_for_other_sites():
    noise = np.linspace(0.05, 0.5, 30)[:, None]
    model = fit_model(Gaussian(noise))
    mean, variance = model.predict_latent(FAR)
    theirs = np.full((5, 1), 0.7)
    _, spread = model.predict(FAR, return_std=True, likelihood=Gaussian(theirs))
    np.testing.assert_allclose(spread, np.sqrt(variance[:, 0] + 0.49))
    assert model.score(FAR, mean, likelihood=Gaussian(theirs)) == pytest.approx(norm.logpdf(0, 0, spread).mean())
    with pytest.raises(
        ValueError, match=r"must have numbers for each of the 5 sites of X; to predict .* `likelihood=`"
    ):
        model.predict(FAR)
    with pytest.raises(ValueError, match="likelihood must have 1 latents, like that of the fit, had 3"):
        model.predict(FAR, likelihood=Softmax(3))
    with pytest.raises(ValueError, match="must have numbers for each of the 30 sites"):
        fit_model(Gaussian(np.ones((31, 1))))


def test_that_a_new_likelihood_gets_the_learnt_parameters():
    model = SAVIGP(Gaussian(0.5), inducing=6).fit(X, Y)
    again = model.predict(FAR, return_std=True, likelihood=Gaussian(3.0))[1]
    np.testing.assert_array_equal(again, model.predict(FAR, return_std=True)[1])


def test_that_noise_per_site_follows_its_sites_through_chunks():
    n = 5000
    X = np.linspace(0, 3, n)[:, None]
    noise = np.linspace(0.1, 1.0, n)[:, None]
    method = MiniBatches(learn=("posterior",), natural=0.5, batch=1000, epochs=1, samples=8)
    model = SAVIGP(Gaussian(noise), inducing=5, method=method).fit(X, np.sin(X))
    _, spread = model.predict(X, return_std=True)
    _, variance = model.predict_latent(X)
    np.testing.assert_allclose(spread, np.sqrt(variance + noise**2)[:, 0])
    assert np.isfinite(model.score(X, np.sin(X)))


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (
            Poisson(),
            np.where(Y > 0.5, -1.0, 2.0),
            r"y must be counts, .*, for Poisson, had -1 and \d+ other invalid values",
        ),
        (Poisson(), np.full(30, 0.5), r"y must be counts, .* for Poisson, had 0\.5 and 29 other invalid values"),
        (Logistic(), np.arange(30) % 3, r"y must have labels of 2 classes for Logistic, had 3 classes: \[0, 1, 2\]"),
        (
            Logistic(),
            np.arange(30) % 3 - 1,
            r"y must have labels of 2 classes for Logistic, had 3 classes: \[-1, 0, 1\]",
        ),
        (Softmax(3), np.ones((30, 3)), r"each row of y must be a label for Softmax, .*, had the row \[1\. 1\. 1\.\]"),
    ],
)
def test_that_what_cannot_be_observed_is_refused(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        fit_model(likelihood, y)


@pytest.mark.parametrize(
    ("likelihood", "y", "wrong", "message"),
    [
        (Poisson(), np.round(np.exp(Y)), -1.0, "y must be counts, whole numbers of at least 0, for Poisson, had -1$"),
        (Beta(), 1.0 / (1.0 + np.exp(-Y)), 1.0, "y must be greater than 0 and less than 1 for Beta, had 1$"),
    ],
)
def test_that_what_cannot_be_observed_has_no_score(likelihood, y, wrong, message):
    model = fit_model(likelihood, y, inducing=5)
    changed = np.where(np.arange(30) == 3, wrong, y)
    for method in (model.score, model.log_predictive_density, model.bound):
        with pytest.raises(ValueError, match=message):
            method(X, changed)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (1.0, r"y must be numbers of shape \(N, 1\) or \(N,\), had shape \(\)"),
        (np.ones((30, 1, 1)), r"y must be numbers of shape .*, had shape \(30, 1, 1\)"),
    ],
)
def test_that_observations_must_have_a_row_per_site(y, message):
    with pytest.raises(ValueError, match=message):
        fit_model(Poisson(), y)


def test_that_numbers_of_classes_may_be_objects_but_not_complex():
    numbers = np.digitize(Y, [0.4, 0.8])
    objects = np.where(np.arange(30) % 3 == 0, None, numbers.astype(object))
    with_gaps = fit_model(Ordinal(3), objects, inducing=5)
    assert with_gaps.classes_.tolist() == [0, 1, 2]
    same = fit_model(Ordinal(3), np.where(np.arange(30) % 3 == 0, np.nan, numbers), inducing=5)
    np.testing.assert_array_equal(with_gaps.predict_proba(X), same.predict_proba(X))
    for likelihood in (Ordinal(3), Softmax(3)):
        with pytest.raises(ValueError, match="y must be labels, was an array of complex128"):
            fit_model(likelihood, numbers + 0j)


def test_that_labels_and_counts_may_be_missing():
    for likelihood in (Poisson(), Logistic()):
        fit_model(likelihood, np.where(np.arange(30) % 3 == 0, np.nan, 1.0), inducing=5)
