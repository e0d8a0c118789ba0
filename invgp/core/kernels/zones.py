"""Zones between which nothing is correlated, such as blocks between faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, Backend, array_namespace, to_numpy
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like, as_positive

Floats = NDArray[np.float64]
PAIRS_AT_ONCE = 2**22  # points times edges of polygons, to limit memory
CORNERS = 3  # fewest corners of a polygon


@dataclass(frozen=True, eq=False, repr=False)
class Zones(Kernel):
    """variance between points of the same zone, 0 between points of different zones; it has no free parameters.

    In a product with another kernel, the process has independent values in each zone.

    Parameters
    ----------
    positions : tuple of float
        For inputs of one dimension: the positions that separate zones.
    polygons : tuple of tuple of array, shape (n, 2)
        For inputs of two dimensions: polygons, each an outer ring and holes. A point belongs to the first polygon that
        contains it; all points outside of the polygons are one more zone.
    variance : float or array, shape ()
    """

    kind: ClassVar[str] = "zones"
    positions: tuple[float, ...] = ()
    polygons: tuple[tuple[Any, ...], ...] = ()
    variance: Array = 1.0

    def __post_init__(self) -> None:
        try:
            positions = tuple(float(position) for position in self.positions)
            polygons = tuple(tuple(np.asarray(ring, dtype=np.float64) for ring in rings) for rings in self.polygons)
        except (TypeError, ValueError):
            positions, polygons = (), ()
        increasing = bool(np.all(np.diff(positions) > 0.0)) and bool(np.isfinite(positions).all())
        rings = [ring for polygon in polygons for ring in polygon]
        good = all(r.ndim == 2 and r.shape[1] == 2 and len(r) >= CORNERS and np.isfinite(r).all() for r in rings)
        if bool(positions) == bool(rings) or not increasing or not good:
            raise ValueError(
                "zones must be separated by increasing positions, or be polygons of at least three corners; not both"
            )
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "polygons", polygons)
        object.__setattr__(self, "variance", as_positive("variance", self.variance))

    def __repr__(self) -> str:
        return f"Zones({self.count})"

    @property
    def dimensions(self) -> int:
        """Number of input dimensions, 1 or 2."""
        return 1 if self.positions else 2

    @property
    def count(self) -> int:
        """Number of zones."""
        return len(self.positions or self.polygons) + 1

    def numbers(self, X: Array) -> NDArray[np.intp]:
        """Return the number (N,) of the zone of each input X (N, D), from 0.

        Parameters
        ----------
        X : array, shape (N, D)

        Returns
        -------
        array of int, shape (N,)
        """
        if X.shape[1] != self.dimensions:
            raise ValueError(f"zones of {self.dimensions} dimensions need as many inputs, had {X.shape[1]}")
        points = to_numpy(X)
        if self.positions:
            return np.searchsorted(np.asarray(self.positions), points[:, 0], side="right")
        found = np.zeros(len(points), dtype=np.intp)
        for number, rings in reversed(list(enumerate(self.polygons, start=1))):
            found[_is_inside(rings, points)] = number
        return found

    def on_backend(self, backend: Backend) -> Self:
        """Return the kernel for another array library; the zones themselves stay on the host."""
        return replace(self, variance=backend.asarray(to_numpy(self.variance)))

    def describe(self) -> dict[str, Any]:
        """Return the kernel as a JSON object."""
        return {
            "kind": self.kind,
            "positions": list(self.positions),
            "polygons": [[ring.tolist() for ring in rings] for rings in self.polygons],
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
        same = self.numbers(X1)[:, None] == self.numbers(X2)[None, :]
        return self.variance * as_like(same.astype(np.float64), X1)

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        return self.variance * array_namespace(X).ones_like(X[:, 0])

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives, which are 0."""
        xp = array_namespace(X1)
        return Linearised(self(X1, X2), lambda _: KernelGradient(self.parameters, xp.zeros_like(X1)))

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:  # noqa: ARG002 - the slope is 0
        """Convert the gradient with respect to the variances (N,): 0."""
        return KernelGradient(self.parameters, array_namespace(X).zeros_like(X))


def _is_inside(rings: tuple[Floats, ...], points: Floats) -> NDArray[np.bool_]:
    """Return which points (N, 2) are inside a polygon: a ray from them crosses its rings an odd number of times."""
    starts = np.concatenate(rings)
    ends = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    inside = np.empty(len(points), dtype=bool)
    step = max(PAIRS_AT_ONCE // len(starts), 1)
    for first in range(0, len(points), step):
        x, y = points[first : first + step].T[:, :, None]
        crosses = (starts[:, 1] > y) != (ends[:, 1] > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = starts[:, 0] + (y - starts[:, 1]) * (ends[:, 0] - starts[:, 0]) / (ends[:, 1] - starts[:, 1])
        inside[first : first + step] = np.sum(crosses & (x < at), axis=1) % 2 == 1
    return inside
