"""Gaussian process regression by the book, for the problem whose posterior is exact."""

import numpy as np

from helpers.problems import WEIGHTS


def joint_posterior(problem, X):
    """Mean (2 n,) and covariance (2 n, 2 n) of velocity and depth at points X (n, 2), velocity first."""
    sites, y = problem.survey.X, problem.survey.Y
    mean = np.asarray([latent.mean[0] for latent in problem.latents])

    def prior(A, B):
        blocks = np.zeros((2, len(A), 2, len(B)))
        for j, latent in enumerate(problem.latents):
            blocks[j, :, j, :] = latent.std[0] ** 2 * latent.kernel(A, B)
        return blocks.reshape(2 * len(A), 2 * len(B))

    N = len(sites)
    design = np.kron(WEIGHTS, np.eye(N))
    noise = np.concatenate([problem.noise.std[name][:, 0] for name in ("first", "second")])
    K = design @ prior(sites, sites) @ design.T + np.diag(noise**2)
    across = prior(X, sites) @ design.T
    residual = y.T.ravel() - design @ np.repeat(mean, N)
    return (
        np.repeat(mean, len(X)) + across @ np.linalg.solve(K, residual),
        prior(X, X) - across @ np.linalg.solve(K, across.T),
    )
