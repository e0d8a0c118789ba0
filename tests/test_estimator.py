"""The face of scikit-learn: fit, predict, score, save and load."""

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import invgp
from invgp.core.adaptive import Adam
from invgp.core.memory import BATCH_BUDGET
from invgp.core.optimisers import LBFGS
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.likelihoods import BlackBox, Gaussian, Logistic, Poisson, Softmax, StudentT
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
    assert error_rate(labels, probability) < 0.05
    assert negative_log_predictive_density(model.log_predictive_density(X, labels)) < 0.3


def test_that_several_classes_and_counts_are_learnt():
    classes = np.eye(3)[np.digitize(TRUTH, [-0.4, 0.4])]
    model = SAVIGP(Softmax(3), length_scale=1.0, inducing=12, method=Blocks(rounds=2, evaluations=60)).fit(X, classes)
    assert error_rate(classes, model.predict(X)) < 0.15
    counts = np.random.default_rng(2).poisson(np.exp(1 + TRUTH))
    model = SAVIGP(Poisson(offset=1.0), length_scale=1.0, inducing=12, method=POSTERIOR_ONLY).fit(X, counts)
    rate = np.exp(1 + np.sin(1.5 * NEW[:, 0]))
    assert np.sqrt(np.mean((model.predict(NEW) - rate) ** 2)) < 0.25 * rate.std() + 0.4


def exact_evidence(model, X, y):
    """At the learnt parameters."""
    noise = np.exp(2 * float(np.asarray(model.likelihood_.parameters)[0]))
    factor = np.linalg.cholesky(np.asarray(model.kernels_[0](X, X)) + noise * np.eye(len(X)))
    return norm.logpdf(np.linalg.solve(factor, y)).sum() - np.log(np.diag(factor)).sum()


def test_that_two_hundred_sites_are_learnt_to_their_exact_evidence():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, (200, 1)), axis=0)
    y = np.sin(1.5 * X[:, 0]) + 0.3 * rng.standard_normal(200)
    model = SAVIGP(Gaussian(0.5)).fit(X, y)
    assert len(model.trace_) <= 3
    assert model.trace_[-1] == pytest.approx(exact_evidence(model, X, y), abs=1e-3)
    assert np.exp(np.asarray(model.likelihood_.parameters)[0]) == pytest.approx(0.3, abs=0.04)


def test_that_few_inducing_inputs_learn_from_many_dimensions():
    rng = np.random.default_rng(0)
    X, X_new = rng.standard_normal((2, 200, 12))

    def truth(x):
        return np.sin(x[:, 0]) + 0.5 * x[:, 1]

    y = truth(X) + 0.2 * rng.standard_normal(200)
    model = SAVIGP(Gaussian(0.5), inducing=12, placement="subset", method=Blocks(rounds=10)).fit(X, y)
    assert standardised_squared_error(truth(X_new), model.predict(X_new)) < 0.05


