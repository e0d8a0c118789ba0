"""The coupled posterior of models that are not linear, against quadrature, closed forms and itself."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from helpers.coupled_models import CONVERGED, identity_model, independent_noise, prior_of, run, run_batches, sobol
from invgp.core.backend import to_numpy
from invgp.core.bound import Bound
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.hyperparameters import Hyperparameters
from invgp.core.coupled.stage import Stage
from invgp.core.geometry import inducing_factor, join_parameters
from invgp.core.observed_likelihood import Data
from invgp.core.optimisers import LBFGS
from invgp.core.parameters import Parameters
from invgp.core.posteriors import Full
from invgp.core.training import Blocks


class TwoByTwo:
    """Two latents at two sites, tied by outputs that are quadratic or exponential in them."""

    NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
    Z = np.stack([axis.ravel() for axis in np.meshgrid(NODES, NODES, indexing="ij")], axis=-1)
    W = np.outer(WEIGHTS, WEIGHTS).ravel() / WEIGHTS.sum() ** 2

    def __init__(self, kind, backend):
        self.kind = kind
        self.prior = prior_of(backend, [0.0, 0.6], 2, mean=0.3)
        self.noise = independent_noise(backend, [[1.2, 0.5], [0.4, 1.5]], [0.4, 0.6])

    def outputs(self, f, rows=None):
        a, b = f[..., 0], f[..., 1]
        if self.kind == "quadratic":
            return np.stack([a + 0.4 * b + 0.15 * a**2, a * b * 0.3 - b + 0.1 * b**2], axis=-1)
        return np.stack([np.exp(0.4 * a + 0.3 * b), np.exp(-0.5 * b) + 0.2 * a], axis=-1)

    def bound(self, algorithm, sites):
        """By quadrature, at what the sites say."""
        at = algorithm.posterior(sites, Hyperparameters(np.zeros(0), np.zeros(0), self.prior.Z))
        f = np.einsum("nij,sj->sni", at.factor, self.Z) + at.marginals.mean
        return float(self.W @ self.noise.log_density(self.outputs(f)).sum(axis=1) - at.q.kl())

    def slopes(self, algorithm, sites, share=1e-4):
        """Of the bound, by finite differences along every entry of Lambda and eta, relative to the posterior's own."""
        covariance = algorithm.posterior(sites, algorithm.init().trial.hyper).marginals.covariance
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
def test_that_a_nonlinear_posterior_is_stationary_in_all_that_its_sites_say(case, numpy_backend):
    kind, estimator, samples, tolerance, close = NONLINEAR[case]
    model = TwoByTwo(kind, numpy_backend)
    points = sobol(numpy_backend, samples, 2, 2)
    algorithm = CoupledSavigp(model.prior, [Stage(estimator, points, tolerance)], model.noise)
    state, history = run(algorithm, model.outputs)
    assert state.finished == CONVERGED
    np.testing.assert_allclose(model.slopes(algorithm, state.best.sites), 0.0, atol=close)
    assert history[-1][1].elbo == pytest.approx(model.bound(algorithm, state.best.sites), abs=0.01)
    aside = model.slopes(algorithm, state.best.sites._replace(shift=state.best.sites.shift + 0.3))
    assert np.max(np.abs(aside)) > 2 * close


@pytest.mark.parametrize("kind", ["quadratic", "exponential"])
def test_that_mini_batches_find_the_same_nonlinear_posterior(kind, numpy_backend):
    model = TwoByTwo(kind, numpy_backend)
    stage = Stage("log density", sobol(numpy_backend, 512, 2, 2), 1e-5)
    algorithm = CoupledSavigp(model.prior, [stage], model.noise)
    whole, _ = run(algorithm, model.outputs)
    batches, _ = run_batches(algorithm, model.outputs, 1)
    assert batches.finished == CONVERGED
    for part in range(2):
        np.testing.assert_allclose(batches.posterior.marginals[part], whole.best.marginals[part], atol=1e-3)


class Counts:
    """Poisson counts y (N, Q) of exp(f), one for each latent."""

    parameters = np.zeros(0)

    def log_density(self, y, f):
        return np.sum(y * f - np.exp(f), axis=-1)

    def parameter_gradient(self, y, f):
        return None


class TiedCounts(Counts):
    """Poisson counts of exp(f) of each latent and, in the first column, of their sum."""

    def log_density(self, y, f):
        sums = 0.5 * f.sum(axis=-1)
        return super().log_density(y[:, 1:], f) + y[:, 0] * sums - np.exp(sums)


def fit_by_gradients(prior, likelihood, y, points):
    """Marginal means, variances and bound of the full Gaussian of the paper, by L-BFGS on its free parameters."""
    Q, N = prior.latent_count, prior.site_count
    family = Full(Q, N)
    start = family.initial_parameters(inducing_factor(prior.kernels, prior.Z), 0.5, np.zeros((1, Q, N)))
    numbers = join_parameters(prior.kernels)
    bound = Bound(family, prior.kernels, prior.X, dense=True)
    learnt = Blocks(learn=("posterior",), tolerance=1e-10, optimiser=LBFGS(tolerance=1e-12)).fit(
        bound, Parameters(start, numbers, prior.Z, np.zeros(0), prior.mean[0, :]), Data(likelihood, y), points
    )
    bound_state = bound.bound_state(learnt)
    mean, variance = (moment[0] for moment in bound_state.marginals(bound_state.geometry(0, N)))
    log_density = Data(likelihood, y).log_density(np.zeros(0), derivatives=False)
    return mean, variance, float(bound_state.evaluate(log_density, points, ()).elbo)


