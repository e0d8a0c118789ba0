"""Baselines: sparse regression with a known likelihood, exact processes on subsets, and linear regression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular

from invgp import SAVIGP
from invgp.core.kernels import Kernel
from invgp.likelihoods import Gaussian

Floats = NDArray[np.float64]
JITTER = 1e-6
BLOCK = 10_000  # sites at once


def sparse_regression(
    X: Floats, y: Floats, X_test: Floats, Z: Floats, kernel: Kernel, noise: float
) -> tuple[Floats, Floats]:
    """Compute mean and variance of the latent at X_test by the optimal posterior of Titsias (2009).

    Nothing is learnt here: kernel, noise (standard deviation) and inducing inputs Z (M, D) are given. What a stochastic
    search with the same ones aims at, this has in closed form.
    """
    factor = cholesky(np.asarray(kernel(Z, Z)) + JITTER * np.eye(len(Z)), lower=True)

    def whiten_points(points: Floats) -> Floats:
        return np.asarray(solve_triangular(factor, np.asarray(kernel(Z, points)), lower=True))

    precision, pull = np.eye(len(Z)), np.zeros(len(Z))
    for start in range(0, len(X), BLOCK):
        seen = whiten_points(X[start : start + BLOCK])
        precision += seen @ seen.T / noise**2
        pull += seen @ y[start : start + BLOCK] / noise**2
    root = cholesky(precision, lower=True)
    centre = cho_solve((root, True), pull)
    parts = [whiten_points(X_test[start : start + BLOCK]) for start in range(0, len(X_test), BLOCK)]
    mean = np.concatenate([part.T @ centre for part in parts])
    spread = [np.sum(solve_triangular(root, part, lower=True) ** 2 - part**2, axis=0) for part in parts]
    return mean, np.asarray(kernel.variance) + np.concatenate(spread)


def subset_process(
    X: Floats, y: Floats, X_test: Floats, size: int, rng: np.random.Generator
) -> tuple[Floats, Floats, float]:
    """Fit a dense process to some of the data; return mean and variance of the latent, and the noise."""
    chosen = rng.choice(len(y), min(size, len(y)), replace=False)
    model = SAVIGP(Gaussian(1.0), length_scale=np.full(X.shape[1], 2.0)).fit(X[chosen], y[chosen])
    parts = [model.predict_latent(part) for part in np.array_split(X_test, max(len(X_test) // BLOCK, 1))]
    mean, variance = (np.concatenate([part[i][:, 0] for part in parts]) for i in (0, 1))
    return mean, variance, float(np.exp(np.ravel(model.likelihood_.parameters)[0]))


def linear(X: Floats, y: Floats, X_test: Floats) -> tuple[Floats, Floats, float]:
    """Fit a Bayesian linear regression with weights of unit variance; return also the noise of its residuals."""
    features, features_test = (np.column_stack([np.ones(len(part)), part]) for part in (X, X_test))
    noise = 1.0
    for _ in range(3):
        root = cholesky(np.eye(features.shape[1]) + features.T @ features / noise**2, lower=True)
        weights = cho_solve((root, True), features.T @ y / noise**2)
        noise = float(np.std(y - features @ weights))
    spread = solve_triangular(root, features_test.T, lower=True)
    return features_test @ weights, np.sum(spread**2, axis=0), noise
