"""Discrepancies of a field model: what its simulator cannot explain.

The latents of a field model are on a grid, and a discrepancy is a process along the coordinates of the survey. Since it
is added to the outputs, and all of its distributions are Gaussian, it is a part of the covariance of the noise until
the posterior is known. Afterwards it is drawn given the data and the outputs of the simulator.
"""

from __future__ import annotations

import numpy as np

from invgp.problem import Floats, Problem

SMALLEST_EIGENVALUE = 1e-12  # of the conditional covariance, relative to the largest; smaller ones are rounding


def discrepancy_covariance(problem: Problem) -> Floats:
    """Return the prior covariance (N P, N P) of the discrepancies of all outputs, ordered by site.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    array, shape (N P, N P), in the units of the observations
    """
    (N, P), X = problem.noise_std.shape, problem.survey.X
    found = np.zeros((N, P, N, P))
    for name, latent in problem.noise.discrepancy.items():
        columns = problem.observation_slices[name]
        labels = np.eye(latent.size) if latent.label_correlation is None else latent.label_correlation
        scaled = latent.std[:, None] * labels * latent.std
        found[:, columns, :, columns] = latent.kernel(X, X)[:, None, :, None] * scaled[None, :, None, :]
    return found.reshape(N * P, N * P)


def draw_discrepancy(problem: Problem, outputs: Floats, covariance: Floats, rng: np.random.Generator) -> Floats:
    """Draw the discrepancies given the data, one for each of several outputs of the simulator.

    Parameters
    ----------
    problem : Problem
    outputs : array, shape (S, N, P), in the units of the observations
        Outputs of the simulator without discrepancies.
    covariance : array, shape (D, D)
        Covariance of the observed data given the latents: of the noise and the discrepancies.
    rng : numpy.random.Generator

    Returns
    -------
    array, shape (S, N, P), in the units of the observations
    """
    observed = np.flatnonzero(~np.isnan(problem.survey.Y.ravel()))
    prior = discrepancy_covariance(problem)
    gain = np.linalg.solve(covariance, prior[observed]).T
    residuals = problem.survey.Y.ravel()[observed] - outputs.reshape(len(outputs), -1)[:, observed]
    values, vectors = np.linalg.eigh(prior - gain @ prior[observed])
    root = vectors * np.sqrt(np.where(values > SMALLEST_EIGENVALUE * values[-1], values, 0.0))
    offsets = rng.standard_normal((len(outputs), len(values))) @ root.T
    offsets -= offsets.mean(axis=0)  # which is known to be 0
    return np.asarray((residuals @ gain.T + offsets).reshape(outputs.shape))