def test_that_a_search_starts_with_sites_about_a_length_scale_apart():
    X = np.column_stack([np.random.default_rng(0).standard_normal((30, 2)) * [1.0, 100.0], np.ones(30)])
    held = Blocks(learn=("posterior",), rounds=1)
    model = SAVIGP(Gaussian(0.5), inducing=5, method=held).fit(X, X[:, 0])
    expected = [*(np.sqrt(2.0) * X.std(axis=0)[:2]), 1.0]
    np.testing.assert_allclose(model.kernels_[0].length_scale, expected)


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_that_without_ard_all_dimensions_share_a_length_scale(posterior, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 4, (80, 3))
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.2 * rng.standard_normal(80)
    model = SAVIGP(Gaussian(0.5), ard=False, posterior=posterior, inducing=None if posterior == "full" else 10).fit(
        X, y
    )
    [kernel] = model.kernels_
    assert kernel.length_scale.shape == (1,)
    if posterior == "full":
        exact = GaussianProcessRegressor(ConstantKernel() * RBF(2.0) + WhiteKernel(0.25)).fit(X, y)
        assert model.trace_[-1] == pytest.approx(exact.log_marginal_likelihood_value_, abs=1e-3)
        assert kernel.length_scale[0] == pytest.approx(exact.kernel_.k1.k2.length_scale, rel=1e-2)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(SAVIGP.load(tmp_path / "model.npz", Gaussian(0.5)).predict(X), model.predict(X))


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
    np.testing.assert_array_equal(model._frame.parameters.inducing, Z)
    assert error_rate(classes, model.predict(X)) < 0.2
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(SAVIGP.load(tmp_path / "model.npz", Softmax(3)).predict(NEW), model.predict(NEW))


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
        ({"inducing": 5.5}, "inducing must be None, a number, or inputs of shape .*, had shape"),
        ({"inducing": np.ones((3, 2))}, r"inducing must be .* \(M, 1\) or \(1, M, 1\), had shape \(3, 2\)"),
        ({"inducing": "many"}, "inducing must be .*, was 'many'"),
        ({"inducing": 1, "placement": "grid"}, r"inducing must be at least 2 for a grid \(D = 1\), was 1"),
        ({"length_scale": -1.0}, "length_scale must be positive, was -1"),
        ({"length_scale": [1.0, 2.0]}, r"length_scale must be a number, .*, had shape \(2,\)"),
        (
            {"length_scale": [1.0, 2.0], "ard": False},
            r"length_scale must be a number, or of shape \(1, 1\), without ard",
        ),
        ({"ard": "yes"}, "ard must be True or False, was 'yes'"),
        ({"variance": 0.0}, "variance must be positive, was 0"),
        ({"variance": np.nan}, "variance must be .*, had numbers that are not finite"),
        ({"prior_mean": [1.0, 2.0]}, r"prior_mean must be .*, had shape \(2,\)"),
        ({"components": 0}, "components must be a whole number of at least 1, was 0"),
        ({"samples": 3}, r"samples must be a whole number of at least 6 \(Q = 1\), was 3"),
        ({"method": MiniBatches(samples=3)}, r"samples must be a whole number of at least 6 \(Q = 1\), was 3"),
        ({"method": "adam"}, "method must be Blocks or MiniBatches, was 'adam'"),
        ({"dtype": "float16"}, "dtype must be 'float64' or 'float32', was 'float16'"),
        ({"device": "gpu"}, "device must be 'cpu' or 'cuda' or 'auto', was 'gpu'"),
        ({"kernel": 3}, "kernel must be one of squared exponential.*, was 3"),
        ({"length_scale": np.inf}, "length_scale must be .*, had numbers that are not finite, such as inf"),
        ({"likelihood": Gaussian}, r"likelihood must be .*, was the class Gaussian: write Gaussian\(\.\.\.\)"),
        ({"method": Blocks}, r"method must be Blocks or MiniBatches, was the class Blocks: write Blocks\(\.\.\.\)"),
        ({"checkpoint": 3}, "checkpoint must be the name of a file, was 3"),
        ({"checkpoint": "."}, r"checkpoint must be the name of a file, was the folder '\.'"),
        ({"seed": -1}, "seed must be a whole number of at least 0, was -1"),
        (
            {"likelihood": Poisson(np.zeros(60))},
            r"y must be numbers of shape \(N, 60\), had shape \(60, 1\): a likelihood takes numbers for each site in",
        ),
        ({"likelihood": "gaussian"}, "likelihood must be one of invgp.likelihoods, .*, was 'gaussian'"),
    ],
)
def test_that_wrong_settings_are_told_in_a_sentence(settings, message, observed):
    with pytest.raises(ValueError, match=message):
        SAVIGP(**{"likelihood": Gaussian(0.3), **settings}).fit(X, observed)


