"""Gaussian proposal of generalised elliptical slice sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class Proposal:
    """Gaussian of the whitened latents v (D,): of all sites, D = Q N, latent after latent; or of each site, D = Q.

    Attributes
    ----------
    mean : array, shape (D,), or (N, D) for one Gaussian per site
    axes : array, shape (..., D, D)
        Principal axes, as orthonormal columns.
    gain : array, shape (..., D)
        Precision along each axis minus the precision of the prior, 1; at least 0.
    runs : int
        Number of simulator runs with which the Gaussian was found.
    """

    mean: Floats
    axes: Floats
    gain: Floats
    runs: int = 0

    @staticmethod
    def prior(problem: Problem) -> Proposal:
        """Return the prior, which gives standard elliptical slice sampling."""
        D = problem.survey.size * problem.latent_count
        return Proposal(np.zeros(D), np.eye(D), np.zeros(D))

    @staticmethod
    def from_precision(mean: Floats, precision: Floats, runs: int = 0) -> Proposal:
        """Build from a mean (D,) and a precision (D, D); no direction is wider than the prior."""
        values, axes = np.linalg.eigh(precision)
        return Proposal(mean, axes, np.maximum(values - 1.0, 0.0), runs)

    @staticmethod
    def from_covariance(mean: Floats, covariance: Floats, runs: int = 0) -> Proposal:
        """Build from a mean (D,) and a covariance (D, D); no direction is wider than the prior."""
        values, axes = np.linalg.eigh(covariance)
        return Proposal(mean, axes, 1.0 / np.clip(values, np.finfo(np.float64).tiny, 1.0) - 1.0, runs)

    def split_by_site(self, N: int) -> Proposal:
        """Return the conditional Gaussians of N sites, each with the other sites at their means."""
        precision = ((self.axes * (1.0 + self.gain)) @ self.axes.T).reshape(-1, N, len(self.mean) // N, N)
        return Proposal.from_precision(self.mean.reshape(-1, N).T, np.einsum("pnqn->npq", precision), self.runs)

    def root(self, widening: float) -> Floats:
        """Return a square root R (..., D, D) of the covariance R R^T, widened where it is narrower than the prior."""
        return self.axes / self._narrowing(widening)

    def to_units(self, widening: float) -> Floats:
        """Return the inverse of `root`."""
        return np.asarray((self.axes * self._narrowing(widening)).mT)

    def _narrowing(self, widening: float) -> Floats:
        return np.sqrt(1.0 + self.gain / widening**2)[..., None, :]


def multiply_by_site(matrices: Floats, vectors: Floats) -> Floats:
    """Multiply vectors (W, D) by a matrix (D, D), or by one per site (N, D, D); W runs over chains, then sites."""
    if matrices.ndim == 2:
        return vectors @ matrices.T
    return np.asarray((matrices @ vectors.reshape(-1, *matrices.shape[:2])[..., None]).reshape(vectors.shape))
