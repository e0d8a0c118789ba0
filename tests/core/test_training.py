"""Learning every parameter, against exact Gaussian process regression."""

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy.optimize import minimize

from helpers.gp_regression import RNG, START_NOISE, N, X, Y, regression
from invgp.core.backend import to_numpy
from invgp.core.estimators import SiteTerms
from invgp.core.natural_gradients import add_sites, natural_step, prior_parameters
from invgp.core.observed_likelihood import Data
from invgp.core.optimisers import CONVERGED, LBFGS
from invgp.core.point_sets import Points
from invgp.core.profiled_bound import Profile
from invgp.core.stochastic_optimisers import AdaDelta, Adam
from invgp.core.training import PAPER_ORDER, Blocks, MiniBatches, evaluate
from invgp.core.training.mini_batches import _increase_bound, _move
from invgp.likelihoods import BlackBox, Gaussian, Poisson, StudentT


def negative_evidence(free):
    covariance = np.exp(free[0]) * np.exp(-0.5 * (X - X.T) ** 2 / np.exp(2 * free[1]))
    factor = np.linalg.cholesky(covariance + np.exp(2 * free[2]) * np.eye(N))
    return 0.5 * np.sum(np.linalg.solve(factor, Y) ** 2) + np.log(np.diag(factor)).sum() + 0.5 * N * np.log(2 * np.pi)


@pytest.fixture(scope="module")
def best():
    return minimize(negative_evidence, [0.0, 0.0, np.log(START_NOISE)])


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("family", ["full", "sites"])
def test_that_every_parameter_is_learnt_as_by_exact_regression(family, dense, numpy_backend, best):
    bound, parameters, data, points = regression(numpy_backend, family, dense=dense)
    learnt = Blocks(tolerance=1e-8, optimiser=LBFGS(tolerance=1e-10)).fit(bound, parameters, data, points)
    value = float(evaluate(bound, learnt, data, points, ()).elbo)
    # Ten inducing inputs leave a little of the curve open.
    assert value == pytest.approx(-best.fun, abs=0.01 if dense else 0.05)
    found = np.concatenate([learnt.kernels, learnt.likelihood])
    np.testing.assert_allclose(found, best.x, atol=0.05)


class Counted(Gaussian):
    """Gaussian noise that counts how often it is asked."""

    calls: ClassVar[list[int]] = []

    def log_density(self, y, f):
        self.calls.append(len(y))
        return super().log_density(y, f)


@pytest.mark.parametrize("family", ["full", "sites"])
def test_that_a_dense_fit_takes_few_evaluations_to_the_exact_evidence(family, numpy_backend, best):
    bound, parameters, data, points = regression(numpy_backend, family)
    Counted.calls.clear()
    counted, rounds = replace(data, likelihood=Counted(START_NOISE, outputs=1)), []
    learnt = Blocks().fit(bound, parameters, counted, points, rounds.append)
    assert len(Counted.calls) < 150
    assert len(rounds) == 2  # one that learns, one that finds no more to learn
    value = float(evaluate(bound, learnt, data, points, ()).elbo)
    assert value == pytest.approx(-best.fun, abs=1e-3)
    free = np.concatenate([learnt.kernels, learnt.likelihood])
    assert value == pytest.approx(-negative_evidence(free), abs=1e-5)


@pytest.mark.parametrize("family", ["full", "sites"])
def test_that_natural_gradients_count_from_the_prior_mean(family, numpy_backend):
    """With Gaussian noise a single step finds the posterior, wherever the prior has its mean."""
    bound, parameters, data, points = regression(numpy_backend, family)
    far = replace(parameters, prior_mean=numpy_backend.asarray([40.0]))
    raised = replace(data, y=data.y + 40.0)
    trials = [Profile(bound, y, points, 1e-7).start(start) for y, start in ((data, parameters), (raised, far))]
    assert trials[1].elbo == pytest.approx(trials[0].elbo, abs=1e-6)
    np.testing.assert_allclose(trials[1].pseudo.pull, trials[0].pseudo.pull, atol=1e-6)


