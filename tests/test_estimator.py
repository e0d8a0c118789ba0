"""The face of scikit-learn: fit, predict, score, save and load."""

import numpy as np
import pytest
from scipy.stats import norm

from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.likelihoods import BlackBox, Gaussian, Logistic, Poisson, Softmax
from invgp.measures import error_rate, negative_log_predictive_density, standardised_squared_error

RNG = np.random.default_rng(11)
X = np.sort(RNG.uniform(0, 6, (60, 1)), axis=0)
TRUTH = np.sin(1.5 * X[:, 0])
NEW = np.linspace(0.5, 5.5, 25)[:, None]
POSTERIOR_ONLY = Blocks(learn=("posterior",))


def exact_prediction(y, noise):
    """Mean and standard deviation of new observations by exact regression with unit kernel parameters."""

    def kernel(a, b):
        return np.exp(-0.5 * (a - b.T) ** 2)

    solve = np.linalg.solve(kernel(X, X) + noise**2 * np.eye(len(X)), np.column_stack([y, kernel(X, NEW)]))
    mean = kernel(NEW, X) @ solve[:, 0]
    covariance = kernel(NEW, NEW) - kernel(NEW, X) @ solve[:, 1:]
    return mean, covariance


@pytest.fixture(scope="module")
def observed():
    return TRUTH + 0.3 * np.random.default_rng(1).standard_normal(len(X))


@pytest.fixture(scope="module")
def regression(observed):
    return SAVIGP(Gaussian(0.3), length_scale=1.0, method=POSTERIOR_ONLY).fit(X, observed)


def test_that_predictions_are_those_of_exact_regression(regression, observed):
    mean, covariance = exact_prediction(observed, 0.3)
    predicted, std = regression.predict(NEW, return_std=True)
    np.testing.assert_allclose(predicted, mean, atol=1e-3)
    np.testing.assert_allclose(std, np.sqrt(np.diag(covariance) + 0.3**2), atol=1e-3)
    np.testing.assert_allclose(regression.latent_covariance(NEW)[0], covariance, atol=1e-3)


def test_that_the_predictive_density_is_normalised_and_exact(regression, observed):
    mean, covariance = exact_prediction(observed, 0.3)
    spread = np.sqrt(np.diag(covariance) + 0.3**2)
    y = mean + 0.5 * spread
    np.testing.assert_allclose(regression.log_predictive_density(NEW, y), norm(mean, spread).logpdf(y), atol=2e-3)
    assert regression.score(NEW, y) == pytest.approx(norm(mean, spread).logpdf(y).mean(), abs=2e-3)


def test_that_draws_are_joint(regression):
    draws = regression.sample_latent(NEW, 4000, np.random.default_rng(0))
    assert draws.shape == (4000, len(NEW), 1)
    np.testing.assert_allclose(np.cov(draws[..., 0].T), regression.latent_covariance(NEW)[0], atol=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"inducing": 12},
        {"inducing": 12, "placement": "subset"},
        {"inducing": 12, "placement": "grid"},
        {"inducing": NEW[::2]},
        {"inducing": 12, "posterior": "diagonal", "components": 2},
        {"inducing": 12, "components": 2, "method": Blocks(rounds=2, evaluations=40)},
        {"inducing": 12, "method": MiniBatches(natural=0.3, batch=20, epochs=20)},
        {"inducing": X, "method": POSTERIOR_ONLY},
        {"kernel": "matern 3/2", "inducing": 15, "dtype": "float32"},
    ],
    ids=", ".join,
)
def test_that_every_setting_learns_the_curve_and_comes_back_from_a_file(settings, observed, tmp_path):
    model = SAVIGP(Gaussian(0.5), length_scale=1.0, **settings).fit(X, observed)
    assert standardised_squared_error(np.sin(1.5 * NEW[:, 0]), model.predict(NEW)) < 0.1
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", Gaussian(0.5))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert again.trace_ == model.trace_


