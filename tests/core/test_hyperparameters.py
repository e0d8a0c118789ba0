"""Learning kernels, noise and inducing inputs of a coupled posterior, against the exact evidence."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from invgp.core.coupled import GaussianNoise, Prior, SiteFactors
from invgp.core.coupled.coupled_minibatches import MiniBatches
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.hyperparameters import HyperparameterLearning, NoiseScaledFactors
from invgp.core.coupled.stage import Stage
from invgp.core.kernels import Matern52
from invgp.core.point_sets import Points

Q, P, D = 2, 3, 1
TIES = np.zeros((Q, 1 + D, 2))
TIES[:, 1, 0] = 1.0  # one factor for all length-scales
TIES[:, 0, 1] = 2.0  # one for all standard deviations
GROUPS = np.asarray([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
SPREADS = np.asarray([0.7, 1.5]), np.asarray([2.0, 0.9])


class LinearSurvey:
    """y = G f + independent noise, some of it not observed: the evidence is known for all kernels and noise."""

    def __init__(self, sites=14, seed=0):
        rng = np.random.default_rng(seed)
        self.X = np.sort(rng.uniform(0.0, 6.0, (sites, D)), axis=0)
        self.mean = np.asarray([0.5, -1.0])
        self.log_kernels = np.log([[1.0, 1.0], [0.6, 1.6]])
        self.G = rng.standard_normal((sites, P, Q))
        self.std = np.asarray([0.3, 0.5, 0.4])
        true = np.concatenate([np.sin(self.X), np.cos(0.7 * self.X)], axis=1) + self.mean
        self.y = np.einsum("npq,nq->np", self.G, true) + 2.0 * self.std * rng.standard_normal((sites, P))
        self.observed = np.ones((sites, P), dtype=bool)
        self.observed[1, 0], self.observed[3], self.observed[4, 2] = False, False, False

    @property
    def sites(self):
        return len(self.X)

    def prior(self, backend, Z=None):
        like = Matern52(backend.asarray(1.0), backend.asarray(np.ones(D)))
        kernels = tuple(like.with_parameters(backend.asarray(row)) for row in self.log_kernels)
        inducing = np.broadcast_to(self.X if Z is None else Z, (Q, *(self.X if Z is None else Z).shape))
        return Prior(
            kernels, backend.asarray(self.mean), backend.asarray(self.X), backend.asarray(inducing), Z is None, 1e-8
        )

    def noise(self, backend):
        whitening = np.where(self.observed, 1.0 / self.std, 0.0)[..., None] * np.eye(P)
        normaliser = -np.sum(np.where(self.observed, np.log(self.std) + 0.5 * np.log(2 * np.pi), 0.0), axis=1)
        parts = (np.where(self.observed, self.y, 0.0), whitening, normaliser, self.observed.astype(float))
        return GaussianNoise(*(backend.asarray(part) for part in parts))

    def evidence(self, theta, noise, groups=GROUPS):
        """Exact log evidence."""
        like = Matern52(np.asarray(1.0), np.ones(D))
        K = np.zeros((self.sites, Q, self.sites, Q))
        for j, row in enumerate(self.log_kernels + TIES @ theta):
            K[:, j, :, j] = like.with_parameters(row)(self.X, self.X) + 1e-8 * np.exp(row[0]) * np.eye(self.sites)
        H = np.zeros((self.sites, P, self.sites, Q))
        H[np.arange(self.sites), :, np.arange(self.sites), :] = self.G
        seen = self.observed.ravel()
        H = H.reshape(self.sites * P, -1)[seen]
        variance = np.tile((self.std * np.exp(groups @ noise)) ** 2, self.sites)[seen]
        V = H @ K.reshape(self.sites * Q, -1) @ H.T + np.diag(variance)
        residual = self.y.ravel()[seen] - H @ np.tile(self.mean, self.sites)
        return multivariate_normal(np.zeros(len(V)), V).logpdf(residual)

    def outputs(self, f, rows=slice(None)):
        return np.einsum("npq,snq->snp", self.G[rows], f)

    def algorithm(self, backend, learning, Z=None, tolerance=1e-6, kind="linear"):
        points = Points.draw(np.random.default_rng(1), 24, self.sites, Q, backend)
        return CoupledSavigp(self.prior(backend, Z), [Stage(kind, points, tolerance)], self.noise(backend), learning)


def log_prior(theta, noise):
    return -0.5 * (np.sum((theta / SPREADS[0]) ** 2) + np.sum((noise / SPREADS[1]) ** 2))


def run_to_convergence(algorithm, model, most=80):
    state, info = algorithm.init(), None
    while not state.finished and state.evaluations < most:
        f = algorithm.ask(state)
        state, info = algorithm.tell(state, model.outputs(f), np.ones(f.shape[:2], dtype=bool))
    return state, info.elbo


@dataclass(frozen=True)
class SiteUpdate:
    trial: np.ndarray
    values: tuple = ()
    gradients: tuple = ()
    finished: str = ""

    @property
    def point(self):
        return self.trial


@dataclass(frozen=True)
class Probe:
    """A stand-in for an optimiser: asks for a point and its neighbours, and keeps what it gets."""

    at: np.ndarray
    heard: list
    step: float = 1e-5

    def neighbours(self):
        return [self.at, *(self.at + s * self.step * e for e in np.eye(len(self.at)) for s in (1.0, -1.0))]

    def init(self, point):
        assert point.shape == self.at.shape
        return SiteUpdate(self.at)

    def tell(self, state, value, gradient):
        self.heard.append((value, np.asarray(gradient)))
        asked = self.neighbours()
        done = len(self.heard) == len(asked)
        return replace(state, trial=asked[0 if done else len(self.heard)], finished="asked" if done else "")

    def gradients(self):
        """Return the gradient that was passed, and finite differences of the values."""
        values = np.asarray([value for value, _ in self.heard[1:]]).reshape(-1, 2)
        return self.heard[0][1], (values[:, 0] - values[:, 1]) / (2 * self.step)


def learning_of(model, groups=GROUPS, *, inducing=False, spreads=SPREADS, **settings):
    return HyperparameterLearning(
        model.log_kernels.ravel(), TIES.reshape(-1, 2), spreads[0], groups, spreads[1], inducing=inducing, **settings
    )


def some_sites(rng, model, groups=2):
    """What sites might say, with parts that grow with each group's precision."""
    half = rng.standard_normal((1 + groups, model.sites, Q, Q))
    precision, shift = half @ half.swapaxes(-1, -2), rng.standard_normal((1 + groups, model.sites, Q))
    return NoiseScaledFactors(
        SiteFactors(precision[0], shift[0]),
        SiteFactors(precision[1:], shift[1:]),
        -10.0 * rng.random(groups),
        np.asarray([17.0, 9.0])[:groups],
    )


