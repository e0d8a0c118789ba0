"""The coupled posterior of models that are not linear, against quadrature, closed forms and itself."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize, root
from scipy.special import ndtri

from invgp.core.backend import to_numpy
from invgp.core.bound import Bound, Parameters
from invgp.core.coupled import GaussianNoise, Prior
from invgp.core.coupled.algorithm import CoupledSavigp
from invgp.core.coupled.estimators import all_outputs, estimate_by_output, estimate_log_density, hermite_fit
from invgp.core.coupled.hyperparameters import Hyperparameters
from invgp.core.coupled.minibatches import MiniBatches
from invgp.core.coupled.stage import Stage
from invgp.core.data import Data
from invgp.core.geometry import inducing_factor
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.core.optimisers import LBFGS
from invgp.core.posteriors import Full
from invgp.core.sampling import Points
from invgp.core.training import Blocks

SETTLED = "the posterior has settled"


def prior_of(where, X, latents, variance=1.0, length_scale=1.0, mean=0.0):
    X = np.asarray(X, dtype=float).reshape(len(X), -1)
    kernel = Kernel(
        CORRELATIONS["matern 5/2"], where.asarray(variance), where.asarray(np.full(X.shape[1], length_scale))
    )
    Z = where.asarray(np.broadcast_to(X, (latents, *X.shape)))
    return Prior((kernel,) * latents, where.asarray(np.full(latents, mean)), where.asarray(X), Z, dense=True)


def independent_noise(where, y, std):
    y = np.asarray(y, dtype=float)
    std = np.broadcast_to(std, y.shape)
    whitening = np.eye(y.shape[1]) / std[..., None]
    normaliser = -np.sum(np.log(std) + 0.5 * np.log(2 * np.pi), axis=1)
    return GaussianNoise(*(where.asarray(part) for part in (y, whitening, normaliser, np.ones_like(y))))


def sobol(where, samples, sites, latents, seed=1):
    return Points.draw(np.random.default_rng(seed), samples, sites, latents, where)


def even_points(where, samples, sites):
    """One latent: points with the moments of the normal up to the ninth, so that no estimate of a quartic errs."""
    z = ndtri((np.arange(samples) + 0.5) / samples)
    orders, moments = np.asarray([2, 4, 6, 8]), np.asarray([1.0, 3.0, 15.0, 105.0])

    def bent(c):
        return z + z * np.polynomial.polynomial.polyval(z**2, c)

    found = root(lambda c: np.mean(bent(c)[:, None] ** orders, axis=0) / moments - 1.0, np.zeros(4), tol=1e-12)
    assert found.success
    return Points(where.asarray(bent(found.x)[:, None]), where.asarray(np.ones((sites, 1, 1))))


def all_valid(f):
    return np.ones(f.shape[:2], dtype=bool)


def run(algorithm, outputs_of, most=60, valid_of=lambda f, evaluation: all_valid(f), state=None):
    """Ask and tell until it is over: the last state, and what every evaluation found with its stage."""
    state, told = state or algorithm.init(), []
    while not state.finished and state.evaluations < most:
        f, stage = algorithm.ask(state), state.stage
        valid = valid_of(f, state.evaluations)
        state, info = algorithm.tell(state, np.where(valid[..., None], outputs_of(f), np.nan), valid)
        told.append((stage, info))
    return state, told


def run_batches(algorithm, outputs_of, size, most=80, valid_of=all_valid, seed=2, start=None):
    """The same on mini-batches; outputs of latents at some rows."""
    batches = MiniBatches(algorithm, size, np.random.default_rng(seed))
    state, told = batches.init(start or algorithm.init().trial), []
    while not state.finished and state.passes < most:
        (rows, f), stage = batches.ask(state), state.stage
        valid = valid_of(f)
        state, info = batches.tell(state, np.where(valid[..., None], outputs_of(f, rows), np.nan), valid)
        if info is not None:
            told.append((stage, info))
    return state, told


def log_density_model(where, log_density, sites=1, tolerance=1e-6, samples=500):
    """One latent at sites that know nothing of each other, and a log density of it."""
    prior = prior_of(where, 100.0 * np.arange(sites), 1)
    stage = Stage("log density", even_points(where, samples, sites), tolerance)
    return CoupledSavigp(prior, [stage], lambda outputs, rows: log_density(outputs[..., 0]))


def latents_themselves(f, rows=None):
    return f


class OneLatent:
    """The bound of one latent with prior N(0, 1) by quadrature."""

    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def __init__(self, log_density):
        self.log_density = log_density

    def bound(self, mean, variance):
        expected = self.weights @ self.log_density(mean + np.sqrt(variance) * self.nodes)
        return expected - 0.5 * (variance + mean**2 - 1.0 - np.log(variance))


# Log densities that curve upwards.


def bent_upwards(f):
    return 0.3 * f**2 + 0.1 * f


@pytest.mark.parametrize("batch", [None, 2])
def test_that_a_site_may_take_precision_away(batch, numpy_place):
    """The exact posterior is Gaussian, with 0.4 of the prior's precision."""
    algorithm = log_density_model(numpy_place, bent_upwards, sites=1 if batch is None else 3)
    if batch is None:
        state, told = run(algorithm, latents_themselves)
        found, bound = state.best, told[-1][1].elbo
    else:
        state, told = run_batches(algorithm, latents_themselves, batch)
        found, bound = state.position, told[-1][1].elbo / 3
    assert state.finished == SETTLED
    np.testing.assert_allclose(found.marginals.covariance, 2.5, rtol=1e-4)
    np.testing.assert_allclose(found.marginals.mean, 0.25, rtol=1e-4)
    assert bound == pytest.approx(-0.5 * np.log(0.4) + 0.1**2 / 0.8, abs=1e-4)