def test_that_wrong_shapes_are_told_in_a_sentence(observed):
    for wrong, message in {
        "ravelled": r"X must be finite numbers of shape \(N, D\), had shape \(60,\): X\[:, None\] is one input a site",
        "scalar": r"X must be .*, had shape \(\)",
        "empty": r"X must be .*, had shape \(60, 0\)",
        "complex": "X must be .*, was an array of complex128",
    }.items():
        values = {"ravelled": X[:, 0], "scalar": 1.0, "empty": X[:, :0], "complex": X + 1j}[wrong]
        with pytest.raises(ValueError, match=message):
            SAVIGP(Gaussian(0.3)).fit(values, observed)
    for wrong in (["a"] * 60, [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"y must be numbers of shape .*, was "):
            SAVIGP(Gaussian(0.3)).fit(X, wrong)
    with pytest.raises(ValueError, match=r"y must be numbers of shape \(N, 1\) or \(N,\), had shape \(60, 2\)"):
        SAVIGP(Gaussian(0.3, outputs=1)).fit(X, np.ones((60, 2)))
    with pytest.raises(ValueError, match="a row for each site, had 60 and 59"):
        SAVIGP(Gaussian(0.3)).fit(X, observed[1:])
    with pytest.raises(ValueError, match="y must be finite, or NaN"):
        SAVIGP(Gaussian(0.3)).fit(X, np.full(60, np.inf))
    with pytest.raises(ValueError, match="y must hold an observation, was NaN throughout"):
        SAVIGP(Gaussian(0.3)).fit(X, np.full(60, np.nan))
    with pytest.raises(ValueError, match=r"X must be finite numbers of shape .*, was a DataFrame that holds others"):
        SAVIGP(Gaussian(0.3)).fit(pd.DataFrame({"easting": X[:, 0], "rock": "shale"}), observed)
    with pytest.raises(ValueError, match="report must be a function, was 3"):
        SAVIGP(Gaussian(0.3)).fit(X, observed, report=3)
    model = SAVIGP(Gaussian(0.3), inducing=5, method=POSTERIOR_ONLY).fit(X, observed)
    with pytest.raises(ValueError, match=r"X must have shape \(N, 1\), .*, had \(3, 2\)"):
        model.predict(np.ones((3, 2)))
    with pytest.raises(ValueError, match="a row for each site, had 3 and 60"):
        model.score(X[:3], observed)
    with pytest.raises(ValueError, match="not fitted yet"):
        SAVIGP(Gaussian(0.3)).predict(X)


def test_that_inputs_need_not_be_arrays(observed):
    expected = SAVIGP(Gaussian(0.3), inducing=6, method=POSTERIOR_ONLY).fit(X, observed).predict(X)
    table, line = pd.DataFrame({"easting": X[:, 0]}), pd.Series(observed)
    for x, y in {
        "tables": (table, line),
        "tables that know of missing values": (table.convert_dtypes(), line.convert_dtypes()),
        "labelled arrays": (xr.DataArray(X, dims=("site", "axis")), xr.DataArray(observed, dims="site")),
        "lists": (X.tolist(), observed.tolist()),
    }.values():
        model = SAVIGP(Gaussian(0.3), inducing=6, method=POSTERIOR_ONLY).fit(x, y)
        np.testing.assert_array_equal(model.predict(x), expected)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_that_the_unit_of_the_inputs_does_not_matter(scale, observed):
    expected = SAVIGP(Gaussian(0.3), inducing=6).fit(X, observed)
    model = SAVIGP(Gaussian(0.3), inducing=6).fit(scale * X, observed)
    np.testing.assert_allclose(model.predict(scale * X), expected.predict(X), rtol=1e-4, atol=1e-4)


def test_that_a_dimension_that_does_not_vary_changes_nothing(observed):
    flat = np.column_stack([X, np.full(60, 3.0)])
    for placement in ("grid", "clusters"):
        settings = {"inducing": 9, "placement": placement, "method": POSTERIOR_ONLY}
        with_it, without = (SAVIGP(Gaussian(0.3), **settings).fit(x, observed) for x in (flat, X))
        np.testing.assert_allclose(with_it.predict(flat), without.predict(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("inducing", [None, 6])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_that_observations_that_are_all_alike_are_fitted_without_a_word_of_overflow(value, inducing):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)  # the noise has no smallest value
        model = SAVIGP(Gaussian(0.3), inducing=inducing).fit(X, np.full(60, value))
        np.testing.assert_allclose(model.predict(X), value, atol=1e-3)


def test_that_predictions_keep_to_the_memory_budget():
    """All at once, 4,096 inputs of six latents, 1,024 samples and two components take gigabytes."""
    sites = np.linspace(0, 6, 4096)[:, None]
    labels = np.eye(6)[np.arange(60) % 6]
    model = SAVIGP(Softmax(6), inducing=5, components=2, method=Blocks(("posterior",), rounds=1, evaluations=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, labels)
    tracemalloc.start()
    shares = model.predict(sites)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * BATCH_BUDGET
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NEW, -1, RNG), "draws must be a whole number of at least 1, was -1"),
        ((NEW, 0, RNG), "draws must be a whole number of at least 1, was 0"),
        ((NEW, 1.5, RNG), r"draws must be a whole number of at least 1, was 1\.5"),
        ((NEW, 2, 0), r"rng must be a numpy\.random\.Generator, was 0"),
    ],
)
def test_that_wrong_draws_are_told_in_a_sentence(arguments, message, regression):
    with pytest.raises(ValueError, match=message):
        regression.sample_latent(*arguments)


