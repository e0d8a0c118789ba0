"""Models small enough to check by finite differences."""

import numpy as np

from helpers.kernels import kernels_of_all_kinds
from invgp.core.bound import Bound
from invgp.core.geometry import inducing_factor, join_parameters, split_parameters
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Full, Sites

Q, M, D, N, S = 2, 4, 2, 7, 64
FAMILIES = {
    "full": lambda size, backend: Full(Q, size),
    "mixture of two full": lambda size, backend: Full(Q, size, 2),
    "diagonal": lambda size, backend: Diagonal(Q, size),
    "mixture of three diagonal": lambda size, backend: Diagonal(Q, size, 3),
    "sites": lambda size, backend: Sites(Q, size, N, backend.asarray([[0.7], [1.6]])),
}


class Quadratic:
    """A log density that is quadratic in the latents and couples them: the estimator is exact on it."""

    def __init__(self, rng):
        half = 0.5 * rng.standard_normal((N, Q, Q))
        self.y, self.precision = rng.standard_normal((N, Q)), half @ half.transpose(0, 2, 1) + np.eye(Q)

    def at(self, backend, parameters):
        y, precision, xp = backend.asarray(self.y), backend.asarray(self.precision), backend.namespace

        def log_density(f, start, stop):
            residual = (y[start:stop, :] - f)[..., None]
            product = xp.matrix_transpose(residual) @ precision[start:stop, ...] @ residual
            quadratic = xp.exp(-2.0 * parameters[0]) * product[..., 0, 0]
            return -0.5 * quadratic - Q * parameters[0], (quadratic - Q)[..., None]

        return log_density


def small_model(family, kinds, dense, seed=0):
    """A family by name, kernels by kind -> (place -> bound, parameters, points), the same numbers everywhere."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    Z = np.stack([X] * Q) if dense else rng.standard_normal((Q, M, D))
    size = N if dense else M
    alike = tuple(kernels_of_all_kinds()[kind] for kind in kinds)
    numbers = join_parameters(alike)
    numbers = numbers + 0.2 * rng.standard_normal(len(numbers))
    mean = rng.standard_normal(Q)
    jitter = 0.3 * rng.standard_normal((3, Q, size))
    noise = rng.standard_normal(10_000)

    def build(backend):
        kernels = tuple(kernel.on_backend(backend) for kernel in alike)
        posterior = FAMILIES[family](size, backend)
        there = backend.asarray(numbers)
        factor = inducing_factor(split_parameters(kernels, there), backend.asarray(Z))
        start = posterior.initial_parameters(factor, 0.5, backend.asarray(jitter[: posterior.components]))
        start = start + backend.asarray(0.2 * noise[: start.shape[0]])
        parameters = Parameters(start, there, backend.asarray(Z), backend.asarray([0.2]), backend.asarray(mean))
        points = Points.draw(np.random.default_rng(1), S, N, Q, backend)
        return Bound(posterior, kernels, backend.asarray(X), dense), parameters, points

    return build
