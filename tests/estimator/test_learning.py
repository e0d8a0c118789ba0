"""What a fit learns, from where it starts, and whether it has converged."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from helpers.curve import POSTERIOR_ONLY, X
from invgp.core.natural_gradients import keep_site_factors
from invgp.core.optimisers import LBFGS
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.estimator.fit_status import describe_end_of_batches, late_climb
from invgp.likelihoods import BlackBox, Gamma, Gaussian, Logistic, NegativeBinomial, Poisson, Softmax, StudentT
from invgp.measures import standardised_squared_error


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


LEARN_MEAN = ("posterior", "kernels", "likelihood", "prior_mean")


def test_that_the_prior_mean_is_learnt_to_its_closed_form(tmp_path):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, (80, 1)), axis=0)
    y = 50 + np.sin(1.5 * X[:, 0]) + 0.3 * rng.standard_normal(80)
    model = SAVIGP(Gaussian(0.5), prior_mean=45.0, method=Blocks(learn=LEARN_MEAN)).fit(X, y)
    noise = np.exp(2 * float(np.asarray(model.likelihood_.parameters)[0]))
    weights = np.linalg.solve(np.asarray(model.kernels_[0](X, X)) + noise * np.eye(80), np.ones(80))
    # Generalised least squares: the mean that maximises the evidence at the learnt kernel and noise.
    assert model.prior_mean_[0] == pytest.approx(weights @ y / weights.sum(), abs=0.02)
    assert model.bound_ == pytest.approx(exact_evidence(model, X, y - model.prior_mean_[0]), abs=0.01)
    assert model.predict([[1e6]])[0] == pytest.approx(model.prior_mean_[0])
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", Gaussian(0.5))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.prior_mean_ == model.prior_mean_


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"inducing": 12, "method": Blocks(learn=LEARN_MEAN)},
        {"inducing": 12, "method": Blocks.of_the_paper(LEARN_MEAN)},
        {"inducing": 12, "posterior": "diagonal", "method": Blocks(learn=LEARN_MEAN)},
        {"inducing": 12, "components": 2, "method": Blocks(learn=LEARN_MEAN, rounds=20)},
    ],
)
def test_that_every_method_learns_the_prior_mean(settings):
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0, 10, (200, 1)), axis=0)
    y = rng.poisson(np.exp(3 + 0.5 * np.sin(3 * X[:, 0]))).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SAVIGP(Poisson(0.0, learn=False), length_scale=0.7, **settings).fit(X, y)
    assert model.prior_mean_[0] == pytest.approx(3.0, abs=0.35)
    with pytest.raises(ValueError, match="learn must not have 'prior_mean' with mini-batches"):
        MiniBatches(learn=LEARN_MEAN)


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


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_that_the_unit_of_the_inputs_does_not_matter(scale, noisy_data):
    expected = SAVIGP(Gaussian(0.3), inducing=6).fit(X, noisy_data)
    model = SAVIGP(Gaussian(0.3), inducing=6).fit(scale * X, noisy_data)
    np.testing.assert_allclose(model.predict(scale * X), expected.predict(X), rtol=1e-4, atol=1e-4)


def test_that_a_dimension_that_does_not_vary_changes_nothing(noisy_data):
    flat = np.column_stack([X, np.full(60, 3.0)])
    for placement in ("grid", "clusters"):
        settings = {"inducing": 9, "placement": placement, "method": POSTERIOR_ONLY}
        with_it, without = (SAVIGP(Gaussian(0.3), **settings).fit(x, noisy_data) for x in (flat, X))
        np.testing.assert_allclose(with_it.predict(flat), without.predict(X), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("inducing", [None, 6])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_that_constant_observations_are_fitted_without_an_overflow_warning(value, inducing):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)  # the noise has no smallest value
        model = SAVIGP(Gaussian(0.3), inducing=inducing).fit(X, np.full(60, value))
        np.testing.assert_allclose(model.predict(X), value, atol=1e-3)


@pytest.mark.slow
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


def test_that_kernels_are_learnt_after_the_posterior():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, (60, 1)), axis=0)
    y = np.sin(1.5 * X[:, 0]) + 0.3 * rng.standard_normal(60)
    method = replace(Blocks.of_the_paper(profile_posterior=False), rounds=3)
    with pytest.warns(ConvergenceWarning):
        model = SAVIGP(Gaussian(0.5), length_scale=1.0, method=method).fit(X, y)
    assert float(model.kernels_[0].variance) > 0.1


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_that_a_search_steps_back_from_where_there_are_no_numbers(posterior, noisy_data):
    """A likelihood that is known for noise above 0.4 only; the best is at 0.3."""

    def log_density(y, f, free):
        value = -0.5 * np.sum((y - f) ** 2, axis=-1) * np.exp(-2 * free[0]) - free[0]
        return value if free[0] > np.log(0.4) else np.full(value.shape, np.nan)

    box = BlackBox(log_density, 1, 1, parameters=[0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SAVIGP(box, length_scale=1.0, inducing=8, posterior=posterior, method=Blocks(rounds=3)).fit(
            X, noisy_data
        )
    assert np.log(0.4) < model.likelihood_.parameters[0] < -0.5
    assert np.isfinite(model.trace_[-1])


def test_that_a_fit_states_whether_it_has_converged(regression, noisy_data):
    assert regression.converged_
    assert regression.status_ == "the bound has converged"
    with pytest.warns(ConvergenceWarning, match="the fit has not converged: all 1 rounds are used up"):
        model = SAVIGP(Gaussian(0.5), inducing=6, method=Blocks(rounds=1, evaluations=1)).fit(X, noisy_data)
    assert model.converged_ is False
    impatient = Blocks(optimiser=LBFGS(max_backtracks=0, tolerance=0.0, sufficient_decrease=1.0), rounds=5)
    with pytest.warns(ConvergenceWarning, match="the fit has not converged: no further step improves the bound"):
        model = SAVIGP(Gaussian(0.5), inducing=6, posterior="diagonal", method=impatient).fit(X, noisy_data)
    assert not model.converged_
    batches = SAVIGP(Gaussian(0.5), inducing=6, method=MiniBatches(epochs=2)).fit(X, noisy_data)
    assert batches.converged_ is None
    assert batches.status_ == "2 epochs are over"


@pytest.mark.slow
def test_that_steps_that_are_too_long_for_mini_batches_are_reported():
    rng = np.random.default_rng(2)
    sites = rng.uniform(-2, 2, (200, 2))
    labels = np.eye(4)[2 * (sites[:, 0] > 0) + (sites[:, 1] > 0)]

    def fit_model(natural):
        method = MiniBatches(("posterior",), natural=natural, batch=10, epochs=8, samples=40, start_sites=0)
        return SAVIGP(Softmax(4), inducing=20, variance=4.0, method=method).fit(sites, labels)

    # Steps of this length are chaotic: rounding decides whether the bound ends below its maximum.
    with pytest.warns(ConvergenceWarning, match="8 epochs are over, but .* reduce natural, (or )?increase"):
        fit_model(0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert "reduce natural" not in fit_model(0.02).status_


def of_every_kind(name, count):
    """Likelihood and observations, with means far from those of the prior."""
    rng = np.random.default_rng(count)
    sites = rng.uniform(0, 6, (count, 1))
    f = np.sin(1.5 * sites[:, 0])
    gumbel = rng.gumbel(size=(count, 3))
    likelihood, y = {
        "poisson": (Poisson(), rng.poisson(np.exp(4 + f))),
        "negative binomial": (NegativeBinomial(), rng.negative_binomial(3, 3 / (3 + np.exp(2 + f)))),
        "gamma": (Gamma(), rng.gamma(3, np.exp(2 + f) / 3)),
        "student": (StudentT(0.5), 20 + 7 * f + 0.5 * rng.standard_t(3, count)),
        "gaussian": (Gaussian(0.5), 20 + 7 * f + 0.5 * rng.standard_normal(count)),
        "logistic": (Logistic(), (2 * f + rng.logistic(size=count)) > 0),
        "softmax": (Softmax(3), np.argmax(np.column_stack([2 * f, -f, 0 * f]) + gumbel, axis=1)),
    }[name]
    return sites, y, likelihood


KINDS = ["poisson", "negative binomial", "gamma", "student", "gaussian", "logistic", "softmax"]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("count", [100, 1500])
def test_that_default_mini_batches_of_every_kind_end_at_the_optimum(name, count):
    sites, y, likelihood = of_every_kind(name, count)
    best = SAVIGP(likelihood, inducing=12).fit(sites, y).bound_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = SAVIGP(likelihood, inducing=12, method=MiniBatches(epochs=200)).fit(sites, y)
    assert model.bound_ > best - max(0.2, 5e-4 * abs(best))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("natural", [0.1, 0.5])
def test_that_steps_from_a_start_far_away_never_fail(name, natural):
    """Without the fit to a subset, the first steps of counts with a log link would be far too long."""
    sites, y, likelihood = of_every_kind(name, 200)
    method = MiniBatches(natural=natural, batch=100, epochs=10, start_sites=0)
    with pytest.warns(ConvergenceWarning) if name == "gaussian" else warnings.catch_warnings():
        warnings.simplefilter("ignore" if name != "gaussian" else "always", ConvergenceWarning)
        model = SAVIGP(likelihood, inducing=12, method=method).fit(sites, y)
    assert np.all(np.diff(model.trace_) > -0.1 * abs(model.trace_[0]))
    assert model.bound_ > model.trace_[0]


def test_that_a_fit_with_steps_left_on_all_data_is_told():
    sites, y, likelihood = of_every_kind("poisson", 200)
    method = MiniBatches(learn=("posterior",), natural=0.02, epochs=15, start_sites=0)
    with pytest.warns(ConvergenceWarning, match="still increases|a few steps of Blocks on all data increase the bound"):
        SAVIGP(likelihood, inducing=12, method=method).fit(sites, y)
    told = describe_end_of_batches(MiniBatches(), [-100.0] * 50, gain=2.0)
    assert "a few steps of Blocks on all data increase the bound by 2" in told.warning
    assert not describe_end_of_batches(MiniBatches(), [-1e5] * 50, gain=2.0).warning


@pytest.mark.parametrize(("fall", "told"), [(0.0, False), (60.0, True)])
def test_that_a_fall_must_be_larger_than_the_noise_of_an_epoch(fall, told):
    trace = -500.0 + 8.0 * np.random.default_rng(0).standard_normal(400) - np.where(np.arange(400) > 300, fall, 0.0)
    assert max(trace) - trace[-1] > 5.0  # more than 1% of the bound
    assert ("fallen" in describe_end_of_batches(MiniBatches(), trace.tolist()).status) is told


@pytest.mark.parametrize(("whole", "told"), [(False, "or increase batch"), (True, "or use Blocks")])
def test_that_one_batch_of_all_sites_cannot_be_increased(whole, told):
    assert describe_end_of_batches(MiniBatches(), [-10.0, -5.0, -50.0], whole=whole).warning.endswith(told)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poisson", "student"])
def test_that_mini_batches_by_default_come_near_the_optimum(name):
    rng = np.random.default_rng(0)
    sites = rng.uniform(0, 10, (600, 1))
    truth = np.sin(1.5 * sites[:, 0])
    likelihood, y = {
        "poisson": (Poisson(), rng.poisson(np.exp(1 + truth))),
        "student": (StudentT(0.3, dof=4.0), truth + 0.1 * rng.standard_t(4, 600)),
    }[name]
    best = SAVIGP(likelihood, inducing=15).fit(sites, y).bound_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SAVIGP(likelihood, inducing=15, method=MiniBatches()).fit(sites, y)
    assert model.bound_ > best - 0.002 * abs(best)
    assert len(model.trace_) == 1000  # one batch: 1,000 steps


def test_that_a_step_of_the_kernels_keeps_the_site_factors(noisy_data):
    """With Gaussian noise, the posterior of new kernels with the same site factors is the optimal one."""
    settings = {"inducing": X[::6], "method": POSTERIOR_ONLY}
    old, new = (
        SAVIGP(Gaussian(0.3), length_scale=scale, variance=scale**2, **settings).fit(X[::6], noisy_data[::6])
        for scale in (1.0, 1.3)
    )
    states = old._bound_state, new._bound_state
    q = keep_site_factors(states[0].q, states[0].factor, states[1].factor)
    np.testing.assert_allclose(q.mean, states[1].q.mean, atol=1e-4)
    covariances = [r @ np.swapaxes(r, -1, -2) for r in (q.spread, states[1].q.spread)]
    np.testing.assert_allclose(*covariances, atol=1e-4)


def test_that_mini_batches_that_end_far_from_the_optimum_are_told(noisy_data):
    method = MiniBatches(epochs=12, batch=10, natural=0.05, start_sites=0)
    with pytest.warns(ConvergenceWarning, match="the bound still increases, by .* in the last 40% of the epochs"):
        SAVIGP(StudentT(0.3), inducing=8, method=method).fit(X, noisy_data)


@pytest.mark.parametrize(("slope", "told"), [(0.0, False), (0.5, True), (-0.2, False)])
def test_that_an_increase_must_be_larger_than_its_noise(slope, told):
    noise = np.random.default_rng(0).standard_normal(100)
    trace = [-1e6, *(100.0 + slope * np.arange(100) + noise)]  # the first epoch must not hide the increase
    climb = late_climb(MiniBatches(final_epochs=1), trace)
    assert climb.increase == pytest.approx(40 * slope, abs=4 * climb.standard_error)
    assert ("still increases" in describe_end_of_batches(MiniBatches(final_epochs=1), trace).status) is told


def test_that_mini_batches_that_end_too_early_are_told(noisy_data):
    with pytest.warns(ConvergenceWarning, match="but the bound still increases, by .* increase epochs, or use Blocks"):
        model = SAVIGP(StudentT(0.3), inducing=8, method=MiniBatches(epochs=10, natural=0, start_sites=0)).fit(
            X, noisy_data
        )
    assert "the bound still increases" in model.status_
