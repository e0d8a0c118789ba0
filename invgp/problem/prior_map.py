"""Priors whose mean and standard deviation vary with position, as maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.core.kernels import Kernel, Mapped, averages_of, interpolate, scale_by_map
from invgp.problem.survey import Floats


@dataclass(frozen=True)
class PriorMap:
    """Mean and standard deviation of the processes of a latent on a grid, interpolated linearly along each axis.

    Parameters
    ----------
    axes : tuple of array, shape (n_d,)
        Increasing coordinates of the nodes, in the units of the coordinates.
    dimensions : tuple of int
        Number of the coordinate of each axis, from 0.
    mean : array, shape (L, n_1, ..., n_D)
        Prior mean of the processes; NaN where the maps have no value.
    scale : array, shape (L, n_1, ..., n_D), or None
        Prior standard deviation over the nominal one, finite everywhere; None if it is 1.
    """

    axes: tuple[Floats, ...]
    dimensions: tuple[int, ...]
    mean: Floats
    scale: Floats | None = None

    def mean_at(self, X: Floats, coordinates: int) -> Floats:
        """Return the prior mean (N, L) of the processes; NaN outside the map.

        Parameters
        ----------
        X : array, shape (N, D) or (N, 2 D)
            Points, or points with the half-widths of the intervals over which is averaged.
        coordinates : int
            Number of coordinates, D.
        """
        average = averages_of(X, coordinates) if X.shape[1] > coordinates else None
        if average is not None:
            return np.asarray(average.reduce(self.mean_at(average.points, coordinates)))
        own = X[:, list(self.dimensions)]
        found = interpolate(self.axes, self.mean, own)[0].T
        inside = [(x >= axis[0]) & (x <= axis[-1]) for x, axis in zip(own.T, self.axes, strict=True)]
        return np.where(np.logical_and.reduce(inside)[:, None], found, np.nan)

    def scale_at(self, X: Floats) -> Floats:
        """Return the prior standard deviation (N, L) over the nominal one at points X (N, D or more)."""
        if self.scale is None:
            return np.ones((len(X), len(self.mean)))
        return interpolate(self.axes, self.scale, X[:, list(self.dimensions)])[0].T

    def scale_kernel(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """Return the kernel of each label: a kernel that is the same for all labels, scaled by the map of the label."""
        if self.scale is None:
            return (kernel,) * len(self.mean)
        maps = (Mapped(self.axes, values).on(*self.dimensions) for values in self.scale)
        return tuple(scale_by_map(kernel, one) for one in maps)

    def permuted(self, order: Sequence[int]) -> PriorMap:
        """Return the map for coordinates of which number i is the number ``order[i]`` of the present ones."""
        return replace(self, dimensions=tuple(list(order).index(d) for d in self.dimensions))