DOUBLE_WELLS = {
    "a step that would take all precision": (1.0, 0.1),
    "that even the smallest step would take": (100.0, 0.1),
    "with a mean that does not move": (1.0, 0.0),
}


@pytest.mark.parametrize("batch", [None, 1])
@pytest.mark.parametrize("case", DOUBLE_WELLS)
def test_that_it_goes_on_where_a_whole_step_would_be_no_distribution(case, batch, numpy_place):
    height, tilt = DOUBLE_WELLS[case]

    def log_density(f):
        return height * (2.5 * f**2 - 0.25 * f**4 + tilt * f)

    algorithm = log_density_model(numpy_place, log_density, tolerance=0.01)
    if batch is None:
        state, _ = run(algorithm, latents_themselves, most=200)
        found = state.best
    else:
        state, _ = run_batches(algorithm, latents_themselves, batch, most=200)
        found = state.position
    exact = OneLatent(log_density)
    mean, variance = float(found.marginals.mean[0, 0]), float(found.marginals.covariance[0, 0, 0])
    assert state.finished == SETTLED
    assert exact.bound(mean, variance) > exact.bound(0.0, 1.0) + 0.2
    nearest = minimize(lambda x: -exact.bound(x[0], np.exp(x[1])), [mean, np.log(variance)])
    assert exact.bound(mean, variance) == pytest.approx(-nearest.fun, abs=2e-3)


# The guard by the bound.


OVERSHOOTING = np.asarray([[3.0], [-2.0], [0.3], [8.0]])


def overshooting(where, kind="hermite", sites=4):
    """Outputs exp(3 f): a step that is right for the curvature under the prior goes much too far."""
    prior = prior_of(where, 0.5 * np.arange(sites), 1)
    stages = [
        Stage(kind, sobol(where, 64, sites, 1), 1e-3),
        Stage(kind, sobol(where, 128, sites, 1, seed=2), 1e-4),
    ]
    return CoupledSavigp(prior, stages, independent_noise(where, OVERSHOOTING[:sites], 0.5))


def exponential(f, rows=None):
    return np.exp(3.0 * f)


