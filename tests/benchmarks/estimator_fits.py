"""Whole fits of `SAVIGP`, everything learnt, beside scikit-learn's exact Gaussian processes, measured in turns.

    python tests/benchmarks/estimator_fits.py
    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/estimator_fits.py

The baselines learn the same kernel's hyperparameters from the same start by L-BFGS: regression by its exact evidence,
classification by Laplace's approximation. scikit-learn has no likelihood for counts: beside those stands regression on
their logarithms. Beside the times is what was reached, in nats: the bound here, the evidence or Laplace's there.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from workload import seconds

from invgp import SAVIGP
from invgp.likelihoods import Gaussian, Logistic, Poisson

NOISE = 0.5  # where the search for it starts


@dataclass(frozen=True)
class Case:
    """A model here and one there; `inducing` is a share of the sites, or None for the dense model."""

    name: str
    sites: int
    observe: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    likelihood: Callable[[], object]
    baseline: Callable[[float], object]
    seen: Callable[[np.ndarray], np.ndarray] = np.asarray
    inducing: float | None = None


def regressor(scale: float) -> GaussianProcessRegressor:
    """Exact regression with a noise to learn."""
    return GaussianProcessRegressor(ConstantKernel(1.0) * RBF(scale) + WhiteKernel(NOISE**2))


def classifier(scale: float) -> GaussianProcessClassifier:
    """Binary classification by Laplace's approximation."""
    return GaussianProcessClassifier(ConstantKernel(1.0) * RBF(scale))


def noisy(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    """Gaussian noise of 0.2."""
    return f + 0.2 * rng.standard_normal(len(f))


def labels(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    """1 or -1."""
    return np.where(rng.random(len(f)) < 1.0 / (1.0 + np.exp(-3.0 * f)), 1.0, -1.0)


def counts(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    """With rates exp(1 + f)."""
    return rng.poisson(np.exp(1.0 + f)).astype(float)


CASES = (
    Case("Gaussian, dense", 200, noisy, lambda: Gaussian(NOISE), regressor),
    Case("logistic, dense", 200, labels, Logistic, classifier),
    Case("Poisson, dense", 300, counts, lambda: Poisson(offset=1.0), regressor, lambda y: np.log(y + 1.0) - 1.0),
    Case("Gaussian, M = N / 10", 1_000, noisy, lambda: Gaussian(NOISE), regressor, inducing=0.1),
)


def measure(case: Case, sites: int, repeats: int) -> tuple[float, float, float, float]:
    """Median seconds of a fit here and there, and what each reached, in nats."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 10.0, (sites, 1)), axis=0)
    y = case.observe(rng, np.sin(X[:, 0]))
    scale = float(X.std())
    inducing = None if case.inducing is None else max(2, round(case.inducing * sites))
    ours = SAVIGP(case.likelihood(), length_scale=scale, inducing=inducing)
    theirs, seen = case.baseline(scale), case.seen(y)
    here, there = [], []
    for _ in range(repeats):
        here.append(seconds(lambda: ours.fit(X, y)))
        there.append(seconds(lambda: theirs.fit(X, seen)))
    reached = theirs.log_marginal_likelihood_value_
    return statistics.median(here), statistics.median(there), ours.trace_[-1], float(reached)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure and print; how many times as long a fit takes here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the sites of each case (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements; the median counts (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    ratios = {}
    print("everything learnt           N      invgp  scikit-learn   ratio      bound   evidence")
    for case in CASES:
        sites = max(20, round(chosen.share * case.sites))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            here, there, *reached = measure(case, sites, chosen.repeats)
        ratios[case.name] = here / there
        times = f"{here:8.2f} s {there:11.2f} s {here / there:7.2f}"
        print(f"{case.name:22s} {sites:6,d} {times} {reached[0]:10.2f} {reached[1]:10.2f}", flush=True)
    return ratios


if __name__ == "__main__":
    main()
