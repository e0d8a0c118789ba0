"""Prior of all latent processes at the sites, expressed in inducing variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.geometry import Geometry, dense_geometry, inducing_factor, sparse_geometry
from invgp.core.kernels import Kernel

BATCH_BUDGET = 96 * 2**20  # bytes of temporary arrays for one batch of sites
CACHE_BUDGET = 256 * 2**20  # bytes: a geometry of all sites that needs more is not kept


@dataclass(frozen=True)
class Prior:
    """Independent Gaussian processes, one per latent.

    Parameters
    ----------
    kernels : tuple of Kernel, length Q
        Kernel of each latent.
    mean : Array, shape (N, Q) or (Q,)
        Prior mean of each latent at each site, or the same at all sites; kept as (N, Q).
    X : Array, shape (N, D)
        Coordinates of the sites.
    Z : Array, shape (Q, M, D)
        Inducing inputs of each latent.
    dense : bool
        Whether the inducing inputs are the sites (Z = X).
    jitter : float
        Fraction of the variance that is added to the diagonal of K_zz.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), Equations (4) to (6).
    """

    kernels: tuple[Kernel, ...]
    mean: Array
    X: Array
    Z: Array
    dense: bool
    jitter: float = 0.0

    def __post_init__(self) -> None:
        xp, shape = array_namespace(self.mean), (int(self.X.shape[0]), len(self.kernels))
        object.__setattr__(self, "mean", xp.broadcast_to(self.mean, shape))

    @property
    def site_count(self) -> int:
        """Number of sites, N."""
        return int(self.X.shape[0])

    @property
    def latent_count(self) -> int:
        """Number of latents, Q."""
        return len(self.kernels)

    @property
    def inducing_count(self) -> int:
        """Number of inducing points per latent, M."""
        return int(self.Z.shape[1])

    @cached_property
    def factor(self) -> Array:
        """Lower triangular L with L L^T = K_zz, shape (Q, M, M)."""
        return inducing_factor(self.kernels, self.Z, self.jitter)

    def replace_parameters(self, kernels: tuple[Kernel, ...], Z: Array) -> Prior:
        """Return the prior with other kernels and inducing inputs.

        Parameters
        ----------
        kernels : tuple of Kernel, length Q
            Kernels of the latents.
        Z : array, shape (Q, M, D)
            Inducing inputs.

        Returns
        -------
        Prior
        """
        return replace(self, kernels=kernels, Z=Z)

    @cached_property
    def all_sites_geometry(self) -> Geometry | None:
        """Geometry of all sites; None for a dense prior, or if it needs more memory than `CACHE_BUDGET`."""
        if self.dense or 8 * self.latent_count * self.inducing_count * self.site_count > CACHE_BUDGET:
            return None
        return sparse_geometry(self.kernels, self.Z, self.factor, self.X)

    def geometry(self, start: int, stop: int) -> Geometry:
        """Compute projection and conditional variance of the sites from `start` up to `stop`.

        The result of the last call is cached, or that of all sites if it fits in memory.

        Parameters
        ----------
        start, stop : int
            First site, and the one after the last.

        Returns
        -------
        Geometry
        """
        if (all_sites := self.all_sites_geometry) is not None:
            part = all_sites.projection[..., start:stop], all_sites.residual[:, start:stop]
            return Geometry(self.factor, *part, dense=False)
        cache: dict[tuple[int, int], Geometry] = self.__dict__.setdefault("_cache", {})
        if (start, stop) not in cache:
            cache.clear()
            cache[start, stop] = (
                dense_geometry(self.factor)
                if self.dense
                else sparse_geometry(self.kernels, self.Z, self.factor, self.X[start:stop, :])
            )
        return cache[start, stop]

    def geometry_at(self, rows: NDArray[np.intp]) -> Geometry:
        """Compute projection and conditional variance of the sites with the indices `rows`, shape (B,).

        Parameters
        ----------
        rows : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        Geometry
        """
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

    def mean_at(self, rows: NDArray[np.intp]) -> Array:
        """Return the prior mean (B, Q) at the sites with the indices `rows`, shape (B,).

        Parameters
        ----------
        rows : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        array, shape (B, Q)
        """
        xp = array_namespace(self.mean)
        return xp.take(self.mean, xp.asarray(rows, dtype=xp.int32, device=device_of(self.mean)), axis=0)

    def conditional_covariance(self, rows: NDArray[np.intp]) -> Array:
        """Compute the covariance (Q, B, B) of the latents at sites `rows` (B,) given the inducing variables.

        Parameters
        ----------
        rows : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        array, shape (Q, B, B)
        """
        xp = array_namespace(self.X)
        X = xp.take(self.X, xp.asarray(rows, dtype=xp.int32, device=device_of(self.X)), axis=0)
        W = self.geometry_at(rows).projection
        return xp.stack([kernel(X, X) for kernel in self.kernels]) - xp.matrix_transpose(W) @ W

    def batches(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of sites whose temporary arrays fit in `BATCH_BUDGET`; a dense prior has one range."""
        width = 8 * self.latent_count * self.latent_count * self.inducing_count
        step = self.site_count if self.dense else max(1, BATCH_BUDGET // width)
        for start in range(0, self.site_count, step):
            yield start, min(start + step, self.site_count)
