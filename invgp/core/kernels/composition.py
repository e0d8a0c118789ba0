"""Kernels that are made of other kernels: sums, products, and functions of some input dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from invgp.core.backend import Array, array_namespace
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like


@dataclass(frozen=True, eq=False, repr=False)
class _Composed(Kernel):
    """A kernel with several parts, whose parameters follow each other.

    Parameters
    ----------
    parts : tuple of Kernel
    """

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts) if isinstance(self.parts, tuple | list) else ()
        if not parts or any(not isinstance(part, Kernel) for part in parts):
            raise ValueError(f"parts must be kernels, were {self.parts!r}")
        object.__setattr__(self, "parts", parts)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        return tuple(name for part in self.parts for name in part.parameter_names)

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Names of the free parameters with the kind of their kernel."""
        return tuple(name for part in self.parts for name in part.qualified_names)

    @property
    def parameters(self) -> Array:
        """Free parameters of all parts."""
        found = [part.parameters for part in self.parts]
        return array_namespace(*found).concat(found)

    def with_parameters(self, parameters: Array) -> Self:
        """Return the kernel with other free parameters."""
        return replace(
            self,
            parts=tuple(p.with_parameters(parameters[own]) for p, own in zip(self.parts, self.slices, strict=True)),
        )

    def check_inputs(self, X: Array) -> None:
        """Raise `ValueError` if a part is not defined at some inputs X (N, D)."""
        for part in self.parts:
            part.check_inputs(X)

    def nearest_inputs(self, X: Array) -> Array:
        """Return the nearest inputs (N, D) at which all parts are defined."""
        return reduce(lambda inputs, part: part.nearest_inputs(inputs), self.parts, X)

    @property
    def slices(self) -> list[slice]:
        """Slice of the parameters of each part."""
        ends = np.cumsum([0, *(len(part.parameter_names) for part in self.parts)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]


@dataclass(frozen=True, eq=False, repr=False)
class Sum(_Composed):
    """The sum of kernels, the kernel of a sum of independent processes; `a + b` creates it.

    Parameters
    ----------
    parts : tuple of Kernel
    """

    kind: ClassVar[str] = "sum"

    @property
    def formula(self) -> str:
        """Kinds of the parts."""
        return " + ".join(part.formula for part in self.parts)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        return sum((part(X1, X2) for part in self.parts[1:]), start=self.parts[0](X1, X2))

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return sum((part.diagonal(X) for part in self.parts[1:]), start=self.parts[0].diagonal(X))

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        found = [part.linearise(X1, X2) for part in self.parts]

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(cotangent)
            return _join(one.pull_back(xp.asarray(cotangent, copy=True)) for one in found)

        return Linearised(sum((one.value for one in found[1:]), start=found[0].value), pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        return _join(part.pull_back_diagonal(X, cotangent) for part in self.parts)

    def correlation_length(self, dimensions: int) -> Array:
        """Return that (D,) of the part with the largest variance."""
        xp = array_namespace(self.parameters)
        found, largest = self.parts[0].correlation_length(dimensions), self.parts[0].variance
        for part in self.parts[1:]:
            found = xp.where(part.variance > largest, part.correlation_length(dimensions), found)
            largest = xp.maximum(part.variance, largest)
        return found

    @property
    def scale_mask(self) -> tuple[bool, ...]:
        """Which parameters scale the kernel: those that scale each part."""
        masks = [part.scale_mask for part in self.parts]
        if not all(any(mask) for mask in masks):
            return (False,) * sum(map(len, masks))
        return tuple(scales for mask in masks for scales in mask)

    @property
    def variance(self) -> Array:
        """Sum of the variances of the parts, shape ()."""
        return sum((part.variance for part in self.parts[1:]), start=self.parts[0].variance)

    def with_variance(self, variance: Array | float) -> Self:
        """Return the kernel with all parts scaled by the same factor."""
        factor = as_like(variance, self.parameters) / self.variance
        return replace(self, parts=tuple(part.with_variance(factor * part.variance) for part in self.parts))


@dataclass(frozen=True, eq=False, repr=False)
class Product(_Composed):
    """The product of kernels; `a * b` creates it.

    Parameters
    ----------
    parts : tuple of Kernel
        Only the product of their variances matters.
    """

    kind: ClassVar[str] = "product"

    @property
    def formula(self) -> str:
        """Kinds of the parts."""
        return " * ".join(f"({part.formula})" if part.kind == "sum" else part.formula for part in self.parts)

    def __repr__(self) -> str:
        return " * ".join(f"({part!r})" if part.kind == "sum" else repr(part) for part in self.parts)

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        return _product(part(X1, X2) for part in self.parts)

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return _product(part.diagonal(X) for part in self.parts)

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        found = [part.linearise(X1, X2) for part in self.parts]

        def pull_back(cotangent: Array) -> KernelGradient:
            values = [one.value for one in found]
            return _join(
                one.pull_back(_product([cotangent, *values[:i], *values[i + 1 :]])) for i, one in enumerate(found)
            )

        return Linearised(_product(one.value for one in found), pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        values = [part.diagonal(X) for part in self.parts]
        return _join(
            part.pull_back_diagonal(X, _product([cotangent, *values[:i], *values[i + 1 :]]))
            for i, part in enumerate(self.parts)
        )

    def correlation_length(self, dimensions: int) -> Array:
        """Return the smallest one (D,) of the parts."""
        xp = array_namespace(self.parameters)
        return xp.min(xp.stack([part.correlation_length(dimensions) for part in self.parts]), axis=0)

    @property
    def scale_mask(self) -> tuple[bool, ...]:
        """Which parameters scale the kernel: those of the first part that has some."""
        masks = [part.scale_mask for part in self.parts]
        first = next((i for i, mask in enumerate(masks) if any(mask)), -1)
        return tuple(scales and i == first for i, mask in enumerate(masks) for scales in mask)

    @property
    def variance(self) -> Array:
        """Product of the variances of the parts, shape ()."""
        return _product(part.variance for part in self.parts)

    def with_variance(self, variance: Array | float) -> Self:
        """Return the kernel with its first part that has a variance scaled."""
        first = next((i for i, part in enumerate(self.parts) if any(part.scale_mask)), 0)
        factor = as_like(variance, self.parameters) / self.variance
        parts = list(self.parts)
        parts[first] = parts[first].with_variance(factor * parts[first].variance)
        return replace(self, parts=tuple(parts))


@dataclass(frozen=True, eq=False, repr=False)
class Wrapped(Kernel):
    """A kernel that is another kernel, with the same free parameters, of changed inputs.

    Parameters
    ----------
    kernel : Kernel
    """

    kernel: Kernel

    @property
    def formula(self) -> str:
        """Kinds of the kernel and its parts."""
        return f"({self.kernel.formula})" if self.kernel.kind == "sum" else self.kernel.formula

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        return self.kernel.parameter_names

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Names of the free parameters with the kind of their kernel."""
        return self.kernel.qualified_names

    @property
    def parameters(self) -> Array:
        """Free parameters of the kernel."""
        return self.kernel.parameters

    def with_parameters(self, parameters: Array) -> Self:
        """Return the kernel with other free parameters."""
        return replace(self, kernel=self.kernel.with_parameters(parameters))

    @property
    def scale_mask(self) -> tuple[bool, ...]:
        """Which parameters scale the kernel."""
        return self.kernel.scale_mask

    @property
    def variance(self) -> Array:
        """Nominal variance of the kernel, shape ()."""
        return self.kernel.variance

    def with_variance(self, variance: Array | float) -> Self:
        """Return the kernel with another variance."""
        return replace(self, kernel=self.kernel.with_variance(variance))


@dataclass(frozen=True, eq=False, repr=False)
class OnDimensions(Wrapped):
    """A kernel as a function of some input dimensions; `kernel.on(0, 2)` creates it.

    Parameters
    ----------
    kernel : Kernel
    dimensions : tuple of int
        Input dimensions, from 0, in the order of the inputs of the kernel.
    """

    kind: ClassVar[str] = "on dimensions"
    dimensions: tuple[int, ...]

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if self.kernel.kind in ("sum", "product") else repr(self.kernel)
        return f"{inner}.on({', '.join(map(str, self.dimensions))})"

    def __post_init__(self) -> None:
        numbers = self.dimensions
        whole = isinstance(numbers, tuple) and all(isinstance(d, int) and d >= 0 for d in numbers)
        if not isinstance(self.kernel, Kernel) or not whole or not numbers or len(set(numbers)) < len(numbers):
            raise ValueError(f"dimensions must be different whole numbers from 0, were {self.dimensions!r}")

    def permute(self, order: Any) -> Kernel:
        """Return the kernel for permuted inputs."""
        places = list(order)
        return replace(self, dimensions=tuple(places.index(d) for d in self.dimensions))

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        return self.kernel(self._columns(X1), self._columns(X2))

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.kernel.diagonal(self._columns(X))

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        value, pull_back_columns = self.kernel.linearise(self._columns(X1), self._columns(X2))
        return Linearised(value, lambda cotangent: self._spread(pull_back_columns(cotangent), X1))

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        return self._spread(self.kernel.pull_back_diagonal(self._columns(X), cotangent), X)

    def check_inputs(self, X: Array) -> None:
        """Raise `ValueError` if the kernel is not defined at some columns of X (N, D)."""
        self.kernel.check_inputs(self._columns(X))

    def nearest_inputs(self, X: Array) -> Array:
        """Return the nearest inputs (N, D) at which the kernel is defined."""
        nearest = array_namespace(X).asarray(X, copy=True)
        found = self.kernel.nearest_inputs(self._columns(X))
        for i, d in enumerate(self.dimensions):
            nearest[:, d] = found[:, i]
        return nearest

    def correlation_length(self, dimensions: int) -> Array:
        """Return that of the kernel; infinite (D,) along all other dimensions."""
        own = self.kernel.correlation_length(len(self.dimensions))
        xp = array_namespace(own)
        lengths = xp.broadcast_to(math.inf + xp.zeros_like(own[:1]), (dimensions,))
        lengths = xp.asarray(lengths, copy=True)
        for i, d in enumerate(self.dimensions):
            lengths[d] = own[i]
        return lengths

    def _columns(self, X: Array) -> Array:
        if max(self.dimensions) >= X.shape[1]:
            raise ValueError(
                f"dimensions of a kernel must be less than the number of input dimensions, {X.shape[1]}, "
                f"were {self.dimensions}"
            )
        return array_namespace(X).stack([X[:, d] for d in self.dimensions], axis=1)

    def _spread(self, gradient: KernelGradient, X: Array) -> KernelGradient:
        """Return a gradient with respect to some columns as one with respect to all columns of X (N, D)."""
        by_inputs = array_namespace(X).zeros_like(X)
        for i, d in enumerate(self.dimensions):
            by_inputs[:, d] = gradient.X1[:, i]
        return KernelGradient(gradient.parameters, by_inputs)


def _join(gradients: Iterator[KernelGradient]) -> KernelGradient:
    """Combine the gradients of parts: their parameters follow each other, their inputs are the same."""
    parts = list(gradients)
    xp = array_namespace(parts[0].X1)
    return KernelGradient(
        xp.concat([part.parameters for part in parts]), sum((part.X1 for part in parts[1:]), start=parts[0].X1)
    )


def _product(values: Any) -> Array:
    return reduce(lambda a, b: a * b, values)
