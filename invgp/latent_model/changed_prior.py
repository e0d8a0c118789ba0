"""Another prior of the latents of a field model, for the variables of the first one.

A regression is fitted for the variables w of one prior. With other hyperparameters, the values at the pivot nodes of
the first basis still determine w, so that the same regression serves: w = mixing v, with v standard normal in the other
prior. Between the pivot nodes, draws of the other prior are conditioned on their values (Matheron's rule).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from invgp.core.backend import Backend, cholesky, solve_triangular, to_numpy
from invgp.core.kernels import Kernel
from invgp.latent_model.grid_modes import Field
from invgp.latent_model.prior_field import field_of
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class ChangedPrior:
    """A prior with other hyperparameters than a field was expanded with.

    Attributes
    ----------
    first : Field
        Expansion in the modes of the first prior.
    field : Field
        Expansion in the modes of this prior.
    factors : tuple of arrays, shape (m, m)
        For each process, the Cholesky factor of the correlations of this prior at the pivot nodes of the first basis.
    weights : tuple of arrays, shape (G, m)
        For each process, the weights of the pivot nodes in the conditional mean on the grid.
    mixing : array, shape (R, V)
        Matrix with w = mixing v, for the V standard normal variables of all pivot nodes.
    """

    first: Field
    field: Field
    factors: tuple[Floats, ...]
    weights: tuple[Floats, ...]
    mixing: Floats

    @staticmethod
    def build(first: Field, old: Problem, new: Problem, backend: Backend) -> ChangedPrior:
        """Build the prior of a problem with other hyperparameters.

        Parameters
        ----------
        first : Field
            Expansion of the latents of the first problem.
        old, new : Problem
            The first problem, and the one with other hyperparameters.
        backend : Backend
        """
        if new.grid is None:
            raise ValueError("the problem has no grid")
        field, grid = field_of(new, backend), backend.asarray(new.nodes)
        factors, weights, mixing = [], [], []
        for j, (a, b) in enumerate(zip(_kernels(old, backend), _kernels(new, backend), strict=True)):
            basis = first.bases[j]
            nodes = backend.asarray(new.nodes[basis.pivots])
            factor = cholesky(b(nodes, nodes))
            half = solve_triangular(factor, b(nodes, grid))
            rotated = solve_triangular(cholesky(a(nodes, nodes)), factor)
            factors.append(to_numpy(factor))
            weights.append(to_numpy(solve_triangular(factor, half, transposed=True)).T)
            rotation = to_numpy(basis.rotation)[:, : basis.size]
            mixing.append(field.std[j] / first.std[j] * rotation.T @ to_numpy(rotated))
        return ChangedPrior(first, field, tuple(factors), tuple(weights), np.asarray(scipy.linalg.block_diag(*mixing)))

    def whitened(self, v: Floats) -> Floats:
        """Return the variables v (S, V) by process, (S, Q, M).

        Where a process has fewer than M, the rest are standard normal numbers, as in the prior.
        """
        shape = (len(v), len(self.factors), max(len(factor) for factor in self.factors))
        found = np.random.default_rng(0).standard_normal(shape)
        start = 0
        for j, factor in enumerate(self.factors):
            found[:, j, : len(factor)] = v[:, start : start + len(factor)]
            start += len(factor)
        return found

    def draw_latents(self, v: Floats, rng: np.random.Generator) -> Floats:
        """Draw the processes (S, G, Q) on the grid, given the variables v (S, V)."""
        modes, rest = rng.spawn(2)
        count = sum(basis.size for basis in self.field.bases)
        found = self.field.latents(modes.standard_normal((len(v), count))) + self.field.draw_omitted(rest, len(v))
        start = 0
        for j, (factor, weight) in enumerate(zip(self.factors, self.weights, strict=True)):
            own = v[:, start : start + len(factor)]
            start += len(factor)
            pivots = self.first.bases[j].pivots
            wanted = self.field.mean[pivots, j] + self.field.std[j] * own @ factor.T
            found[..., j] += (wanted - found[:, pivots, j]) @ weight.T
        return found


def _kernels(problem: Problem, backend: Backend) -> list[Kernel]:
    """Return the kernel of each process, with variance 1."""
    return [kernel.on_backend(backend) for latent in problem.latents for kernel in latent.kernels]
