"""The posterior coupled across latents, against closed forms."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from helpers.kernels import kernels_of_all_kinds
from invgp.core.backend import select_backend, to_numpy
from invgp.core.coupled import GaussianNoise, Prior, SiteFactors
from invgp.core.coupled.coupled_minibatches import MiniBatches
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.hyperparameters import HyperparameterLearning, site_evidence
from invgp.core.coupled.site_estimators import estimate_by_output, estimate_log_density, fit_hermite, sum_over_outputs
from invgp.core.coupled.stage import Stage
from invgp.core.geometry import join_parameters, split_parameters
from invgp.core.inducing import cluster_centres
from invgp.core.kernels import Matern52
from invgp.core.point_sets import Points

N, Q, P, D = 9, 3, 2, 2


class Linear:
    """y = G f + noise, with correlated noise and missing observations: everything is known in closed form."""

    def __init__(self, seed=0, sites=N):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((sites, D))
        self.mean = np.asarray([1.0, -2.0, 0.5])
        self.log_kernels = np.log([[1.5, 0.8, 1.1], [0.7, 1.4, 0.9], [1.1, 0.6, 2.0]])
        self.G = rng.standard_normal((sites, P, Q))
        noise = np.asarray([0.3, 0.6])
        self.R = noise[:, None] * np.asarray([[1.0, 0.7], [0.7, 1.0]]) * noise
        self.y = rng.standard_normal((sites, P)) + self.G @ self.mean
        self.observed = np.ones((sites, P), dtype=bool)
        self.observed[1, 0], self.observed[4], self.observed[6, 1] = False, False, False

    def kernels(self, backend):
        like = Matern52(backend.asarray(1.0), backend.asarray(np.ones(D)))
        return tuple(like.with_parameters(backend.asarray(row)) for row in self.log_kernels)

    def prior(self, backend, Z=None):
        dense = Z is None
        Z = self.X if dense else Z
        Z = backend.namespace.broadcast_to(backend.asarray(Z), (Q, *Z.shape))
        return Prior(self.kernels(backend), backend.asarray(self.mean), backend.asarray(self.X), Z, dense)

    def noise(self, backend, scale=1.0):
        sites = len(self.X)
        whitening, normaliser = np.zeros((sites, P, P)), np.zeros(sites)
        for n, seen in enumerate(self.observed):
            R = scale**2 * self.R[np.ix_(seen, seen)]
            whitening[n][np.ix_(seen, seen)] = np.linalg.inv(np.linalg.cholesky(R)) if seen.any() else 0.0
            normaliser[n] = -0.5 * (np.linalg.slogdet(R)[1] + seen.sum() * np.log(2 * np.pi)) if seen.any() else 0.0
        y = np.where(self.observed, self.y, 0.0)
        return GaussianNoise(*(backend.asarray(a) for a in (y, whitening, normaliser, self.observed.astype(float))))

    def exact_posterior(self, log_kernels=None, scale=1.0):
        """Joint mean and covariance (N Q) of the latents, and the log evidence."""
        backend, sites = select_backend("cpu"), len(self.X)
        log_kernels = self.log_kernels if log_kernels is None else log_kernels
        like = Matern52(np.asarray(1.0), np.ones(D))
        K = np.zeros((sites, Q, sites, Q))
        for j in range(Q):
            K[:, j, :, j] = like.with_parameters(backend.asarray(log_kernels[j]))(self.X, self.X)
        K = K.reshape(sites * Q, sites * Q)
        H = np.zeros((sites, P, sites, Q))
        H[np.arange(sites), :, np.arange(sites), :] = self.G
        seen = self.observed.ravel()
        H = H.reshape(sites * P, sites * Q)[seen]
        R = scale**2 * np.kron(np.eye(sites), self.R)[np.ix_(seen, seen)]
        mean = np.tile(self.mean, sites)
        V = H @ K @ H.T + R
        residual = self.y.ravel()[seen] - H @ mean
        gain = np.linalg.solve(V, H @ K).T
        evidence = multivariate_normal(np.zeros(len(V)), V).logpdf(residual)
        return mean + gain @ residual, K - gain @ H @ K, evidence

    def outputs(self, backend, f):
        xp = backend.namespace
        return xp.permute_dims(backend.asarray(self.G) @ xp.permute_dims(f, (1, 2, 0)), (2, 0, 1))


def stage(kind, samples, backend, tolerance=1e-9, sites=N):
    return Stage(kind, Points.draw(np.random.default_rng(1), samples, sites, Q, backend), tolerance)


def run_to_convergence(algorithm, outputs_of, backend, most=40):
    state, bounds = algorithm.init(), []
    while not state.finished and state.evaluations < most:
        f = algorithm.ask(state)
        valid = backend.asmask(np.ones(f.shape[:2], dtype=bool))
        state, info = algorithm.tell(state, outputs_of(backend, f), valid)
        bounds.append(info.elbo)
    return state, bounds


@pytest.mark.parametrize("missing", [0.0, 0.6])
@pytest.mark.parametrize("kind", ["linear", "hermite", "log density", "any likelihood"])
def test_that_a_linear_model_has_its_exact_posterior_and_evidence(kind, missing, backend, tolerance, rng):
    """Also where an output is missing of most runs, at random: what is there tells it all."""
    model = Linear()
    noise = model.noise(backend)
    xp = backend.namespace

    def log_density(outputs, rows):
        return noise.log_normaliser - 0.5 * xp.sum(xp.square(noise.residuals(outputs)), axis=-1)

    likelihood = log_density if kind == "any likelihood" else noise
    kind = "log density" if kind == "any likelihood" else kind
    algorithm = CoupledSavigp(model.prior(backend), [stage(kind, 80 if missing else 40, backend, 1e-4)], likelihood)

    def outputs(backend, f):
        lost = (rng.random(f.shape[:2]) < missing)[..., None] & model.observed & (np.arange(P) == 0)
        return xp.where(backend.asmask(lost), backend.asarray(np.nan), model.outputs(backend, f))

    state, bounds = run_to_convergence(algorithm, outputs, backend)
    mean, covariance, evidence = model.exact_posterior()
    found = state.best.marginals
    assert state.finished == "the posterior has converged"
    np.testing.assert_allclose(to_numpy(found.mean).ravel(), mean, atol=tolerance(backend, 1e-7, 5e-3))
    blocks = covariance.reshape(N, Q, N, Q)[np.arange(N), :, np.arange(N), :]
    np.testing.assert_allclose(to_numpy(found.covariance), blocks, atol=tolerance(backend, 1e-7, 5e-3))
    np.testing.assert_allclose(bounds[-1], evidence, rtol=tolerance(backend, 1e-7, 5e-3))


def test_that_inducing_inputs_at_the_sites_are_the_dense_posterior(numpy_backend):
    model, backend = Linear(), numpy_backend
    states = [
        run_to_convergence(
            CoupledSavigp(prior, [stage("linear", 20, backend)], model.noise(backend)), model.outputs, backend
        )[0]
        for prior in (model.prior(backend), model.prior(backend, model.X))
    ]
    for part in range(2):
        dense, sparse = (to_numpy(state.best.marginals[part]) for state in states)
        np.testing.assert_allclose(sparse, dense, atol=1e-7)


def test_that_fewer_inducing_inputs_lower_the_bound(numpy_backend):
    model, backend = Linear(sites=40), numpy_backend
    bounds = []
    for count in (5, 15, 40):
        Z = model.X if count == 40 else cluster_centres(model.X, count, np.random.default_rng(0))
        algorithm = CoupledSavigp(
            model.prior(backend, Z), [stage("linear", 20, backend, 1e-6, sites=40)], model.noise(backend)
        )
        bounds.append(run_to_convergence(algorithm, model.outputs, backend)[1][-1])
    assert bounds[0] < bounds[1] < bounds[2] <= model.exact_posterior()[2] + 1e-6


@pytest.mark.parametrize("dense", [True, False])
def test_that_draws_have_the_posterior_covariance_across_latents_and_sites(dense, numpy_backend):
    model, backend = Linear(), numpy_backend
    prior = model.prior(backend, None if dense else model.X)
    state, _ = run_to_convergence(
        CoupledSavigp(prior, [stage("linear", 20, backend)], model.noise(backend)), model.outputs, backend
    )
    normals = np.random.default_rng(0).standard_normal((200_000, N * Q))
    draws = to_numpy(state.best.q.sample_sites(state.best.prior, normals)).reshape(-1, N * Q)
    mean, covariance, _ = model.exact_posterior()
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.03)


@pytest.mark.parametrize("kind", kernels_of_all_kinds())
@pytest.mark.parametrize("dense", [True, False])
def test_that_the_gradient_of_the_evidence_is_that_of_finite_differences(kind, dense, numpy_backend, rng):
    backend = numpy_backend
    X = rng.standard_normal((N, D))
    Z = np.broadcast_to(X, (Q, N, D)) if dense else rng.standard_normal((Q, 4, D))
    half = rng.standard_normal((N, Q, Q))
    sites = SiteFactors(half @ half.swapaxes(1, 2), rng.standard_normal((N, Q)))
    alike = (kernels_of_all_kinds()[kind],) * Q
    numbers = join_parameters(alike) + 0.3 * rng.standard_normal(Q * len(alike[0].parameter_names))

    def prior(numbers, Z):
        kernels = split_parameters(alike, numbers)
        return Prior(kernels, np.zeros(Q), backend.asarray(X), backend.asarray(Z), dense, 0.0 if dense else 1e-6)

    found, step = site_evidence(prior(numbers, Z), sites), 1e-5
    directions = [("kernels", numbers.shape)] + ([] if dense else [("inducing", Z.shape)])
    for name, shape in directions:
        for index in np.ndindex(shape):
            change = np.zeros(shape)
            change[index] = step
            shifted = [
                float(
                    site_evidence(
                        prior(numbers + sign * change, Z) if name == "kernels" else prior(numbers, Z + sign * change),
                        sites,
                    ).value
                )
                for sign in (1, -1)
            ]
            numeric = (shifted[0] - shifted[1]) / (2 * step)
            np.testing.assert_allclose(getattr(found, name)[index], numeric, rtol=1e-4, atol=1e-5)


def test_that_learnt_kernels_maximise_the_exact_evidence(numpy_backend):
    model, backend = Linear(), numpy_backend
    ties = np.zeros((Q, 1 + D, 2))
    ties[:, 1:, 0] = 1.0  # one factor for all length-scales
    ties[:, 0, 1] = 2.0  # one for all standard deviations
    spread = np.asarray([0.5, np.inf])

    def objective(theta):
        return -(model.exact_posterior(model.log_kernels + ties @ theta)[2] - 0.5 * np.sum((theta / spread) ** 2))

    best = minimize(objective, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    no_noise = backend.asarray(np.zeros((P, 0))), backend.asarray(np.zeros(0))
    learning = HyperparameterLearning(
        backend.asarray(model.log_kernels.ravel()),
        backend.asarray(ties.reshape(-1, 2)),
        backend.asarray(spread),
        *no_noise,
    )
    algorithm = CoupledSavigp(
        model.prior(backend), [stage("linear", 20, backend, 1e-6)], model.noise(backend), learning=learning
    )
    state, bounds = run_to_convergence(algorithm, model.outputs, backend)
    np.testing.assert_allclose(state.best.hyper.theta, best.x, atol=2e-3)
    np.testing.assert_allclose(bounds[-1], -best.fun, rtol=1e-5)


def test_that_a_learnt_noise_maximises_the_exact_evidence(numpy_backend):
    model, backend = Linear(), numpy_backend
    best = minimize(lambda s: -model.exact_posterior(scale=np.exp(s[0]))[2], np.zeros(1), method="Nelder-Mead")
    algorithm = CoupledSavigp(
        model.prior(backend),
        [stage("linear", 20, backend, 1e-6)],
        model.noise(backend),
        learning=HyperparameterLearning(
            backend.asarray(model.log_kernels.ravel()),
            backend.asarray(np.zeros((Q * (1 + D), 0))),
            backend.asarray(np.zeros(0)),
            backend.asarray(np.ones((P, 1))),
            backend.asarray([np.inf]),
        ),
    )
    state, bounds = run_to_convergence(algorithm, model.outputs, backend)
    np.testing.assert_allclose(state.best.hyper.noise, best.x, atol=2e-3)
    np.testing.assert_allclose(bounds[-1], -best.fun, rtol=1e-5)


def test_that_mini_batches_find_the_same_posterior(backend, tolerance):
    model = Linear()
    algorithm = CoupledSavigp(model.prior(backend), [stage("linear", 20, backend, 1e-5)], model.noise(backend))
    batches = MiniBatches(algorithm, 4, np.random.default_rng(2))
    state = batches.init(algorithm.init().trial)
    bound = None
    while not state.finished and state.passes < 60:
        rows, f = batches.ask(state)
        xp = backend.namespace
        G = backend.asarray(model.G[rows])
        outputs = xp.permute_dims(G @ xp.permute_dims(f, (1, 2, 0)), (2, 0, 1))
        state, info = batches.tell(state, outputs, backend.asmask(np.ones(f.shape[:2], dtype=bool)))
        bound = bound if info is None else info.elbo
    mean, _, evidence = model.exact_posterior()
    assert state.finished == "the posterior has converged"
    np.testing.assert_allclose(
        to_numpy(state.posterior.marginals.mean).ravel(), mean, atol=tolerance(backend, 1e-4, 2e-2)
    )
    np.testing.assert_allclose(bound, evidence, rtol=tolerance(backend, 1e-4, 2e-2))


def quadratic_residuals(rng, z):
    a, b, H = rng.standard_normal((N, P)), rng.standard_normal((N, P, Q)), rng.standard_normal((N, P, Q, Q))
    H = H + H.swapaxes(-1, -2)
    bent = 0.5 * (np.einsum("si,npij,sj->snp", z, H, z) - np.trace(H, axis1=-2, axis2=-1))
    return a + np.einsum("npi,si->snp", b, z) + bent, (a, b, H)


def test_that_the_hermite_terms_are_exact_for_quadratic_residuals(backend, tolerance, rng):
    """Against quadrature: E[log p] and its derivatives with respect to the mean and covariance of z."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * Q, indexing="ij")], axis=-1)
    weight = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * Q, indexing="ij")), axis=0).ravel()
    z = to_numpy(Points.draw(rng, 64, 1, Q, backend).base).astype(float)
    seed = np.random.default_rng(7)
    at_points, _ = quadratic_residuals(np.random.default_rng(7), z)
    on_grid, _ = quadratic_residuals(seed, grid)
    log_p = -0.5 * np.sum(on_grid**2, axis=-1)
    valid = np.ones(at_points.shape[:2], dtype=bool)
    by_output = estimate_by_output(
        backend.asarray(z), backend.asarray(at_points), backend.asmask(valid), quadratic=True
    )
    terms = sum_over_outputs(by_output, backend.asarray(np.zeros(N)))
    close = {"rtol": tolerance(backend, 1e-9, 1e-3), "atol": tolerance(backend, 1e-9, 1e-2)}
    np.testing.assert_allclose(to_numpy(terms.value), weight @ log_p, **close)
    # Stein's identities: the derivatives are moments with z and z z^T - I.
    np.testing.assert_allclose(to_numpy(terms.gradient), (log_p * weight[:, None]).T @ grid, **close)
    second = np.einsum("sn,sij->nij", log_p * weight[:, None], grid[:, :, None] * grid[:, None, :] - np.eye(Q))
    np.testing.assert_allclose(to_numpy(terms.curvature), second, **close)


