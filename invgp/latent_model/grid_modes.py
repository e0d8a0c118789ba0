"""Expansion of the latents of a field model in Karhunen-Loève modes with independent variables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from invgp.core.backend import Backend, cholesky, to_numpy
from invgp.core.field.field_gaussian import Gaussian
from invgp.core.field.grid_basis import Basis, leading_modes
from invgp.core.kernels import Kernel
from invgp.gaussian_processes import WhitenedInducing
from invgp.problem import Floats, Problem

MOST_MODES = 1000  # most modes of one process
MOST_SCALED = 4.0  # largest factor on the variance of the weaker modes at a node
FAR_AWAY = 1e6  # distance of unused inducing points, in length-scales and extents of the grid: no correlation left


@dataclass(frozen=True)
class Field:
    """The latents on the grid as a function of the variables w, which are standard normal in the prior.

    Attributes
    ----------
    bases : tuple of Basis
        Modes of each process, for a process of variance 1.
    mean, std : arrays, shape (Q,)
        Prior mean and standard deviation of the processes.
    """

    bases: tuple[Basis, ...]
    mean: Floats
    std: Floats

    @property
    def slices(self) -> list[slice]:
        """Slice of the variables of each process."""
        ends = np.cumsum([0, *(basis.size for basis in self.bases)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def latents(self, w: Floats, nodes: slice = slice(None)) -> Floats:
        """Compute the processes (S, G, Q) on the grid, or at some of its nodes, from w (S, R)."""
        parts = [
            m + s * (w[:, part] @ to_numpy(basis.modes)[nodes].T)
            for m, s, part, basis in zip(self.mean, self.std, self.slices, self.bases, strict=True)
        ]
        return np.stack(parts, axis=-1)

    def coordinates(self, latents: Floats) -> Floats:
        """Project latents (S, G, Q) on the modes: the variables w (S, R) of the nearest field."""
        parts = [
            (latents[..., j] - m) / s @ to_numpy(basis.modes) / to_numpy(basis.variances)
            for j, (m, s, basis) in enumerate(zip(self.mean, self.std, self.bases, strict=True))
        ]
        return np.concatenate(parts, axis=-1)

    def coordinates_of(self, other: Field) -> Floats:
        """Return the matrix (R, R') that projects the variables of another field on the modes of this field."""
        parts = [
            other_std / std * (to_numpy(own.modes).T @ to_numpy(theirs.modes)) / to_numpy(own.variances)[:, None]
            for std, other_std, own, theirs in zip(self.std, other.std, self.bases, other.bases, strict=True)
        ]
        return np.asarray(scipy.linalg.block_diag(*parts))

    def covariance(self, covariance: Floats) -> Floats:
        """Compute the covariance (G, Q, Q) of the processes at each node from the covariance (R, R) of w."""
        modes = [s * to_numpy(basis.modes) for s, basis in zip(self.std, self.bases, strict=True)]
        nodes, processes = modes[0].shape[0], len(modes)
        found = np.empty((nodes, processes, processes))
        for i, a in enumerate(self.slices):
            for j, b in enumerate(self.slices):
                found[:, i, j] = np.einsum("gr,gr->g", modes[i] @ covariance[a, b], modes[j])
        return found

    def draw_omitted(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw samples (count, G, Q) of the part of the prior that the modes omit.

        The weaker modes, which contain almost all of its variance, are scaled at each node to contain all of it.
        """
        weaker = []
        for s, basis in zip(self.std, self.bases, strict=True):
            modes = to_numpy(basis.weaker_modes)
            known = np.sum(modes**2, axis=1)
            ratio = to_numpy(basis.omitted_variance) / np.where(known > 0.0, known, np.inf)
            weaker.append(s * modes * np.sqrt(np.minimum(ratio, MOST_SCALED))[:, None])
        return np.stack([rng.standard_normal((count, part.shape[1])) @ part.T for part in weaker], axis=-1)

    @property
    def pivots(self) -> int:
        """Number of inducing points of all processes; each process has as many as the one that needs most."""
        return len(self.bases) * max(len(basis.pivots) for basis in self.bases)

    def processes(self, problem: Problem, q: Gaussian) -> WhitenedInducing:
        """Return the posterior at the pivot nodes of the bases, in the form that can be predicted at any point."""
        if problem.grid is None:
            raise ValueError("the problem has no grid")
        X, Q = problem.grid.X, len(self.bases)
        M = self.pivots // Q
        kernels = [latent.kernel for latent in problem.latents for _ in range(latent.size)]
        mean, factor = to_numpy(q.mean), to_numpy(q.factor)
        inducing, centre, rotated, weaker = np.empty((Q, M, X.shape[1])), np.empty((Q, M)), [], []
        for j, (basis, part) in enumerate(zip(self.bases, self.slices, strict=True)):
            m = len(basis.pivots)
            inducing[j, :m] = X[basis.pivots]
            inducing[j, m:] = _unused_points(kernels[j], X, basis.pivots, M - m)
            rotation = np.eye(M)
            rotation[:m, :m] = to_numpy(basis.rotation)
            centre[j] = rotation[:, : basis.size] @ mean[part]
            rotated.append(factor[part].T @ rotation[:, : basis.size].T)
            weaker.append(rotation[:, basis.size :].T)
        root = np.concatenate([np.concatenate(rotated, axis=1), scipy.linalg.block_diag(*weaker)])
        return WhitenedInducing(inducing, centre, root)

    def whitened(self, problem: Problem, latents: Floats) -> Floats:
        """Convert draws (S, G, Q) on the grid to whitened variables (S, Q, M) at the inducing points of `processes`.

        The draws must have the hyperparameters of the problem.
        """
        if problem.grid is None:
            raise ValueError("the problem has no grid")
        shape = (len(latents), len(self.bases), self.pivots // len(self.bases))
        found = np.random.default_rng(0).standard_normal(shape)  # the prior, at inducing points that are not pivots
        kernels = [latent.kernel for latent in problem.latents for _ in range(latent.size)]
        for j, (basis, kernel) in enumerate(zip(self.bases, kernels, strict=True)):
            nodes = problem.grid.X[basis.pivots]
            offset = (latents[:, basis.pivots, j] - self.mean[j]) / self.std[j]
            factor = cholesky(kernel(nodes, nodes))
            found[:, j, : len(nodes)] = scipy.linalg.solve_triangular(factor, offset.T, lower=True).T
        return found

    def omitted_variance(self) -> Floats:
        """Return the prior variance (G, Q) that the modes omit."""
        return np.stack(
            [s**2 * to_numpy(b.omitted_variance) for s, b in zip(self.std, self.bases, strict=True)], axis=-1
        )


def _unused_points(kernel: Kernel, X: Floats, pivots: NDArray[np.intp], count: int) -> Floats:
    """Return inducing points (count, D) in addition to the pivots among the nodes X (G, D).

    The posterior at them is the prior given the pivots. They are so far from the grid and each other that they have no
    effect at all, or, if correlations do not decrease with distance, nodes where the most variance is left.
    """
    if not count:
        return X[:0]
    lengths = np.asarray(kernel.correlation_length(X.shape[1]))
    if np.isfinite(lengths).all():
        far = X.max(axis=0) + FAR_AWAY * (lengths + np.ptp(X, axis=0)) * np.arange(1, count + 1)[:, None]
        if not kernel(far, X).any() and count == np.count_nonzero(kernel(far, far)):
            return np.asarray(far)
    known = kernel(X[pivots], X)
    remaining = kernel.diagonal(X) - np.sum(known * scipy.linalg.solve(kernel(X[pivots], X[pivots]), known), axis=0)
    remaining[pivots] = -np.inf
    return np.asarray(X[np.argsort(-remaining, kind="stable")[:count]])


def field_of(problem: Problem, backend: Backend) -> Field:
    """Compute the leading modes of each latent on the grid."""
    if problem.grid is None:
        raise ValueError("the problem has no grid")
    mean, std = problem.prior_moments()
    nodes = backend.asarray(problem.grid.X)
    bases: list[Basis] = []
    for latent in problem.latents:
        kernel = latent.kernel.on_backend(backend)
        bases += [leading_modes(kernel, nodes, problem.inference.kept_variance, MOST_MODES)] * latent.size
    return Field(tuple(bases), mean, std)