@pytest.mark.parametrize("inducing", [False, True])
@pytest.mark.parametrize("degrees", [None, np.asarray([3.0, 0.0])])
def test_that_the_gradient_of_the_objective_is_that_of_finite_differences(degrees, inducing, numpy_backend, rng):
    model = LinearSurvey(sites=6)
    Z = np.linspace(0.5, 5.5, 3)[:, None] if inducing else None
    prior = model.prior(numpy_backend, Z)
    theta, noise = np.asarray([0.2, -0.15]), np.asarray([0.3, -0.25])
    at = np.concatenate([theta, noise, *([prior.Z.ravel() + 0.1] if inducing else [])])
    probe = Probe(at, [])
    learning = learning_of(
        model, inducing=inducing, noise_degrees=degrees, evaluations=1 + 2 * len(at), optimiser=probe
    )
    start = learning.initial_values(prior)._replace(noise=np.asarray([0.1, 0.05]))
    learning.fit(prior, some_sites(rng, model), start)
    reported, expected = probe.gradients()
    assert np.all(np.abs(expected[: len(theta) + len(noise)]) > 0.01)
    np.testing.assert_allclose(reported, expected, rtol=2e-5, atol=1e-5)


def test_that_the_objective_is_the_exact_evidence_of_a_linear_model_for_all_noise_and_kernels(numpy_backend):
    """One step of the algorithm knows what the sites say at all noise levels, wherever it stands."""
    model = LinearSurvey()
    at = np.asarray([0.2, -0.15, 0.3, -0.25])
    probe = Probe(at, [], step=0.2)
    learning = learning_of(model, evaluations=9, optimiser=probe)
    algorithm = model.algorithm(numpy_backend, replace(learning, evaluations=0), tolerance=1e-9)
    state, _ = run_to_convergence(algorithm, model)
    algorithm = replace(algorithm, learning=learning)
    f = algorithm.ask(state)
    algorithm.tell(replace(state, finished="", elbo=-np.inf), model.outputs(f), np.ones(f.shape[:2], dtype=bool))
    found = np.asarray([-value for value, _ in probe.heard])
    expected = [model.evidence(x[:2], x[2:]) + log_prior(x[:2], x[2:]) for x in probe.neighbours()]
    np.testing.assert_allclose(found - found[0], np.asarray(expected) - expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "hermite"])