@pytest.mark.parametrize("quadratic", [True, False])
def test_that_failed_runs_are_left_out_of_a_fit(quadratic, backend, tolerance, rng):
    z = to_numpy(Points.draw(rng, 48, 1, Q, backend).base).astype(float)
    values, _ = quadratic_residuals(rng, z)
    if not quadratic:
        values = np.einsum("npi,si->snp", rng.standard_normal((N, P, Q)), z) + 1.0
    valid = rng.random((48, N)) > 0.2
    broken = np.where(valid[..., None], values, 1e3)
    whole, holed = (
        fit_hermite(backend.asarray(z), backend.asarray(v), backend.asmask(mask), quadratic=quadratic)
        for v, mask in ((values, np.ones_like(valid)), (broken, valid))
    )
    for one, other in zip(whole[:3], holed[:3], strict=True):
        np.testing.assert_allclose(to_numpy(other), to_numpy(one), atol=tolerance(backend, 1e-8, 2e-2))


def test_that_the_log_density_estimator_is_exact_for_a_quadratic(numpy_backend, rng):
    z = Points.draw(rng, 32, 1, Q, numpy_backend).base
    A = rng.standard_normal((N, Q, Q))
    A, b, c = A + A.swapaxes(1, 2), rng.standard_normal((N, Q)), rng.standard_normal(N)
    log_p = 0.5 * np.einsum("si,nij,sj->sn", z, A, z) + z @ b.T + c
    terms = estimate_log_density(z, log_p, np.ones((32, N), dtype=bool))
    np.testing.assert_allclose(terms.curvature, A, atol=1e-9)
    np.testing.assert_allclose(terms.gradient, b, atol=1e-9)
    np.testing.assert_allclose(terms.value, c + 0.5 * np.trace(A, axis1=1, axis2=2), atol=1e-9)


def test_that_a_step_into_failing_runs_is_taken_back(numpy_backend):
    model, backend = Linear(), numpy_backend
    algorithm = CoupledSavigp(model.prior(backend), [stage("linear", 20, backend)], model.noise(backend))
    state = algorithm.init()
    f = algorithm.ask(state)
    state, _ = algorithm.tell(state, model.outputs(backend, f), np.ones(f.shape[:2], dtype=bool))
    whole = state
    f = algorithm.ask(state)
    state, info = algorithm.tell(state, np.full((*f.shape[:2], P), np.nan), np.zeros(f.shape[:2], dtype=bool))
    assert not info.accepted
    assert state.step == 0.5 * whole.step
    assert state.best is whole.best
    halfway = 0.5 * (whole.best.sites.shift + whole.target.sites.shift)
    np.testing.assert_allclose(state.trial.sites.shift, halfway)
