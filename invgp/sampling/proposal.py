"""The Gaussian that the ellipses of a slice sampler go around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class Proposal:
    """A Gaussian over the whitened latents v, (D,) with D = Q N, latent after latent; or one for each site, D = Q.

    Attributes
    ----------
    mean : (D,), or (N, D) for one a site.
    axes : (..., D, D), orthonormal columns.
    gain : (..., D), at least 0; precision along each axis beyond that of the prior, which is 1.
    runs : simulator runs that were spent to find it.
    """

    mean: Floats
    axes: Floats
    gain: Floats
    runs: int = 0

    @staticmethod
    def prior(problem: Problem) -> Proposal:
        """The prior itself: elliptical slice sampling as it was first published."""
        D = problem.survey.size * problem.latent_count
        return Proposal(np.zeros(D), np.eye(D), np.zeros(D))

    @staticmethod
    def from_precision(mean: Floats, precision: Floats, runs: int = 0) -> Proposal:
        """From a mean (D,) and a precision (D, D); nothing is taken to be wider than the prior."""
        values, axes = np.linalg.eigh(precision)
        return Proposal(mean, axes, np.maximum(values - 1.0, 0.0), runs)

    @staticmethod
    def from_covariance(mean: Floats, covariance: Floats, runs: int = 0) -> Proposal:
        """From a mean (D,) and a covariance (D, D); nothing is taken to be wider than the prior."""
        values, axes = np.linalg.eigh(covariance)
        return Proposal(mean, axes, 1.0 / np.clip(values, np.finfo(np.float64).tiny, 1.0) - 1.0, runs)

    def of_sites(self, N: int) -> Proposal:
        """One for each of N sites, from one of all: the others kept at their means."""
        precision = ((self.axes * (1.0 + self.gain)) @ self.axes.T).reshape(-1, N, len(self.mean) // N, N)
        return Proposal.from_precision(self.mean.reshape(-1, N).T, np.einsum("pnqn->npq", precision), self.runs)

    def root(self, widening: float) -> Floats:
        """R (..., D, D), with R R^T the covariance; only what the data have narrowed is widened, not the prior."""
        return self.axes / self._narrowing(widening)

    def to_units(self, widening: float) -> Floats:
        """The inverse of `root`."""
        return np.asarray((self.axes * self._narrowing(widening)).mT)

    def _narrowing(self, widening: float) -> Floats:
        return np.sqrt(1.0 + self.gain / widening**2)[..., None, :]


def times(matrices: Floats, vectors: Floats) -> Floats:
    """A matrix (D, D), or one for each site (N, D, D), times vectors (W, D): all sites of a chain, then of the next."""
    if matrices.ndim == 2:
        return vectors @ matrices.T
    return np.asarray((matrices @ vectors.reshape(-1, *matrices.shape[:2])[..., None]).reshape(vectors.shape))
