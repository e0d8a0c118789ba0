"""The posterior of a site model without some data of one site, from draws of the posterior with them.

The latents at the site are integrated out: a draw of the latents elsewhere has the weight p(y_kept | elsewhere) /
p(y | elsewhere), which varies much less than one over the likelihood at the draw (integrated importance sampling:
Li, Qiu, Zhang and Feng, 2016; Vehtari et al., 2016). Both are means over the conditional prior of the latents at the
site, and are computed from the same points: half of them from the conditional prior, half from a Gaussian approximation
of its product with the likelihood. Where these weights are not reliable either, Hamiltonian Monte Carlo on the emulator
continues from the weighted draws.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from invgp.answers.emulated_problem import EmulatedProblem, hide_data
from invgp.core.backend import to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.geometry import solvable_factor
from invgp.core.sampling.hamiltonian import HamiltonianOptions, sample
from invgp.inference.emulated_posterior import EmulatedPosterior
from invgp.inference.importance_draws import extend_gaussian, smooth_weights
from invgp.inference.tempered_draws import positive_factors
from invgp.latent_model.noise_density import noise_log_density
from invgp.latent_model.problem_prior import noise_covariance
from invgp.problem import Floats, Problem

RELIABLE = 0.5  # largest Pareto k of weights; up to 0.7, scores of 1,000 draws were off by more than one nat
POINTS = 32  # of the integration over the latents at a site, for each draw
MOST_SAMPLED = 8  # data whose posterior without them is sampled again for their influence
CHAINS, WARMUP, ITERATIONS = 64, 30, 24  # of Hamiltonian Monte Carlo


class LeftOut(NamedTuple):
    """Weighted draws of the posterior without some data of a site.

    Attributes
    ----------
    latents : array, shape (R, N, Q)
        Draws of the processes at all sites; `own` replaces those at the sites without data.
    log_weights : array, shape (R,)
        Logarithms of their weights, normalised.
    k_hat : float
        Pareto k of the weights; NaN if they were sampled again.
    own : array, shape (R, B, M, Q)
        Processes at the B sites whose data are left out, at M points for each draw.
    outputs : array, shape (R, B, M, P)
        Outputs there.
    own_log_weights : array, shape (R, M)
        Logarithms of their weights, normalised for each draw.
    """

    latents: Floats
    log_weights: Floats
    k_hat: float
    own: Floats
    outputs: Floats
    own_log_weights: Floats

    @property
    def point_weights(self) -> Floats:
        """Weights (R, M) of `own` and `outputs`."""
        return np.asarray(np.exp(self.log_weights[:, None] + self.own_log_weights))


class SitePoints(NamedTuple):
    """Points of the latents at a site, for each draw of the latents elsewhere.

    Attributes
    ----------
    latents : array, shape (R, M, Q)
    outputs : array, shape (R, M, P)
    log_base : array, shape (R, M)
        Logarithm of the conditional prior times the probability of success, relative to the density of the points.
    """

    latents: Floats
    outputs: Floats
    log_base: Floats


class LeaveOut:
    """Leaves out data of a posterior, one site after the other.

    Parameters
    ----------
    emulated : EmulatedProblem
    latents : array, shape (R, N, Q)
        Draws of its posterior.
    seed : int
    on_emulator : bool
        Whether the draws are those on the emulator; else they were weighted with the simulator at some sites.
    """

    def __init__(self, emulated: EmulatedProblem, latents: Floats, seed: int = 0, *, on_emulator: bool = True) -> None:
        self.emulated, self.latents, self.seed, self.on_emulator = emulated, latents, seed, on_emulator
        self._points: tuple[int, SitePoints] | None = None

    @property
    def problem(self) -> Problem:
        """The problem with all data."""
        return self.emulated.problem

    @property
    def most_sampled(self) -> int:
        """Number of data whose posterior without them may be sampled again."""
        return MOST_SAMPLED if self.can_integrate else 0

    @property
    def can_integrate(self) -> bool:
        """Whether the latents at a site can be integrated out and sampled again: not with inducing points."""
        return bool(self.emulated.gaussian.prior.dense)

    @cached_property
    def _inverse_factors(self) -> Floats:
        prior = self.emulated.gaussian.prior
        factors = to_numpy(solvable_factor(prior.kernels, prior.factor))
        return np.stack([solve_triangular(L, np.eye(len(L)), lower=True) for L in factors])

    @cached_property
    def _whitened(self) -> Floats:
        mean = to_numpy(self.emulated.gaussian.prior.mean)
        return np.asarray(np.einsum("qmn,rnq->rqm", self._inverse_factors, self.latents - mean))

    def conditional_prior(self, site: int) -> tuple[Floats, Floats]:
        """Return mean (R, Q) and standard deviation (Q,) of the latents at a site given those elsewhere."""
        columns = self._inverse_factors[:, :, site]  # of the Cholesky factor: K^-1 = L^-T L^-1
        precision = np.sum(columns**2, axis=1)
        own = self.latents[:, site]
        return own - np.einsum("qm,rqm->rq", columns, self._whitened) / precision, precision**-0.5

    def log_likelihood(self, site: int, outputs: Floats, kept: NDArray[np.bool_]) -> Floats:
        """Return the log likelihood (R, M) of some of the data (P,) of a site for outputs (R, M, P)."""
        emulated = self.emulated
        Y = emulated.problem.survey.Y
        if not kept.any():
            return np.zeros(outputs.shape[:2])
        mask = np.zeros(Y.shape, dtype=bool)
        mask[site] = ~kept
        hidden = hide_data(emulated.noisy_problem, mask).select_sites(np.asarray([site]))
        density = noise_log_density(hidden, emulated.model.backend)
        flat = np.where(kept & np.isfinite(Y[site]), outputs, 0.0).reshape(-1, 1, outputs.shape[-1])
        found = to_numpy(density(emulated.model.backend.asarray(flat))).reshape(outputs.shape[:2])
        return np.where(np.isfinite(found), found, -np.inf)

    def points(self, site: int) -> SitePoints:
        """Return points of the latents at a site."""
        if self._points is None or self._points[0] != site:
            self._points = site, self._find_points(site)
        return self._points[1]

    def _find_points(self, site: int) -> SitePoints:
        emulated, rng = self.emulated, np.random.default_rng([self.seed, site])
        if not self.can_integrate:
            draws = self.latents[:, [site]]
            return SitePoints(draws, self._predict(site, draws), np.zeros(draws.shape[:2]))
        mean, spread = self.conditional_prior(site)
        R, Q = mean.shape
        own = np.flatnonzero(np.isfinite(emulated.problem.survey.Y[site]))
        slopes, residual = self._slopes(site, own)
        slopes = slopes * spread  # in units of the conditional prior, in which it is standard normal
        u = np.where(spread > 0.0, (self.latents[:, site] - mean) / np.where(spread > 0.0, spread, 1.0), 0.0)
        noise = noise_covariance(emulated.noisy_problem)[site][np.ix_(own, own)]
        weighted = np.linalg.solve(noise, slopes)
        precision = np.eye(Q) + slopes.swapaxes(1, 2) @ weighted
        gradient = np.einsum("rpq,rp->rq", weighted, residual) - u
        centre = u + np.linalg.solve(precision, gradient[..., None])[..., 0]
        factor = np.linalg.cholesky(precision)
        half = POINTS // 2
        normals = rng.standard_normal((R, POINTS, Q))
        near = centre[:, None] + np.linalg.solve(factor.swapaxes(1, 2)[:, None], normals[:, half:, :, None])[..., 0]
        points = np.concatenate([normals[:, :half], near], axis=1)
        prior = -0.5 * np.sum(points**2, axis=-1)
        away = np.einsum("rji,rmj->rmi", factor, points - centre[:, None])
        local = -0.5 * np.sum(away**2, axis=-1) + np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)[:, None]
        latents = mean[:, None] + spread * points
        base = prior - np.logaddexp(prior, local) + self._log_success(site, latents)
        return SitePoints(latents, self._predict(site, latents), base)

    def _predict(self, site: int, latents: Floats) -> Floats:
        """Predict the outputs (R, M, P) for latents (R, M, Q) at a site."""
        flat = latents.reshape(-1, 1, latents.shape[-1])
        return self.emulated.emulator.predict(flat, np.asarray([site])).reshape(*latents.shape[:2], -1)

    def _log_success(self, site: int, latents: Floats) -> Floats:
        """Return the log probability (R, M) that a run succeeds at latents (R, M, Q) of a site; 0 without a model."""
        flat = self.emulated.model.backend.asarray(latents.reshape(-1, 1, latents.shape[-1]))
        found = self.emulated.emulator.log_success(flat, np.asarray([site]))
        return np.zeros(latents.shape[:2]) if found is None else to_numpy(found[0]).reshape(latents.shape[:2])

    def _slopes(self, site: int, own: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return derivatives (R, P', Q) of the outputs `own` at the draws of a site, and residuals (R, P')."""
        emulated = self.emulated
        backend = emulated.model.backend
        here = backend.asarray(self.latents[:, [site]])
        outputs, pull_back = emulated.emulator.linearise(here, np.asarray([site]))
        values, slopes = to_numpy(outputs), []
        for p in own:
            cotangents = np.zeros(values.shape)
            cotangents[..., p] = 1.0
            slopes.append(to_numpy(pull_back(backend.asarray(cotangents)))[:, 0])
        return np.stack(slopes, axis=1), emulated.problem.survey.Y[site, own] - values[:, 0, own]

    def without(self, mask: NDArray[np.bool_]) -> LeftOut:
        """Return the posterior without some data (N, P) of one site, by weights of the draws."""
        [site] = np.flatnonzero(mask.any(axis=1))
        points = self.points(int(site))
        everything = self.log_likelihood(int(site), points.outputs, np.ones_like(mask[site]))
        rest = points.log_base + self.log_likelihood(int(site), points.outputs, ~mask[site])
        total = logsumexp(rest, axis=1)
        weights, k_hat = smooth_weights(total - logsumexp(points.log_base + everything, axis=1))
        return LeftOut(
            self.latents,
            weights - logsumexp(weights),
            k_hat,
            points.latents[:, None],
            points.outputs[:, None],
            rest - total[:, None],
        )

    def sample_without(self, mask: NDArray[np.bool_], weighted: LeftOut | None = None) -> LeftOut:
        """Draw from the posterior without some data (N, P) by Hamiltonian Monte Carlo on the emulator.

        The chains begin at draws of the posterior with all data: at weighted draws if the data are those of one site,
        else with latents at sites without data that are drawn from their prior given those elsewhere.
        """
        emulated, rng = self.emulated, np.random.default_rng([self.seed, *np.flatnonzero(mask).tolist()])
        backend, model = emulated.model.backend, emulated.model
        gaussian = self._gaussian_without(mask)
        hidden = hide_data(emulated.noisy_problem, mask)
        posterior = EmulatedPosterior(hidden, emulated.emulator, model.all_sites, gaussian.prior, backend)
        target = posterior.target
        centre, root = extend_gaussian(backend, gaussian, target.size)
        start = self._redraw(mask, rng) if weighted is None else self._resample(mask, weighted, rng)
        away = posterior.whiten(start).reshape(CHAINS, -1) - to_numpy(centre)
        z = np.linalg.solve(to_numpy(root).T, away.T).T
        found = sample(
            target.around(centre, root),
            lambda matrix: target.around(centre, matrix @ root),
            backend.asarray(z),
            rng,
            warmup=WARMUP,
            iterations=ITERATIONS,
            options=HamiltonianOptions(harmonic=True),
        )
        v = target.variables(backend.asarray(found.z.reshape(-1, target.size)), centre, root)
        drawn = posterior.latents(to_numpy(v))
        sites = np.flatnonzero(mask.any(axis=1))
        own = drawn[:, sites].swapaxes(0, 1)
        outputs = emulated.emulator.predict(drawn[:, sites], sites).swapaxes(0, 1)
        count = len(drawn)
        return LeftOut(
            drawn,
            np.full(count, -np.log(count)),
            np.nan,
            own.swapaxes(0, 1)[:, :, None],
            outputs.swapaxes(0, 1)[:, :, None],
            np.zeros((count, 1)),
        )

    @cached_property
    def sampled_mean(self) -> Floats:
        """Means (N, Q) of the processes with all data on the emulator, to compare `sample_without` with."""
        if self.on_emulator:
            return np.asarray(self.latents.mean(axis=0))
        nothing = np.zeros(self.emulated.problem.survey.Y.shape, dtype=bool)
        return np.asarray(self.sample_without(nothing).latents.mean(axis=0))

    def _resample(self, mask: NDArray[np.bool_], found: LeftOut, rng: np.random.Generator) -> Floats:
        """Choose the first draws (C, N, Q) of the chains by their weights."""
        [site] = np.flatnonzero(mask.any(axis=1))
        chosen = rng.choice(len(found.log_weights), CHAINS, p=np.exp(found.log_weights))
        latents = found.latents[chosen].copy()
        for k, r in enumerate(chosen):
            point = rng.choice(found.own.shape[2], p=np.exp(found.own_log_weights[r]))
            latents[k, site] = found.own[r, 0, point]
        return latents

    def _redraw(self, mask: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
        """Draw the latents at sites without other data from their prior given those elsewhere, for each chain."""
        chosen = rng.choice(len(self.latents), CHAINS, replace=len(self.latents) < CHAINS)
        latents = self.latents[chosen].copy()
        empty = ~(np.isfinite(self.emulated.problem.survey.Y) & ~mask).any(axis=1) & mask.any(axis=1)
        sites = np.flatnonzero(empty)
        for q, inverse in enumerate(self._inverse_factors):
            columns = inverse[:, sites]
            if not len(sites):
                break
            values, vectors = np.linalg.eigh(columns.T @ columns)
            normals = rng.standard_normal((CHAINS, len(sites))) * values**-0.5
            shift = np.linalg.solve(columns.T @ columns, columns.T @ self._whitened[chosen, q].T).T
            latents[:, sites, q] += normals @ vectors.T - shift
        return latents

    def _gaussian_without(self, mask: NDArray[np.bool_]) -> GaussianPosterior:
        """Return the Gaussian approximation without the data of some sites, as the scale of the sampler."""
        gaussian, model = self.emulated.gaussian, self.emulated.model
        precision, shift = (to_numpy(part).copy() for part in positive_factors(gaussian.sites))
        sites = mask.any(axis=1)
        precision[sites], shift[sites] = 0.0, 0.0
        factors = SiteFactors(model.backend.asarray(precision), model.backend.asarray(shift))
        return model.algorithm(model.emulator_stages).posterior(factors, gaussian.hyper)
