"""Kernels in the estimator: exact Gaussian processes, learning, priors and bounds, files."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from helpers.kernels import Sinc, kernels_of_all_kinds
from invgp import SAVIGP
from invgp.core.backend import to_numpy
from invgp.core.training import Blocks, MiniBatches
from invgp.kernels import (
    Constant,
    Coregionalised,
    Hyperprior,
    Linear,
    Matern32,
    Matern52,
    Periodic,
    SquaredExponential,
    White,
)
from invgp.likelihoods import Gaussian, Logistic, Poisson

POSTERIOR_ONLY = Blocks(learn=("posterior",))
NOISE = 0.3


def data(sites=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (sites, 2))
    y = 0.8 * X[:, 1] + np.sin(2.0 * np.pi * X[:, 0] / 1.7) + NOISE * rng.standard_normal(sites)
    return X, y


def exact_regression(kernel, X, y, new, noise=NOISE):
    """Mean and covariance of a Gaussian process at new inputs, and the log evidence."""
    K = kernel(X, X) + noise**2 * np.eye(len(X))
    across = kernel(new, X)
    mean = across @ np.linalg.solve(K, y)
    covariance = kernel(new, new) - across @ np.linalg.solve(K, across.T)
    return mean, covariance, multivariate_normal(np.zeros(len(X)), K).logpdf(y)


@pytest.mark.parametrize("name", kernels_of_all_kinds())
def test_that_a_dense_fit_is_the_exact_process(name):
    kernel, (X, y) = kernels_of_all_kinds()[name], data()
    new = np.concatenate([np.random.default_rng(1).uniform(-3, 3, (6, 2)), X[:2]])
    model = SAVIGP(Gaussian(NOISE, learn=False), kernel=kernel, method=POSTERIOR_ONLY).fit(X, y)
    mean, covariance, evidence = exact_regression(kernel, X, y, new)
    found_mean, found_variance = model.predict_latent(new)
    np.testing.assert_allclose(found_mean[:, 0], mean, atol=1e-6)
    np.testing.assert_allclose(found_variance[:, 0], np.diag(covariance), atol=1e-6)
    np.testing.assert_allclose(model.latent_covariance(new)[0], covariance, atol=1e-6)
    assert model.bound_ == pytest.approx(evidence, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trend", "product", "own", "rational quadratic"])
def test_that_learnt_parameters_maximise_the_exact_evidence(name):
    kernel, (X, y) = kernels_of_all_kinds()[name], data()

    def objective(free):
        try:
            return -exact_regression(kernel.with_parameters(free), X, y, X[:1])[2]
        except (np.linalg.LinAlgError, ValueError):
            return np.inf

    best = minimize(objective, kernel.parameters, method="L-BFGS-B", options={"maxiter": 300})
    model = SAVIGP(Gaussian(NOISE, learn=False), kernel=kernel).fit(X, y)
    assert model.bound_ > -best.fun - 0.05
    assert -objective(model.kernels_[0].parameters) == pytest.approx(model.bound_, abs=1e-3)


def test_that_the_evidence_of_a_learnt_sum_is_that_of_scikit_learn():
    X, y = data(60)
    sk = sklearn_kernels
    theirs = GaussianProcessRegressor(
        sk.ConstantKernel(1.0) * sk.RBF([1.0, 1.0]) + sk.ConstantKernel(1.0) * sk.DotProduct(1e-5, "fixed")
        + sk.WhiteKernel(0.09, "fixed")
    ).fit(X, y)  # fmt: skip
    kernel = SquaredExponential(1.0, [1.0, 1.0]) + Linear(1.0)
    ours = SAVIGP(Gaussian(NOISE, learn=False), kernel=kernel).fit(X, y)
    assert ours.bound_ == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-2)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-2)


def test_that_inducing_inputs_at_all_sites_change_nothing():
    kernel, (X, y) = kernels_of_all_kinds()["product"], data()
    settings = {"kernel": kernel, "method": POSTERIOR_ONLY}
    dense = SAVIGP(Gaussian(NOISE, learn=False), **settings).fit(X, y)
    batches = MiniBatches(learn=("posterior",), batch=40, natural=1.0, epochs=30)
    sparse = SAVIGP(Gaussian(NOISE, learn=False), kernel=kernel, inducing=X, method=batches).fit(X, y)
    assert not sparse.dense_
    assert sparse.bound_ == pytest.approx(dense.bound_, abs=1e-2)
    np.testing.assert_allclose(sparse.predict(X), dense.predict(X), atol=1e-3)


def test_that_a_sparse_fit_learns_all_parameters_and_inducing_inputs(backend, monkeypatch):
    if backend.dtype == "float32":
        pytest.skip("single precision")
    monkeypatch.setattr("invgp.estimator.settings.select_backend", lambda device: backend)
    X, y = data(30)
    kernel = Matern52(1.0, 2.0).on(0) * Periodic(1.0, 1.0, 1.6).on(0) + Linear(1.0).on(1)
    method = Blocks(learn=("posterior", "kernels", "likelihood", "inducing"), rounds=2, evaluations=10)
    model = SAVIGP(Gaussian(0.5), kernel=kernel, inducing=8, method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    learnt = to_numpy(model.kernels_[0].parameters)
    assert np.all(np.abs(learnt - kernel.parameters) > 1e-6)
    held = SAVIGP(Gaussian(0.5, learn=False), kernel=kernel, inducing=8, method=POSTERIOR_ONLY).fit(X, y)
    assert model.bound_ > held.bound_ + 1.0


def test_that_mini_batches_learn_a_composed_kernel():
    X, y = data(300)
    kernel = Periodic(1.0, 1.0, 1.6).on(0) + Linear(1.0).on(1)
    held = SAVIGP(Gaussian(NOISE), kernel=kernel, inducing=20, method=POSTERIOR_ONLY).fit(X, y)
    method = MiniBatches(batch=100, epochs=60, natural=0.5)
    model = SAVIGP(Gaussian(NOISE), kernel=kernel, inducing=20, method=method).fit(X, y)
    assert model.bound_ > held.bound_ + 1.0
    assert model.kernels_[0].parts[0].kernel.period[0] == pytest.approx(1.7, abs=0.05)


def test_that_coregionalised_outputs_are_the_exact_process_and_share_information():
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0.0, 6.0, 40))
    X = np.column_stack([np.tile(x, 2), np.repeat([0.0, 1.0], 40)])
    y = np.concatenate([np.sin(x), -2.0 * np.sin(x)]) + 0.1 * rng.standard_normal(80)
    seen = ~((X[:, 1] == 1.0) & (X[:, 0] > 3.0))  # the second output is not observed beyond 3
    kernel = SquaredExponential(1.0, 1.5).on(0) * Coregionalised([[1.0], [-0.5]], 0.1).on(1)
    fixed = SAVIGP(Gaussian(0.1, learn=False), kernel=kernel, method=POSTERIOR_ONLY).fit(X[seen], y[seen])
    B = np.asarray([[1.1, -0.5], [-0.5, 0.35]])
    shared = SquaredExponential(1.0, 1.5)(x[:, None], x[:, None])
    K = np.kron(B, shared)
    mean = K[:, seen] @ np.linalg.solve(K[np.ix_(seen, seen)] + 0.01 * np.eye(seen.sum()), y[seen])
    np.testing.assert_allclose(fixed.predict(X), mean, atol=1e-5)
    learnt = SAVIGP(Gaussian(0.1), kernel=kernel).fit(X[seen], y[seen])
    hidden = y[~seen]
    assert np.sqrt(np.mean((learnt.predict(X[~seen]) - hidden) ** 2)) < 0.2
    B = learnt.kernels_[0].parts[1].kernel.covariance
    assert B[0, 1] / np.sqrt(B[0, 0] * B[1, 1]) < -0.95


def test_that_latents_can_have_different_kernels_by_name_and_object():
    from invgp.likelihoods import HeteroscedasticGaussian  # noqa: PLC0415

    X, y = data(60)
    model = SAVIGP(HeteroscedasticGaussian(), kernel=("matern 5/2", Constant(0.5)), inducing=15).fit(X, y)
    assert [kernel.kind for kernel in model.kernels_] == ["matern 5/2", "constant"]
    noise = model.predict_latent(X)[0][:, 1]
    assert np.ptp(noise) < 1e-6


@pytest.mark.parametrize(("number", "shown"), [(2.0, "2"), (0.5, r"0\.5"), (-1.0, "-1")])
def test_that_outputs_that_do_not_exist_are_refused(number, shown):
    x = np.linspace(0.0, 6.0, 20)
    X, y = np.column_stack([np.tile(x, 2), np.repeat([0.0, 1.0], 20)]), np.tile(np.sin(x), 2)
    kernel = SquaredExponential(1.0, 1.5).on(0) * Coregionalised([[1.0], [1.0]]).on(1)
    wrong = np.where(np.arange(40) == 39, number, X[:, 1])
    message = f"with 2 rows of weights must have the output numbers 0 to 1, had {shown}"
    model = SAVIGP(Gaussian(0.1, learn=False), kernel=kernel, inducing=9, method=POSTERIOR_ONLY)
    with pytest.raises(ValueError, match=f"X must be inputs at which the kernel is defined: .*{message}"):
        model.fit(np.column_stack([X[:, 0], wrong]), y)
    model.fit(X, y)
    assert set(model.inducing_inputs_[0, :, 1]) == {0.0, 1.0}
    for method in (model.predict, model.predict_latent, lambda new: model.score(new, [0.0]), model.latent_covariance):
        with pytest.raises(ValueError, match=f"X must be inputs .*{message}"):
            method([[1.0, number]])
    with pytest.raises(ValueError, match=f"inducing must be inputs at which the kernel is defined: .*{message}"):
        model.set_params(inducing=[[1.0, 0.0], [1.0, number]]).fit(X, y)


# ---- priors and bounds ----


def test_that_a_hyperprior_gives_the_maximum_of_the_posterior_density():
    X, y = data()
    kernel = SquaredExponential(2.0, 0.5)
    priors = {"variance": Hyperprior(factor=1.5), "length_scale": Hyperprior(factor=1.2)}

    def objective(free):
        change = (free - kernel.parameters) / np.log([1.5, 1.2])
        return -exact_regression(kernel.with_parameters(free), X, y, X[:1])[2] + 0.5 * np.sum(change**2)

    best = minimize(objective, kernel.parameters, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    model = SAVIGP(Gaussian(NOISE, learn=False), kernel=kernel, hyperpriors=priors).fit(X, y)
    np.testing.assert_allclose(model.kernels_[0].parameters, best.x, atol=2e-3)
    assert model.trace_[-1] == pytest.approx(-best.fun, abs=1e-3)
    evidence = exact_regression(model.kernels_[0], X, y, X[:1])[2]
    assert model.bound_ == pytest.approx(evidence, abs=1e-3)  # without the prior


def test_that_bounds_hold_and_a_factor_of_one_keeps_a_value():
    X, y = data()
    kernel = SquaredExponential(1.0, 0.5) + White(0.01)
    free = SAVIGP(Gaussian(NOISE), kernel=kernel).fit(X, y).kernels_[0]
    assert free.parts[0].length_scale[0] > 0.55  # what the bound excludes
    priors = {"length_scale": Hyperprior(low=0.2, high=0.52), "white.variance": Hyperprior(factor=1.0)}
    found = SAVIGP(Gaussian(NOISE), kernel=kernel, hyperpriors=priors).fit(X, y).kernels_[0]
    assert found.parts[0].length_scale[0] == pytest.approx(0.52, rel=0.02)
    assert found.parts[0].length_scale[0] <= 0.52
    assert found.parts[1].variance == pytest.approx(0.01, rel=1e-9)


def test_that_default_priors_keep_the_variance_of_separable_classes_finite():
    X = np.linspace(-1.0, 1.0, 40)[:, None]
    labels = X[:, 0] > 0.1
    free, default, same, held = (
        SAVIGP(Logistic(), length_scale=1.0, hyperpriors=priors).fit(X, labels)
        for priors in (
            {},
            None,
            dict.fromkeys(("variance", "length_scale"), Hyperprior(10.0)),
            {"variance": Hyperprior(3.0)},
        )
    )
    variances = [float(model.kernels_[0].variance) for model in (free, default, held)]
    assert variances[0] > 200.0
    assert 20.0 < variances[1] < 150.0
    assert variances[2] < 20.0
    assert default.bound_ == same.bound_


def test_that_default_priors_are_those_of_classifiers_only():
    X, y = data(40)
    flat, default = (SAVIGP(Gaussian(NOISE), inducing=8, hyperpriors=priors).fit(X, y) for priors in ({}, None))
    assert flat.bound_ == default.bound_
    no_length_scale = SAVIGP(Logistic(), kernel=White(1.0) + Constant(1.0), inducing=8).fit(X, y > 0)
    assert np.isfinite(no_length_scale.bound_)


# ---- interface ----


def test_that_models_with_composed_kernels_are_saved_loaded_and_cloned(tmp_path):
    X, y = data()
    kernel = Sinc(1.2, 0.9) * Matern32(0.9, [2.0, 1.0]) + Linear(0.5).on(1) + White(0.05)
    priors = {"variance": Hyperprior(2.0), "length_scale": Hyperprior(low=0.1, high=10.0)}
    model = SAVIGP(Gaussian(0.5), kernel=kernel, hyperpriors=priors, inducing=8).fit(X, y)
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", Gaussian(0.5))
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-9)
    assert again.hyperpriors == priors
    assert repr(again.kernel) == repr(kernel)
    np.testing.assert_allclose(again.fit(X, y).predict(X), model.predict(X), rtol=1e-6)
    copy = clone(model)
    np.testing.assert_allclose(copy.fit(X, y).predict(X), model.predict(X), rtol=1e-12)


def test_that_a_fit_continues_from_a_checkpoint_and_from_an_earlier_fit(tmp_path):
    X, y = data()
    settings = {
        "kernel": Matern52(1.0, 1.5) + White(0.1),
        "hyperpriors": {"length_scale": Hyperprior(low=0.5, high=3.0)},
        "checkpoint": tmp_path / "fit.npz",
    }
    first = SAVIGP(Gaussian(0.5), **settings).fit(X, y)
    second = SAVIGP(Gaussian(0.5), **settings).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    with pytest.raises(ValueError, match=r"kernel must be .* to continue from the checkpoint"):
        SAVIGP(Gaussian(0.5), **settings | {"kernel": Matern52(1.0, 1.6) + White(0.1)}).fit(X, y)
    with pytest.raises(ValueError, match=r"hyperpriors.*must be .* to continue from the checkpoint"):
        SAVIGP(Gaussian(0.5), **settings | {"hyperpriors": {"length_scale": Hyperprior(low=0.4, high=3.0)}}).fit(X, y)
    warm = SAVIGP(Gaussian(0.5), kernel=settings["kernel"], warm_start=True).fit(X, y)
    bound = warm.bound_
    assert warm.fit(X, y).bound_ == pytest.approx(bound, abs=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "matern"}, "kernel must be one of squared exponential, .*a kernel of invgp.kernels"),
        ({"kernel": Matern52}, r"kernel must be a kernel, was the class Matern52: write Matern52\(\.\.\.\)"),
        ({"kernel": (Matern52,)}, r"kernel must be a kernel, was the class Matern52: write Matern52\(\.\.\.\)"),
        ({"kernel": (White(), White())}, "kernel must be .*one for each of 1 latents"),
        ({"kernel": Matern52(), "length_scale": 2.0}, "length_scale must be None if kernel is a Kernel"),
        ({"kernel": Matern52(), "variance": 2.0}, "variance must be 1 if kernel is a Kernel"),
        ({"kernel": Matern52(1.0, [1.0, 2.0, 3.0])}, r"kernel must accept inputs of shape \(N, 2\)"),
        ({"kernel": Matern52().on(5)}, r"kernel must accept inputs of shape \(N, 2\)"),
        ({"kernel": Matern52(np.asarray(-1.0))}, "kernel must have parameters that give finite covariances"),
        ({"hyperpriors": {"variance": 3.0}}, r"hyperpriors\['variance'\] must be a Hyperprior"),
        ({"hyperpriors": [3.0]}, "hyperpriors must be a dict of Hyperprior"),
        ({"hyperpriors": {"period": Hyperprior(2.0)}}, "hyperpriors must be for parameters of the kernel"),
    ],
)
def test_that_wrong_kernels_and_priors_are_named(settings, message):
    X, y = data(10)
    with pytest.raises(ValueError, match=message), np.errstate(invalid="ignore"):
        SAVIGP(Poisson(), **settings).fit(X, np.abs(np.round(y)))
