"""Compare posteriors with inducing points with dense ones, for the chosen number of points and for smaller ones.

Each problem is a Gaussian process with noisy values at the sites, whose dense posterior has a closed form. The table
contains the share of the posterior variance that the inducing points omit, the error of the mean in posterior standard
deviations (root mean square), and the mean ratio of the spreads. A star marks the number that is chosen by default.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from invgp.core.geometry import inducing_factor, sparse_geometry
from invgp.core.inducing import cluster_centres
from invgp.core.kernels import Kernel, Matern32, Matern52, SquaredExponential
from invgp.latent_model.inducing_points import JITTER, needed_inducing_points, omitted_share

Floats = NDArray[np.float64]

KERNELS = {"squared exponential": SquaredExponential, "Matern 5/2": Matern52, "Matern 3/2": Matern32}
FRACTIONS = (0.5, 0.7, 1.0)  # of the chosen number that are compared


def line(count: int, rng: np.random.Generator) -> Floats:
    """Return sites (N, 1) along a line, in clusters."""
    centres = rng.uniform(0.0, 10.0, 12)
    return np.sort(rng.choice(centres, count) + rng.normal(0.0, 0.6, count))[:, None]


def flight_lines(count: int, rng: np.random.Generator) -> Floats:
    """Return sites (N, 2) along ten parallel lines of a map."""
    return np.stack([rng.uniform(0.0, 6.0, count), 0.4 * rng.integers(0, 10, count)], axis=-1)


def compare(kernel: Kernel, X: Floats, noise: float, count: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Return the omitted share, the error of the mean and the ratio of spreads with `count` inducing points.

    Parameters
    ----------
    kernel : Kernel
    X : array, shape (N, D)
    noise : float
        Noise variance.
    count : int
    rng : Generator
    """
    N, K = len(X), kernel(X, X)
    f = np.linalg.cholesky(K + 1e-9 * np.eye(N)) @ rng.standard_normal(N)
    y = f + np.sqrt(noise) * rng.standard_normal(N)
    gain = np.linalg.solve(K + noise * np.eye(N), K).T
    mean, variance = gain @ y, np.diagonal(K - gain @ K)
    Z = cluster_centres(X, count, np.random.default_rng(1))
    geometry = sparse_geometry([kernel], Z[None], inducing_factor([kernel], Z[None], JITTER), X)
    W, residual = geometry.projection[0], geometry.residual[0]
    covariance = np.linalg.inv(np.eye(len(Z)) + W @ W.T / noise)
    sparse_mean = W.T @ (covariance @ (W @ y)) / noise
    sparse_variance = np.sum(W * (covariance @ W), axis=0) + residual
    error = float(np.sqrt(np.mean((sparse_mean - mean) ** 2 / variance)))
    return omitted_share(kernel, Z, X, 1.0 / noise), error, float(np.mean(np.sqrt(sparse_variance / variance)))


def main() -> None:
    """Print one row per problem and number of inducing points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=1500, help="number of sites (default: 1500)")
    arguments = parser.parse_args()
    N = arguments.sites
    print(f"{'kernel':20}{'sites':14}{'noise':>7}{'points':>8}{'omitted':>9}{'error':>8}{'spread':>8}")
    for (name, kind), (layout, place) in (
        (kernel, sites) for kernel in KERNELS.items() for sites in (("line", line), ("flight lines", flight_lines))
    ):
        for noise in (0.3, 0.03):
            rng = np.random.default_rng(20)
            X = place(N, rng)
            kernel = kind(1.0, np.ones(X.shape[1]))
            chosen = needed_inducing_points([kernel], X, X, [1.0 / noise**2], N)
            for fraction in FRACTIONS if chosen else ():
                count = int(fraction * (chosen or 0))
                share, error, spread = compare(kernel, X, noise**2, count, rng)
                star = "*" if fraction == 1.0 else " "
                row = f"{name:20}{layout:14}{noise:7.2f}{count:7,}{star}{share:9.1%}{error:8.3f}{spread:8.3f}"
                print(row, flush=True)


if __name__ == "__main__":
    main()