def test_that_a_likelihood_with_heavy_tails_has_the_optimum_of_many_more_evaluations(numpy_backend):
    """Precisions of pseudo-observations may be negative there."""
    outliers = np.where(np.arange(N)[:, None] % 9 == 4, 3.0, 0.0)
    values = []
    for settings in ({}, {"tolerance": 1e-9, "optimiser": LBFGS(tolerance=1e-12), "evaluations": 400}):
        bound, parameters, data, points = regression(numpy_backend, dense=False)
        heavy = replace(data, likelihood=StudentT(0.2, 3.0), y=data.y + outliers)
        parameters = replace(parameters, likelihood=np.asarray(heavy.likelihood.parameters))
        learnt = Blocks(**settings).fit(bound, parameters, heavy, points)
        values.append(float(evaluate(bound, learnt, heavy, points, ()).elbo))
    assert values[0] == pytest.approx(values[1], abs=0.01)


@pytest.mark.parametrize("family", ["full", "diagonal", "sites"])
def test_that_blocks_take_the_same_steps_on_every_backend(family, backend, tolerance, numpy_backend):
    def after_a_round(at):
        bound, parameters, data, points = regression(at, family, dense=False)
        return Blocks(rounds=1, evaluations=3).fit(bound, parameters, data, points).flatten(["kernels", "likelihood"])

    here, there = after_a_round(backend), after_a_round(numpy_backend)
    assert here.dtype == getattr(backend.namespace, backend.dtype)
    np.testing.assert_allclose(to_numpy(here), there, atol=tolerance(backend, 1e-6, 0.05))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda: Blocks(learn=("kernel",)), r"learn must be a tuple of names among posterior, .*, was \('kernel',\)"),
        (lambda: Blocks(learn="kernels"), "learn must be a tuple of names among .*, was 'kernels'"),
        (lambda: Blocks(order=(("noise",),)), r"a group of order must be .*, was \('noise',\)"),
        (lambda: Blocks(rounds=0), "rounds must be a whole number of at least 1, was 0"),
        (lambda: Blocks(rounds=1.5), r"rounds must be a whole number of at least 1, was 1\.5"),
        (lambda: Blocks(evaluations="a"), "evaluations must be a whole number of at least 1, was 'a'"),
        (lambda: Blocks(tolerance=-1), "tolerance must be a number of at least 0, was -1"),
        (lambda: Blocks(optimiser=Adam()), r"optimiser of Blocks must be LBFGS, .*, was Adam\("),
        (lambda: MiniBatches(optimiser=LBFGS()), r"optimiser of MiniBatches must be Adam or AdaDelta, .*, was LBFGS\("),
        (lambda: MiniBatches(optimiser=Adam), "optimiser of MiniBatches must be Adam or AdaDelta"),
        (lambda: Adam(rate=-1), "rate must be a number above 0, was -1"),
        (lambda: Adam(decay=(0.9, 1.0)), r"decay must be a number of at least 0 and below 1, was 1\.0"),
        (lambda: Adam(decay=0.9), r"decay must be two numbers from 0 to below 1, was 0\.9"),
        (lambda: AdaDelta(decay=2.0), r"decay must be a number of at least 0 and below 1, was 2\.0"),
        (lambda: LBFGS(memory=-1), "memory must be a whole number of at least 1, was -1"),
        (lambda: MiniBatches(batch=0), "batch must be a whole number of at least 1, was 0"),
        (lambda: Blocks(profile_posterior="no"), "profile_posterior must be True or False, was 'no'"),
        (lambda: MiniBatches(shrink=1), "shrink must be True or False, was 1"),
        (lambda: MiniBatches(unbiased="no"), "unbiased must be True or False, was 'no'"),
        (
            lambda: MiniBatches(natural=0.1, final_epochs=-1),
            "final_epochs must be a whole number of at least 0, was -1",
        ),
        (
            lambda: MiniBatches(final_epochs=1, natural=0.0),
            r"final_epochs must be 0 unless natural steps move the posterior, .*, was 1",
        ),
        (lambda: MiniBatches(natural=0.1, epochs=2, final_epochs=3), r"and at most epochs \(.*epochs = 2\), was 3"),
        (
            lambda: MiniBatches(("kernels",), natural=0.1),
            "natural must be 0 unless learn has 'posterior' .*, was 0.1",
        ),
        (lambda: MiniBatches(natural=1.5), r"natural must be a number of at least 0 and at most 1, was 1\.5"),
    ],
)
def test_that_wrong_settings_are_reported(method, message):
    with pytest.raises(ValueError, match=message):
        method()


