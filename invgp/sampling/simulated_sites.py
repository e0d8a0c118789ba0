"""Posterior of a site model with the simulator itself, and its polynomial surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import select_backend, to_numpy
from invgp.core.geometry import inducing_factor
from invgp.emulation.emulator_inputs import Inputs
from invgp.errors import ConfigError, RunsFailedError
from invgp.latent_model.noise_density import noise_log_density, noise_log_density_gradient
from invgp.latent_model.problem_prior import gaussian_noise, kernels_of
from invgp.problem import Floats, Problem
from invgp.sampling.polynomial_surrogate import PolynomialFit, RecentRuns, fit_polynomials
from invgp.sampling.tolerant_simulator import TolerantSimulator

Integers = NDArray[np.intp]
INDEPENDENT = 1e-12  # relative size of a factor's off-diagonal elements below which they are rounding errors
IMPOSSIBLE = 100.0  # nats: a failed run is less likely by this than the worst draw from the prior


class WhitenedPrior:
    """Map from whitened latents to latents at the sites: f_q = mean_q + L_q v_q, with prior covariance L_q L_q^T.

    Attributes
    ----------
    mean : array, shape (N, Q)
        Prior means at the sites.
    factor : array, shape (Q, N, N)
        Cholesky factors L_q.
    """

    def __init__(self, problem: Problem) -> None:
        self.mean = problem.prior_mean
        kernels, X = kernels_of(problem, select_backend("cpu")), problem.survey.locations
        try:
            self.factor: Floats = inducing_factor(kernels, np.broadcast_to(X, (len(kernels), *X.shape)))
        except np.linalg.LinAlgError as error:
            raise ConfigError(f"latents: the kernels give a covariance that cannot be factorised: {error}") from error

    def __call__(self, v: Floats) -> Floats:
        """Compute the latents f (S, N, Q) from whitened latents v (S, Q N), latent after latent."""
        Q, N, _ = self.factor.shape
        columns = v.reshape(-1, Q, N).transpose(1, 2, 0)
        return np.asarray(self.mean + (self.factor @ columns).transpose(2, 1, 0))

    def pull_back(self, gradient: Floats) -> Floats:
        """Convert a gradient (S, N, Q) with respect to the latents to one (S, Q N)."""
        return np.asarray((gradient.transpose(2, 0, 1) @ self.factor).transpose(1, 0, 2).reshape(len(gradient), -1))

    @property
    def is_diagonal(self) -> bool:
        """Whether the sites are independent."""
        spread = np.diagonal(self.factor, axis1=1, axis2=2)
        rest = np.abs(self.factor - spread[:, :, None] * np.eye(self.factor.shape[-1]))
        return not (rest > INDEPENDENT * spread[:, :, None]).any()


class SimulatedSites:
    """Posterior of a site model on its simulator; see `ExactTarget`.

    Parameters
    ----------
    problem : Problem
    simulator : TolerantSimulator
    chains : int
        Number of chains, which determines how many runs are kept for the surrogate.

    Attributes
    ----------
    blocks, size : int
        See `ExactTarget`: one block per site if the sites are independent.
    """

    def __init__(self, problem: Problem, simulator: TolerantSimulator) -> None:
        self.problem, self.simulator = problem, simulator
        self.prior, backend = WhitenedPrior(problem), select_backend("cpu")
        self.Q, self.N, _ = self.prior.factor.shape
        self.separate = self.prior.is_diagonal and not problem.noise.correlates_sites
        self.blocks: int = self.N if self.separate else 1
        self.size: int = self.Q if self.separate else self.N * self.Q
        self.spread = np.diagonal(self.prior.factor, axis1=1, axis2=2).T
        self.observed = np.isfinite(problem.survey.Y)
        self.informed: NDArray[np.bool_] = np.asarray(self.observed.any(axis=1))
        self.log_density = noise_log_density(problem, backend)
        self.log_density_gradient = noise_log_density_gradient(problem, backend)
        self.whitening = to_numpy(gaussian_noise(problem, backend).whitening)
        self.inputs = Inputs.of(problem)
        self.recent = RecentRuns.empty(self.N, self.Q, problem.noise_std.shape[1])
        self.worst: Floats | None = None  # log likelihoods (N,) of failed runs

    @property
    def runs(self) -> int:
        """Number of simulator runs so far."""
        return self.simulator.simulator.runs

    def sites(self, blocks: Integers) -> Integers:
        """Return the sites of blocks (b,).

        Parameters
        ----------
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        array of int
        """
        return blocks if self.separate else np.arange(self.N)

    def cost(self, blocks: Integers) -> int:
        """Return the number of runs for one evaluation of blocks (b,).

        Parameters
        ----------
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        int
        """
        return int(self.informed[self.sites(blocks)].sum())

    def latents_at(self, v: Floats, blocks: Integers) -> Floats:
        """Compute the latents (C, n, Q) at the n sites of blocks (b,) from variables v (b, C, d).

        Parameters
        ----------
        v : array, shape (b, C, d)
            Variables of C chains of each block.
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        array, shape (C, n, Q)
        """
        if self.separate:
            return np.asarray(self.prior.mean[blocks] + self.spread[blocks] * v.transpose(1, 0, 2))
        return self.prior(v[0])

    def pull_back(self, gradient: Floats, blocks: Integers) -> Floats:
        """Convert a gradient (C, n, Q) at the sites of blocks (b,) to one (b, C, d).

        Parameters
        ----------
        gradient : array, shape (C, n, Q)
            Derivatives by the latents at the sites of the blocks.
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        array, shape (b, C, d)
        """
        if self.separate:
            return np.asarray((self.spread[blocks] * gradient).transpose(1, 0, 2))
        return self.prior.pull_back(gradient)[None]

    def by_block(self, values: NDArray[Any]) -> NDArray[Any]:
        """Convert values (C, n) of sites to sums (b, C) of blocks."""
        return np.asarray(values.T if self.separate else values.sum(axis=1)[None])

    def latents(self, v: Floats) -> Floats:
        """Compute the latents (C, N, Q) from variables v (B, C, d).

        Parameters
        ----------
        v : array, shape (B, C, d)

        Returns
        -------
        array, shape (C, N, Q)
        """
        return self.latents_at(v, np.arange(self.blocks))

    def draw_latents(self, v: Floats, rng: np.random.Generator) -> Floats:  # noqa: ARG002 - nothing is left open
        """Compute the latents (C, N, Q) from variables v (B, C, d).

        Parameters
        ----------
        v : array, shape (B, C, d)
        rng : numpy.random.Generator

        Returns
        -------
        array, shape (C, N, Q)
        """
        return self.latents(v)

    def log_likelihood(self, v: Floats, blocks: Integers, *, near: bool = True) -> tuple[Floats, NDArray[np.bool_]]:
        """Run the simulator, and return the log likelihood and the failures (b, C); see `ExactTarget`."""
        f, sites = self.latents_at(v, blocks), self.sites(blocks)
        informed = self.informed[sites]
        values, failed = np.zeros(f.shape[:2]), np.zeros(f.shape[:2], dtype=bool)
        if informed.any():
            values[:, informed], failed[:, informed] = self._run(f[:, informed], sites[informed], near=near)
        return self.by_block(values), self.by_block(failed) > 0

    def _run(self, f: Floats, sites: Integers, *, near: bool) -> tuple[Floats, NDArray[np.bool_]]:
        """Run the simulator at latents f (C, n, Q) of sites (n,): log likelihoods and failures (C, n)."""
        batch, observed = self.simulator.run_sites(f, sites), self.observed[sites]
        complete = batch.complete(observed)
        outputs = np.where(complete[..., None], batch.fill_unobserved(observed), 0.0)
        everywhere = np.zeros((len(f), self.N, outputs.shape[-1]))
        everywhere[:, sites] = outputs
        values = to_numpy(self.log_density(everywhere))[:, sites]
        complete = complete & np.isfinite(values)
        if near:
            self.recent = self.recent.append(sites, f, outputs, complete)
        if self.worst is None:
            if not complete.any(axis=0).all():
                site = sites[np.flatnonzero(~complete.any(axis=0))[0]] + 1
                raise RunsFailedError(f"all runs at {len(f)} draws from the prior failed at site {site}")
            self.worst = np.zeros(self.N)
            self.worst[sites] = np.where(complete, values, np.inf).min(axis=0) - IMPOSSIBLE
        return np.where(complete, values, self.worst[sites]), ~complete

    def fit_surrogate(self, power: float) -> SiteSurrogate | None:
        """Fit polynomials to the latest runs; see `ExactTarget`."""
        noise = np.where(self.observed, self.problem.noise_std, np.inf)
        fit = fit_polynomials(self.inputs, self.recent, noise, power)
        return None if fit is None else SiteSurrogate(self, fit)


@dataclass(frozen=True)
class SiteSurrogate:
    """Log likelihood of a site model with polynomials in the simulator's place; see `Surrogate`."""

    target: SimulatedSites
    fit: PolynomialFit

    def linearise(self, v: Floats, blocks: Integers) -> tuple[Floats, Floats]:
        """Compute the log likelihood (b, C) and its gradient (b, C, d)."""
        target, sites = self.target, self.target.sites(blocks)
        f = target.latents_at(v, blocks)
        outputs, pull_back = self.fit.linearise(f, sites)
        everywhere = np.zeros((len(f), target.N, outputs.shape[-1]))
        everywhere[:, sites] = outputs
        values, slopes = (to_numpy(part)[:, sites] for part in target.log_density_gradient(everywhere))
        informed = target.informed[sites]
        values, slopes = np.where(informed, values, 0.0), np.where(informed[:, None], slopes, 0.0)
        return target.by_block(values), target.pull_back(pull_back(slopes), blocks)

    def information(self, v: Floats, blocks: Integers) -> Floats:
        """Compute the Fisher information (b, d, d), averaged over v (b, C, d)."""
        target, sites = self.target, self.target.sites(blocks)
        f = target.latents_at(v, blocks)
        outputs, pull_back = self.fit.linearise(f, sites)
        slopes = []
        for row in range(outputs.shape[-1]):
            cotangents = np.broadcast_to(target.whitening[sites, row], outputs.shape)
            slopes.append(pull_back(cotangents))
        J = np.stack(slopes)  # (P, C, n, Q)
        J = np.where(np.isfinite(J), J, 0.0)
        by_site = np.einsum("pcnq,pcnr->nqr", J, J, optimize=True) / len(f)
        if target.separate:
            return np.asarray(target.spread[sites, :, None] * by_site * target.spread[sites, None, :])
        factor, Q, N = target.prior.factor, target.Q, target.N
        whole = np.empty((Q, N, Q, N))
        for i in range(Q):
            for j in range(Q):
                whole[i, :, j] = (factor[i].T * by_site[:, i, j]) @ factor[j]
        return whole.reshape(1, Q * N, Q * N)