def falls_below_the_best(told):
    """How far each accepted bound lies below the best of its stage before it."""
    best, falls = {}, []
    for stage, info in told:
        if info.accepted:
            falls.append(best.get(stage, -np.inf) - info.elbo)
            best[stage] = max(best.get(stage, -np.inf), info.elbo)
    return np.asarray(falls)


@pytest.mark.parametrize("kind", ["hermite", "log density"])
def test_that_no_step_is_kept_that_lowers_the_bound(kind, numpy_place):
    _, told = run(overshooting(numpy_place, kind), exponential)
    assert not all(info.accepted for _, info in told)
    assert np.all(falls_below_the_best(told) <= 4 * 1e-4 + 1e-12)


@pytest.mark.parametrize("kind", ["hermite", "log density"])
def test_that_no_pass_is_kept_that_lowers_the_bound(kind, numpy_place):
    _, told = run_batches(overshooting(numpy_place, kind), exponential, 2)
    assert not all(info.accepted for _, info in told)
    assert np.all(falls_below_the_best(told) <= 4 * 1e-3 + 1e-12)


@pytest.mark.parametrize("kind", ["hermite", "log density"])
def test_that_mini_batches_get_over_passes_that_go_too_far(kind, numpy_place):
    algorithm = overshooting(numpy_place, kind)
    whole, _ = run(algorithm, exponential, most=150)
    batches, _ = run_batches(algorithm, exponential, 2, most=150)
    scale = np.sqrt(whole.best.marginals.covariance[..., 0])
    away = (batches.position.marginals.mean - whole.best.marginals.mean) / scale
    assert np.max(np.abs(away)) < 0.1


# What counts as movement.


def linear_with_units(where, units, y=2.0):
    prior = prior_of(where, 0.7 * np.arange(3), 2, variance=units**2)
    stage = Stage("linear", sobol(where, 16, 3, 2), 1e-3)
    return CoupledSavigp(prior, [stage], independent_noise(where, np.full((3, 2), y), 0.8))


@pytest.mark.parametrize("units", [1e-3, 1e3])
def test_that_movement_does_not_depend_on_the_units_of_the_latents(units, numpy_place):
    found = []
    for scale in (1.0, units):
        _, told = run(linear_with_units(numpy_place, scale), lambda f, scale=scale: f / scale)
        found.append([info.movement for _, info in told])
    assert found[0][0] > 0.1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("units", [1e-3, 1e3])
def test_that_movement_of_a_pass_does_not_depend_on_the_units_of_the_latents(units, numpy_place):
    found = []
    for scale in (1.0, units):
        algorithm = linear_with_units(numpy_place, scale)
        _, told = run_batches(algorithm, lambda f, rows, scale=scale: f / scale, 2)
        found.append([info.movement for _, info in told])
    assert found[0][0] > 0.1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)


def test_that_a_step_which_only_narrows_the_posterior_is_movement(numpy_place):
    """The data lie at the prior mean: no mean moves, but every spread does."""
    algorithm = linear_with_units(numpy_place, 1.0, y=0.0)
    _, told = run(algorithm, latents_themselves, most=1)
    after = algorithm.tell(algorithm.init(), algorithm.ask(algorithm.init()), np.ones((16, 3), dtype=bool))[0]
    shares = 0.5 * np.log(np.diagonal(after.trial.marginals.covariance, axis1=1, axis2=2))
    np.testing.assert_allclose(after.trial.marginals.mean, 0.0, atol=1e-12)
    assert np.abs(shares).min() - 1e-9 <= told[0][1].movement <= np.abs(shares).max() + 1e-9
    assert not after.finished


@pytest.mark.parametrize("batch", [None, 4])
def test_that_one_site_that_moves_is_movement_among_many_that_do_not(batch, numpy_place):
    found = []
    for sites in (1, 40):
        prior = prior_of(numpy_place, 100.0 * np.arange(sites), 1)
        y = np.where(np.arange(sites) == 0, 2.0, 0.0)[:, None]
        noise = independent_noise(numpy_place, y, np.where(np.arange(sites) == 0, 0.8, 1e6)[:, None])
        algorithm = CoupledSavigp(prior, [Stage("linear", sobol(numpy_place, 16, sites, 1), 1e-3)], noise)
        if batch is None:
            told = run(algorithm, latents_themselves, most=1)[1]
        else:
            told = run_batches(algorithm, latents_themselves, batch, most=1)[1]
        found.append(told[0][1].movement)
    assert found[0] > 0.5
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_that_a_pass_which_only_narrows_the_posterior_is_movement(numpy_place):
    state, told = run_batches(linear_with_units(numpy_place, 1.0, y=0.0), latents_themselves, 2, most=1)
    assert told[0][1].movement > 0.1
    assert not state.finished


