"""Kernels with known functions of position: maps by which a process is scaled, and trends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, Backend, array_namespace, to_numpy
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like, as_positive
from invgp.core.kernels.composition import Product, Sum, Wrapped

Floats = NDArray[np.float64]


def interpolate(axes: tuple[Floats, ...], values: Floats, X: Floats) -> tuple[Floats, Floats]:
    """Interpolate values on a grid, linearly along each axis; beyond its edge they are those of the edge.

    Parameters
    ----------
    axes : tuple of array, shape (n_d,)
        Increasing coordinates of the nodes along each of D axes.
    values : array, shape (..., n_1, ..., n_D)
    X : array, shape (N, D)

    Returns
    -------
    values : array, shape (..., N)
    gradient : array, shape (..., N, D)
        Derivatives with respect to X.
    """
    corners, weights, slopes = [], [], []
    for d, axis in enumerate(axes):
        x = np.clip(X[:, d], axis[0], axis[-1])
        low = np.clip(np.searchsorted(axis, x, side="right") - 1, 0, len(axis) - 2)
        step = axis[low + 1] - axis[low]
        share = (x - axis[low]) / step
        corners.append((low, low + 1))
        weights.append((1.0 - share, share))
        inside = (X[:, d] >= axis[0]) & (X[:, d] <= axis[-1])
        slopes.append((np.where(inside, -1.0 / step, 0.0), np.where(inside, 1.0 / step, 0.0)))
    leading = values.shape[: values.ndim - len(axes)]
    found, gradient = np.zeros((*leading, len(X))), np.zeros((*leading, len(X), len(axes)))
    for ends in combinations((0, 1), repeat=len(axes)):
        place: tuple[Any, ...] = (..., *(corners[d][end] for d, end in enumerate(ends)))
        at = values[place]
        factors = [weights[d][end] for d, end in enumerate(ends)]
        # A node without a value has no effect where its weight is zero.
        found += np.where(np.prod(factors, axis=0) > 0.0, np.prod(factors, axis=0) * at, 0.0)
        for d, end in enumerate(ends):
            others = np.prod([*factors[:d], *factors[d + 1 :], np.ones(len(X))], axis=0)
            gradient[..., d] += others * slopes[d][end] * at
    return found, gradient


@dataclass(frozen=True, eq=False, repr=False)
class Mapped(Kernel):
    """variance s(x) s(x'), with s interpolated from a map: a process that is the map times one unknown number.

    In a product with another kernel it scales the standard deviation of the process by s. It has no free parameters.

    Parameters
    ----------
    axes : tuple of array, shape (n_d,)
        Increasing coordinates of the nodes along each of D axes, at least two.
    values : array, shape (n_1, ..., n_D)
    variance : float or array, shape ()
    """

    kind: ClassVar[str] = "map"
    axes: tuple[Any, ...]
    values: Any
    variance: Array = 1.0

    def __post_init__(self) -> None:
        try:
            axes = tuple(np.asarray(axis, dtype=np.float64) for axis in self.axes)
            values = np.asarray(self.values, dtype=np.float64)
        except (TypeError, ValueError):
            axes, values = (), np.zeros(0)
        good = all(a.ndim == 1 and len(a) > 1 and bool(np.all(np.diff(a) > 0)) for a in axes)
        if not axes or not good or values.shape != tuple(map(len, axes)) or not np.isfinite(values).all():
            raise ValueError("axes must be increasing numbers, at least two, and values finite numbers at their nodes")
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "variance", as_positive("variance", self.variance))

    def __repr__(self) -> str:
        return f"Mapped({' x '.join(str(len(axis)) for axis in self.axes)} nodes)"

    def on_backend(self, backend: Backend) -> Self:
        """Return the kernel for another array library; the map itself stays on the host."""
        return replace(self, variance=backend.asarray(to_numpy(self.variance)))

    def describe(self) -> dict[str, Any]:
        """Return the kernel as a JSON object."""
        axes = [axis.tolist() for axis in self.axes]
        return {
            "kind": self.kind,
            "axes": axes,
            "values": self.values.tolist(),
            "variance": to_numpy(self.variance).tolist(),
        }

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """No names."""
        return ()

    @property
    def parameters(self) -> Array:
        """No parameters, shape (0,)."""
        return array_namespace(self.variance).reshape(self.variance, (1,))[:0]

    def with_parameters(self, parameters: Array) -> Self:  # noqa: ARG002 - there are none
        """Return the same kernel."""
        return self

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        return self.variance * self._at(X1)[0][:, None] * self._at(X2)[0][None, :]

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.variance * self._at(X)[0] ** 2

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        (first, slope), (second, _) = self._at(X1), self._at(X2)

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(cotangent)
            by_map = self.variance * xp.sum(cotangent * second[None, :], axis=1)
            return KernelGradient(self.parameters, by_map[:, None] * slope)

        return Linearised(self.variance * first[:, None] * second[None, :], pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        values, slope = self._at(X)
        return KernelGradient(self.parameters, (2.0 * self.variance * cotangent * values)[:, None] * slope)

    def _at(self, X: Array) -> tuple[Array, Array]:
        """Return the map (N,) and its gradient (N, D) at inputs X (N, D)."""
        if X.shape[1] != len(self.axes):
            raise ValueError(f"a map of {len(self.axes)} dimensions needs as many inputs, had {X.shape[1]}")
        values, slope = interpolate(self.axes, self.values, to_numpy(X))
        return as_like(values, X), as_like(slope, X)


@dataclass(frozen=True, eq=False, repr=False)
class Trended(Wrapped):
    """A kernel plus a trend: the process of the kernel plus known functions with unknown coefficients.

    The prior of the coefficients is Gaussian, with a standard deviation in units of that of the process. The trend has
    no free parameters of its own.

    Parameters
    ----------
    kernel : Kernel
    terms : tuple of Kernel
        One for each function, with the prior variance of its coefficient over the nominal variance of `kernel`.
    """

    kind: ClassVar[str] = "trend"
    terms: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        terms = tuple(self.terms) if isinstance(self.terms, tuple | list) else ()
        if not isinstance(self.kernel, Kernel) or not terms or any(not isinstance(term, Kernel) for term in terms):
            raise ValueError(f"terms must be kernels, were {self.terms!r}")
        object.__setattr__(self, "terms", terms)

    @property
    def formula(self) -> str:
        """Kinds of the kernel and its parts."""
        return f"{self.kernel.formula} + trend"

    def __repr__(self) -> str:
        return f"Trended({self.kernel!r}, {self.terms!r})"

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        trend = sum((term(X1, X2) for term in self.terms[1:]), start=self.terms[0](X1, X2))
        return self.kernel(X1, X2) + self.kernel.variance * trend

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        trend = sum((term.diagonal(X) for term in self.terms[1:]), start=self.terms[0].diagonal(X))
        return self.kernel.diagonal(X) + self.kernel.variance * trend

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        xp, own = array_namespace(X1), self.kernel.linearise(X1, X2)
        terms = [term.linearise(X1, X2) for term in self.terms]
        trend = sum((term.value for term in terms[1:]), start=terms[0].value)

        def pull_back(cotangent: Array) -> KernelGradient:
            by_variance, gradient = xp.sum(cotangent * trend), xp.zeros_like(X1)
            for term in terms:
                gradient = gradient + term.pull_back(self.kernel.variance * cotangent).X1
            found = own.pull_back(cotangent)
            return KernelGradient(found.parameters + by_variance * _variance_slope(self.kernel), found.X1 + gradient)

        return Linearised(own.value + self.kernel.variance * trend, pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        xp, found = array_namespace(X, cotangent), self.kernel.pull_back_diagonal(X, cotangent)
        by_variance, gradient = 0.0, found.X1
        for term in self.terms:
            by_variance = by_variance + xp.sum(cotangent * term.diagonal(X))
            gradient = gradient + term.pull_back_diagonal(X, self.kernel.variance * cotangent).X1
        return KernelGradient(found.parameters + by_variance * _variance_slope(self.kernel), gradient)

    def check_inputs(self, X: Array) -> None:
        """Raise `ValueError` if the kernel without the trend is not defined at some inputs X (N, D)."""
        self.kernel.check_inputs(X)

    def permute(self, order: Sequence[int]) -> Kernel:
        """Return the kernel for permuted inputs."""
        terms = tuple(term.permute(order) for term in self.terms)
        return replace(self, kernel=self.kernel.permute(order), terms=terms)

    def correlation_length(self, dimensions: int) -> Array:
        """Return that (D,) of the kernel without the trend."""
        return self.kernel.correlation_length(dimensions)


def _variance_slope(kernel: Kernel) -> Array:
    """Return the derivatives (P,) of the nominal variance of a kernel with respect to its free parameters."""
    parameters = kernel.parameters
    xp = array_namespace(parameters)
    if isinstance(kernel, Wrapped):
        return _variance_slope(kernel.kernel)
    if isinstance(kernel, Sum):
        return xp.concat([_variance_slope(part) for part in kernel.parts])
    if isinstance(kernel, Product):
        return xp.concat([_variance_slope(part) * kernel.variance / part.variance for part in kernel.parts])
    return kernel.variance * as_like(np.asarray(kernel.scale_mask, dtype=np.float64), parameters)


def scale_by_map(kernel: Kernel, scale: Kernel) -> Kernel:
    """Return the kernel of a process that is multiplied by a map; a trend is not multiplied."""
    if isinstance(kernel, Trended):
        return replace(kernel, kernel=Product((kernel.kernel, scale)))
    return Product((kernel, scale))
