"""Kernels without a correlation length: constant, scalar, white noise and linear."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from invgp.core.backend import Array, array_namespace, product, sum_of_products
from invgp.core.kernels.base import (
    Kernel,
    KernelGradient,
    Linearised,
    as_finite,
    as_like,
    as_positive,
    check_dimensions,
)

UNCORRELATED = 1e-30  # correlation length of white noise, in any unit


@dataclass(frozen=True, eq=False, repr=False)
class _WithVariance(Kernel):
    """A kernel whose only free parameter is its variance, which is the same everywhere."""

    variance: Array = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", as_positive("variance", self.variance))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        return ("variance",)

    @property
    def parameters(self) -> Array:
        """Log variance, shape (1,)."""
        xp = array_namespace(self.variance)
        return xp.reshape(xp.log(self.variance), (1,))

    def with_parameters(self, parameters: Array) -> Self:
        """Return the kernel with another log variance."""
        return replace(self, variance=array_namespace(parameters).exp(parameters)[0, ...])

    def permute(self, order: Any) -> Kernel:  # noqa: ARG002 - the order of the inputs has no effect
        """Return the kernel for permuted inputs."""
        return self

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.variance + array_namespace(X).zeros_like(X[:, 0])

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        value = self(X1, X2)

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(cotangent)
            return KernelGradient(xp.reshape(xp.sum(cotangent * value), (1,)), xp.zeros_like(X1))

        return Linearised(value, pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        xp = array_namespace(X, cotangent)
        return KernelGradient(xp.reshape(self.variance * xp.sum(cotangent), (1,)), xp.zeros_like(X))


@dataclass(frozen=True, eq=False, repr=False)
class Constant(_WithVariance):
    """The same covariance everywhere: an unknown constant with this variance, or a factor in a product.

    Parameters
    ----------
    variance : float or array, shape ()
    """

    kind: ClassVar[str] = "constant"

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        xp = array_namespace(X1, X2)
        return self.variance + xp.zeros_like(X1[:, :1]) + xp.zeros_like(X2[:, :1]).T


@dataclass(frozen=True, eq=False, repr=False)
class Scalar(Constant):
    """An unknown number: a process with the same value at all inputs.

    Its covariance matrices have rank one. `invgp.core.geometry` uses their exact factor, without a jitter, so that the
    values at all inputs are equal to the last digit.

    Parameters
    ----------
    variance : float or array, shape ()
    """

    kind: ClassVar[str] = "scalar"


@dataclass(frozen=True, eq=False, repr=False)
class White(_WithVariance):
    """A nugget: variation of the process itself that is independent from point to point.

    The covariance is the variance where all coordinates of two points are equal, and 0 elsewhere. Two observations at
    the same point share the value of the process; noise of the observations belongs to the likelihood.

    Parameters
    ----------
    variance : float or array, shape ()
    """

    kind: ClassVar[str] = "white"

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        xp = array_namespace(X1, X2)
        same = X1[:, None, 0] == X2[None, :, 0]
        for d in range(1, X1.shape[1]):
            same &= X1[:, None, d] == X2[None, :, d]
        return self.variance * xp.astype(same, X1.dtype)

    def correlation_length(self, dimensions: int) -> Array:
        """Return a tiny length (D,)."""
        xp = array_namespace(self.variance)
        return xp.broadcast_to(UNCORRELATED + xp.reshape(0.0 * self.variance, (1,)), (dimensions,))


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Kernel):
    """variance sum_d (x_d - centre_d) (x'_d - centre_d) / length_scale_d^2: a plane through zero at the centre.

    Parameters
    ----------
    variance : float or array, shape ()
        Prior variance of the process at the distance of one length-scale from the centre.
    length_scale : float or array, shape (D,), in the units of the inputs
        Scales of the inputs; only their ratio to the square root of the variance matters.
    centre : float or array, shape (D,), in the units of the inputs
        Point where the process is zero. It is not learnt; add a `Constant` for an unknown value there.
    """

    kind: ClassVar[str] = "linear"
    variance: Array = 1.0
    length_scale: Array = 1.0
    centre: Array = 0.0

    def __post_init__(self) -> None:
        length_scale = as_positive("length_scale", self.length_scale, vector=True)
        object.__setattr__(self, "variance", as_like(as_positive("variance", self.variance), length_scale))
        object.__setattr__(self, "length_scale", length_scale)
        object.__setattr__(self, "centre", as_like(as_finite("centre", self.centre), length_scale))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        return ("variance", *("length_scale",) * self.length_scale.shape[0])

    @property
    def parameters(self) -> Array:
        """Log variance, then log length-scales."""
        xp = array_namespace(self.length_scale)
        return xp.log(xp.concat([xp.reshape(self.variance, (1,)), self.length_scale]))

    def with_parameters(self, parameters: Array) -> Self:
        """Return the kernel with other free parameters."""
        values = array_namespace(parameters).exp(parameters)
        return replace(self, variance=values[0, ...], length_scale=values[1:])

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        return self.variance * product(self._scale_inputs(X1), self._scale_inputs(X2).T)

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        scaled = self._scale_inputs(X)
        return self.variance * array_namespace(X).vecdot(scaled, scaled)

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        Y1, Y2 = self._scale_inputs(X1), self._scale_inputs(X2)
        value = self.variance * product(Y1, Y2.T)

        def pull_back(cotangent: Array) -> KernelGradient:
            across = self.variance * product(cotangent, Y2)
            return self._gradient(sum_of_products(Y1, across), across, 2.0)

        return Linearised(value, pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        scaled = self._scale_inputs(X)
        weighted = self.variance * cotangent[:, None] * scaled
        return self._gradient(sum_of_products(scaled, weighted), 2.0 * weighted, 2.0)

    def _scale_inputs(self, X: Array) -> Array:
        check_dimensions(X, length_scale=self.length_scale, centre=self.centre)
        return (X - self.centre) / self.length_scale

    def _gradient(self, by_dimension: Array, by_scaled: Array, power: float) -> KernelGradient:
        """Combine the value per dimension (D,) and the gradient with respect to scaled inputs (N, D)."""
        xp = array_namespace(by_scaled)
        scales = -power * by_dimension
        if self.length_scale.shape[0] == 1:
            scales = xp.sum(scales, keepdims=True)
        parameters = xp.concat([xp.reshape(xp.sum(by_dimension), (1,)), scales])
        return KernelGradient(parameters, by_scaled / self.length_scale)
