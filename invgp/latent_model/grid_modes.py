"""Expansion of the latents of a field model in Karhunen-Loève modes, at all sites or for groups of nearby sites."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from invgp.core.backend import Backend, cholesky, solve_triangular, to_numpy
from invgp.core.field.field_gaussian import Gaussian
from invgp.core.field.grid_basis import Basis
from invgp.core.field.local_regression import Block, taper
from invgp.core.field.regression import Modes
from invgp.core.kernels import Averaged, Kernel, Scalar
from invgp.posterior.gaussian_processes import WhitenedInducing
from invgp.problem import Floats, Problem

MOST_SCALED = 4.0  # largest factor on the variance of the weaker modes at a node
FAR_AWAY = 1e6  # distance of unused inducing points, in length-scales and extents of the grid: no correlation left


@dataclass(frozen=True)
class Condition:
    """The variables of the modes given an earlier posterior and direct data: centre + w root, with standard normal w.

    Attributes
    ----------
    centre : array, shape (R,)
    root : array, shape (R, R)
        T with T^T T their covariance.
    log_evidence : float, nats
        Log marginal likelihood of the direct data.
    """

    centre: Floats
    root: Floats
    log_evidence: float


@dataclass(frozen=True)
class Field:
    """The latents on the grid as a function of the variables w, which are standard normal in the prior.

    Attributes
    ----------
    bases : tuple of Basis
        Modes of each process, for a process of variance 1.
    mean : array, shape (G, Q)
        Prior mean of the processes at each node.
    std : array, shape (Q,)
        Prior standard deviation of the processes.
    condition : Condition or None
        Distribution of the variables of the modes given direct data, if there are any. The variables w of the field are
        then standard normal given these data.
    """

    bases: tuple[Basis, ...]
    mean: Floats
    std: Floats
    condition: Condition | None = None

    @property
    def slices(self) -> list[slice]:
        """Slice of the variables of each process."""
        ends = np.cumsum([0, *(basis.size for basis in self.bases)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def latents(self, w: Floats, nodes: slice = slice(None)) -> Floats:
        """Compute the processes (S, G, Q) on the grid, or at some of its nodes, from w (S, R).

        Parameters
        ----------
        w : array, shape (S, R)
            Variables of the modes.
        nodes : slice
            Nodes of which the values are computed; by default all.

        Returns
        -------
        array, shape (S, G, Q)
        """
        w = w if self.condition is None else self.condition.centre + w @ self.condition.root
        parts = [
            m[nodes] + s * (w[:, part] @ to_numpy(basis.modes)[nodes].T)
            for m, s, part, basis in zip(self.mean.T, self.std, self.slices, self.bases, strict=True)
        ]
        return np.stack(parts, axis=-1)

    def modes_at(self, problem: Problem, j: int, X: Floats) -> Floats:
        """Compute the modes (B, R_j) of process j at points X (B, D), or (B, 2 D) with half-widths of intervals.

        Parameters
        ----------
        problem : Problem
        j : int
            Number of the process.
        X : array, shape (B, D), or (B, 2 D)
            Points, or centres and half-widths of intervals.

        Returns
        -------
        array, shape (B, R_j)
        """
        if problem.grid is None:
            raise ValueError("the problem has no grid")
        own, basis = [kernel for latent in problem.latents for kernel in latent.kernels][j], self.bases[j]
        kernel = own if isinstance(own, Scalar) else Averaged(own, problem.nodes.shape[1])
        pivots = problem.nodes[basis.pivots]
        projection = solve_triangular(cholesky(kernel(pivots, pivots)), kernel(pivots, X))
        return np.asarray(projection.T @ to_numpy(basis.rotation)[:, : basis.size])

    def coordinates(self, latents: Floats) -> Floats:
        """Project latents (S, G, Q) on the modes: the variables w (S, R) of the nearest field.

        Parameters
        ----------
        latents : array, shape (S, G, Q)
            Processes on the grid.

        Returns
        -------
        array, shape (S, R)
        """
        parts = [
            (latents[..., j] - m) / s @ to_numpy(basis.modes) / to_numpy(basis.variances)
            for j, (m, s, basis) in enumerate(zip(self.mean.T, self.std, self.bases, strict=True))
        ]
        w = np.concatenate(parts, axis=-1)
        if self.condition is None:
            return w
        return np.asarray(np.linalg.solve(self.condition.root.T, (w - self.condition.centre).T).T)

    def coordinates_of(self, other: Field) -> Floats:
        """Return the matrix (R, R') that projects the variables of another field on the modes of this field.

        Parameters
        ----------
        other : Field
            Another expansion on the same grid.

        Returns
        -------
        array, shape (R, R')
        """
        parts = [
            other_std / std * (to_numpy(own.modes).T @ to_numpy(theirs.modes)) / to_numpy(own.variances)[:, None]
            for std, other_std, own, theirs in zip(self.std, other.std, self.bases, other.bases, strict=True)
        ]
        return np.asarray(scipy.linalg.block_diag(*parts))

    def covariance(self, covariance: Floats) -> Floats:
        """Compute the covariance (G, Q, Q) of the processes at each node from the covariance (R, R) of w.

        Parameters
        ----------
        covariance : array, shape (R, R)
            Covariance of w.

        Returns
        -------
        array, shape (G, Q, Q)
        """
        if self.condition is not None:
            covariance = self.condition.root.T @ covariance @ self.condition.root
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

        Parameters
        ----------
        rng : numpy.random.Generator
        count : int
            Number of samples.

        Returns
        -------
        array, shape (count, G, Q)
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
        """Return the posterior at the pivot nodes of the bases, in the form that can be predicted at any point.

        Parameters
        ----------
        problem : Problem
        q : Gaussian
            Posterior of w.

        Returns
        -------
        WhitenedInducing
        """
        if problem.grid is None:
            raise ValueError("the problem has no grid")
        X, Q = problem.nodes, len(self.bases)
        M = self.pivots // Q
        kernels = [kernel for latent in problem.latents for kernel in latent.kernels]
        mean, factor = to_numpy(q.mean), to_numpy(q.factor)
        if self.condition is not None:
            mean, factor = self.condition.centre + mean @ self.condition.root, self.condition.root.T @ factor
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

    def whiten(self, problem: Problem, latents: Floats) -> Floats:
        """Convert draws (S, G, Q) on the grid to whitened variables (S, Q, M) at the inducing points of `processes`.

        The draws must have the hyperparameters of the problem.

        Parameters
        ----------
        problem : Problem
        latents : array, shape (S, G, Q)
            Draws on the grid.

        Returns
        -------
        array, shape (S, Q, M)
        """
        if problem.grid is None:
            raise ValueError("the problem has no grid")
        shape = (len(latents), len(self.bases), self.pivots // len(self.bases))
        found = np.random.default_rng(0).standard_normal(shape)  # the prior, at inducing points that are not pivots
        kernels = [kernel for latent in problem.latents for kernel in latent.kernels]
        for j, (basis, kernel) in enumerate(zip(self.bases, kernels, strict=True)):
            nodes = problem.nodes[basis.pivots]
            offset = (latents[:, basis.pivots, j] - self.mean[basis.pivots, j]) / self.std[j]
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


class Neighbourhood(NamedTuple):
    """A group of nearby sites.

    Attributes
    ----------
    sites : array of int, shape (n,)
        Numbers of the sites.
    block : Block
        Their data, and the directions of the field on which they depend.
    """

    sites: NDArray[np.intp]
    block: Block


def neighbourhoods(problem: Problem, field: Field, backend: Backend) -> list[Neighbourhood]:
    """Divide the sites into cells of the size `inference.localisation`, each with the local directions of the field.

    The list is empty without localisation.

    Parameters
    ----------
    problem : Problem
    field : Field
        Modes of the latents.
    backend : Backend
        Where the arrays are.

    Returns
    -------
    list of Neighbourhood
    """
    if problem.grid is None or problem.inference.localisation is None:
        return []
    reach = problem.inference.localisation
    coordinates = {column.name: column.values for column in problem.survey.coordinates}
    places = np.stack([coordinates[column.name] for column in problem.grid.coordinates], axis=-1) / reach
    nodes = problem.grid.X / reach
    site_of_datum = np.nonzero(~np.isnan(problem.survey.Y))[0]
    measured = np.unique(site_of_datum)
    _, cell = np.unique(np.floor(places[measured] - places[measured].min(axis=0)), axis=0, return_inverse=True)
    nearest = measured[cKDTree(places[measured]).query(places)[1]]
    cell_of_site = cell.ravel()[np.searchsorted(measured, nearest)]
    found = []
    for number in range(cell.max() + 1):
        sites = np.flatnonzero(cell_of_site == number)
        weight = taper(np.asarray(cKDTree(places[sites]).query(nodes)[0]))
        data = np.flatnonzero(cell_of_site[site_of_datum] == number)
        projection, modes = _local_directions(problem, field, weight, backend)
        found.append(Neighbourhood(sites, Block(data, projection, modes)))
    return found


def _local_directions(problem: Problem, field: Field, weight: Floats, backend: Backend) -> tuple[Floats, Modes]:
    """Return the directions (R, r) of w that describe the field where nodes have weight (G,), and their modes."""
    near = np.flatnonzero(weight)
    projection = np.zeros((field.slices[-1].stop, 0))
    sizes, variances = [], []
    for basis, part in zip(field.bases, field.slices, strict=True):
        windowed = np.sqrt(weight[near])[:, None] * to_numpy(basis.modes)[near]
        _, scales, directions = np.linalg.svd(windowed, full_matrices=False)
        share = np.cumsum(scales**2) / np.sum(scales**2)
        kept = int(np.argmax(share >= problem.inference.kept_variance)) + 1
        columns = np.zeros((projection.shape[0], kept))
        columns[part] = directions[:kept].T
        projection = np.concatenate([projection, columns], axis=1)
        sizes.append(kept)
        variances.append(scales[:kept] ** 2)
    groups = tuple(sum(sizes[problem.latent_slices[latent.name]]) for latent in problem.latents)
    return backend.asarray(projection), Modes(backend.asarray(np.concatenate(variances)), groups)
