"""Posterior of a site model as a log density of standardised variables, for the samplers.

The variables v of the prior are standard normal: the whitened inducing variables of all latents and, if the inducing
points are not the sites, one more number per site and latent for what the inducing variables leave open. The latents
are a linear function of them, f = mean + v A. Samplers use coordinates z with v = c + z T, in which a Gaussian
approximation of the posterior is standard normal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from invgp.core.backend import Array, array_namespace, cholesky, device_of, lower_inverse
from invgp.core.coupled.coupled_gaussian import SiteFactors, natural_parameters
from invgp.core.coupled.prior import Prior
from invgp.core.sampling.hamiltonian import LogDensity

# Latents (C, N, Q) -> log likelihoods (C, N) of the sites, and a function that computes their gradients (C, N, Q).
SiteLikelihood = Callable[[Array], tuple[Array, Callable[[], Array]]]


@dataclass(frozen=True)
class SiteTarget:
    """Prior times likelihood of all sites.

    Parameters
    ----------
    prior : Prior
        Prior of the latents at the sites.
    likelihood : callable
        Log likelihoods of the sites, and their gradients.
    """

    prior: Prior
    likelihood: SiteLikelihood

    @property
    def size(self) -> int:
        """Number of variables, D."""
        prior = self.prior
        extra = 0 if prior.dense else prior.site_count * prior.latent_count
        return prior.latent_count * prior.inducing_count + extra

    @property
    def inducing_size(self) -> int:
        """Number of whitened inducing variables, Q M."""
        return self.prior.latent_count * self.prior.inducing_count

    @cached_property
    def projections(self) -> Array:
        """Maps (Q, M, N) from the whitened inducing variables of each latent to its values at the sites."""
        xp = array_namespace(self.prior.X)
        parts = [self.prior.geometry(*batch).projection for batch in self.prior.batches()]
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)

    @cached_property
    def open_spread(self) -> Array | None:
        """Standard deviations (N, Q) of the latents given the inducing variables; None for a dense prior."""
        if self.prior.dense:
            return None
        xp = array_namespace(self.prior.X)
        parts = [self.prior.geometry(*batch).residual for batch in self.prior.batches()]
        residual = xp.concat(parts, axis=-1)
        return xp.sqrt(xp.maximum(residual, xp.zeros_like(residual))).T

    def latents(self, v: Array) -> Array:
        """Compute the latents (C, N, Q) of variables v (C, D).

        Parameters
        ----------
        v : Array, shape (C, D)
            Variables of C chains.

        Returns
        -------
        Array, shape (C, N, Q)
        """
        xp, prior = array_namespace(v), self.prior
        inducing = xp.reshape(v[:, : self.inducing_size], (-1, prior.latent_count, prior.inducing_count))
        f = xp.permute_dims(xp.permute_dims(inducing, (1, 0, 2)) @ self.projections, (1, 2, 0)) + prior.mean
        if self.open_spread is not None:
            f = f + self.open_spread * xp.reshape(v[:, self.inducing_size :], f.shape)
        return f

    def pull_back(self, gradient: Array) -> Array:
        """Convert a gradient (C, N, Q) with respect to the latents to one (C, D) with respect to the variables.

        Parameters
        ----------
        gradient : Array, shape (C, N, Q)
            Derivatives by the latents at the sites.

        Returns
        -------
        Array, shape (C, D)
        """
        xp = array_namespace(gradient)
        by_latent = xp.permute_dims(gradient, (2, 0, 1)) @ xp.matrix_transpose(self.projections)
        inducing = xp.reshape(xp.permute_dims(by_latent, (1, 0, 2)), (-1, self.inducing_size))
        if self.open_spread is None:
            return inducing
        rest = xp.reshape(self.open_spread * gradient, (gradient.shape[0], -1))
        return xp.concat([inducing, rest], axis=1)

    def log_likelihood(self, v: Array) -> tuple[Array, Array]:
        """Compute the log likelihood (C,) of variables v (C, D), and its gradient (C, D).

        Parameters
        ----------
        v : array, shape (C, D)
            Variables of C chains.

        Returns
        -------
        value : array, shape (C,), in nats
        gradient : array, shape (C, D)
        """
        xp = array_namespace(v)
        value, gradient = self.likelihood(self.latents(v))
        return xp.sum(value, axis=1), self.pull_back(gradient())

    def log_density_value(self, v: Array) -> Array:
        """Compute the log density (C,) of the posterior at variables v (C, D), up to the evidence.

        Parameters
        ----------
        v : Array, shape (C, D)
            Variables of C chains.

        Returns
        -------
        Array, shape (C,), in nats
        """
        xp = array_namespace(v)
        value, _ = self.likelihood(self.latents(v))
        return xp.sum(value, axis=1) - 0.5 * xp.sum(xp.square(v), axis=1)

    def around(self, centre: Array, root: Array) -> LogDensity:
        """Return the log density of z with v = centre + z @ root, up to the evidence, and its gradient.

        Parameters
        ----------
        centre : Array, shape (D,)
        root : Array, shape (D, D), or (Q M, Q M)
            A smaller root acts on the inducing variables alone.
        """
        xp = array_namespace(centre)
        transposed = xp.matrix_transpose(root)

        def log_density(z: Array) -> tuple[Array, Array]:
            v = self.variables(z, centre, root)
            value, gradient = self.log_likelihood(v)
            return value - 0.5 * xp.sum(xp.square(v), axis=1), multiply(gradient - v, transposed)

        return log_density

    def variables(self, z: Array, centre: Array, root: Array) -> Array:
        """Compute the variables v = centre + z @ root, (C, D).

        Parameters
        ----------
        z : Array, shape (C, D)
            Coordinates of the sampler.
        centre : Array, shape (D,)
        root : Array, shape (D, D), or (Q M, Q M)
            As in `around`.

        Returns
        -------
        Array, shape (C, D)
        """
        return centre + multiply(z, root)


def multiply(z: Array, root: Array) -> Array:
    """Multiply rows (C, D) by a matrix that acts on their first elements, as many as it has rows.

    Parameters
    ----------
    z : Array, shape (C, D)
    root : Array, shape (K, K)
        With K at most D; the other elements stay unchanged.

    Returns
    -------
    Array, shape (C, D)
    """
    size = root.shape[0]
    if z.shape[1] == size:
        return z @ root
    xp = array_namespace(z)
    return xp.concat([z[:, :size] @ root, z[:, size:]], axis=1)


def gaussian_root(prior: Prior, sites: SiteFactors, power: float) -> Array:
    """Return T (Q M, Q M) with T^T T equal to the covariance of the prior times a power of the site factors.

    Site precisions must be positive semi-definite.

    Parameters
    ----------
    prior : Prior
    sites : SiteFactors
        Gaussian approximations of the likelihoods.
    power : float
        Power of the site factors, from 0 (the prior) to 1 (the posterior).

    Returns
    -------
    Array, shape (Q M, Q M)
    """
    xp = array_namespace(sites.shift)
    natural = natural_parameters(prior, sites)
    eye = xp.eye(natural.precision.shape[0], dtype=natural.precision.dtype, device=device_of(natural.precision))
    return lower_inverse(cholesky(eye + power * (natural.precision - eye)))