def test_that_theorem_two_has_the_optimum_of_the_free_covariance(numpy_backend):
    values = []
    for family in ("full", "sites"):
        bound, parameters, data, points = regression(numpy_backend, family, dense=False)
        method = Blocks(learn=("posterior",), tolerance=1e-10, optimiser=LBFGS(tolerance=1e-12))
        learnt = method.fit(bound, parameters, data, points)
        values.append(float(evaluate(bound, learnt, data, points, ()).elbo))
    assert values[0] == pytest.approx(values[1], abs=1e-5)


def test_that_the_paper_s_order_raises_the_bound_in_every_round(numpy_backend, best):
    bound, parameters, data, points = regression(numpy_backend)
    trace = []
    method = replace(Blocks.of_the_paper(), rounds=8)
    assert method.order == PAPER_ORDER
    method.fit(bound, parameters, data, points, lambda progress: trace.append(progress.elbo))
    assert np.all(np.diff(trace) > -1e-6)
    assert trace[-1] > -best.fun - 1.0


def test_that_a_black_box_learns_its_parameters_by_differences(numpy_backend, best):
    bound, parameters, data, points = regression(numpy_backend, dense=False)

    def log_density(y, f, free):
        return -0.5 * np.sum((y - f) ** 2, axis=-1) * np.exp(-2 * free[0]) - free[0] - 0.5 * np.log(2 * np.pi)

    black_box = replace(data, likelihood=BlackBox(log_density, 1, 1, parameters=np.asarray([np.log(START_NOISE)])))
    with_gradient, without = (Blocks(rounds=3).fit(bound, parameters, d, points).likelihood for d in (data, black_box))
    np.testing.assert_allclose(without, with_gradient, atol=1e-3)


def test_that_a_mixture_of_diagonals_improves_and_learns_its_weights(numpy_backend):
    bound, parameters, data, points = regression(numpy_backend, "diagonal", dense=False, components=2)
    trace = []
    learnt = Blocks(rounds=5).fit(bound, parameters, data, points, lambda p: trace.append(p.elbo))
    assert trace[-1] > float(evaluate(bound, parameters, data, points, ()).elbo)
    weights = bound.bound_state(learnt).q.weights
    assert float(np.sum(weights)) == pytest.approx(1.0)
    assert not np.allclose(weights, 0.5, atol=1e-6)


@dataclass(frozen=True)
class DescentState:
    trial: object
    point: object
    value: float = np.inf
    gradient: object = None
    step: float = 0.01
    accepted: bool = False
    finished: str = ""


@dataclass(frozen=True)
class Descent:
    """Steepest descent, with what `invgp.core.optimisers` asks of an optimiser and no more."""

    tolerance: float = 1e-6

    def init(self, point):
        return DescentState(point, point)

    def tell(self, state, value, gradient):
        if value < state.value:
            wider = 2 * state.step
            return DescentState(state.trial - wider * gradient, state.trial, value, gradient, wider, accepted=True)
        short = 0.25 * state.step
        finished = CONVERGED if short < 1e-9 else ""
        trial = state.point - short * state.gradient
        return replace(state, trial=trial, step=short, accepted=False, finished=finished)


class Watching(LBFGS):
    """L-BFGS that remembers how much it was given to learn."""

    sizes: ClassVar[list[int]] = []

    def init(self, point):
        self.sizes.append(len(point))
        return super().init(point)