# A nonlinear model of two latents at two sites, whose bound quadrature knows.


class TwoByTwo:
    """Two latents at two sites, tied by outputs that are quadratic or exponential in them."""

    NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
    Z = np.stack([axis.ravel() for axis in np.meshgrid(NODES, NODES, indexing="ij")], axis=-1)
    W = np.outer(WEIGHTS, WEIGHTS).ravel() / WEIGHTS.sum() ** 2

    def __init__(self, kind, where):
        self.kind = kind
        self.prior = prior_of(where, [0.0, 0.6], 2, mean=0.3)
        self.noise = independent_noise(where, [[1.2, 0.5], [0.4, 1.5]], [0.4, 0.6])

    def outputs(self, f, rows=None):
        a, b = f[..., 0], f[..., 1]
        if self.kind == "quadratic":
            return np.stack([a + 0.4 * b + 0.15 * a**2, a * b * 0.3 - b + 0.1 * b**2], axis=-1)
        return np.stack([np.exp(0.4 * a + 0.3 * b), np.exp(-0.5 * b) + 0.2 * a], axis=-1)

    def bound(self, algorithm, sites):
        """By quadrature, at what the sites say."""
        at = algorithm.position(sites, Hyperparameters(np.zeros(0), np.zeros(0), self.prior.Z))
        f = np.einsum("nij,sj->sni", at.factor, self.Z) + at.marginals.mean
        return float(self.W @ self.noise.log_density(self.outputs(f)).sum(axis=1) - at.q.kl())

    def slopes(self, algorithm, sites, share=1e-4):
        """Of the bound, by finite differences along every entry of Lambda and eta, relative to the posterior's own."""
        covariance = algorithm.position(sites, algorithm.init().trial.hyper).marginals.covariance
        scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        found = []
        for n, i in np.ndindex(2, 2):
            for j in range(i + 1):
                change = np.zeros((2, 2, 2))
                change[n, i, j] = change[n, j, i] = 1.0 / (scale[n, i] * scale[n, j])
                found.append((sites.precision, change, "precision"))
            change = np.zeros((2, 2))
            change[n, i] = 1.0 / scale[n, i]
            found.append((sites.shift, change, "shift"))
        return np.asarray(
            [
                sum(s * self.bound(algorithm, sites._replace(**{name: old + s * share * change})) for s in (1, -1))
                / (2 * share)
                for old, change, name in found
            ]
        )


NONLINEAR = {
    "quadratic by hermite": ("quadratic", "hermite", 64, 1e-7, 1e-5),
    "quadratic by log density": ("quadratic", "log density", 8192, 1e-7, 2e-3),
    "exponential by log density": ("exponential", "log density", 8192, 1e-7, 2e-3),
    "exponential by hermite": ("exponential", "hermite", 4096, 0.02, 0.05),  # exact for quadratic outputs only
}


@pytest.mark.parametrize("case", NONLINEAR)
def test_that_a_nonlinear_posterior_is_stationary_in_all_that_its_sites_say(case, numpy_place):
    kind, estimator, samples, tolerance, close = NONLINEAR[case]
    model = TwoByTwo(kind, numpy_place)
    points = sobol(numpy_place, samples, 2, 2)
    algorithm = CoupledSavigp(model.prior, [Stage(estimator, points, tolerance)], model.noise)
    state, told = run(algorithm, model.outputs)
    assert state.finished == SETTLED
    np.testing.assert_allclose(model.slopes(algorithm, state.best.sites), 0.0, atol=close)
    assert told[-1][1].elbo == pytest.approx(model.bound(algorithm, state.best.sites), abs=0.01)
    aside = model.slopes(algorithm, state.best.sites._replace(shift=state.best.sites.shift + 0.3))
    assert np.max(np.abs(aside)) > 2 * close


