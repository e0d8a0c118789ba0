"""Walkers of a chain: one that moves all sites together, or one per site if the sites are independent.

Independent sites have separate posteriors of few dimensions. Moved together, all sites would have to accept a step at
the same time.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats, Problem
from invgp.sampling.proposal import Proposal
from invgp.sampling.target_density import Run, SiteLikelihood, WhitenedPrior

INDEPENDENT = 1e-12  # relative size of a factor's off-diagonal elements below which they are rounding errors


class Walkers(Protocol):
    """W walkers with n sites each.

    Attributes
    ----------
    proposal : Proposal
        Gaussian of the ellipses: one for all sites, or one per site.
    shape : (W, n)
    """

    proposal: Proposal
    shape: tuple[int, int]

    def field(self, v: Floats) -> Floats:
        """Compute latents (W, n, Q) from whitened latents (W, n Q)."""

    def log_likelihood(self, f: Floats, which: NDArray[np.bool_]) -> tuple[Floats, int]:
        """Compute the log likelihood (W,) of f (W, n, Q) for walkers `which` (W,), and the number of runs.

        It is minus infinity where a run failed, and for other walkers.
        """

    def by_chain(self, draws: Floats) -> Floats:
        """Arrange samples (W, R, n, Q) of the walkers by chain, (C, R, N, Q)."""


def walkers_of(
    problem: Problem, run: Run, proposal: Proposal, chains: int, simulated: NDArray[np.bool_] | None
) -> Walkers:
    """Return the walkers of the chains of a problem: per site if prior and noise of the sites are independent.

    Parameters are those of `SiteLikelihood`, the proposal for all sites, and the number of chains.
    """
    prior, likelihood = WhitenedPrior(problem), SiteLikelihood(problem, run, simulated)
    factor = prior.factor
    spread = np.diagonal(factor, axis1=1, axis2=2)
    tied = np.abs(factor - spread[:, :, None] * np.eye(factor.shape[-1])) > INDEPENDENT * spread[:, :, None]
    if tied.any() or problem.noise.correlates_sites:
        return JointWalkers(prior, likelihood, proposal, chains)
    return SiteWalkers(prior, likelihood, proposal, chains)


class JointWalkers:
    """One walker per chain, which moves all sites."""

    def __init__(self, prior: WhitenedPrior, likelihood: SiteLikelihood, proposal: Proposal, chains: int) -> None:
        self.field, self.likelihood, self.proposal = prior, likelihood, proposal
        self.sites = np.arange(prior.factor.shape[-1])
        self.shape = (chains, len(self.sites))

    def log_likelihood(self, f: Floats, which: NDArray[np.bool_]) -> tuple[Floats, int]:
        """See `Walkers`."""
        values = np.full(len(f), -np.inf)
        by_site, runs = self.likelihood(f[which], self.sites)
        values[which] = by_site.sum(axis=1)
        return values, runs

    def by_chain(self, draws: Floats) -> Floats:
        """See `Walkers`; each walker is a chain."""
        return draws


class SiteWalkers:
    """One walker per site of each chain, ordered by chain, then site."""

    def __init__(self, prior: WhitenedPrior, likelihood: SiteLikelihood, proposal: Proposal, chains: int) -> None:
        self.prior, self.likelihood = prior, likelihood
        self.Q, self.N, _ = prior.factor.shape
        self.spread = np.diagonal(prior.factor, axis1=1, axis2=2).T
        self.proposal = proposal.split_by_site(self.N)
        self.shape = (chains * self.N, 1)

    def field(self, v: Floats) -> Floats:
        """See `Walkers`."""
        f = self.prior.mean + self.spread * v.reshape(-1, self.N, self.Q)
        return np.asarray(f.reshape(len(v), 1, self.Q))

    def log_likelihood(self, f: Floats, which: NDArray[np.bool_]) -> tuple[Floats, int]:
        """See `Walkers`; at each site that needs a run, all chains with any active walker are run."""
        values, asked = np.full((len(f) // self.N, self.N), -np.inf), which.reshape(-1, self.N)
        chains, sites = np.flatnonzero(asked.any(axis=1)), np.flatnonzero(asked.any(axis=0))
        by_site, runs = self.likelihood(f.reshape(-1, self.N, self.Q)[chains], sites)
        values[np.ix_(chains, sites)] = by_site
        return np.where(asked, values, -np.inf).ravel(), runs

    def by_chain(self, draws: Floats) -> Floats:
        """See `Walkers`."""
        return draws.reshape(-1, self.N, draws.shape[1], self.Q).swapaxes(1, 2)
