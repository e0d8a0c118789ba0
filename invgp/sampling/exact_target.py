"""Interface between a sampler and a problem: the exact likelihood, a surrogate with a gradient, and the draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats


class Surrogate(Protocol):
    """Approximation of the log likelihood with a gradient. Its errors cost acceptance, not accuracy."""

    def linearise(self, v: Floats, blocks: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Compute the log likelihood (b, C) and its gradient (b, C, d) at variables v (b, C, d) of blocks (b,).

        Parameters
        ----------
        v : array, shape (b, C, d)
            Variables of C chains of each block.
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        value : array, shape (b, C), in nats
        gradient : array, shape (b, C, d)
        """

    def information(self, v: Floats, blocks: NDArray[np.intp]) -> Floats:
        """Compute the Fisher information (b, d, d), averaged over variables v (b, C, d) of blocks (b,).

        Parameters
        ----------
        v : array, shape (b, C, d)
            Variables of C chains of each block.
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        array, shape (b, d, d)
        """


class ExactTarget(Protocol):
    """Posterior of a problem with the simulator itself.

    The variables v are standard normal in the prior. They consist of B blocks of d variables that are independent in
    the posterior: one block for all sites or the whole field, or one block per site if the sites are independent.

    Attributes
    ----------
    blocks, size : int
        Number of blocks B, and of variables d of a block.
    runs : int
        Number of simulator runs so far.
    """

    blocks: int
    size: int

    @property
    def runs(self) -> int:
        """Number of simulator runs so far."""

    def cost(self, blocks: NDArray[np.intp]) -> int:
        """Return the number of runs for one evaluation of these blocks (b,).

        Parameters
        ----------
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        int
        """

    def log_likelihood(
        self, v: Floats, blocks: NDArray[np.intp], *, near: bool = True
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Run the simulator at variables v (b, C, d) of blocks (b,).

        Parameters
        ----------
        v : array, shape (b, C, d)
        blocks : array of int, shape (b,)
        near : bool
            Whether later surrogates are fitted to these runs.

        Returns
        -------
        value : array, shape (b, C)
            Log likelihood. That of a failed run is very small but finite, so that tempering leads away from failures.
        failed : array of bool, shape (b, C)
            Whether a run failed.
        """

    def fit_surrogate(self, power: float) -> Surrogate | None:
        """Fit a surrogate to the latest runs; None if there are too few.

        Parameters
        ----------
        power : float
            Power of the likelihood at present; the errors of a surrogate matter less if it is small.
        """

    def latents(self, v: Floats) -> Floats:
        """Compute the latents (C, M, Q) at sites or nodes from variables v (B, C, d).

        Parameters
        ----------
        v : array, shape (B, C, d)
            Variables of C chains of all B blocks.

        Returns
        -------
        array, shape (C, M, Q)
        """

    def draw_latents(self, v: Floats, rng: np.random.Generator) -> Floats:
        """Compute the latents (C, M, Q) as `latents` does, with what the variables leave open drawn at random.

        Parameters
        ----------
        v : array, shape (B, C, d)
            Variables of C chains of all B blocks.
        rng : numpy.random.Generator

        Returns
        -------
        array, shape (C, M, Q)
        """


@dataclass(frozen=True)
class Chains:
    """Draws from the exact posterior.

    Attributes
    ----------
    draws : array, shape (K, n, T, M, Q), on the scale of the Gaussian processes
        T draws of n chains in K independent populations, at M sites or nodes.
    runs : int
        Number of simulator runs, including those that the ledger answered.
    acceptance : float
        Share of the moves that the simulator accepted.
    """

    draws: Floats
    runs: int
    acceptance: float = 1.0

    @property
    def by_chain(self) -> Floats:
        """The draws (K, n T, M, Q) of each population, chain after chain: neighbours are correlated as in a chain."""
        K, n, T, *shape = self.draws.shape
        return self.draws.reshape(K, n * T, *shape)

    @property
    def by_iteration(self) -> Floats:
        """The draws (K, T n, M, Q) of each population, iteration after iteration: its halves are early and late."""
        return by_iteration(self.draws)


def by_iteration(draws: Floats) -> Floats:
    """Arrange draws (K, n, T, ...) of populations by iteration, (K, T n, ...).

    Parameters
    ----------
    draws : array, shape (K, n, T, ...)
        Of K populations of n chains with T iterations.

    Returns
    -------
    array, shape (K, T n, ...)
    """
    K, n, T, *shape = draws.shape
    return np.swapaxes(draws, 1, 2).reshape(K, T * n, *shape)
