"""The coupled posterior where runs fail."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.coupled_models import CONVERGED, all_valid, independent_noise, prior_of, run, run_batches, sobol
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.stage import Stage


class LinearTies:
    """y = G f + noise at six sites: what is left of the runs still gives the exact posterior."""

    SITES, LATENTS = 6, 2

    def __init__(self, backend):
        rng = np.random.default_rng(6)
        self.prior = prior_of(backend, 0.8 * np.arange(self.SITES), self.LATENTS)
        self.G = rng.standard_normal((self.SITES, 2, self.LATENTS))
        self.y = rng.standard_normal((self.SITES, 2))
        self.noise = independent_noise(backend, self.y, 0.5)

    def outputs(self, f, rows=slice(None)):
        return np.einsum("npq,snq->snp", self.G[rows], f)

    def exact_posterior(self):
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

    def algorithm(self, backend, *kinds, tolerance=1e-5):
        stages = [Stage(kind, sobol(backend, 32, self.SITES, self.LATENTS, seed), tolerance) for seed, kind in kinds]
        return CoupledSavigp(self.prior, stages, self.noise)

    def assert_found(self, posterior):
        mean, covariance, _ = self.exact_posterior()
        np.testing.assert_allclose(posterior.marginals.mean, mean, atol=1e-4)
        np.testing.assert_allclose(posterior.marginals.covariance, covariance, atol=1e-4)


STAGES = (1, "linear"), (2, "hermite")


def test_that_mini_batches_with_failed_runs_converge_to_the_exact_posterior(numpy_backend):
    model, rng = LinearTies(numpy_backend), np.random.default_rng(9)
    algorithm = model.algorithm(numpy_backend, *STAGES)
    state, history = run_batches(algorithm, model.outputs, 4, valid_of=lambda f: rng.random(f.shape[:2]) > 0.2)
    assert state.finished == CONVERGED
    model.assert_found(state.posterior)
    assert history[-1][1].elbo == pytest.approx(model.exact_posterior()[2], abs=1e-3)


@pytest.mark.parametrize("failing", [1, 3, 5])
def test_that_mini_batches_get_over_a_batch_whose_runs_at_one_site_all_failed(failing, numpy_backend):
    model, calls = LinearTies(numpy_backend), []

    def valid_of(f):
        calls.append(f.shape)
        valid = all_valid(f)
        valid[:, 0] = len(calls) != failing
        return valid

    state, _ = run_batches(model.algorithm(numpy_backend, *STAGES), model.outputs, 3, valid_of=valid_of)
    assert state.finished == CONVERGED
    model.assert_found(state.posterior)


def test_that_a_site_not_seen_yet_does_not_raise_the_bound_of_a_pass_above_all_later_ones(numpy_backend):
    """From near the optimum, where the bound of all sites but one lies above that of all."""
    model, calls = LinearTies(numpy_backend), []
    algorithm = model.algorithm(numpy_backend, (1, "linear"))
    found = run(algorithm, model.outputs)[0].best
    near = algorithm.posterior(found.sites._replace(shift=0.9 * found.sites.shift), found.hyper)

    def valid_of(f):
        calls.append(f.shape)
        valid = all_valid(f)
        valid[:, 0] = len(calls) != 1
        return valid

    state, history = run_batches(algorithm, model.outputs, 3, valid_of=valid_of, start=near)
    assert state.finished == CONVERGED
    model.assert_found(state.posterior)
    assert history[-1][1].elbo == pytest.approx(model.exact_posterior()[2], abs=1e-3)


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_that_failed_runs_everywhere_and_at_the_change_of_stage_leave_the_exact_posterior(share, numpy_backend):
    model, rng = LinearTies(numpy_backend), np.random.default_rng(9)

    def valid_of(f, evaluation):
        valid = rng.random(f.shape[:2]) > share
        valid[:20] = True  # half of them succeed at every site
        return valid

    state, history = run(model.algorithm(numpy_backend, *STAGES), model.outputs, valid_of=valid_of)
    assert {stage for stage, _ in history} == {0, 1}
    assert state.finished == CONVERGED
    model.assert_found(state.best)
    assert history[-1][1].elbo == pytest.approx(model.exact_posterior()[2], abs=1e-3)


@pytest.mark.parametrize("failing", ["one site", "all sites"])
def test_that_a_change_of_stage_whose_first_runs_fail_keeps_the_posterior_found_before(failing, numpy_backend):
    model = LinearTies(numpy_backend)
    algorithm = model.algorithm(numpy_backend, *STAGES)
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


def test_that_a_site_that_fails_at_every_evaluation_does_not_stop_the_others(numpy_backend):
    """Too few runs of one site for a fit, but half of them: it says nothing, and all others what they have to say."""
    model = LinearTies(numpy_backend)
    points = sobol(numpy_backend, 16, model.SITES, model.LATENTS)
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
