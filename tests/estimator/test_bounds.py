"""The bound that is reported is the bound: against quadrature, closed forms and many samples."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning

from helpers.curve import POSTERIOR_ONLY, TRUTH, X
from invgp.core.bound_estimates import estimate_bound
from invgp.core.observed_likelihood import Data
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Full, Mixture
from invgp.core.posteriors.entropy import estimate_entropy
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.likelihoods import Gaussian, Softmax, StudentT

CLASSES = np.eye(3)[np.digitize(TRUTH, [-0.4, 0.4])]

SITES = np.random.default_rng(5).standard_normal((80, 4))
SEPARABLE = SITES, np.eye(3)[np.argmax(SITES[:, :3], axis=1)]  # classes on which a fit adapts to its samples


def exact_kl(model):
    """KL divergence from the kernel matrices and the moments of the inducing variables."""
    q, total = model.inducing_posterior(), 0.0
    for j, kernel in enumerate(model.kernels_):
        Z = model.inducing_inputs_[j]
        K = kernel(Z, Z) + model._bound_state.bound.jitter * kernel.variance * np.eye(len(Z))
        S, m = q.covariance[0, j], q.mean[0, j] - model._bound_state.parameters.prior_mean[j]
        solve = np.linalg.solve(K, np.column_stack([S, m]))
        log_dets = np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
        total += 0.5 * (np.trace(solve[:, :-1]) + m @ solve[:, -1] - len(Z) + log_dets)
    return total


def test_that_the_bound_is_that_of_quadrature(noisy_data):
    model = SAVIGP(StudentT(0.3, dof=3.0), length_scale=1.0, inducing=10).fit(X, noisy_data)
    mean, variance = model.predict_latent(X)
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    f = mean + np.sqrt(variance) * nodes
    scale = float(model.likelihood_.scale)
    values = student(df=3.0, loc=f, scale=scale).logpdf(noisy_data[:, None])
    exact = float((values @ (weights / weights.sum())).sum()) - exact_kl(model)
    assert model.bound_ == pytest.approx(exact, abs=4.0 * model.bound_std_error_ + 1e-6)
    assert model.bound_std_error_ < 0.01
    value, error = model.bound(X, noisy_data, return_std_error=True)
    assert value == pytest.approx(exact, abs=4.0 * error + 1e-6)
    assert model.kl() == pytest.approx(exact_kl(model), rel=1e-6)
    assert model.kl(entropy="monte carlo") == model.kl()


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_that_the_bound_of_gaussian_noise_has_no_error(posterior, noisy_data):
    model = SAVIGP(Gaussian(0.3), inducing=8, posterior=posterior).fit(X, noisy_data)
    assert model.bound_std_error_ < 1e-9
    assert model.bound_ == pytest.approx(model.trace_[-1], rel=1e-9)
    assert model.kl() == pytest.approx(exact_kl(model), rel=1e-6)


def test_that_a_dense_bound_can_be_computed_again(noisy_data):
    model = SAVIGP(Gaussian(0.3), length_scale=1.0, method=POSTERIOR_ONLY).fit(X, noisy_data)
    assert model.bound(X, noisy_data) == pytest.approx(model.bound_, abs=1e-4)


def test_that_estimates_are_unbiased_and_their_errors_right():
    model = SAVIGP(Softmax(3), length_scale=1.0, inducing=8, method=POSTERIOR_ONLY).fit(X, CLASSES)
    state, backend = model._bound_state, model._backend()
    state = replace(state.bound, X=backend.asarray(X)).bound_state(state.parameters)
    density = Data(Softmax(3), backend.asarray(CLASSES)).log_density(np.zeros(0), derivatives=False)
    many = Points.draw(np.random.default_rng(99), 2**15, len(X), 3, backend)
    exact = float(state.evaluate(density, many, ()).elbo)
    found = [estimate_bound(state, density, 32, np.random.default_rng(seed)) for seed in range(60)]
    scores = np.asarray([(one.elbo - exact) / one.standard_error for one in found])
    errors = np.asarray([one.elbo - exact for one in found])
    assert abs(errors.mean()) < 4.0 * errors.std() / np.sqrt(len(found))
    assert 0.7 < scores.std() < 1.6  # of Student's t with 7 degrees of freedom: 1.18


def test_that_the_bound_after_mini_batches_is_estimated_on_some_sites(noisy_data, monkeypatch):
    model = SAVIGP(StudentT(0.3), inducing=6, method=MiniBatches(batch=20, epochs=3)).fit(X, noisy_data)
    value, error = model.bound(X, noisy_data, return_std_error=True)
    assert abs(model.bound_ - value) < 4.0 * np.hypot(error, model.bound_std_error_) < 1.0
    monkeypatch.setattr("invgp.estimator.fitting.MAX_ESTIMATE_SITES", 30)
    subset = SAVIGP(StudentT(0.3), inducing=6, method=MiniBatches(batch=20, epochs=3)).fit(X, noisy_data)
    assert subset.bound_std_error_ > 3 * model.bound_std_error_
    assert abs(subset.bound_ - model.bound_) < 4.0 * subset.bound_std_error_


@pytest.mark.parametrize("full", [True, False])
def test_that_the_entropy_of_mixtures_is_right(full):
    rng = np.random.default_rng(0)
    spread = np.tril(rng.standard_normal((1, 2, 3, 3))) + 3 * np.eye(3) if full else rng.uniform(0.5, 2.0, (1, 2, 3))
    factor = np.linalg.cholesky(np.stack([np.eye(3) + 0.5] * 2))
    log_det = 2 * np.log(np.abs(np.diagonal(spread, axis1=-2, axis2=-1))).sum() if full else np.log(spread).sum()
    single = 0.5 * (6 * (np.log(2 * np.pi) + 1) + log_det)
    for distance, entropy in ((0.0, single), (1000.0, single + np.log(2))):
        mean = np.zeros((2, 2, 3))
        mean[1] += distance
        q = Mixture(np.full(2, 0.5), mean, np.repeat(spread, 2, axis=0))
        found = estimate_entropy(q, factor, 20_000, np.random.default_rng(1))
        assert found.value == pytest.approx(entropy, abs=4 * found.standard_error)
        assert found.standard_error < 0.02
        family = (Full if full else Diagonal)(2, 3, 2)
        assert float(family.entropy_bound(q, factor)) < found.value  # Jensen's inequality


@pytest.mark.slow
def test_that_too_few_samples_are_reported_and_more_are_taken_by_default():
    sites, labels = SEPARABLE
    with pytest.warns(ConvergenceWarning, match=r"lower than on the 16 samples per site of the fit.*increase samples"):
        few = SAVIGP(Softmax(3), inducing=25, samples=16, hyperpriors={}).fit(sites, labels)
    assert few.samples_ == 16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SAVIGP(Softmax(3), inducing=25, hyperpriors={}).fit(sites, labels)
    assert model.bound_ > few.bound_
    assert abs(model.trace_[-1] - model.bound_) < 0.3


@pytest.mark.slow
def test_that_a_fit_with_more_and_more_samples_can_be_resumed(monkeypatch, tmp_path):
    monkeypatch.setattr("invgp.estimator.fitting.default_samples", lambda latents: 16)
    monkeypatch.setattr(
        "invgp.estimator.fitting.estimate_bound",
        lambda state, density, _, rng: estimate_bound(state, density, 256, rng),
    )
    method = Blocks(rounds=60)
    whole = SAVIGP(Softmax(3), inducing=25, hyperpriors={}, method=method).fit(*SEPARABLE)
    assert whole.samples_ > 16
    path, rounds = tmp_path / "fit.npz", len(whole.trace_)

    class StopError(Exception):
        pass

    for last in (2, rounds - 1):

        def stop(progress, last=last):
            if progress.round == last:
                raise StopError

        with pytest.raises(StopError):
            SAVIGP(Softmax(3), inducing=25, hyperpriors={}, method=method, checkpoint=path).fit(*SEPARABLE, report=stop)
    again = SAVIGP(Softmax(3), inducing=25, hyperpriors={}, method=method, checkpoint=path).fit(*SEPARABLE)
    assert again.trace_ == whole.trace_
    assert (again.bound_, again.samples_) == (whole.bound_, whole.samples_)


def test_that_the_reported_bound_did_not_decide_where_the_fit_ended(noisy_data, monkeypatch):
    """A fit ends where an estimate is high, so that this estimate is too high on average."""
    found = []

    def estimate(*arguments):
        found.append(estimate_bound(*arguments))
        return found[-1]._replace(elbo=found[-1].elbo + (10.0 if len(found) == 1 else 0.0))

    monkeypatch.setattr("invgp.estimator.fitting.estimate_bound", estimate)
    model = SAVIGP(StudentT(0.3), inducing=6, method=POSTERIOR_ONLY).fit(X, noisy_data)
    assert len(found) == 2
    assert model.bound_ == found[1].elbo
    assert found[0].elbo != found[1].elbo


def test_that_bounds_are_stored_in_files(noisy_data, tmp_path):
    model = SAVIGP(StudentT(0.3), inducing=6, method=POSTERIOR_ONLY).fit(X, noisy_data)
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", StudentT(0.3))
    for name in ("bound_", "bound_std_error_", "mixture_bound_", "samples_"):
        assert getattr(again, name) == getattr(model, name)
    assert again.bound(X, noisy_data) == pytest.approx(model.bound(X, noisy_data), abs=1e-9)
    with pytest.raises(ValueError, match="entropy must be 'lower bound' or 'monte carlo', was 'exact'"):
        again.bound(X, noisy_data, entropy="exact")
