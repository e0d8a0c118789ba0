"""Kernels that are functions of the scaled distance: squared exponential, exponential, Matérn and rational
quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from invgp.core.backend import Array, array_namespace, clip_negative, exp_in_place, product, sum_of_products
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like, as_positive, check_dimensions

MAX_DIRECT_DIMENSIONS = 8  # in more dimensions, distances are computed by a matrix product


def squared_distances(X1: Array, X2: Array) -> Array:
    """Compute squared Euclidean distances (N, M): directly in few dimensions, by a matrix product in many."""
    xp = array_namespace(X1, X2)
    if X1.shape[1] <= MAX_DIRECT_DIMENSIONS:
        return sum(
            (xp.square(X1[:, None, d] - X2[None, :, d]) for d in range(1, X1.shape[1])),
            start=xp.square(X1[:, None, 0] - X2[None, :, 0]),
        )
    # A shift does not change distances, and avoids cancellation of large coordinates.
    centre = xp.mean(X2, axis=0)
    X1, X2 = X1 - centre, X2 - centre
    # |x1|^2 + |x2|^2 - 2 x1 x2 as one product, of (x1, |x1|^2, 1) and (-2 x2, 1, |x2|^2).
    norms1, norms2 = xp.vecdot(X1, X1)[:, None], xp.vecdot(X2, X2)[:, None]
    left = xp.concat([X1, norms1, xp.ones_like(norms1)], axis=1)
    right = xp.concat([-2.0 * X2, xp.ones_like(norms2), norms2], axis=1)
    return clip_negative(product(left, right.T))


@dataclass(frozen=True, eq=False, repr=False)
class Stationary(Kernel):
    """A function of the distance, with one length-scale per input dimension (ARD), or one for all of them.

    Parameters
    ----------
    variance : float or array, shape ()
        Prior variance of the process.
    length_scale : float or array, shape (D,), in the units of the inputs
        Length-scales; a number if all dimensions share one.
    """

    variance: Array = 1.0
    length_scale: Array = 1.0

    def __post_init__(self) -> None:
        length_scale = as_positive("length_scale", self.length_scale, vector=True)
        object.__setattr__(self, "variance", as_like(as_positive("variance", self.variance), length_scale))
        object.__setattr__(self, "length_scale", length_scale)

    def correlation(self, r2: Array) -> Array:
        """Compute the correlation from the squared scaled distances, which may be overwritten.

        Parameters
        ----------
        r2 : array, shape (N, M)
            Squared distances in units of the length-scales.

        Returns
        -------
        array, shape (N, M)
        """
        raise NotImplementedError

    def correlation_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Compute `correlation` and its derivative with respect to r2.

        Parameters
        ----------
        r2 : array, shape (N, M)
            Squared distances in units of the length-scales.

        Returns
        -------
        correlation, slope : array, shape (N, M)
        """
        raise NotImplementedError

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        return ("variance", *("length_scale",) * self.length_scale.shape[0])

    @property
    def parameters(self) -> Array:
        """Log variance, then log length-scales, shape (1 + D,), or (2,) with one length-scale."""
        xp = array_namespace(self.length_scale)
        return xp.log(xp.concat([xp.reshape(self.variance, (1,)), self.length_scale]))

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same type of kernel with other free parameters."""
        values = array_namespace(parameters).exp(parameters)
        return replace(self, variance=values[0, ...], length_scale=values[1:])

    def permute(self, order: Any) -> Kernel:
        """Return the kernel for permuted inputs, with permuted length-scales."""
        return self if self.length_scale.shape[0] == 1 else replace(self, length_scale=self.length_scale[list(order)])

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        check_dimensions(X1, length_scale=self.length_scale)
        covariance = self.correlation(squared_distances(X1 / self.length_scale, X2 / self.length_scale))
        covariance *= self.variance
        return covariance

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.variance + array_namespace(X).zeros_like(X[:, 0])

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        check_dimensions(X1, length_scale=self.length_scale)
        r2 = squared_distances(X1 / self.length_scale, X2 / self.length_scale)
        value, slope = self.correlation_and_slope(r2)
        value *= self.variance
        slope *= self.variance

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(X1, X2, cotangent)
            log_variance = xp.sum(xp.vecdot(cotangent, value))
            weight = cotangent
            weight *= slope
            # A shift does not change distances, and avoids cancellation of large coordinates below.
            centre = xp.mean(X2, axis=0)
            Y1, Y2 = (X1 - centre) / self.length_scale, (X2 - centre) / self.length_scale
            columns = xp.sum(weight, axis=0)[:, None]
            across = product(weight, Y2)
            apart = xp.sum(weight, axis=1)[:, None] * Y1
            apart -= across
            spread = sum_of_products(Y1, apart) - sum_of_products(Y1, across) + sum_of_products(columns * Y2, Y2)
            if self.length_scale.shape[0] == 1:
                spread = xp.sum(spread, keepdims=True)
            apart *= 2.0 / self.length_scale
            return KernelGradient(xp.concat([xp.reshape(log_variance, (1,)), -2.0 * spread]), X1=apart)

        return Linearised(value, pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        xp = array_namespace(X, cotangent)
        log_variance = xp.reshape(self.variance * xp.sum(cotangent), (1,))
        return KernelGradient(xp.concat([log_variance, xp.zeros_like(self.parameters[1:])]), xp.zeros_like(X))

    def correlation_length(self, dimensions: int) -> Array:
        """Return the length-scales (D,)."""
        return array_namespace(self.length_scale).broadcast_to(self.length_scale, (dimensions,))


@dataclass(frozen=True, eq=False, repr=False)
class SquaredExponential(Stationary):
    """exp(-r^2 / 2), for very smooth processes; parameters as of `Stationary`."""

    kind: ClassVar[str] = "squared exponential"

    def correlation(self, r2: Array) -> Array:
        """Compute exp(-r^2 / 2); the squared distances are overwritten."""
        r2 *= -0.5
        return exp_in_place(r2)

    def correlation_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Compute the correlation and its derivative with respect to r2."""
        value = self.correlation(r2)
        return value, -0.5 * value


