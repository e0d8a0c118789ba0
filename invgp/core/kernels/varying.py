"""Kernels whose length-scales vary from place to place.

References
----------
Paciorek and Schervish (2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, Backend, array_namespace, to_numpy
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like, check_dimensions
from invgp.core.kernels.composition import Product, Sum, Wrapped
from invgp.core.kernels.mapped import interpolate
from invgp.core.kernels.stationary import Exponential, Matern32, Matern52, SquaredExponential, squared_distances

Floats = NDArray[np.float64]
# Kernels without other parameters than variance and length-scales.
Scalable = SquaredExponential | Exponential | Matern32 | Matern52


@dataclass(frozen=True, eq=False, repr=False)
class VaryingLength(Wrapped):
    """A stationary kernel whose length-scales are multiplied by m(x), a factor that is interpolated from a map.

    With D dimensions, s = 2 / (m(x)^2 + m(x')^2), and the squared distance r^2 in units of the length-scales, the
    covariance is variance (s m(x) m(x'))^(D / 2) rho(s r^2): that of the stationary kernel where m is constant. The
    variance does not depend on m.

    Parameters
    ----------
    kernel : SquaredExponential, Exponential, Matern32 or Matern52
    axes : tuple of array, shape (n_d,)
        Increasing coordinates of the nodes of the map along each of its axes, at least two.
    values : array, shape (n_1, ..., n_d)
        Positive factors at the nodes.
    dimensions : tuple of int
        Input dimensions of the axes, from 0.
    """

    kind: ClassVar[str] = "varying length"
    axes: tuple[Any, ...]
    values: Any
    dimensions: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            axes = tuple(np.asarray(axis, dtype=np.float64) for axis in self.axes)
            values, dimensions = np.asarray(self.values, dtype=np.float64), tuple(int(d) for d in self.dimensions)
        except (TypeError, ValueError):
            axes, values, dimensions = (), np.zeros(0), ()
        good = all(a.ndim == 1 and len(a) > 1 and bool(np.all(np.diff(a) > 0)) for a in axes)
        good = good and len(dimensions) == len(axes) > 0 and values.shape == tuple(map(len, axes))
        if not isinstance(self.kernel, Scalable):
            raise ValueError(f"kernel must be squared exponential, exponential or Matérn, was {self.kernel!r}")  # noqa: TRY004
        if not good or not np.isfinite(values).all() or not np.all(values > 0.0):
            raise ValueError("axes must be increasing, with at least two nodes, and values positive at their nodes")
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "dimensions", dimensions)

    @property
    def formula(self) -> str:
        """Kind of the kernel."""
        return f"{self.kernel.formula} of varying length"

    def __repr__(self) -> str:
        return f"VaryingLength({self.kernel!r}, {' x '.join(str(len(axis)) for axis in self.axes)} nodes)"

    def on_backend(self, backend: Backend) -> Self:
        """Return the kernel for another array library; the map itself stays on the host."""
        return replace(self, kernel=self.kernel.on_backend(backend))

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        inner = self._stationary(X1)
        first, second = self._factor(X1)[0], self._factor(X2)[0]
        shrink, volume = _shrink(first, second), _volume(first, second, X1.shape[1])
        r2 = squared_distances(X1 / inner.length_scale, X2 / inner.length_scale)
        return inner.variance * volume * inner.correlation(shrink * r2)

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.kernel.diagonal(X)

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        inner, D = self._stationary(X1), X1.shape[1]
        (first, gradient), (second, _) = self._factor(X1), self._factor(X2)
        shrink, volume = _shrink(first, second), _volume(first, second, D)
        r2 = squared_distances(X1 / inner.length_scale, X2 / inner.length_scale)
        correlation, slope = inner.correlation_and_slope(shrink * r2)
        value, slope = inner.variance * volume * correlation, inner.variance * volume * slope

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(X1, X2, cotangent)
            scales = xp.broadcast_to(inner.length_scale, (D,))
            by_r2 = cotangent * slope * shrink
            spreads, columns = [], []
            for d in range(D):
                apart = (X1[:, None, d] - X2[None, :, d]) / scales[d]
                spreads.append(xp.sum(by_r2 * apart**2))
                columns.append(2.0 / scales[d] * xp.sum(by_r2 * apart, axis=1))
            spread = xp.stack(spreads)
            if inner.length_scale.shape[0] == 1:
                spread = xp.sum(spread, keepdims=True)
            own = first[:, None]
            by_factor = cotangent * (0.5 * D * value * (1.0 / own - own * shrink) - slope * r2 * shrink**2 * own)
            by_inputs = xp.stack(columns, axis=1) + xp.sum(by_factor, axis=1)[:, None] * gradient
            log_variance = xp.reshape(xp.sum(cotangent * value), (1,))
            return KernelGradient(xp.concat([log_variance, -2.0 * spread]), by_inputs)

        return Linearised(value, pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        return self.kernel.pull_back_diagonal(X, cotangent)

    def correlation_length(self, dimensions: int) -> Array:
        """Return the length-scales (D,) times the median of the map."""
        return float(np.median(self.values)) * self.kernel.correlation_length(dimensions)

    def permute(self, order: Sequence[int]) -> Kernel:
        """Return the kernel for permuted inputs."""
        places = list(order)
        dimensions = tuple(places.index(d) for d in self.dimensions)
        return replace(self, kernel=self.kernel.permute(order), dimensions=dimensions)

    def _stationary(self, X: Array) -> Scalable:
        if not isinstance(self.kernel, Scalable):
            raise TypeError("the kernel is not stationary")
        check_dimensions(X, length_scale=self.kernel.length_scale)
        if max(self.dimensions) >= X.shape[1]:
            raise ValueError(f"the dimensions of the map must be less than {X.shape[1]}, were {self.dimensions}")
        return self.kernel

    def _factor(self, X: Array) -> tuple[Array, Array]:
        """Return the factor (N,) and its gradient (N, D) at inputs X (N, D)."""
        points = to_numpy(X)
        values, slopes = interpolate(self.axes, self.values, points[:, list(self.dimensions)])
        gradient = np.zeros(points.shape)
        gradient[:, list(self.dimensions)] = slopes
        return as_like(values, X), as_like(gradient, X)


def _shrink(first: Array, second: Array) -> Array:
    """Return s (N, M) for factors (N,) and (M,)."""
    return 2.0 / (first[:, None] ** 2 + second[None, :] ** 2)


def _volume(first: Array, second: Array, dimensions: int) -> Array:
    """Return (s m m')^(D / 2), (N, M), for factors (N,) and (M,)."""
    return (_shrink(first, second) * first[:, None] * second[None, :]) ** (0.5 * dimensions)


def vary_length(kernel: Kernel, axes: tuple[Floats, ...], values: Floats, dimensions: tuple[int, ...]) -> Kernel:
    """Return a kernel with the length-scales of its stationary parts multiplied by a map; see `VaryingLength`.

    Parameters
    ----------
    kernel : Kernel
        Squared exponential, Matérn, or a sum or product with such parts. Other parts stay as they are.
    axes, values, dimensions
        As of `VaryingLength`.

    Returns
    -------
    Kernel
        The same object if it has no such part.
    """
    if isinstance(kernel, Scalable):
        return VaryingLength(kernel, axes, values, dimensions)
    if isinstance(kernel, Sum | Product):
        parts = tuple(vary_length(part, axes, values, dimensions) for part in kernel.parts)
        return kernel if all(a is b for a, b in zip(parts, kernel.parts, strict=True)) else replace(kernel, parts=parts)
    return kernel