@pytest.mark.parametrize("kind", ["quadratic", "exponential"])
def test_that_mini_batches_find_the_same_nonlinear_posterior(kind, numpy_place):
    model = TwoByTwo(kind, numpy_place)
    stage = Stage("log density", sobol(numpy_place, 512, 2, 2), 1e-5)
    algorithm = CoupledSavigp(model.prior, [stage], model.noise)
    whole, _ = run(algorithm, model.outputs)
    batches, _ = run_batches(algorithm, model.outputs, 1)
    assert batches.finished == SETTLED
    for part in range(2):
        np.testing.assert_allclose(batches.position.marginals[part], whole.best.marginals[part], atol=1e-3)


# Latents that the data do not tie.


class Counts:
    """Poisson counts y (N, Q) of exp(f), one for each latent."""

    parameters = np.zeros(0)

    def log_density(self, y, f):
        return np.sum(y * f - np.exp(f), axis=-1)

    def parameter_gradient(self, y, f):
        return None


def test_that_untied_latents_have_the_factorised_posterior(numpy_place):
    N, Q = 5, 2
    X = np.linspace(0.0, 2.0, N)[:, None]
    y = np.random.default_rng(3).poisson(2.0, (N, Q)).astype(float)
    prior, points = prior_of(numpy_place, X, Q, mean=0.2), sobol(numpy_place, 2048, N, Q)

    def log_density(outputs, rows):
        return Counts().log_density(y, outputs)

    state, told = run(CoupledSavigp(prior, [Stage("log density", points, 1e-6)], log_density), latents_themselves)
    family = Full(Q, N)
    start = family.initial(inducing_factor(prior.kernels, prior.Z), 0.5, np.zeros((1, Q, N)))
    numbers = np.stack([kernel.parameters for kernel in prior.kernels])
    bound = Bound(family, prior.kernels, prior.mean, prior.X, dense=True)
    learnt = Blocks(learn=("posterior",), tolerance=1e-10, optimiser=LBFGS(tolerance=1e-12)).fit(
        bound, Parameters(start, numbers, prior.Z, np.zeros(0)), Data(Counts(), y), points
    )
    frame = bound.frame(learnt)
    mean, variance = (moment[0] for moment in frame.marginals(frame.geometry(0, N)))
    found = state.best.marginals
    assert state.finished == SETTLED
    np.testing.assert_allclose(found.mean, mean, atol=2e-3)
    np.testing.assert_allclose(np.diagonal(found.covariance, axis1=1, axis2=2), variance, rtol=1e-2)
    np.testing.assert_allclose(found.covariance[:, 0, 1], 0.0, atol=0.01 * variance.min())
    elbo = float(frame.evaluate(Data(Counts(), y).log_density(np.zeros(0), derivatives=False), points, ()).elbo)
    assert told[-1][1].elbo == pytest.approx(elbo, abs=1e-3)


# Failed runs.


