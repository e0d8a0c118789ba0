"""How much the control variates, and a diagonal posterior, take from the error of the gradients: two printed tables.

Usage: python tests/benchmarks/estimator_variance.py [--repeats 400] [--samples 64]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import select_backend
from invgp.core.estimators import score
from invgp.core.point_sets import Points

Floats = NDArray[np.float64]
MEAN, SCALE = 0.4, 0.7
LOG_DENSITIES: dict[str, Callable[[Floats], Floats]] = {
    "logistic, y = 1": lambda f: -np.logaddexp(0.0, -f),
    "Poisson, y = 3": lambda f: 3.0 * f - np.exp(f),
    "Gaussian, y = exp(f) + 0.3 e": lambda f: -0.5 * ((1.5 - np.exp(f)) / 0.3) ** 2,
    "Student-t, 4 degrees": lambda f: -2.5 * np.log1p((1.5 - f) ** 2 / 4.0),
}


def plain(z: Floats, densities: Floats) -> Floats:
    """The score estimator without control variates: gradient and curvature."""
    return np.asarray([np.mean(z * densities) / SCALE, np.mean((z**2 - 1) * densities) / SCALE**2])


def of_the_paper(z: Floats, densities: Floats) -> Floats:
    """With the paper's control variate: each score function by itself, its coefficient from the same samples."""
    estimates = []
    for h, divisor in ((z, SCALE), (z**2 - 1, SCALE**2)):
        g = h * densities
        coefficient = np.mean((g - g.mean()) * (h - h.mean())) / np.var(h)
        estimates.append(np.mean(g - coefficient * h) / divisor)
    return np.asarray(estimates)


def regress_scores(z: Floats, densities: Floats, *, independent: bool = False) -> Floats:
    """Ours: all score functions at once."""
    points = Points(z[:, None], np.ones((1, 1, 1)), independent)
    terms = score(points, np.full((1, 1), SCALE), densities[:, None])
    return np.asarray([terms.gradient[0, 0], terms.curvature[0, 0]])


unbiased = partial(regress_scores, independent=True)


def control_variates(repeats: int, samples: int) -> dict[str, Floats]:
    """Mean squared error of gradient and curvature, (5, 2): plain, the paper's, ours unbiased, ours, on Sobol points.

    About the exact values, so that a bias counts as well.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights /= weights.sum()
    table = {}
    for name, log_density in LOG_DENSITIES.items():
        found = []
        for seed in range(repeats):
            rng = np.random.default_rng(seed)
            random, even = (
                rng.standard_normal(samples),
                Points.draw(rng, samples, 1, 1, select_backend("cpu")).base[:, 0],
            )
            rows = [(e, random) for e in (plain, of_the_paper, unbiased, regress_scores)] + [(regress_scores, even)]
            found.append([estimator(z, log_density(MEAN + SCALE * z)) for estimator, z in rows])
        exact = plain(nodes, len(nodes) * weights * log_density(MEAN + SCALE * nodes))
        table[name] = np.mean(np.square(np.asarray(found) - exact), axis=0)
    return table


def theorem_three(repeats: int, samples: int, sites: int = 10) -> tuple[float, float]:
    """Mean variance of the gradient of the means: a full Gaussian sampled jointly, and a diagonal one site by site."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 3, sites)
    covariance = 0.5 * np.exp(-0.5 * (x[:, None] - x) ** 2) + 0.1 * np.eye(sites)
    y = np.sign(np.sin(3 * x))
    factor, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)
    full, diagonal = [], []
    for _ in range(repeats):
        z = rng.standard_normal((samples, sites))
        joint = z @ factor.T
        full.append(np.mean((joint @ precision) * -np.logaddexp(0.0, -y * joint).sum(axis=1)[:, None], axis=0))
        scale = np.sqrt(np.diag(covariance))
        diagonal.append(np.mean(z / scale * -np.logaddexp(0.0, -y * scale * z), axis=0))
    return float(np.mean(np.var(full, axis=0))), float(np.mean(np.var(diagonal, axis=0)))


def main(repeats: int, samples: int) -> None:
    """Print both tables."""
    print(f"Mean squared error of the estimates, {samples} samples, {repeats} repeats, relative to the plain estimator")
    heads = "".join(f"{head:>16}" for head in ("paper", "unbiased", "regression", "on Sobol points"))
    print(f"{'log density':<30} {'of':<10}{heads}")
    for name, variances in control_variates(repeats, samples).items():
        for i, what in enumerate(("gradient", "curvature")):
            numbers = "".join(f"{share:>16.2g}" for share in variances[1:, i] / variances[0, i])
            print(f"{name if i == 0 else '':<30} {what:<10}{numbers}")
    full, diagonal = theorem_three(repeats, samples)
    print("\nTheorem 3, dense logistic model: mean variance of the gradient of the posterior means")
    print(f"full Gaussian sampled jointly {full:.4g}, diagonal site by site {diagonal:.4g}: {diagonal / full:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--samples", type=int, default=64)
    main(**vars(parser.parse_args()))