@pytest.mark.parametrize(
    ("likelihood", "factorised"),
    [(Counts(), False), (Counts(), True), (TiedCounts(), True)],
    ids=["untied", "untied, factorised", "tied, factorised"],
)
def test_that_a_factorised_posterior_is_the_full_gaussian_of_the_paper(likelihood, factorised, numpy_backend):
    """Theorem 2: diagonal site precisions represent its optimum; latents that no datum ties are independent anyway."""
    N, Q = 5, 2
    X = np.linspace(0.0, 2.0, N)[:, None]
    columns = Q + isinstance(likelihood, TiedCounts)
    y = np.random.default_rng(3).poisson(2.0, (N, columns)).astype(float)
    prior, points = prior_of(numpy_backend, X, Q, mean=0.2), sobol(numpy_backend, 2048, N, Q)
    stages = [Stage("log density", points, 1e-6)]
    algorithm = CoupledSavigp(prior, stages, lambda f, rows: likelihood.log_density(y, f), factorised=factorised)
    state, history = run(algorithm, identity_model)
    mean, variance, elbo = fit_by_gradients(prior, likelihood, y, points)
    found = state.best.marginals
    assert state.finished == CONVERGED
    np.testing.assert_allclose(found.mean, mean, atol=2e-3)
    np.testing.assert_allclose(np.diagonal(found.covariance, axis1=1, axis2=2), variance, rtol=1e-2)
    np.testing.assert_allclose(found.covariance[:, 0, 1], 0.0, atol=0.01 * variance.min())
    assert history[-1][1].elbo == pytest.approx(elbo, abs=1e-3)


@pytest.mark.parametrize("size", [None, 1], ids=["all sites", "mini-batches"])
def test_that_a_factorised_posterior_is_stationary_in_its_site_factors(size, numpy_backend):
    model = TwoByTwo("quadratic", numpy_backend)
    stage = Stage("hermite", sobol(numpy_backend, 64, 2, 2), 1e-7)
    algorithm = CoupledSavigp(model.prior, [stage], model.noise, factorised=True)
    if size is None:
        state, _ = run(algorithm, model.outputs)
        found = state.best
    else:
        state, _ = run_batches(algorithm, model.outputs, size)
        found = state.posterior
    assert state.finished == CONVERGED
    np.testing.assert_array_equal(found.sites.precision[:, 0, 1], 0.0)
    slopes = model.slopes(algorithm, found.sites).reshape(2, 5)  # Lambda_11, eta_1, Lambda_21, Lambda_22, eta_2
    np.testing.assert_allclose(slopes[:, [0, 1, 3, 4]], 0.0, atol=1e-5)
    assert np.abs(slopes[:, 2]).max() > 1e-3  # a coupled posterior would be better


@pytest.mark.parametrize("latents", [1, 3])
def test_that_a_linear_factorised_posterior_has_its_closed_form(latents, backend, tolerance, rng):
    N = 6
    X, slope, std = np.linspace(0.0, 5.0, N)[:, None], rng.standard_normal((N, 2, latents)), 0.3
    y = rng.standard_normal((N, 2))
    prior = prior_of(backend, X, latents, variance=1.4, mean=0.7)
    stage = Stage("hermite", sobol(backend, 64, N, latents), 1e-6)
    algorithm = CoupledSavigp(prior, [stage], independent_noise(backend, y, std), factorised=True)
    state = algorithm.init()
    while not state.finished and state.evaluations < 60:
        outputs = np.einsum("npq,snq->snp", slope, to_numpy(algorithm.ask(state)))
        state, info = algorithm.tell(state, backend.asarray(outputs), backend.asmask(np.ones(outputs.shape[:2], bool)))
    K = to_numpy(prior.kernels[0](backend.asarray(X), backend.asarray(X)))
    precision = np.einsum("npi,npj->nij", slope, slope) / std**2
    covariances = [np.linalg.inv(np.linalg.inv(K) + np.diag(precision[:, j, j])) for j in range(latents)]
    J = np.einsum("npj,nm->npjm", slope, np.eye(N)).reshape(2 * N, latents * N)
    K_all, R = np.kron(np.eye(latents), K), std**2 * np.eye(2 * N)
    gain = K_all @ J.T @ np.linalg.inv(J @ K_all @ J.T + R)
    residual = (y - 0.7 * slope.sum(axis=-1)).ravel()
    mean = 0.7 + (gain @ residual).reshape(latents, N).T  # of the exact posterior
    exact, close = K_all - gain @ J @ K_all, tolerance(backend, 1e-5, 0.02)
    np.testing.assert_allclose(to_numpy(state.best.marginals.mean), mean, atol=close)
    for j, covariance in enumerate(covariances):
        variances = to_numpy(state.best.marginals.covariance)[:, j, j]
        np.testing.assert_allclose(variances, np.diagonal(covariance), rtol=close)
    evidence = multivariate_normal(np.zeros(2 * N), J @ K_all @ J.T + R).logpdf(residual)
    q = block_diag(*covariances)
    kl = 0.5 * (np.trace(np.linalg.solve(exact, q)) - len(q) + np.linalg.slogdet(exact)[1] - np.linalg.slogdet(q)[1])
    assert info.elbo == pytest.approx(evidence - kl, abs=tolerance(backend, 1e-4, 0.05))
