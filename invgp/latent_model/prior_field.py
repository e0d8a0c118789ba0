"""The latents of a field model in the modes of its prior, given direct data and an earlier posterior.

A regression is fitted for the variables w of one prior. With other hyperparameters (`ChangedPrior`), the values at the
pivot nodes of the first basis still determine w, so that the same regression serves: w = mixing v, with v standard
normal in the other prior. Between the pivot nodes, draws of the other prior are conditioned on their values (Matheron's
rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from invgp.core.backend import Backend, cholesky, solve_triangular, to_numpy
from invgp.core.field.field_gaussian import Gaussian, LowRankGaussian
from invgp.core.field.grid_basis import Basis, leading_modes
from invgp.core.kernels import Kernel
from invgp.latent_model.grid_modes import Condition, Field
from invgp.problem import DirectModel, EarlierField, EarlierSites, Floats, Problem

MOST_MODES = 1000  # most modes of one process


def field_of(problem: Problem, backend: Backend) -> Field:
    """Compute the leading modes of each latent on the grid.

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Where the arrays are.

    Returns
    -------
    Field
    """
    if problem.grid is None:
        raise ValueError("the problem has no grid")
    _, std = problem.prior_moments()
    nodes = backend.asarray(problem.nodes)
    bases: list[Basis] = []
    for latent in problem.latents:
        known: dict[int, Basis] = {}  # labels with the same kernel share their modes
        for kernel in latent.kernels:
            if id(kernel) not in known:
                here = kernel.on_backend(backend)
                known[id(kernel)] = leading_modes(here, nodes, problem.inference.kept_variance, MOST_MODES)
            bases.append(known[id(kernel)])
    field = Field(tuple(bases), problem.prior_mean_at(problem.nodes), std)
    return replace(field, condition=condition_of(field, problem))


class DirectRows(NamedTuple):
    """Direct data as linear functions of the variables of the modes: y = mean + rows w + noise.

    Attributes
    ----------
    y, mean, noise_std : array, shape (n,)
        Data, their prior means, and the standard deviations of their noise.
    rows : array, shape (n, R)
    omitted_std : array, shape (n,)
        Standard deviation of the part of the prior that the modes omit.
    """

    y: Floats
    mean: Floats
    noise_std: Floats
    rows: Floats
    omitted_std: Floats


def direct_rows(field: Field, problem: Problem, direct: Problem) -> DirectRows:
    """Return linear direct data of a field model as functions of the variables of the modes.

    Parameters
    ----------
    field : Field
        Modes, without a condition.
    problem : Problem
        The field model.
    direct : Problem
        The direct data, as in `Part`.
    """
    if not isinstance(direct.forward, DirectModel | EarlierSites):
        raise TypeError("the data are not direct")
    X, Q = direct.survey.locations, len(field.bases)
    K = len(X)
    # Values are linear functions of the processes: their constants and weights follow from unit vectors.
    units = np.concatenate([np.zeros((1, Q)), np.eye(Q)])[:, None, :]
    rows = direct.to_simulator(np.broadcast_to(problem.to_physical(units), (Q + 1, K, Q)))
    outputs = direct.from_simulator(direct.forward.compute(rows), Q + 1)
    constant, weights = outputs[0], outputs[1:] - outputs[0]  # (K, P) and (Q, K, P)
    P = constant.shape[1]
    at_places, variance = np.zeros((K, P, field.slices[-1].stop)), np.zeros((K, P))
    kernels = [kernel for latent in problem.latents for kernel in latent.kernels]
    for j, (own, part) in enumerate(zip(kernels, field.slices, strict=True)):
        kernel = direct.survey.kernel_at_sites(own)
        modes = field.std[j] * field.modes_at(problem, j, X)
        at_places[..., part] += weights[j][..., None] * modes[:, None, :]
        left = field.std[j] ** 2 * kernel.diagonal(X) - np.sum(modes**2, axis=1)
        variance += weights[j] ** 2 * np.maximum(left, 0.0)[:, None]
    y = direct.survey.Y
    seen = np.isfinite(y)
    mean = constant + np.einsum("qkp,kq->kp", weights, problem.prior_mean_at(X))
    return DirectRows(y[seen], mean[seen], direct.noise_std[seen], at_places[seen], np.sqrt(variance[seen]))


def predict_direct(field: Field, problem: Problem, direct: Problem, q: Gaussian) -> tuple[Floats, Floats]:
    """Return the posterior mean and standard deviation (K, P) of direct data, for a Gaussian of the variables.

    Parameters
    ----------
    field : Field
        Modes of the latents.
    problem : Problem
        Field model.
    direct : Problem
        A source of direct data at K places.
    q : Gaussian
        Distribution of the variables of the modes.

    Returns
    -------
    mean, std : array, shape (K, P), in the units of the data
    """
    everything = replace(
        direct,
        survey=replace(
            direct.survey,
            observations=tuple(replace(o, values=np.zeros_like(o.values)) for o in direct.survey.observations),
        ),
    )
    found, shape = direct_rows(field, problem, everything), direct.survey.Y.shape
    mean, factor = to_numpy(q.mean), to_numpy(q.factor)
    if field.condition is not None:
        mean, factor = field.condition.centre + mean @ field.condition.root, field.condition.root.T @ factor
    variance = np.sum((found.rows @ factor) ** 2, axis=1) + found.omitted_std**2
    return (found.mean + found.rows @ mean).reshape(shape), np.sqrt(variance).reshape(shape)


def condition_of(field: Field, problem: Problem) -> Condition | None:
    """Return the variables of the modes given an earlier posterior and direct data; None if there are none.

    Parameters
    ----------
    field : Field
        Modes of the latents.
    problem : Problem

    Returns
    -------
    Condition or None
    """
    condition = None
    for part in problem.parts:
        if isinstance(part.problem.forward, EarlierField):
            condition = _condition_on_field(field, problem, part.problem.forward)
    parts = [direct_rows(field, problem, own) for own in direct_problems(problem)]
    return condition if not parts else _condition_on_rows(parts, condition)


def direct_problems(problem: Problem) -> list[Problem]:
    """Return the sources that are values at places, which need no simulator.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    list of Problem
    """
    return [part.problem for part in problem.parts if part.direct and part.problem.survey.observations]


def _condition_on_rows(parts: Sequence[DirectRows], before: Condition | None) -> Condition:
    """Return the variables given linear data, and what they were conditioned on before."""
    y, mean, noise, rows, omitted = (np.concatenate([getattr(p, name) for p in parts]) for name in DirectRows._fields)
    if before is not None:  # the data as functions of the variables that are standard normal before
        mean, rows = mean + rows @ before.centre, rows @ before.root.T
    spread = np.hypot(noise, omitted)
    whitened, residual = rows / spread[:, None], (y - mean) / spread
    posterior = LowRankGaussian(np.zeros(rows.shape[1]), whitened.T)
    gram = np.eye(len(y)) + whitened @ whitened.T
    log_evidence = -0.5 * float(
        residual @ np.linalg.solve(gram, residual)
        + np.linalg.slogdet(gram)[1]
        + 2.0 * np.sum(np.log(spread))
        + len(y) * np.log(2.0 * np.pi)
    )
    centre = np.asarray(posterior.covariance_times(whitened.T @ residual))
    root = np.asarray(posterior.samples(np.eye(rows.shape[1])))
    if before is not None:
        centre, root = before.centre + centre @ before.root, root @ before.root
    return Condition(centre, root, log_evidence)


def _condition_on_field(field: Field, problem: Problem, earlier: EarlierField) -> Condition:
    """Return the variables given the posterior of an earlier inversion with the same prior, maybe on another grid.

    The whitened processes v at its inducing points are a function C w of the variables, up to what the modes omit. The
    earlier data multiply the density of v by N(v; m, S) / N(v; 0, I).
    """
    Q, M = earlier.mean.shape
    across = np.zeros((Q * M, field.slices[-1].stop))
    kernels = [kernel for latent in problem.latents for kernel in latent.kernels]
    for j, part in enumerate(field.slices):
        Z = earlier.inducing[j]
        factor = cholesky(kernels[j](Z, Z))
        across[j * M : (j + 1) * M, part] = solve_triangular(factor, field.modes_at(problem, j, Z))
    inverse = np.linalg.inv(earlier.root)  # S = T^T T, so S^-1 = T^-1 T^-T
    weighted = inverse.T @ across
    precision = np.eye(across.shape[1]) + weighted.T @ weighted - across.T @ across
    values, vectors = np.linalg.eigh(precision)
    root = (vectors / np.sqrt(values)) @ vectors.T
    shift = weighted.T @ (inverse.T @ earlier.mean.ravel())
    return Condition(root @ (root @ shift), root, 0.0)


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

    def whitened_variables(self, v: Floats) -> Floats:
        """Return the variables v (S, V) by process, (S, Q, M).

        Where a process has fewer than M, the rest are standard normal numbers, as in the prior.

        Parameters
        ----------
        v : array, shape (S, V)
            Variables of the pivot nodes.

        Returns
        -------
        array, shape (S, Q, M)
        """
        shape = (len(v), len(self.factors), max(len(factor) for factor in self.factors))
        found = np.random.default_rng(0).standard_normal(shape)
        start = 0
        for j, factor in enumerate(self.factors):
            found[:, j, : len(factor)] = v[:, start : start + len(factor)]
            start += len(factor)
        return found

    def draw_latents(self, v: Floats, rng: np.random.Generator) -> Floats:
        """Draw the processes (S, G, Q) on the grid, given the variables v (S, V).

        Parameters
        ----------
        v : array, shape (S, V)
            Variables of the pivot nodes.
        rng : numpy.random.Generator

        Returns
        -------
        array, shape (S, G, Q)
        """
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