def test_that_without_reoptimisation_the_posterior_is_optimised_once_first(numpy_backend):
    bound, parameters, data, points = regression(numpy_backend, dense=False)
    Watching.sizes.clear()
    Blocks(order=PAPER_ORDER, profile_posterior=False, rounds=2, evaluations=2, optimiser=Watching()).fit(
        bound, parameters, data, points
    )
    posterior, kernels, noise = len(parameters.posterior), parameters.kernels.size, 1
    one_round = [kernels, posterior, kernels, noise]
    assert Watching.sizes == [posterior, *one_round, *one_round]


def test_that_the_optimiser_of_blocks_can_be_replaced(numpy_backend, best):
    bound, parameters, data, points = regression(numpy_backend)
    learnt = Blocks(optimiser=Descent(), tolerance=1e-3).fit(bound, parameters, data, points)
    assert float(evaluate(bound, learnt, data, points, ()).elbo) == pytest.approx(-best.fun, abs=0.01)


def test_that_inducing_inputs_that_move_raise_the_bound(numpy_backend):
    bound, parameters, data, points = regression(numpy_backend, dense=False)
    bound, clumped = replace(bound, jitter=1e-6), replace(parameters, inducing=0.3 + 0.2 * parameters.inducing)
    fixed, moved = (
        Blocks(learn=learn, rounds=3).fit(bound, clumped, data, points)
        for learn in (("posterior",), ("posterior", "inducing"))
    )
    before, after = (float(evaluate(bound, p, data, points, ()).elbo) for p in (fixed, moved))
    assert after > before + 1.0


