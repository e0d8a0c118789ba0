"""The model that the benchmarks evaluate, and how they measure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from invgp.core.backend import select_backend
from invgp.core.bound import Bound
from invgp.core.expectations import LogDensity
from invgp.core.geometry import inducing_factor
from invgp.core.kernels import SquaredExponential
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Full
from invgp.likelihoods import Logistic, Softmax

POSTERIOR = ("posterior",)
ALL_BLOCKS = ("posterior", "kernels", "inducing")


@dataclass(frozen=True)
class Size:
    """N sites of D inputs, M inducing inputs, Q latents, K components, S samples; dense if M is N."""

    N: int
    D: int
    M: int
    Q: int = 1
    K: int = 1
    S: int = 100

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value:,}" for name, value in vars(self).items())


def data(size: Size, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs X (N, D), inducing inputs Z (M, D) among them, and labels 0 or 1, (N,)."""
    rng = np.random.default_rng(seed)
    X = rng.random((size.N, size.D))
    direction = rng.standard_normal(size.D)
    score = (X - 0.5) @ direction / np.sqrt(size.D)
    labels = (score + 0.1 * rng.standard_normal(size.N) > 0).astype(float)
    Z = X if size.M == size.N else X[rng.permutation(size.N)[: size.M]]
    return X, Z, labels


def length_scale(size: Size) -> float:
    """A length-scale that keeps the covariance matrix far from the identity and from singular."""
    return 0.5 * np.sqrt(size.D) if size.D > 1 else 2.0 / np.sqrt(size.N)


@dataclass(frozen=True)
class Problem:
    """A bound ready to be evaluated."""

    bound: Bound
    parameters: Parameters
    density: LogDensity
    points: Points

    def evaluate(self, learn: tuple[str, ...]) -> float:
        """One bound and its gradient, nothing kept from an earlier one; the bound, in nats."""
        return float(self.bound.bound_state(self.parameters).evaluate(self.density, self.points, learn).elbo)


def problem(size: Size, seed: int = 0, device: str = "cpu") -> Problem:
    """A full Gaussian posterior with a logistic likelihood, or a softmax for more than one latent."""
    X, Z, labels = data(size, seed)
    rng, backend = np.random.default_rng(seed), select_backend(device)
    xp = backend.namespace
    kernel = SquaredExponential(
        backend.asarray(1.0),
        backend.asarray(np.full(size.D, length_scale(size))),
    )
    inducing = backend.asarray(np.ascontiguousarray(np.broadcast_to(Z, (size.Q, *Z.shape))))
    posterior = Full(size.Q, size.M, size.K)
    # Triangular noise on the factor, so that nothing is saved by an accidental zero.
    jitter = backend.asarray(0.1 * rng.standard_normal((size.K, size.Q, size.M)))
    start = posterior.initial_parameters(inducing_factor([kernel] * size.Q, inducing), 0.5, jitter)
    start = start + (0.1 / size.M) * backend.asarray(rng.standard_normal(start.shape[0]))
    empty, means = backend.asarray(np.zeros(0)), backend.asarray(np.zeros(size.Q))
    parameters = Parameters(start, xp.concat([kernel.parameters] * size.Q), inducing, empty, means)
    if size.Q == 1:
        density = Data(Logistic(), backend.asarray(labels[:, None]))
    else:
        density = Data(Softmax(size.Q), backend.asarray(np.eye(size.Q)[labels.astype(int)]))
    return Problem(
        Bound(posterior, (kernel,) * size.Q, backend.asarray(X), dense=size.M == size.N),
        parameters,
        density.log_density(parameters.likelihood, derivatives=False),
        Points.draw(rng, size.S, size.N, size.Q, backend),
    )


def seconds(function: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    """Median wall-clock time of a call, after one that is discarded: it pays for memory that is new."""
    function()
    return statistics.median(seconds(function) for _ in range(repeats))