def test_that_training_inputs_as_inducing_inputs_are_the_dense_model(observed):
    dense, named = (
        SAVIGP(Gaussian(0.3), length_scale=1.0, inducing=inducing, method=POSTERIOR_ONLY).fit(X, observed)
        for inducing in (None, X)
    )
    assert named.trace_ == dense.trace_


def test_that_labels_are_classified():
    labels = np.where(TRUTH > 0, 1.0, -1.0)
    model = SAVIGP(Logistic(), length_scale=1.0, inducing=15).fit(X, labels)
    probability = model.predict(X)
    assert np.all((probability > 0) & (probability < 1))
    assert error_rate(labels > 0, np.column_stack([1 - probability, probability])) < 0.05
    assert negative_log_predictive_density(model.log_predictive_density(X, labels)) < 0.3


def test_that_several_classes_and_counts_are_learnt():
    classes = np.eye(3)[np.digitize(TRUTH, [-0.4, 0.4])]
    model = SAVIGP(Softmax(3), length_scale=1.0, inducing=12, method=Blocks(rounds=2, evaluations=60)).fit(X, classes)
    assert error_rate(classes, model.predict(X)) < 0.15
    counts = np.random.default_rng(2).poisson(np.exp(1 + TRUTH))
    model = SAVIGP(Poisson(offset=1.0), length_scale=1.0, inducing=12, method=POSTERIOR_ONLY).fit(X, counts)
    rate = np.exp(1 + np.sin(1.5 * NEW[:, 0]))
    assert np.sqrt(np.mean((model.predict(NEW) - rate) ** 2)) < 0.25 * rate.std() + 0.4


def test_that_missing_observations_are_left_out(observed):
    gappy = observed.copy()
    gappy[::3] = np.nan
    with_gaps = SAVIGP(Gaussian(0.3), length_scale=1.0, method=POSTERIOR_ONLY).fit(X, gappy)
    kept = ~np.isnan(gappy)
    without = SAVIGP(Gaussian(0.3), length_scale=1.0, method=POSTERIOR_ONLY).fit(X[kept], gappy[kept])
    np.testing.assert_allclose(with_gaps.predict(NEW), without.predict(NEW), atol=2e-3)


def test_that_a_black_box_needs_its_moments_only_to_predict(observed):
    black_box = BlackBox(lambda y, f: -0.5 * np.sum((y - f) ** 2, axis=-1) / 0.3**2, latents=1, outputs=1)
    model = SAVIGP(black_box, length_scale=1.0, inducing=12, method=POSTERIOR_ONLY).fit(X, observed)
    assert np.sqrt(np.mean((model.predict_latent(NEW)[0][:, 0] - np.sin(1.5 * NEW[:, 0])) ** 2)) < 0.15
    with pytest.raises(ValueError, match="no moments"):
        model.predict(NEW)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "periodic"}, "kernel must be one of squared exponential"),
        ({"posterior": "cubic"}, "posterior must be 'full' or 'diagonal', was 'cubic'"),
        ({"inducing": 1000}, "inducing must be between 1 and the number of sites, 60, was 1000"),
        ({"inducing": 5, "placement": "random"}, "placement must be"),
        ({"length_scale": -1.0}, "must be positive"),
    ],
)
def test_that_wrong_settings_are_told_in_a_sentence(settings, message, observed):
    with pytest.raises(ValueError, match=message):
        SAVIGP(Gaussian(0.3), **settings).fit(X, observed)


def test_that_wrong_shapes_are_told_in_a_sentence(observed):
    with pytest.raises(ValueError, match="X must be finite numbers of shape"):
        SAVIGP(Gaussian(0.3)).fit(X[:, 0], observed)
    with pytest.raises(ValueError, match=r"y must have shape \(N, 1\)"):
        SAVIGP(Gaussian(0.3, outputs=1)).fit(X, np.ones((60, 2)))
    with pytest.raises(ValueError, match="a row for each site, had 60 and 59"):
        SAVIGP(Gaussian(0.3)).fit(X, observed[1:])
    with pytest.raises(ValueError, match="not fitted yet"):
        SAVIGP(Gaussian(0.3)).predict(X)
