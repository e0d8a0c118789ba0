"""Who walks: a chain that moves all sites of a survey at once, or one for each site where nothing ties the sites.

Sites that are independent are as many posteriors of few dimensions. Moved together, the shape of each one would hold
back all the others.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats, Problem
from invgp.sampling.proposal import Proposal
from invgp.sampling.target_density import Run, SiteLikelihood, WhitenedPrior

INDEPENDENT = 1e-12  # of the prior's own spread: what is less is rounding


class Walkers(Protocol):
    """W walkers, of n sites each.

    Attributes
    ----------
    proposal : the Gaussian that the ellipses go around: one for all, or one a site.
    shape : (W, n).
    """

    proposal: Proposal
    shape: tuple[int, int]

    def field(self, v: Floats) -> Floats:
        """Whitened latents (W, n Q) -> latents (W, n, Q)."""

    def log_likelihood(self, f: Floats, which: NDArray[np.bool_]) -> tuple[Floats, int]:
        """Log likelihood (W,) of f (W, n, Q), minus infinity where a run failed and for walkers left out; the runs."""

    def by_chain(self, draws: Floats) -> Floats:
        """Draws (W, R, n, Q) of the walkers -> (C, R, N, Q)."""


def walkers_of(
    problem: Problem, run: Run, proposal: Proposal, chains: int, simulated: NDArray[np.bool_] | None
) -> Walkers:
    """The walkers of some chains over a problem; `simulated` as for `SiteLikelihood`."""
    prior, likelihood = WhitenedPrior(problem), SiteLikelihood(problem, run, simulated)
    factor = prior.factor
    spread = np.diagonal(factor, axis1=1, axis2=2)
    tied = np.abs(factor - spread[:, :, None] * np.eye(factor.shape[-1])) > INDEPENDENT * spread[:, :, None]
    if tied.any() or problem.noise.joins_sites:
        return Together(prior, likelihood, proposal, chains)
    return Apart(prior, likelihood, proposal, chains)


class Together:
    """A walker a chain, whose ellipses move all sites."""

    def __init__(self, prior: WhitenedPrior, likelihood: SiteLikelihood, proposal: Proposal, chains: int) -> None:
        self.field, self.likelihood, self.proposal = prior, likelihood, proposal
        self.sites = np.arange(prior.factor.shape[-1])
        self.shape = (chains, len(self.sites))

    def log_likelihood(self, f: Floats, which: NDArray[np.bool_]) -> tuple[Floats, int]:
        """As `Walkers` says."""
        values = np.full(len(f), -np.inf)
        by_site, runs = self.likelihood(f[which], self.sites)
        values[which] = by_site.sum(axis=1)
        return values, runs

    def by_chain(self, draws: Floats) -> Floats:
        """As they are."""
        return draws


class Apart:
    """A walker for each site of each chain, chain after chain."""

    def __init__(self, prior: WhitenedPrior, likelihood: SiteLikelihood, proposal: Proposal, chains: int) -> None:
        self.prior, self.likelihood = prior, likelihood
        self.Q, self.N, _ = prior.factor.shape
        self.spread = np.diagonal(prior.factor, axis1=1, axis2=2).T
        self.proposal = proposal.of_sites(self.N)
        self.shape = (chains * self.N, 1)

    def field(self, v: Floats) -> Floats:
        """As `Walkers` says."""
        f = self.prior.mean + self.spread * v.reshape(-1, self.N, self.Q)
        return np.asarray(f.reshape(len(v), 1, self.Q))

    def log_likelihood(self, f: Floats, which: NDArray[np.bool_]) -> tuple[Floats, int]:
        """As `Walkers` says; the chains of a site are run together, also those that need it no more."""
        values, asked = np.full((len(f) // self.N, self.N), -np.inf), which.reshape(-1, self.N)
        chains, sites = np.flatnonzero(asked.any(axis=1)), np.flatnonzero(asked.any(axis=0))
        by_site, runs = self.likelihood(f.reshape(-1, self.N, self.Q)[chains], sites)
        values[np.ix_(chains, sites)] = by_site
        return np.where(asked, values, -np.inf).ravel(), runs

    def by_chain(self, draws: Floats) -> Floats:
        """As `Walkers` says."""
        return draws.reshape(-1, self.N, draws.shape[1], self.Q).swapaxes(1, 2)