class LinearTies:
    """y = G f + noise at six sites: what is left of the runs still gives the exact posterior."""

    SITES, LATENTS = 6, 2

    def __init__(self, where):
        rng = np.random.default_rng(6)
        self.prior = prior_of(where, 0.8 * np.arange(self.SITES), self.LATENTS)
        self.G = rng.standard_normal((self.SITES, 2, self.LATENTS))
        self.y = rng.standard_normal((self.SITES, 2))
        self.noise = independent_noise(where, self.y, 0.5)

    def outputs(self, f, rows=slice(None)):
        return np.einsum("npq,snq->snp", self.G[rows], f)

    def exact(self):
        """Mean (N, Q) and covariances (N, Q, Q), and the log evidence."""
        N, Q = self.SITES, self.LATENTS
        K = np.zeros((N, Q, N, Q))
        for j in range(Q):
            K[:, j, :, j] = self.prior.kernels[j](self.prior.X, self.prior.X)
        K, H = K.reshape(N * Q, N * Q), np.zeros((N, 2, N, Q))
        H[np.arange(N), :, np.arange(N), :] = self.G
        H = H.reshape(2 * N, N * Q)
        V = H @ K @ H.T + 0.25 * np.eye(2 * N)
        gain = np.linalg.solve(V, H @ K).T
        covariance = (K - gain @ H @ K).reshape(N, Q, N, Q)[np.arange(N), :, np.arange(N), :]
        y = self.y.ravel()
        evidence = -0.5 * (y @ np.linalg.solve(V, y) + np.linalg.slogdet(V)[1] + len(y) * np.log(2 * np.pi))
        return (gain @ y).reshape(N, Q), covariance, evidence

    def algorithm(self, where, *kinds, tolerance=1e-5):
        stages = [Stage(kind, sobol(where, 32, self.SITES, self.LATENTS, seed), tolerance) for seed, kind in kinds]
        return CoupledSavigp(self.prior, stages, self.noise)

    def assert_found(self, position):
        mean, covariance, _ = self.exact()
        np.testing.assert_allclose(position.marginals.mean, mean, atol=1e-4)
        np.testing.assert_allclose(position.marginals.covariance, covariance, atol=1e-4)


STAGES = (1, "linear"), (2, "hermite")


def test_that_mini_batches_with_failed_runs_settle_at_the_exact_posterior(numpy_place):
    model, rng = LinearTies(numpy_place), np.random.default_rng(9)
    algorithm = model.algorithm(numpy_place, *STAGES)
    state, told = run_batches(algorithm, model.outputs, 4, valid_of=lambda f: rng.random(f.shape[:2]) > 0.2)
    assert state.finished == SETTLED
    model.assert_found(state.position)
    assert told[-1][1].elbo == pytest.approx(model.exact()[2], abs=1e-3)


@pytest.mark.parametrize("failing", [1, 3, 5])
def test_that_mini_batches_get_over_a_batch_whose_runs_at_one_site_all_failed(failing, numpy_place):
    model, calls = LinearTies(numpy_place), []

    def valid_of(f):
        calls.append(f.shape)
        valid = all_valid(f)
        valid[:, 0] = len(calls) != failing
        return valid

    state, _ = run_batches(model.algorithm(numpy_place, *STAGES), model.outputs, 3, valid_of=valid_of)
    assert state.finished == SETTLED
    model.assert_found(state.position)


def test_that_a_site_not_seen_yet_does_not_raise_the_bound_of_a_pass_above_all_later_ones(numpy_place):
    """From near the optimum, where the bound of all sites but one lies above that of all."""
    model, calls = LinearTies(numpy_place), []
    algorithm = model.algorithm(numpy_place, (1, "linear"))
    found = run(algorithm, model.outputs)[0].best
    near = algorithm.position(found.sites._replace(shift=0.9 * found.sites.shift), found.hyper)

    def valid_of(f):
        calls.append(f.shape)
        valid = all_valid(f)
        valid[:, 0] = len(calls) != 1
        return valid

    state, told = run_batches(algorithm, model.outputs, 3, valid_of=valid_of, start=near)
    assert state.finished == SETTLED
    model.assert_found(state.position)
    assert told[-1][1].elbo == pytest.approx(model.exact()[2], abs=1e-3)


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_that_failed_runs_everywhere_and_at_the_change_of_stage_leave_the_exact_posterior(share, numpy_place):
    model, rng = LinearTies(numpy_place), np.random.default_rng(9)

    def valid_of(f, evaluation):
        valid = rng.random(f.shape[:2]) > share
        valid[:20] = True  # half of them succeed at every site
        return valid

    state, told = run(model.algorithm(numpy_place, *STAGES), model.outputs, valid_of=valid_of)
    assert {stage for stage, _ in told} == {0, 1}
    assert state.finished == SETTLED
    model.assert_found(state.best)
    assert told[-1][1].elbo == pytest.approx(model.exact()[2], abs=1e-3)


