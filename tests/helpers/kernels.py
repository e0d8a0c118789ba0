"""Kernels of every kind, for tests of all that works with any kernel."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from invgp.core.backend import array_namespace
from invgp.kernels import (
    Constant,
    Exponential,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
)


@dataclass(frozen=True, eq=False)
class Sinc(Kernel):
    """A kernel of a user, without its own derivatives: variance sin(r) / r, with r along the first dimension."""

    kind: ClassVar[str] = "sinc of the tests"
    variance: float = 1.0
    scale: float = 1.0

    @property
    def parameter_names(self):
        return ("variance", "scale")

    @property
    def parameters(self):
        values = [self.variance, self.scale]
        if all(isinstance(value, float) for value in values):
            return np.log(values)
        xp = array_namespace(*values)
        return xp.log(xp.stack(values))

    def with_parameters(self, parameters):
        values = array_namespace(parameters).exp(parameters)
        return replace(self, variance=values[0], scale=values[1])

    def __call__(self, X1, X2):
        xp = array_namespace(X1, X2)
        r = (X1[:, None, 0] - X2[None, :, 0]) / self.scale
        safe = xp.where(xp.abs(r) < 1e-4, xp.ones_like(r), r)
        return self.variance * xp.where(xp.abs(r) < 1e-4, 1.0 - r * r / 6.0, xp.sin(safe) / safe)


def kernels_of_all_kinds():
    """Kernels of inputs with two dimensions, by name."""
    return {
        "squared exponential": SquaredExponential(1.3, [0.8, 1.1]),
        "exponential": Exponential(0.7, [1.2, 0.8]),
        "matern 3/2": Matern32(0.7, 1.2),
        "matern 5/2": Matern52(1.1, [0.9, 1.4]),
        "rational quadratic": RationalQuadratic(1.2, [0.7, 1.3], 0.8),
        "periodic": Periodic(0.9, [1.1, 0.8], 2.3) + White(0.3),
        "linear": Linear(0.6, [0.9, 1.2], [0.2, -0.1]) + White(0.4),
        "trend": Constant(0.5) + Linear(0.4, 1.5, 0.3).on(1) + Matern32(0.8, 0.7),
        "product": Matern52(1.0, 1.5).on(0) * Periodic(0.8, 1.2, 1.7).on(1) + White(0.1),
        "own": Sinc(1.2, 0.9) * Matern52(0.9, [2.0, 1.0]) + White(0.05),
    }