@dataclass(frozen=True, eq=False, repr=False)
class Exponential(Stationary):
    """exp(-r), the exponential variogram of geostatistics, for rough processes; parameters as of `Stationary`."""

    kind: ClassVar[str] = "exponential"

    def correlation(self, r2: Array) -> Array:
        """Compute the correlation."""
        return exp_in_place(-array_namespace(r2).sqrt(r2))

    def correlation_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Compute the correlation and its derivative with respect to r2, which is 0 where two points coincide."""
        xp = array_namespace(r2)
        r = xp.sqrt(r2)
        value = xp.exp(-r)
        apart = r > 0.0
        return value, xp.where(apart, -0.5 * value / xp.where(apart, r, xp.ones_like(r)), xp.zeros_like(r))


@dataclass(frozen=True, eq=False, repr=False)
class Matern32(Stationary):
    """(1 + sqrt(3) r) exp(-sqrt(3) r), for processes with kinks; parameters as of `Stationary`."""

    kind: ClassVar[str] = "matern 3/2"

    def correlation(self, r2: Array) -> Array:
        """Compute the correlation."""
        xp = array_namespace(r2)
        r = xp.sqrt(3.0 * r2)
        return (1.0 + r) * xp.exp(-r)

    def correlation_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Compute the correlation and its derivative with respect to r2."""
        xp = array_namespace(r2)
        r = xp.sqrt(3.0 * r2)
        decay = xp.exp(-r)
        return (1.0 + r) * decay, -1.5 * decay


@dataclass(frozen=True, eq=False, repr=False)
class Matern52(Stationary):
    """(1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r), for most processes; parameters as of `Stationary`."""

    kind: ClassVar[str] = "matern 5/2"

    def correlation(self, r2: Array) -> Array:
        """Compute the correlation."""
        xp = array_namespace(r2)
        r = xp.sqrt(5.0 * r2)
        return (1.0 + r + r * r / 3.0) * xp.exp(-r)

    def correlation_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Compute the correlation and its derivative with respect to r2."""
        xp = array_namespace(r2)
        r = xp.sqrt(5.0 * r2)
        decay = xp.exp(-r)
        return (1.0 + r + r * r / 3.0) * decay, (-5.0 / 6.0) * (1.0 + r) * decay


@dataclass(frozen=True, eq=False, repr=False)
class RationalQuadratic(Stationary):
    """(1 + r^2 / (2 a))^-a: a mixture of squared exponentials of many length-scales.

    Parameters
    ----------
    variance, length_scale
        As of `Stationary`.
    shape : float or array, shape ()
        a: a small value mixes many length-scales; for a large one the kernel is the squared exponential.
    """

    kind: ClassVar[str] = "rational quadratic"
    shape: Array = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", as_like(as_positive("shape", self.shape), self.length_scale))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        return (*super().parameter_names, "shape")

    @property
    def parameters(self) -> Array:
        """Log variance, log length-scales, log shape."""
        xp = array_namespace(self.length_scale)
        return xp.concat([super().parameters, xp.reshape(xp.log(self.shape), (1,))])

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same type of kernel with other free parameters."""
        values = array_namespace(parameters).exp(parameters)
        return replace(self, variance=values[0, ...], length_scale=values[1:-1], shape=values[-1, ...])

    def correlation(self, r2: Array) -> Array:
        """Compute the correlation."""
        xp = array_namespace(r2)
        return xp.exp(-self.shape * xp.log1p(r2 / (2.0 * self.shape)))

    def correlation_and_slope(self, r2: Array) -> tuple[Array, Array]:
        """Compute the correlation and its derivative with respect to r2."""
        value = self.correlation(r2)
        return value, -0.5 * value / (1.0 + r2 / (2.0 * self.shape))

    def permute(self, order: Any) -> Kernel:
        """Return the kernel for permuted inputs, with its parameters in the same order."""
        return Kernel.permute(self, order)

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives, also with respect to the shape."""
        value, pull_back_distance = super().linearise(X1, X2)

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(cotangent)
            ratio = squared_distances(X1 / self.length_scale, X2 / self.length_scale) / (2.0 * self.shape)
            by_shape = self.shape * xp.sum(cotangent * value * (ratio / (1.0 + ratio) - xp.log1p(ratio)))
            parameters, by_inputs = pull_back_distance(cotangent)
            return KernelGradient(xp.concat([parameters, xp.reshape(by_shape, (1,))]), by_inputs)

        return Linearised(value, pull_back)


STATIONARY: dict[str, type[Stationary]] = {
    kernel.kind: kernel for kernel in (SquaredExponential, Exponential, Matern32, Matern52, RationalQuadratic)
}
