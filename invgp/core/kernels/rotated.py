"""Kernels whose length-scales are along other directions than the coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from invgp.core.backend import Array, array_namespace, product
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like
from invgp.core.kernels.composition import Wrapped

ORTHOGONAL = 1e-6  # largest error of the scalar products of directions


def directions(dimensions: int, angle: float, dip: float = 0.0) -> np.ndarray:
    """Return orthogonal directions (D, D), one per row, for a kernel of two or three coordinates.

    Parameters
    ----------
    dimensions : int
        Number of coordinates, D.
    angle : float, degrees
        Angle of the first direction, from the first coordinate towards the second.
    dip : float, degrees
        Angle of the first direction with the plane of these coordinates, towards the third one.
    """
    a, d = math.radians(angle), math.radians(dip)
    if dimensions == 2:
        return np.asarray([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]])
    along = [math.cos(a), math.sin(a)]
    return np.asarray(
        [
            [math.cos(d) * along[0], math.cos(d) * along[1], math.sin(d)],
            [-along[1], along[0], 0.0],
            [-math.sin(d) * along[0], -math.sin(d) * along[1], math.cos(d)],
        ]
    )


@dataclass(frozen=True, eq=False, repr=False)
class Rotated(Wrapped):
    """A kernel as a function of coordinates along other directions; `directions` makes them from angles.

    Parameters
    ----------
    kernel : Kernel
    axes : array, shape (D, D)
        Orthogonal directions, one per row, of the inputs of the kernel.
    """

    kind: ClassVar[str] = "rotated"
    axes: Any

    def __post_init__(self) -> None:
        axes: Any = np.asarray(self.axes, dtype=np.float64) if isinstance(self.axes, tuple | list) else self.axes
        square = getattr(axes, "ndim", 0) == 2 and axes.shape[0] == axes.shape[1]
        if not isinstance(self.kernel, Kernel) or not square:
            raise ValueError(f"axes must be a square matrix, was {self.axes!r}")
        if isinstance(axes, np.ndarray) and np.max(np.abs(axes @ axes.T - np.eye(len(axes)))) > ORTHOGONAL:
            raise ValueError(f"axes must be orthogonal directions, were {self.axes!r}")
        object.__setattr__(self, "axes", axes)

    @property
    def formula(self) -> str:
        """Kinds of the kernel and its parts."""
        return f"rotated {super().formula}"

    def __repr__(self) -> str:
        return f"Rotated({self.kernel!r}, {self.axes!r})"

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D)."""
        return self.kernel(self._turn(X1), self._turn(X2))

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.kernel.diagonal(self._turn(X))

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives."""
        value, pull_back = self.kernel.linearise(self._turn(X1), self._turn(X2))
        return Linearised(value, lambda cotangent: self._turn_back(pull_back(cotangent)))

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        return self._turn_back(self.kernel.pull_back_diagonal(self._turn(X), cotangent))

    def correlation_length(self, dimensions: int) -> Array:
        """Return the extent (D,) of the ellipsoid of the correlation lengths along each coordinate."""
        own = self.kernel.correlation_length(dimensions)
        xp = array_namespace(own)
        return 1.0 / xp.sqrt(xp.sum((as_like(self.axes, own) / own[:, None]) ** 2, axis=0))

    def permute(self, order: Sequence[int]) -> Kernel:
        """Return the kernel for permuted inputs."""
        xp = array_namespace(self.axes)
        return replace(self, axes=xp.stack([self.axes[:, d] for d in order], axis=1))

    def _turn(self, X: Array) -> Array:
        if X.shape[1] != self.axes.shape[0]:
            raise ValueError(f"a rotation of {self.axes.shape[0]} dimensions needs as many inputs, had {X.shape[1]}")
        return product(X, as_like(self.axes, X).T)

    def _turn_back(self, gradient: KernelGradient) -> KernelGradient:
        return KernelGradient(gradient.parameters, product(gradient.X1, as_like(self.axes, gradient.X1)))
