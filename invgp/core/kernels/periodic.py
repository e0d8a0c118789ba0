"""The periodic kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from invgp.core.backend import Array, array_namespace
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like, as_positive, check_dimensions


@dataclass(frozen=True, eq=False, repr=False)
class Periodic(Kernel):
    """exp(-2 sum_d sin^2(pi (x_d - x'_d) / period_d) / length_scale_d^2), which repeats exactly in all dimensions.

    Use `Kernel.on` to make it a function of one dimension, such as time. Multiplied by a kernel that decreases with
    the distance, it is a pattern that changes slowly.

    Parameters
    ----------
    variance : float or array, shape ()
        Prior variance of the process.
    length_scale : float or array, shape (D,)
        Length-scale within one period; it has no unit. Short ones allow many features per period.
    period : float or array, shape (D,), in the units of the inputs
        Period; a number if all dimensions share one.
    """

    kind: ClassVar[str] = "periodic"
    variance: Array = 1.0
    length_scale: Array = 1.0
    period: Array = 1.0

    def __post_init__(self) -> None:
        length_scale = as_positive("length_scale", self.length_scale, vector=True)
        object.__setattr__(self, "variance", as_like(as_positive("variance", self.variance), length_scale))
        object.__setattr__(self, "length_scale", length_scale)
        object.__setattr__(self, "period", as_like(as_positive("period", self.period, vector=True), length_scale))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        return (
            "variance",
            *("length_scale",) * self.length_scale.shape[0],
            *("period",) * self.period.shape[0],
        )

    @property
    def parameters(self) -> Array:
        """Log variance, log length-scales, log periods."""
        xp = array_namespace(self.length_scale)
        return xp.log(xp.concat([xp.reshape(self.variance, (1,)), self.length_scale, self.period]))

    def with_parameters(self, parameters: Array) -> Self:
        """Return the kernel with other free parameters."""
        values, end = array_namespace(parameters).exp(parameters), 1 + self.length_scale.shape[0]
        return replace(self, variance=values[0, ...], length_scale=values[1:end], period=values[end:])

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        check_dimensions(X1, length_scale=self.length_scale, period=self.period)
        xp = array_namespace(X1, X2)
        exponent = 0.0
        for d in range(X1.shape[1]):
            period, length_scale = self._parameters_along(d)
            exponent = exponent - 2.0 * xp.square(xp.sin(math.pi / period * _difference(X1, X2, d)) / length_scale)
        return self.variance * xp.exp(exponent)

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.variance + array_namespace(X).zeros_like(X[:, 0])

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        value = self(X1, X2)

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(cotangent)
            weight = cotangent * value
            by_scale, by_period, by_input = [], [], []
            for d in range(X1.shape[1]):
                period, length_scale = self._parameters_along(d)
                apart = _difference(X1, X2, d)
                angle = math.pi / period * apart
                by_scale.append(4.0 / length_scale**2 * xp.sum(weight * xp.square(xp.sin(angle))))
                slope = 2.0 * math.pi / (period * length_scale**2) * weight * xp.sin(2.0 * angle)
                by_period.append(xp.sum(slope * apart))
                by_input.append(-xp.sum(slope, axis=1))
            parts = [xp.reshape(xp.sum(weight), (1,)), xp.stack(by_scale), xp.stack(by_period)]
            for i, shared in ((1, self.length_scale), (2, self.period)):
                if shared.shape[0] == 1:
                    parts[i] = xp.sum(parts[i], keepdims=True)
            return KernelGradient(xp.concat(parts), xp.stack(by_input, axis=1))

        return Linearised(value, pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        xp = array_namespace(X, cotangent)
        log_variance = xp.reshape(self.variance * xp.sum(cotangent), (1,))
        return KernelGradient(xp.concat([log_variance, xp.zeros_like(self.parameters[1:])]), xp.zeros_like(X))

    def _parameters_along(self, d: int) -> tuple[Array, Array]:
        """Return period and length-scale along one dimension."""
        return self.period[d % self.period.shape[0]], self.length_scale[d % self.length_scale.shape[0]]


def _difference(X1: Array, X2: Array, d: int) -> Array:
    return X1[:, None, d] - X2[None, :, d]
