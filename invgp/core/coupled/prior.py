"""The prior of all latent processes at the sites, through their inducing variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.geometry import Geometry, dense_geometry, inducing_factor, sparse_geometry
from invgp.core.kernels import Kernel

BATCH_BUDGET = 96 * 2**20  # bytes of temporary arrays of a batch of sites
KEPT_BUDGET = 256 * 2**20  # bytes of what is kept from one look at a site to the next


@dataclass(frozen=True)
class Prior:
    """Independent Gaussian processes.

    Parameters
    ----------
    kernels : Q of them.
    mean : of each latent, (Q,).
    X : inputs of the sites, (N, D).
    Z : inducing inputs, (Q, M, D).
    dense : the inducing inputs are X itself.
    jitter : share of the variance added to the diagonal of K_zz.
    """

    kernels: tuple[Kernel, ...]
    mean: Array
    X: Array
    Z: Array
    dense: bool
    jitter: float = 0.0

    @property
    def sites(self) -> int:
        """N."""
        return int(self.X.shape[0])

    @property
    def latents(self) -> int:
        """Q."""
        return len(self.kernels)

    @property
    def inducing(self) -> int:
        """M."""
        return int(self.Z.shape[1])

    @cached_property
    def factor(self) -> Array:
        """L with L L^T = K_zz, (Q, M, M)."""
        return inducing_factor(self.kernels, self.Z, self.jitter)

    def replace_parameters(self, kernels: tuple[Kernel, ...], Z: Array) -> Prior:
        """The prior with other kernels and inducing inputs."""
        return replace(self, kernels=kernels, Z=Z)

    @cached_property
    def all_sites_geometry(self) -> Geometry | None:
        """What the inducing variables say about all sites, if that is little enough to keep."""
        if self.dense or 8 * self.latents * self.inducing * self.sites > KEPT_BUDGET:
            return None
        return sparse_geometry(self.kernels, self.Z, self.factor, self.X)

    def geometry(self, start: int, stop: int) -> Geometry:
        """What the inducing variables say about a range of sites; the last one is kept, or all of them."""
        if (all_sites := self.all_sites_geometry) is not None:
            part = all_sites.projection[..., start:stop], all_sites.residual[:, start:stop]
            return Geometry(self.factor, *part, dense=False)
        kept: dict[tuple[int, int], Geometry] = self.__dict__.setdefault("_kept", {})
        if (start, stop) not in kept:
            kept.clear()
            kept[start, stop] = (
                dense_geometry(self.factor)
                if self.dense
                else sparse_geometry(self.kernels, self.Z, self.factor, self.X[start:stop, :])
            )
        return kept[start, stop]

    def geometry_at(self, rows: NDArray[np.intp]) -> Geometry:
        """What the inducing variables say about some sites, by their numbers (B,)."""
        xp = array_namespace(self.X)
        index = xp.asarray(rows, dtype=xp.int32, device=device_of(self.X))
        if self.dense:
            # f_n is the n-th inducing variable itself: w_n is the n-th row of L.
            projection = xp.matrix_transpose(xp.take(self.factor, index, axis=1))
            return Geometry(self.factor, projection, xp.zeros_like(projection[:, 0, :]), dense=False)
        if (all_sites := self.all_sites_geometry) is not None:
            part = xp.take(all_sites.projection, index, axis=2), xp.take(all_sites.residual, index, axis=1)
            return Geometry(self.factor, *part, dense=False)
        return sparse_geometry(self.kernels, self.Z, self.factor, xp.take(self.X, index, axis=0))

    def conditional_covariance(self, rows: NDArray[np.intp]) -> Array:
        """Covariance (Q, B, B) between some sites (B,) that the inducing variables leave open."""
        xp = array_namespace(self.X)
        X = xp.take(self.X, xp.asarray(rows, dtype=xp.int32, device=device_of(self.X)), axis=0)
        W = self.geometry_at(rows).projection
        return xp.stack([kernel(X, X) for kernel in self.kernels]) - xp.matrix_transpose(W) @ W

    def batches(self) -> Iterator[tuple[int, int]]:
        """Ranges of sites whose temporary arrays fit in the memory budget; a dense prior has one."""
        width = 8 * self.latents * self.latents * self.inducing
        step = self.sites if self.dense else max(1, BATCH_BUDGET // width)
        for start in range(0, self.sites, step):
            yield start, min(start + step, self.sites)
