"""The face of scikit-learn: fit, predict, score, save and load."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import invgp
from helpers.curve import NEW, POSTERIOR_ONLY, TRUTH, X
from invgp.core.memory import BATCH_BUDGET
from invgp.core.stochastic_optimisers import Adam
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.files.archives import MODEL, read_archive, write_archive
from invgp.likelihoods import BlackBox, Gaussian, Logistic, Poisson, Softmax
from invgp.measures import error_rate, negative_log_predictive_density, standardised_squared_error


def exact_prediction(y, noise):
    """Mean and standard deviation of new observations by exact regression with unit kernel parameters."""

    def kernel(a, b):
        return np.exp(-0.5 * (a - b.T) ** 2)

    solve = np.linalg.solve(kernel(X, X) + noise**2 * np.eye(len(X)), np.column_stack([y, kernel(X, NEW)]))
    mean = kernel(NEW, X) @ solve[:, 0]
    covariance = kernel(NEW, NEW) - kernel(NEW, X) @ solve[:, 1:]
    return mean, covariance


def test_that_predictions_are_those_of_exact_regression(regression, noisy_data):
    mean, covariance = exact_prediction(noisy_data, 0.3)
    predicted, std = regression.predict(NEW, return_std=True)
    np.testing.assert_allclose(predicted, mean, atol=1e-3)
    np.testing.assert_allclose(std, np.sqrt(np.diag(covariance) + 0.3**2), atol=1e-3)
    np.testing.assert_allclose(regression.latent_covariance(NEW)[0], covariance, atol=1e-3)


def test_that_the_predictive_density_is_normalised_and_exact(regression, noisy_data):
    mean, covariance = exact_prediction(noisy_data, 0.3)
    spread = np.sqrt(np.diag(covariance) + 0.3**2)
    y = mean + 0.5 * spread
    np.testing.assert_allclose(regression.log_predictive_density(NEW, y), norm(mean, spread).logpdf(y), atol=2e-3)
    assert regression.score(NEW, y) == pytest.approx(norm(mean, spread).logpdf(y).mean(), abs=2e-3)


def test_that_draws_are_joint(regression):
    draws = regression.sample_latent(NEW, 4000, np.random.default_rng(0))
    assert draws.shape == (4000, len(NEW), 1)
    np.testing.assert_allclose(np.cov(draws[..., 0].T), regression.latent_covariance(NEW)[0], atol=0.01)


@pytest.mark.slow
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
def test_that_every_setting_learns_the_curve_and_comes_back_from_a_file(settings, noisy_data, tmp_path):
    model = SAVIGP(Gaussian(0.5), length_scale=1.0, **settings).fit(X, noisy_data)
    assert standardised_squared_error(np.sin(1.5 * NEW[:, 0]), model.predict(NEW)) < 0.1
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", Gaussian(0.5))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert again.trace_ == model.trace_


def test_that_a_model_of_an_earlier_version_can_be_loaded(noisy_data, tmp_path):
    model = SAVIGP(Gaussian(0.5), inducing=5, method=POSTERIOR_ONLY).fit(X, noisy_data)
    model.save(tmp_path / "model.npz")
    about, arrays = read_archive(tmp_path / "model.npz", MODEL, {})
    about["fitted"]["settled_"] = about["fitted"].pop("converged_")
    about["settings"]["method"]["anew"] = about["settings"]["method"].pop("profile_posterior")
    write_archive(tmp_path / "earlier.npz", MODEL, about, arrays)
    loaded = SAVIGP.load(tmp_path / "earlier.npz", Gaussian(0.5))
    assert (loaded.converged_, loaded.method) == (model.converged_, model.method)


def test_that_training_inputs_as_inducing_inputs_are_the_dense_model(noisy_data):
    dense, named = (
        SAVIGP(Gaussian(0.3), length_scale=1.0, inducing=inducing, method=POSTERIOR_ONLY).fit(X, noisy_data)
        for inducing in (None, X)
    )
    assert named.trace_ == dense.trace_


def test_that_labels_are_classified():
    labels = np.where(TRUTH > 0, 1.0, -1.0)
    model = SAVIGP(Logistic(), length_scale=1.0, inducing=15).fit(X, labels)
    probability = model.predict_proba(X)[:, 1]
    assert np.all((probability > 0) & (probability < 1))
    assert error_rate(labels, probability) < 0.05
    assert negative_log_predictive_density(model.log_predictive_density(X, labels)) < 0.3


def test_that_several_classes_and_counts_are_learnt():
    classes = np.eye(3)[np.digitize(TRUTH, [-0.4, 0.4])]
    model = SAVIGP(Softmax(3), length_scale=1.0, inducing=12, method=Blocks(rounds=2, evaluations=60)).fit(X, classes)
    assert error_rate(classes, model.predict_proba(X)) < 0.15
    counts = np.random.default_rng(2).poisson(np.exp(1 + TRUTH))
    model = SAVIGP(Poisson(offset=1.0), length_scale=1.0, inducing=12, method=POSTERIOR_ONLY).fit(X, counts)
    rate = np.exp(1 + np.sin(1.5 * NEW[:, 0]))
    assert np.sqrt(np.mean((model.predict(NEW) - rate) ** 2)) < 0.25 * rate.std() + 0.4


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_that_latents_may_have_kernels_and_inducing_inputs_of_their_own(posterior, tmp_path):
    classes = np.eye(3)[np.digitize(TRUTH, [-0.4, 0.4])]
    Z = np.stack([np.linspace(0, 6, 10)[:, None] + shift for shift in (0.0, 0.1, 0.2)])
    model = SAVIGP(
        Softmax(3),
        kernel=("matern 3/2", "matern 5/2", "squared exponential"),
        length_scale=[[0.8], [1.0], [1.2]],
        variance=[2.0, 3.0, 4.0],
        prior_mean=[0.1, 0.0, -0.1],
        inducing=Z,
        posterior=posterior,
        method=POSTERIOR_ONLY,
    ).fit(X, classes)
    assert [float(kernel.variance) for kernel in model.kernels_] == pytest.approx([2.0, 3.0, 4.0])
    np.testing.assert_array_equal(model._bound_state.parameters.inducing, Z)
    assert error_rate(classes, model.predict_proba(X)) < 0.2
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(SAVIGP.load(tmp_path / "model.npz", Softmax(3)).predict(NEW), model.predict(NEW))


def test_that_missing_observations_are_left_out(noisy_data):
    gappy = noisy_data.copy()
    gappy[::3] = np.nan
    with_gaps = SAVIGP(Gaussian(0.3), length_scale=1.0, method=POSTERIOR_ONLY).fit(X, gappy)
    kept = ~np.isnan(gappy)
    without = SAVIGP(Gaussian(0.3), length_scale=1.0, method=POSTERIOR_ONLY).fit(X[kept], gappy[kept])
    np.testing.assert_allclose(with_gaps.predict(NEW), without.predict(NEW), atol=2e-3)


def test_that_a_black_box_needs_its_moments_only_to_predict(noisy_data):
    black_box = BlackBox(lambda y, f: -0.5 * np.sum((y - f) ** 2, axis=-1) / 0.3**2, latents=1, outputs=1)
    model = SAVIGP(black_box, length_scale=1.0, inducing=12, method=POSTERIOR_ONLY).fit(X, noisy_data)
    assert np.sqrt(np.mean((model.predict_latent(NEW)[0][:, 0] - np.sin(1.5 * NEW[:, 0])) ** 2)) < 0.15
    with pytest.raises(ValueError, match="no moments"):
        model.predict(NEW)


def test_that_inputs_need_not_be_arrays(noisy_data):
    expected = SAVIGP(Gaussian(0.3), inducing=6, method=POSTERIOR_ONLY).fit(X, noisy_data).predict(X)
    table, line = pd.DataFrame({"easting": X[:, 0]}), pd.Series(noisy_data)
    for x, y in {
        "tables": (table, line),
        "tables that know of missing values": (table.convert_dtypes(), line.convert_dtypes()),
        "labelled arrays": (xr.DataArray(X, dims=("site", "axis")), xr.DataArray(noisy_data, dims="site")),
        "lists": (X.tolist(), noisy_data.tolist()),
    }.values():
        model = SAVIGP(Gaussian(0.3), inducing=6, method=POSTERIOR_ONLY).fit(x, y)
        np.testing.assert_array_equal(model.predict(x), expected)


@pytest.mark.slow
def test_that_predictions_keep_to_the_memory_budget():
    """All at once, 4,096 inputs of six latents, 1,024 samples and two components take gigabytes."""
    sites = np.linspace(0, 6, 4096)[:, None]
    labels = np.eye(6)[np.arange(60) % 6]
    model = SAVIGP(Softmax(6), inducing=5, components=2, method=Blocks(("posterior",), rounds=1, evaluations=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, labels)
    tracemalloc.start()
    shares = model.predict_proba(sites)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * BATCH_BUDGET
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)


def test_that_a_fitted_model_shows_what_it_is(regression, noisy_data):
    assert regression.dense_
    assert regression.inducing_inputs_.shape == (1, 60, 1)
    assert regression.n_features_in_ == 1
    assert regression.posterior_ == "one full Gaussian, stored as N numbers per latent (Theorem 2)"
    assert repr(regression.kernels_) == "(SquaredExponential(variance=1, length_scale=[1]),)"
    model = SAVIGP(
        Gaussian(0.3), inducing=5, posterior="diagonal", components=2, method=MiniBatches(epochs=1), random_state=3
    ).fit(X, noisy_data)
    assert not model.dense_
    assert model.posterior_ == "a mixture of 2 diagonal Gaussians"
    assert model.weights_.sum() == pytest.approx(1.0)
    assert invgp.SAVIGP is SAVIGP


def test_that_all_settings_come_back_from_a_file(noisy_data, tmp_path):
    settings = {
        "kernel": "matern 5/2",
        "length_scale": [1.5],
        "variance": 2.0,
        "prior_mean": np.asarray([0.1]),
        "inducing": 7,
        "placement": "subset",
        "method": MiniBatches(optimiser=Adam(0.02, decay=(0.8, 0.99)), batch=20, epochs=2),
        "samples": 64,
        "random_state": 3,
        "checkpoint": tmp_path / "fit.npz",
    }
    model = SAVIGP(Gaussian(0.3), **settings).fit(X, noisy_data)
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", Gaussian(1.0))
    for name, value in settings.items():
        np.testing.assert_array_equal(getattr(again, name), str(value) if name == "checkpoint" else value)
    assert (again.status_, again.dense_, again.posterior_) == (model.status_, model.dense_, model.posterior_)


def test_that_scikit_learn_can_clone_nest_and_cross_validate(noisy_data):
    model = SAVIGP(Gaussian(0.3), inducing=6, method=POSTERIOR_ONLY)
    again = clone(model).set_params(inducing=7)
    assert (again.inducing, model.get_params()["inducing"]) == (7, 6)
    with pytest.raises(NotFittedError):
        clone(model.fit(X, noisy_data)).predict(X)
    assert np.isfinite(cross_val_score(model, X, noisy_data, cv=3)).all()
    assert make_pipeline(StandardScaler(), model).fit(X, noisy_data).predict(X).shape == (60,)
