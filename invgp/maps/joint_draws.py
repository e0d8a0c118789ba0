"""Joint posterior draws of the processes at any number of points, by Matheron's rule.

With a draw g from the prior and a draw v of the whitened inducing variables, f(x) = mean + g(x) + w(x)^T (v - L^-1
g(Z)) is a draw from the posterior, one function of position. If the posterior file has draws from the exact posterior,
v is one of them. `invgp.maps.prior_draws` has the methods for g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from invgp.core.kernels import Scalar
from invgp.maps.grids import MapGrid
from invgp.maps.posterior_field import LocatedPosterior, PosteriorField
from invgp.maps.prior_draws import (
    DENSE_POINTS,
    GRID_BYTES,
    DenseDraw,
    Embedding,
    GridDraw,
    Indices,
    PriorDraw,
    ScalarDraw,
    WaveDraw,
    is_regular,
)
from invgp.maps.prior_functions import WAVES
from invgp.maps.process_prior import ProcessPrior, Projections, SharedKernel
from invgp.problem import Floats

Method = Literal["exact", "circulant embedding", "sums of waves"]


@dataclass(frozen=True)
class DrawMethods:
    """Methods of the prior draws of a map.

    Attributes
    ----------
    grid : MapGrid
    dense : bool
        Whether the draws use the covariance of all points.
    embeddings : tuple of tuple of Embedding or None
        For each prior and kernel, its embedding; empty if no method needs one.
    """

    grid: MapGrid
    dense: bool
    embeddings: tuple[tuple[Embedding | None, ...], ...] = ()

    @staticmethod
    def choose(field: PosteriorField, grid: MapGrid, count: int) -> DrawMethods:
        """Choose the methods for `count` draws on a grid or at points."""
        dense = _are_dense(field, grid)
        if not count or dense or not _fit_on_grid(field, grid, count):
            return DrawMethods(grid, dense)
        embeddings = (tuple(Embedding.build(kernel.kernel, grid) for kernel in p.kernels) for p in field.priors)
        return DrawMethods(grid, dense, tuple(embeddings))

    @property
    def name(self) -> Method:
        """The least accurate of the methods, for the file."""
        if self.dense:
            return "exact"
        known = [embedding for embeddings in self.embeddings for embedding in embeddings]
        return "circulant embedding" if known and all(known) else "sums of waves"

    def sample(self, number: int, index: int, kernel: SharedKernel, count: int, rng: np.random.Generator) -> PriorDraw:
        """Draw `count` times with the kernel `index` of the prior `number`."""
        if isinstance(kernel.kernel, Scalar):
            return ScalarDraw(count)
        if self.dense:
            return DenseDraw.sample(kernel, self.grid.at(tuple(slice(0, n) for n in self.grid.shape)), count, rng)
        embedding = self.embeddings[number][index] if self.embeddings else None
        if embedding is None:
            return WaveDraw.sample(kernel, count, rng)
        return GridDraw.sample(kernel, embedding, self.grid, count, rng)


@dataclass(frozen=True)
class JointDraws:
    """R joint posterior draws of all processes, each a function of position.

    Attributes
    ----------
    parts : tuple of PartialDraws
        Draws of each of the priors of the posterior.
    mode : array of int, shape (R,)
        Number of the mode of each draw, from 1.
    """

    parts: tuple[PartialDraws, ...]
    mode: NDArray[np.int64]

    @staticmethod
    def sample(field: PosteriorField, methods: DrawMethods, count: int, rng: np.random.Generator) -> JointDraws:
        """Draw from the posterior.

        Parameters
        ----------
        field : PosteriorField
        methods : DrawMethods
        count : int
            Number of draws, R.
        rng : Generator

        Returns
        -------
        JointDraws
        """
        inducing, *streams = rng.spawn(1 + len(field.priors))
        groups = field.draw_inducing(inducing, count)
        parts = [
            PartialDraws.sample(group.prior, group.whitened, methods, number, stream)
            for number, (group, stream) in enumerate(zip(groups, streams, strict=True))
        ]
        return JointDraws(tuple(parts), np.concatenate([group.mode for group in groups]))

    def at(self, X: Floats, rows: Indices, located: LocatedPosterior) -> Floats:
        """Return the draws at some points.

        Parameters
        ----------
        X : array, shape (B, D)
        rows : array of int, shape (B,)
            Indices of these points among all points of the map.
        located : LocatedPosterior
            The posterior of all processes at these points.

        Returns
        -------
        array, shape (R, B, Q)
        """
        parts = [
            part.at(X, rows, projections) for part, projections in zip(self.parts, located.projections, strict=True)
        ]
        found, mixing = parts[0] if len(parts) == 1 else np.concatenate(parts), located.posterior.mixing
        return located.mean + (found if mixing is None else found @ mixing.T)


@dataclass(frozen=True)
class PartialDraws:
    """Joint draws that have the same prior.

    Attributes
    ----------
    prior : ProcessPrior
    draws : tuple of PriorDraw
        For each kernel, prior draws of the processes that have it.
    corrections : array, shape (Q, R, M)
        Weights of the projections that are added to the draws.
    """

    prior: ProcessPrior
    draws: tuple[PriorDraw, ...]
    corrections: Floats

    @staticmethod
    def sample(
        prior: ProcessPrior, whitened: Floats, methods: DrawMethods, number: int, rng: np.random.Generator
    ) -> PartialDraws:
        """Draw given whitened inducing variables (R, Q, M), with the methods of the prior `number`."""
        corrections = whitened.swapaxes(0, 1).copy()
        count, draws = len(whitened), list[PriorDraw]()
        for index, (kernel, stream) in enumerate(zip(prior.kernels, rng.spawn(len(prior.kernels)), strict=True)):
            members = prior.processes_with_kernel(index)
            draw = methods.sample(number, index, kernel, len(members) * count, stream)
            flat = corrections[members].reshape(len(members) * count, -1)
            corrections[members] = draw.corrections(flat).reshape(len(members), count, -1)
            draws.append(draw)
        return PartialDraws(prior, tuple(draws), corrections)

    def at(self, X: Floats, rows: Indices, projections: Projections) -> Floats:
        """Return deviations (R, B, Q) from the prior mean at points X (B, D), with their indices and projections."""
        prior, (Q, R, _) = self.prior, self.corrections.shape
        f = np.empty((Q, R, len(X)))
        for index, draw in enumerate(self.draws):
            members = prior.processes_with_kernel(index)
            weights = projections[index].weights
            f[members] = draw.at(X, rows).reshape(len(members), R, len(X)) + self.corrections[members] @ weights
        return np.asarray(prior.std * f.transpose(1, 2, 0))


def draw_bytes(field: PosteriorField, grid: MapGrid, count: int) -> int:
    """Return the memory, in bytes, that draws need from the first block to the last, and to prepare them."""
    Q, M = field.process_count, field.inducing
    if _are_dense(field, grid):
        return 8 * (count * Q * (grid.size + M) + 3 * grid.size**2) if count else 0
    if _fit_on_grid(field, grid, count):
        return 4 * count * Q * (grid.size + 4 * M)
    return 8 * count * Q * (2 * M + 2 * WAVES)


def _are_dense(field: PosteriorField, grid: MapGrid) -> bool:
    """Return whether the points are so few that the covariance of all of them can be factorised for each prior."""
    return bool(grid.size <= DENSE_POINTS / len(field.priors) ** (1.0 / 3.0))


def _fit_on_grid(field: PosteriorField, grid: MapGrid, count: int) -> bool:
    """Return whether the grid is regular, and draws on all of it are small enough to be kept."""
    return is_regular(grid) and 4 * count * field.process_count * grid.size <= GRID_BYTES
