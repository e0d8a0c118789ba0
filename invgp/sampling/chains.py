"""Draws of a reference sampler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgp.problem import Floats


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
    """Arrange draws (K, n, T, ...) of populations by iteration, (K, T n, ...)."""
    K, n, T, *shape = draws.shape
    return np.swapaxes(draws, 1, 2).reshape(K, T * n, *shape)
