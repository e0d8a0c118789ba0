"""Standard normal points, generated on the host."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from invgp.core.backend import Array, Backend, array_namespace, product


@dataclass(frozen=True)
class Points:
    """Scrambled Sobol points, transformed by the normal quantile function, with one random rotation per site.

    The rotation preserves the even distribution of the points and makes the errors of different sites independent.
    Only one set of points and N rotations are stored, so that memory does not grow with samples times sites.

    Parameters
    ----------
    base : array, shape (S, Q)
        Points before the rotation.
    rotations : array, shape (N, Q, Q)
        Rotation of each site.
    independent : bool
        Whether the points are independent normals instead of Sobol points, for unbiased estimates.
    cache : dict
        Arrays that depend on the base only.
    """

    base: Array
    rotations: Array
    independent: bool = False
    cache: dict[str, Array] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def draw(
        rng: np.random.Generator, samples: int, sites: int, latents: int, backend: Backend, *, independent: bool = False
    ) -> Points:
        """Generate points on the host and store them in a backend.

        Parameters
        ----------
        rng : numpy.random.Generator
            Random numbers.
        samples, sites, latents : int
            Numbers S, N and Q.
        backend : Backend
            Array library and device.
        independent : bool
            Whether the points are independent random numbers instead of scrambled Sobol points.

        Returns
        -------
        Points
        """
        base, rotations = _draw(rng, samples, sites, latents)
        if independent:
            base = rng.standard_normal(base.shape)
        return Points(backend.asarray(base), backend.asarray(rotations), independent)

    def at(self, start: int, stop: int) -> Points:
        """Return the points of a range of sites.

        Parameters
        ----------
        start, stop : int
            First site, and the one after the last.

        Returns
        -------
        Points
        """
        return replace(self, rotations=self.rotations[start:stop, ...])

    def normals(self) -> Array:
        """Compute the standard normals z, (S, N, Q)."""
        return self._rotate(self.base, self.rotations)

    def samples(self, mean: Array, scale: Array) -> Array:
        """Compute samples mean + scale z, (S, N, Q), from mean and scale (N, Q).

        Parameters
        ----------
        mean, scale : array, shape (N, Q)
            Mean and standard deviation of each latent.

        Returns
        -------
        array, shape (S, N, Q)
        """
        xp = array_namespace(mean)
        base = xp.concat([self.base, xp.ones_like(self.base[:, :1])], axis=-1)
        return self._rotate(base, xp.concat([scale[..., None] * self.rotations, mean[..., None]], axis=-1))

    def _rotate(self, base: Array, rotations: Array) -> Array:
        """Compute the sum over j of base_sj rotation_nqj by one matrix product for all sites."""
        xp = array_namespace(base)
        N, Q, width = rotations.shape
        return xp.reshape(product(base, xp.reshape(rotations, (N * Q, width)).T), (-1, N, Q))


def _draw(
    rng: np.random.Generator, samples: int, sites: int, latents: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    exponent = max(int(np.ceil(np.log2(samples))), 0)
    uniforms = qmc.Sobol(latents, scramble=True, rng=rng).random_base2(exponent)[:samples]
    tiny = np.finfo(np.float64).tiny
    points = ndtri(np.clip(uniforms, tiny, 1.0 - np.finfo(np.float64).epsneg))
    rotations, triangles = np.linalg.qr(rng.standard_normal((sites, latents, latents)))
    # The signs make the distribution of the rotations uniform (Haar measure).
    rotations *= np.sign(np.diagonal(triangles, axis1=1, axis2=2))[:, None, :]
    return points, rotations