@pytest.mark.parametrize("failing", ["one site", "all sites"])
def test_that_a_change_of_stage_whose_first_runs_fail_keeps_the_posterior_found_before(failing, numpy_place):
    model = LinearTies(numpy_place)
    algorithm = model.algorithm(numpy_place, *STAGES)
    state, _ = algorithm.init(), None
    while state.stage == 0:
        f = algorithm.ask(state)
        state, _ = algorithm.tell(state, model.outputs(f), all_valid(f))
    f = algorithm.ask(state)
    valid = all_valid(f)
    valid[:, slice(0, 1) if failing == "one site" else slice(None)] = False
    state, info = algorithm.tell(state, np.where(valid[..., None], model.outputs(f), np.nan), valid)
    assert not info.accepted
    model.assert_found(state.best)
    state, _ = run(algorithm, model.outputs, state=state)
    model.assert_found(state.best)


def test_that_a_site_that_fails_at_every_evaluation_does_not_stop_the_others(numpy_place):
    """Too few runs of one site for a fit, but half of them: it says nothing, and all others what they have to say."""
    model = LinearTies(numpy_place)
    points = sobol(numpy_place, 16, model.SITES, model.LATENTS)
    algorithm = CoupledSavigp(model.prior, [Stage("hermite", points, 1e-5)], model.noise)

    def valid_of(f, evaluation):
        valid = all_valid(f)
        valid[8:, 2] = False
        return valid

    silent = replace(algorithm, likelihood=model.noise._replace(whitening=model.noise.whitening.copy()))
    silent.likelihood.whitening[2] = 0.0
    state, _ = run(algorithm, model.outputs, valid_of=valid_of)
    expected, _ = run(silent, model.outputs)
    np.testing.assert_allclose(state.best.marginals.mean, expected.best.marginals.mean, atol=1e-4)
    np.testing.assert_allclose(state.best.marginals.covariance, expected.best.marginals.covariance, atol=1e-4)


# The estimators.


@pytest.mark.parametrize("quadratic", [True, False])
def test_that_a_fit_with_failed_runs_is_in_all_its_parts_the_fit_of_the_others_alone(quadratic, where, tolerance, rng):
    S, N, Q, T = 48, 4, 2, 3
    z = to_numpy(sobol(where, S, 1, Q).base).astype(float)
    values = np.sin(z @ rng.standard_normal((Q, N * T)) + 1.0).reshape(S, N, T)
    valid = rng.random((S, N)) > np.asarray([0.0, 0.1, 0.3, 0.5])
    assert valid[:, 0].all()
    assert not valid[:, 1:].all(axis=0).any()
    broken = np.where(valid[..., None], values, 1e3)
    found = hermite_fit(where.asarray(z), where.asarray(broken), where.asmask(valid), quadratic=quadratic)
    assert np.all(to_numpy(found.rest) > 1e-6)
    for n in range(N):
        some = valid[:, n]
        alone = hermite_fit(
            where.asarray(z[some]),
            where.asarray(values[some, n : n + 1]),
            where.asmask(np.ones((some.sum(), 1), dtype=bool)),
            quadratic=quadratic,
        )
        for name in found._fields:
            one, other = to_numpy(getattr(found, name))[n], to_numpy(getattr(alone, name))[0]
            close = {"rtol": tolerance(where, 1e-8, 5e-3), "atol": tolerance(where, 1e-9, 2e-3)}
            np.testing.assert_allclose(one, other, err_msg=name, **close)