METHODS = {
    "adam": MiniBatches(natural=0.0, optimiser=Adam(0.02), batch=13, epochs=200, samples=16),
    "natural": MiniBatches(optimiser=Adam(0.02), natural=0.1, batch=13, epochs=100, samples=16),
    "adadelta": MiniBatches(natural=0.0, optimiser=AdaDelta(), batch=13, epochs=400, samples=16),
    "unbiased": MiniBatches(natural=0.0, optimiser=Adam(0.02), batch=13, epochs=200, samples=16, unbiased=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_that_mini_batches_come_near_the_exact_evidence(method, numpy_backend, best):
    bound, parameters, data, points = regression(numpy_backend, dense=False)
    learnt = METHODS[method].fit(bound, parameters, data, np.random.default_rng(0))
    assert float(evaluate(bound, learnt, data, points, ()).elbo) > -best.fun - 6.0


@pytest.mark.slow
def test_that_steps_that_shrink_come_to_rest_nearer_the_optimum(numpy_backend, best):
    bound, parameters, data, points = regression(numpy_backend, dense=False)
    shrinking, constant = (
        replace(METHODS["adam"], shrink=shrink).fit(bound, parameters, data, np.random.default_rng(0))
        for shrink in (True, False)
    )
    short, far = (-best.fun - float(evaluate(bound, p, data, points, ()).elbo) for p in (shrinking, constant))
    assert short < 0.6
    assert short < 0.5 * far


@pytest.mark.parametrize("method", METHODS)
def test_that_mini_batches_take_the_same_steps_on_every_backend(method, backend, tolerance, numpy_backend):
    def after_an_epoch(at):
        bound, parameters, data, _ = regression(at, dense=False)
        method_once = replace(METHODS[method], epochs=1)
        return method_once.fit(bound, parameters, data, np.random.default_rng(0)).flatten(["posterior", "kernels"])

    here, there = after_an_epoch(backend), after_an_epoch(numpy_backend)
    assert here.dtype == getattr(backend.namespace, backend.dtype)
    np.testing.assert_allclose(to_numpy(here), there, atol=tolerance(backend, 1e-8, 0.02))


def test_that_batches_are_shuffled_in_every_epoch_and_contain_all_sites(numpy_backend):
    bound, parameters, data, _ = regression(numpy_backend, dense=False)
    seen = []

    class Recording(Data):
        def rows(self, index):
            seen.append(np.asarray(index))
            return Data(self.likelihood, self.y).rows(index)

    MiniBatches(batch=13, epochs=2, samples=16).fit(
        bound, parameters, Recording(data.likelihood, data.y), np.random.default_rng(0)
    )
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    for one_pass in (first, second):
        np.testing.assert_array_equal(np.sort(np.concatenate(one_pass)), np.arange(N))
        assert not np.array_equal(one_pass[0], np.arange(13))
    assert not np.array_equal(first[0], second[0])


def test_that_gradients_without_bias_come_from_independent_samples(numpy_backend):
    bound, _, data, _ = regression(numpy_backend, dense=False)
    for unbiased in (True, False):
        _, _, points = MiniBatches(unbiased=unbiased)._batch(bound, data, np.arange(5), np.random.default_rng(0))
        assert points.independent is unbiased


def test_that_the_same_seed_gives_the_same_answer(numpy_backend):
    bound, parameters, data, _ = regression(numpy_backend, dense=False)
    method = MiniBatches(batch=13, epochs=2, samples=16)
    first, second, other = (method.fit(bound, parameters, data, np.random.default_rng(s)).posterior for s in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_that_natural_gradients_of_gaussian_noise_arrive_in_one_step(numpy_backend):
    bound, parameters, data, points = regression(numpy_backend)
    method = MiniBatches(learn=("posterior",), natural=1.0, batch=N, epochs=1, samples=16)
    learnt = method.fit(bound, parameters, data, np.random.default_rng(0))
    free = np.concatenate([parameters.kernels, parameters.likelihood])
    assert float(evaluate(bound, learnt, data, points, ()).elbo) == pytest.approx(-negative_evidence(free), abs=1e-6)


def test_that_settling_on_batches_arrives_where_all_data_at_once_would(numpy_backend):
    bound, parameters, data, points = regression(numpy_backend, dense=False)
    whole, alike, last = (
        MiniBatches(learn=("posterior",), natural=natural, final_epochs=final, batch=batch, epochs=1, samples=16)
        for natural, final, batch in ((1.0, 0, N), (1.0, 1, N // 5), (1.0, 0, N // 5))
    )
    best, converged, unsettled = (
        float(evaluate(bound, method.fit(bound, parameters, data, np.random.default_rng(0)), data, points, ()).elbo)
        for method in (whole, alike, last)
    )
    assert converged == pytest.approx(best, abs=1e-6)
    assert unsettled < best - 1.0


def test_that_only_the_posterior_changes_in_the_last_passes(numpy_backend):
    bound, parameters, data, _ = regression(numpy_backend, dense=False)
    seen = []
    MiniBatches(natural=0.2, final_epochs=2, batch=N // 5, epochs=3, samples=16).fit(
        bound, parameters, data, np.random.default_rng(0), seen.append
    )
    after = [progress.parameters for progress in seen]
    assert not np.array_equal(after[0].kernels, parameters.kernels)
    np.testing.assert_array_equal(
        after[2].flatten(["kernels", "likelihood"]), after[0].flatten(["kernels", "likelihood"])
    )
    assert not np.array_equal(after[2].posterior, after[1].posterior)


def heavy_tailed(backend):
    """Nearly independent sites far from zero, where the log density curves upwards and the optimum is wider for it."""
    bound, parameters, data, _ = regression(backend)
    points = Points.draw(np.random.default_rng(1), 512, N, 1, backend)
    heavy = replace(data, likelihood=StudentT(0.2, 3.0), y=backend.asarray(np.full((N, 1), 6.0)))
    rough = parameters.kernels + backend.asarray([0.0, np.log(0.02)])
    return bound, replace(parameters, kernels=rough, likelihood=heavy.likelihood.parameters), heavy, points


def test_that_natural_gradients_lead_to_the_optimum_where_sites_take_precision_away(numpy_backend):
    bound, parameters, heavy, points = heavy_tailed(numpy_backend)
    exact = {"tolerance": 1e-10, "optimiser": LBFGS(tolerance=1e-12), "evaluations": 2000}
    best = Blocks(learn=("posterior",), profile_posterior=False, **exact).fit(bound, parameters, heavy, points)
    density = heavy.log_density(parameters.likelihood, derivatives=False)
    for _ in range(50):
        bound_state = bound.bound_state(parameters)
        q = natural_step(bound_state, bound_state.evaluate(density, points, ()).expected, 0.5)
        parameters = replace(parameters, posterior=bound.posterior.pack(q))
    values = [float(evaluate(bound, p, heavy, points, ()).elbo) for p in (parameters, best)]
    assert values[0] == pytest.approx(values[1], abs=0.01)


def test_that_a_natural_step_is_shortened_if_a_full_step_gives_no_distribution(numpy_backend):
    bound, parameters, _, points = regression(numpy_backend)

    def curving_upwards(f, start, stop):
        return 40.0 * f[..., 0] ** 2, None

    bound_state = bound.bound_state(parameters)
    q = natural_step(bound_state, bound_state.evaluate(curving_upwards, points, ()).expected, 1.0)
    bound_state = bound.bound_state(replace(parameters, posterior=bound.posterior.pack(q)))
    _, variance = bound_state.marginals(bound_state.geometry(0, N))
    _, before = bound.bound_state(parameters).marginals(bound_state.geometry(0, N))
    assert np.all(np.isfinite(variance))
    assert np.all(variance > before)


def test_that_sites_take_away_at_most_half_of_their_own_precision_where_that_is_limited(numpy_backend):
    bound, parameters, _, _ = regression(numpy_backend)
    bound_state = bound.bound_state(parameters)
    geometry = bound_state.geometry(0, N)
    variance = bound_state.marginals(geometry)[1][0]
    curvature = np.where(np.arange(N)[:, None] % 2, 100.0, -3.0)
    terms = SiteTerms(np.zeros(N), np.zeros((N, 1)), curvature)
    found = add_sites(prior_parameters(bound_state), bound_state, geometry, terms, variance).precision[0]
    added = np.where(curvature > 0, -0.5 / variance, -curvature)[:, 0]
    W = geometry.projection[0]
    np.testing.assert_allclose(found, np.eye(N) + (W * added) @ W.T, atol=1e-10)


@pytest.mark.parametrize("step", [1.0, 0.5, 0.1])
def test_that_a_natural_step_never_lowers_the_bound_of_its_batch(step, numpy_backend):
    """From the prior, the first full step for large counts leads to rates that overflow."""
    bound, parameters, _, points = regression(numpy_backend, dense=False)
    counts = Data(Poisson(0.0, learn=False), np.full((N, 1), 400.0))
    density = counts.log_density(np.zeros(0), derivatives=False)
    parameters = replace(parameters, likelihood=np.zeros(0))
    lowered, values = 0, []
    for _ in range(40):
        bound_state = bound.bound_state(parameters)
        terms = bound_state.evaluate(density, points, ())
        values.append(float(terms.elbo))
        plain = natural_step(bound_state, terms.expected, step)
        lowered += float(replace(bound_state, q=plain).evaluate(density, points, ()).elbo) < values[-1] - 1.0
        q = _increase_bound(bound_state, terms, counts, points, step)
        parameters = replace(parameters, posterior=bound.posterior.pack(q))
    assert np.all(np.diff(values) > -1e-3)
    assert lowered > 0 or step < 1.0
    best = Blocks(learn=("posterior",)).fit(bound, replace(parameters, posterior=parameters.posterior), counts, points)
    assert values[-1] == pytest.approx(
        float(evaluate(bound, best, counts, points, ()).elbo), abs=10.0 if step < 0.5 else 0.1
    )


def test_that_a_step_to_impossible_kernels_is_shortened(numpy_backend):
    bound, parameters, _, _ = regression(numpy_backend, dense=False)
    optimiser = Adam()
    state = optimiser.init(parameters.flatten(["kernels"]))

    def move(step):
        return _move(state, replace(state, trial=state.trial + step, steps=1), 1.0, parameters, ["kernels"], bound)

    moved, at, cache = move(0.1)
    np.testing.assert_allclose(at.kernels, parameters.kernels + 0.1)
    assert cache is not None
    assert moved.steps == 1
    for impossible in (1e4, np.nan):
        same, at, cache = move(impossible)
        np.testing.assert_array_equal(at.kernels, parameters.kernels)
        assert same.steps == 0
        assert cache is None


def test_that_batches_are_evaluated_once_when_steps_are_short(numpy_backend):
    looked = []

    def log_density(y, f):
        looked.append(f.shape)
        return -0.5 * np.sum((y - f) ** 2, axis=-1)

    bound, parameters, data, _ = regression(numpy_backend, dense=False)
    parameters = replace(parameters, likelihood=parameters.likelihood[:0])
    box = Data(BlackBox(log_density, 1, 1), data.y)
    MiniBatches(natural=0.1, batch=15, epochs=20, samples=16).fit(bound, parameters, box, np.random.default_rng(0))
    assert looked[-3:] == [(16, 15, 1), (16, 15, 1), (16, 10, 1)]  # at first, long steps are checked


def test_that_sites_of_a_short_batch_count_for_all(numpy_backend):
    bound, _, data, _ = regression(numpy_backend, dense=False)
    small, some, points = MiniBatches(batch=15)._batch(bound, data, np.arange(30, 40), np.random.default_rng(0))
    assert small.weight == N / 10
    assert (small.X.shape[0], some.y.shape[0], points.normals().shape[1]) == (10, 10, 10)


def test_that_steps_shrink_over_the_passes_that_the_optimiser_has():
    method = MiniBatches(natural=0.1, epochs=6, final_epochs=2)
    assert [method._share_left(passes) for passes in (0, 2, 3, 4)] == [1.0, 1.0, 0.5, 0.0]


def test_that_natural_gradients_refuse_a_mixture(numpy_backend):
    bound, parameters, data, _ = regression(numpy_backend, "diagonal", dense=False, components=2)
    with pytest.raises(ValueError, match="single full Gaussian"):
        MiniBatches(natural=0.5).fit(bound, parameters, data, np.random.default_rng(0))


def test_that_gradients_without_bias_refuse_too_few_samples(numpy_backend):
    bound, parameters, data, _ = regression(numpy_backend, dense=False)
    with pytest.raises(ValueError, match=r"samples must be .* at least 6 \(Q = 1, unbiased\), was 5"):
        MiniBatches(samples=5, unbiased=True).fit(bound, parameters, data, np.random.default_rng(0))


def test_that_noise_per_site_follows_its_sites(numpy_backend):
    bound, parameters, data, points = regression(numpy_backend, dense=False)
    known = replace(data, likelihood=Gaussian(0.2 + 0.3 * RNG.random((N, 1))))
    parameters = replace(parameters, likelihood=np.zeros(0))
    whole = float(evaluate(bound, parameters, known, points, ()).elbo)
    parts = []
    for n in range(N):
        alone = replace(bound, X=bound.X[n : n + 1], weight=float(N))
        base = Points(points.base, points.rotations[n : n + 1])
        parts.append(float(evaluate(alone, parameters, known.rows(np.asarray([n])), base, ()).elbo))
    assert np.mean(parts) == pytest.approx(whole, rel=1e-10)


def test_that_a_posterior_held_at_the_sites_refuses_mini_batches(numpy_backend):
    bound, parameters, data, _ = regression(numpy_backend, "sites", dense=False)
    with pytest.raises(ValueError, match="needs all sites at once"):
        MiniBatches().fit(bound, parameters, data, np.random.default_rng(0))


@pytest.mark.slow
def test_that_mini_batches_of_a_million_sites_need_little_memory():
    """In a process of its own, whose peak is measured: less than 4 GiB, whatever N is."""
    script = """
import resource
import numpy as np
from invgp.core.training import MiniBatches
from invgp.estimator import SAVIGP
from invgp.likelihoods import Logistic
rng = np.random.default_rng(0)
X = rng.standard_normal((1_000_000, 2))
y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
method = MiniBatches(natural=0.1, batch=50_000, epochs=1, samples=16)
model = SAVIGP(Logistic(), inducing=50, method=method).fit(X, y)
accuracy = np.mean(model.predict(X[:5000]) == y[:5000])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, accuracy)
"""
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    gibibytes, accuracy = map(float, outcome.stdout.split())
    assert gibibytes < 4.0
    assert accuracy > 0.8
