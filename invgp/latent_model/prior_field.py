"""The latents of a field model in the modes of its prior, given direct data and an earlier posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Backend, cholesky, solve_triangular, to_numpy
from invgp.core.field.field_gaussian import Gaussian, LowRankGaussian
from invgp.core.field.grid_basis import Basis, leading_modes
from invgp.latent_model.grid_modes import Condition, Field
from invgp.problem import DirectModel, EarlierField, EarlierSites, Floats, Problem

MOST_MODES = 1000  # most modes of one process


def field_of(problem: Problem, backend: Backend) -> Field:
    """Compute the leading modes of each latent on the grid."""
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
    """Return the posterior mean and standard deviation (K, P) of direct data, for a Gaussian of the variables."""
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
    """Return the variables of the modes given an earlier posterior and direct data; None if there are none."""
    condition = None
    for part in problem.parts:
        if isinstance(part.problem.forward, EarlierField):
            condition = _condition_on_field(field, problem, part.problem.forward)
    parts = [direct_rows(field, problem, own) for own in direct_problems(problem)]
    return condition if not parts else _condition_on_rows(parts, condition)


def direct_problems(problem: Problem) -> list[Problem]:
    """Return the sources that are values at places, which need no simulator."""
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