@pytest.mark.parametrize("groups", [GROUPS, np.asarray([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])], ids=["all", "some"])
def test_that_kernels_and_noise_learnt_together_maximise_the_exact_evidence(groups, kind, numpy_backend):
    model = LinearSurvey()

    def objective(x):
        return -(model.evidence(x[:2], x[2:], groups) + log_prior(x[:2], x[2:]))

    best = minimize(objective, np.zeros(4), options={"gtol": 1e-6})
    state, bound = run_to_convergence(model.algorithm(numpy_backend, learning_of(model, groups), kind=kind), model)
    assert state.converged
    assert np.max(np.abs(best.x)) > 0.2
    np.testing.assert_allclose(np.concatenate(state.best.hyper[:2]), best.x, atol=5e-3)
    assert bound == pytest.approx(-best.fun, abs=1e-3)


def test_that_mini_batches_learn_the_kernels_that_maximise_the_exact_evidence(numpy_backend):
    model = LinearSurvey()
    best = minimize(lambda x: -(model.evidence(x, np.zeros(2)) + log_prior(x, np.zeros(2))), np.zeros(2))
    learning = learning_of(model, np.zeros((P, 0)), spreads=(SPREADS[0], np.zeros(0)))
    algorithm = model.algorithm(numpy_backend, learning, tolerance=1e-4)
    batches = MiniBatches(algorithm, 5, np.random.default_rng(2))
    state, info = batches.init(algorithm.init().trial), None
    while not state.finished and state.passes < 100:
        rows, f = batches.ask(state)
        state, reported = batches.tell(state, model.outputs(f, rows), np.ones(f.shape[:2], dtype=bool))
        info = reported or info
    assert state.converged
    np.testing.assert_allclose(state.posterior.hyper.theta, best.x, atol=0.01)
    assert info.elbo == pytest.approx(-best.fun, abs=0.01)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])  # of a coordinate: length-scales may be thousands of metres
def test_that_learnt_inducing_inputs_move_and_raise_the_bound(unit, numpy_backend):
    model = LinearSurvey(sites=20)
    model.X, model.log_kernels = unit * model.X, model.log_kernels + np.log([1.0, unit])
    Z = unit * np.linspace(0.0, 2.0, 5)[:, None]  # of inputs up to 6
    nothing = np.zeros((P, 0)), np.zeros(0)
    fixed, learnt = (
        run_to_convergence(
            model.algorithm(
                numpy_backend,
                HyperparameterLearning(
                    model.log_kernels.ravel(), TIES.reshape(-1, 2)[:, :0], np.zeros(0), *nothing, inducing=inducing
                ),
                Z,
                tolerance=1e-4,
            ),
            model,
        )
        for inducing in (False, True)
    )
    exact = model.evidence(np.zeros(2), np.zeros(2))
    np.testing.assert_array_equal(fixed[0].best.prior.Z[0], Z)
    moved = learnt[0].best.prior.Z
    assert moved.max() > 3.0 * unit
    assert np.abs(moved - Z).max() > unit
    assert fixed[1] + 5.0 < learnt[1] <= exact + 1e-3
    np.testing.assert_allclose(learnt[0].best.hyper.Z, moved)
