"""A problem in the terms of the core: prior, Gaussian noise, learnt hyperparameters."""

from __future__ import annotations

import numpy as np

from invgp.core.backend import Backend, select_backend
from invgp.core.coupled import GaussianNoise, Prior
from invgp.core.coupled.hyperparameters import HyperparameterLearning
from invgp.core.geometry import join_parameters
from invgp.core.inducing import cluster_centres
from invgp.core.kernels import Kernel
from invgp.latent_model.inducing_points import JITTER, MOVABLE_JITTER, choose_inducing_count
from invgp.problem import Floats, Problem


def kernels_of(problem: Problem, backend: Backend) -> tuple[Kernel, ...]:
    """Return the kernel of each latent process.

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Where the arrays are.

    Returns
    -------
    tuple of Kernel, length Q
    """
    _, std = problem.prior_moments()
    return tuple(
        problem.survey.kernel_at_sites(kernel.on_backend(backend).with_variance(float(s) ** 2))
        for kernel, s in zip((kernel for latent in problem.latents for kernel in latent.kernels), std, strict=True)
    )


def prior_of(problem: Problem, backend: Backend, rng: np.random.Generator | None = None) -> Prior:
    """Return the prior of the latent processes at the sites.

    Parameters
    ----------
    problem : Problem
    backend : Backend
    rng : numpy.random.Generator, optional
        Places the inducing points. Without it the prior is dense.
    """
    X, Q = problem.survey.locations, problem.latent_count
    count = None if rng is None else inducing_count(problem)
    dense = rng is None or count is None
    Z = X if rng is None or count is None else cluster_centres(problem.survey.X, count, rng)
    everywhere = backend.namespace.broadcast_to(backend.asarray(Z), (Q, *Z.shape))
    return Prior(
        kernels_of(problem, backend),
        backend.asarray(problem.prior_mean_at(X)),
        backend.asarray(X),
        everywhere,
        dense,
        0.0 if dense else (MOVABLE_JITTER if problem.inference.learn_inducing else JITTER),
    )


def inducing_count(problem: Problem) -> int | None:
    """Return the number of inducing points, given or chosen; None if every site is one.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    int or None
    """
    count = problem.inference.inducing
    if count is None:
        return choose_inducing_count(problem, kernels_of(problem, select_backend("cpu")))
    return count if count < problem.survey.size else None


def gaussian_noise(problem: Problem, backend: Backend) -> GaussianNoise:
    """Return the Gaussian noise of the observations of each site, marginalised over missing observations.

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Where the arrays are.

    Returns
    -------
    GaussianNoise
    """
    y = problem.survey.Y
    observed = ~np.isnan(y)
    covariance = noise_covariance(problem)
    # Rows and columns of the identity for missing observations leave the factor of the others unchanged.
    both = observed[:, :, None] & observed[:, None, :]
    covariance = np.where(both, covariance, np.eye(y.shape[1]))
    factor = np.linalg.cholesky(covariance)
    whitening = np.where(both, np.linalg.inv(factor), 0.0)
    spreads = np.log(np.diagonal(factor, axis1=1, axis2=2))
    log_normaliser = -np.sum(np.where(observed, spreads + 0.5 * np.log(2.0 * np.pi), 0.0), axis=1)
    return GaussianNoise(
        backend.asarray(np.where(observed, y, 0.0)),
        backend.asarray(whitening),
        backend.asarray(log_normaliser),
        backend.asarray(observed.astype(np.float64)),
    )


def noise_covariance(problem: Problem) -> Floats:
    """Return the noise covariance (N, P, P) at each site; different observations are independent.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    array, shape (N, P, P), in the units of the observations
    """
    std = np.where(np.isnan(problem.survey.Y), 1.0, problem.noise_std)
    correlation = np.eye(std.shape[1])
    for name, block in problem.noise.correlation.items():
        columns = problem.observation_slices[name]
        correlation[columns, columns] = block
    return np.asarray(std[:, :, None] * correlation * std[:, None, :])


def learning_of(problem: Problem, backend: Backend) -> HyperparameterLearning | None:
    """Return the learnt hyperparameters; None if nothing is learnt.

    Kernel parameters are tied over the labels of a latent, noise scales over observations.

    Parameters
    ----------
    problem : Problem
    backend : Backend
        Where the arrays are.

    Returns
    -------
    HyperparameterLearning or None
    """
    kernels = kernels_of(problem, backend)
    ends = np.cumsum([0, *(len(kernel.parameter_names) for kernel in kernels)])
    ties, spreads = [np.zeros((ends[-1], 0))], []
    for latent in problem.latents:
        processes = range(*problem.latent_slices[latent.name].indices(len(kernels)))
        for name, factor in latent.learn.items():
            own = latent.learnt_parameters(name)
            tie = np.zeros((ends[-1], own.shape[1]))
            for j in processes:
                tie[ends[j] : ends[j + 1]] = own
            ties.append(tie)
            spreads += [np.log(factor)] * own.shape[1]
    inducing = problem.inference.learn_inducing and inducing_count(problem) is not None
    scales = problem.noise.scales
    if not spreads and not inducing and not scales:
        return None
    groups = np.zeros((problem.noise_std.shape[1], len(scales)))
    for g, scale in enumerate(scales):
        for name in scale.observations:
            groups[problem.observation_slices[name], g] = 1.0
    return HyperparameterLearning(
        join_parameters(kernels),
        backend.asarray(np.concatenate(ties, axis=1)),
        backend.asarray(np.asarray(spreads)),
        backend.asarray(groups),
        backend.asarray(np.log(np.asarray([scale.factor for scale in scales]))),
        backend.asarray(np.asarray([scale.degrees or 0.0 for scale in scales])),
        inducing=inducing,
    )