@pytest.mark.parametrize("inducing", [None, 15])
@pytest.mark.parametrize("name", ["gaussian", "poisson", "logistic"])
def test_that_the_paper_s_order_comes_near_the_bound_of_the_default(name, inducing):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, (60, 1)), axis=0)
    truth = np.sin(1.5 * X[:, 0])
    likelihood, y = {
        "gaussian": (Gaussian(0.5), truth + 0.3 * rng.standard_normal(60)),
        "poisson": (Poisson(1.0), rng.poisson(np.exp(1 + truth))),
        "logistic": (Logistic(), np.where(3 * truth + rng.logistic(size=60) > 0, 1, -1)),
    }[name]
    default = SAVIGP(likelihood, inducing=inducing).fit(X, y)
    paper = SAVIGP(likelihood, inducing=inducing, method=Blocks.of_the_paper()).fit(X, y)
    assert float(paper.kernels_[0].variance) > 0.1
    assert paper.trace_[-1] > default.trace_[-1] - 0.01 * abs(default.trace_[-1])


def test_that_kernels_that_see_a_posterior_as_it_is_start_after_it():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, (60, 1)), axis=0)
    y = np.sin(1.5 * X[:, 0]) + 0.3 * rng.standard_normal(60)
    method = replace(Blocks.of_the_paper(anew=False), rounds=3)
    with pytest.warns(ConvergenceWarning):
        model = SAVIGP(Gaussian(0.5), length_scale=1.0, method=method).fit(X, y)
    assert float(model.kernels_[0].variance) > 0.1