def test_that_a_fit_is_that_of_least_squares(numpy_place, rng):
    S, Q = 40, 2
    z = sobol(numpy_place, S, 1, Q).base
    values = np.exp(0.5 * z @ rng.standard_normal((Q, 3)))[:, None, :]
    features = np.column_stack([np.ones(S), z, z**2 - 1.0, z[:, 0] * z[:, 1]])
    expected, left, *_ = np.linalg.lstsq(features, values[:, 0], rcond=None)
    fit = hermite_fit(z, values, np.ones((S, 1), dtype=bool), quadratic=True)
    np.testing.assert_allclose(fit.constant[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(fit.slope[0], expected[1:3].T, rtol=1e-9)
    np.testing.assert_allclose(fit.bend[0][:, [0, 1], [0, 1]], 2.0 * expected[3:5].T, rtol=1e-9)
    np.testing.assert_allclose(fit.bend[0][:, 0, 1], expected[5], rtol=1e-9)
    assert np.all((left / S <= fit.rest[0] + 1e-15) & (fit.rest[0] <= left / (S - 6) + 1e-15))


def coupled_residuals(z):
    """Whitened residuals (S, 2, 3) at two sites of three latents: beyond quadratic in all of them."""
    a, b, c = z[..., 0], z[..., 1], z[..., 2]
    first = np.stack([np.sin(a + 0.5 * b) + c, np.exp(0.4 * b - 0.3 * a) - 1.0, 0.3 * a * b * c + b], axis=-1)
    second = np.stack([a * c + 0.2 * a**3, np.tanh(b - c), 0.5 + np.cos(a) * b], axis=-1)
    return np.stack([first, second], axis=1)


def exact_expectations(function):
    """Of function (S, N), times 1, z, and z z^T - I, under three standard normals."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * 3, indexing="ij")], axis=-1)
    weight = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * 3, indexing="ij")), axis=0).ravel()
    values = function(grid) * weight[(..., *[None] * (function(grid).ndim - 1))]
    second = grid[:, :, None] * grid[:, None, :] - np.eye(3)
    return np.sum(values, axis=0), np.tensordot(values, grid, (0, 0)), np.tensordot(values, second, (0, 0))


def exact_terms(kind):
    """What the estimators estimate: (N,), (N, Q), (N, Q, Q)."""

    def log_p(z):
        return -0.5 * np.sum(coupled_residuals(z) ** 2, axis=-1)

    value, gradient, curvature = exact_expectations(log_p)
    if kind != "log density":
        a, b, H = exact_expectations(coupled_residuals)
        H = H if kind == "hermite" else np.zeros_like(H)
        # What a line leaves counts as noise.
        rest = exact_expectations(lambda z: coupled_residuals(z) ** 2)[0] - a**2 - np.sum(b**2, axis=-1)
        noise = (np.ones_like(a) if kind == "hermite" else 1.0 + rest)[..., None]
        gradient = -np.sum((a[..., None] * b + np.einsum("npij,npj->npi", H, b)) / noise, axis=1)
        curvature = b[..., :, None] * b[..., None, :] + a[..., None, None] * H + H @ H
        curvature = -np.sum(curvature / noise[..., None], axis=1)
    return value, gradient, curvature


@pytest.mark.parametrize("share_valid", [1.0, 0.8])
@pytest.mark.parametrize("kind", ["linear", "hermite", "log density"])
def test_that_the_coupled_estimators_have_no_bias_beyond_their_standard_error(kind, share_valid, numpy_place):
    sets, S = 250, 256
    found = []
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        z = Points.draw(rng, S, 1, 3, numpy_place).base
        residuals = coupled_residuals(z)
        valid = rng.random((S, 2)) < share_valid
        if kind == "log density":
            found.append(estimate_log_density(z, -0.5 * np.sum(residuals**2, axis=-1), valid))
        else:
            by_output = estimate_by_output(z, residuals, valid, quadratic=kind == "hermite")
            found.append(all_outputs(by_output, np.zeros(2)))
    for name, expected in zip(("value", "gradient", "curvature"), exact_terms(kind), strict=True):
        estimates = np.asarray([getattr(terms, name) for terms in found])
        error = np.abs(estimates.mean(axis=0) - expected)
        spread = estimates.std(axis=0)
        # A regression on its own samples has a bias of order 1/S.
        allowed = 4.5 / np.sqrt(sets) * spread + np.maximum(4.0 / S, 0.2 * spread)
        assert np.all(error < allowed), (name, error, allowed)