def test_that_a_black_box_that_gives_no_numbers_is_refused(observed):
    def log_density(y, f):
        return np.where(y[:, 0] > 0, np.nan, -0.5 * (y - f)[..., 0] ** 2)

    box = BlackBox(log_density, latents=1, outputs=1)
    for method in (Blocks(), MiniBatches(batch=20)):
        with pytest.raises(
            ValueError, match=r"log_density of BlackBox\(log_density\) must be finite, was not for \d+ of"
        ):
            SAVIGP(box, inducing=5, method=method).fit(X, observed)


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_that_a_search_steps_back_from_where_there_are_no_numbers(posterior, observed):
    """A likelihood that is known for noise above 0.4 only; the best is at 0.3."""

    def log_density(y, f, free):
        value = -0.5 * np.sum((y - f) ** 2, axis=-1) * np.exp(-2 * free[0]) - free[0]
        return value if free[0] > np.log(0.4) else np.full(value.shape, np.nan)

    box = BlackBox(log_density, 1, 1, parameters=[0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SAVIGP(box, length_scale=1.0, inducing=8, posterior=posterior, method=Blocks(rounds=3)).fit(X, observed)
    assert np.log(0.4) < model.likelihood_.parameters[0] < -0.5
    assert np.isfinite(model.trace_[-1])


def test_that_a_log_density_of_the_wrong_shape_is_told(observed):
    class Own(Gaussian):
        def log_density(self, y, f):
            return super().log_density(y, f).sum()

    with pytest.raises(ValueError, match=r"log_density of Own must have shape \(128, 60\) for f of .*, had \(\)"):
        SAVIGP(Own(0.3), inducing=5).fit(X, observed)


def test_that_a_fit_tells_whether_it_has_settled(regression, observed):
    assert regression.settled_
    assert regression.status_ == "the bound has settled"
    with pytest.warns(ConvergenceWarning, match="the fit has not settled: all 1 rounds are used up"):
        model = SAVIGP(Gaussian(0.5), inducing=6, method=Blocks(rounds=1, evaluations=1)).fit(X, observed)
    assert model.settled_ is False
    impatient = Blocks(optimiser=LBFGS(max_backtracks=0, tolerance=0.0, sufficient_decrease=1.0), rounds=5)
    with pytest.warns(ConvergenceWarning, match="the fit has not settled: no further step improves the bound"):
        model = SAVIGP(Gaussian(0.5), inducing=6, posterior="diagonal", method=impatient).fit(X, observed)
    assert not model.settled_
    batches = SAVIGP(Gaussian(0.5), inducing=6, method=MiniBatches(epochs=2)).fit(X, observed)
    assert batches.settled_ is None
    assert batches.status_ == "2 epochs are over"


def test_that_a_fitted_model_shows_what_it_is(regression, observed):
    assert regression.dense_
    assert regression.inducing_inputs_.shape == (1, 60, 1)
    assert regression.n_features_in_ == 1
    assert regression.posterior_ == "one full Gaussian, held by N numbers a latent (Theorem 2)"
    assert repr(regression.kernels_) == "(Kernel('squared exponential', variance=1, length_scale=[1]),)"
    model = SAVIGP(
        Gaussian(0.3), inducing=5, posterior="diagonal", components=2, method=MiniBatches(epochs=1), seed=3
    ).fit(X, observed)
    assert not model.dense_
    assert model.posterior_ == "a mixture of 2 diagonal Gaussians"
    assert model.weights_.sum() == pytest.approx(1.0)
    assert invgp.SAVIGP is SAVIGP


def test_that_all_settings_come_back_from_a_file(observed, tmp_path):
    settings = {
        "kernel": "matern 5/2",
        "length_scale": [1.5],
        "variance": 2.0,
        "prior_mean": np.asarray([0.1]),
        "inducing": 7,
        "placement": "subset",
        "method": MiniBatches(optimiser=Adam(0.02, decay=(0.8, 0.99)), batch=20, epochs=2),
        "samples": 64,
        "seed": 3,
        "checkpoint": tmp_path / "fit.npz",
    }
    model = SAVIGP(Gaussian(0.3), **settings).fit(X, observed)
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", Gaussian(1.0))
    for name, value in settings.items():
        np.testing.assert_array_equal(getattr(again, name), str(value) if name == "checkpoint" else value)
    assert (again.status_, again.dense_, again.posterior_) == (model.status_, model.dense_, model.posterior_)


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (None, "likelihood must be one of invgp.likelihoods, .*, was None"),
        (Gaussian(0.3), "likelihood must be StudentT, as in '.*', was Gaussian"),
        (StudentT(0.3, dof=3.0), r"likelihood\.dof must be 4\.0, as in '.*', was 3\.0"),
        (StudentT(0.3, learn=False), "likelihood must have 1 parameters to learn, as in .*, had 0"),
    ],
)
def test_that_a_file_takes_only_its_own_likelihood(likelihood, message, observed, tmp_path):
    SAVIGP(StudentT(0.3), inducing=5, method=POSTERIOR_ONLY).fit(X, observed).save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=message):
        SAVIGP.load(tmp_path / "model.npz", likelihood)


def test_that_scikit_learn_can_clone_nest_and_cross_validate(observed):
    model = SAVIGP(Gaussian(0.3), inducing=6, method=POSTERIOR_ONLY)
    again = clone(model).set_params(inducing=7)
    assert (again.inducing, model.get_params()["inducing"]) == (7, 6)
    with pytest.raises(NotFittedError):
        clone(model.fit(X, observed)).predict(X)
    assert np.isfinite(cross_val_score(model, X, observed, cv=3)).all()
    assert make_pipeline(StandardScaler(), model).fit(X, observed).predict(X).shape == (60,)
