"""Gaussian q(v) = N(v; m, S) with a covariance that is full across latents, computed from site factors.

Let f_n be the latents of site n minus the prior mean. With whitened inducing variables v, f_n = A_n v + e_n. The site
factor of site n is t_n(f_n) = exp(eta_n^T f_n - f_n^T Lambda_n f_n / 2), and q(v) is proportional to
N(v; 0, I) prod_n t_n(A_n v):

    S^-1 = P = I + sum_n A_n^T Lambda_n A_n,    P m = sum_n A_n^T eta_n.

References
----------
Bonilla, Krauth and Dezfouli (2019), Theorem 2 and Equation (34), which is the case of one latent without whitening.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, cholesky, identity, lower_inverse, product, sum_of_products
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import Geometry


class SiteFactors(NamedTuple):
    """Natural parameters of the site factors: Gaussian approximations of the likelihood of each site.

    Attributes
    ----------
    precision : Array, shape (N, Q, Q)
        Lambda, symmetric. It may have negative eigenvalues.
    shift : Array, shape (N, Q)
        eta, with respect to the latents minus the prior mean.
    """

    precision: Array
    shift: Array

    def step_towards(self, target: SiteFactors, step: float) -> SiteFactors:
        """Take a natural-gradient step: a convex combination of these factors and `target`.

        Parameters
        ----------
        target : SiteFactors
            Factors that a step of length 1 returns.
        step : float
            Length of the step, between 0 and 1.

        References
        ----------
        Khan and Lin (2017), conjugate-computation variational inference.
        """
        return SiteFactors(
            (1.0 - step) * self.precision + step * target.precision, (1.0 - step) * self.shift + step * target.shift
        )

    def uncouple(self, latents: Array) -> SiteFactors:
        """Return factors with diagonal precisions that have the same gradient at some latents.

        These are the site factors of a posterior that factorises over the latents.

        Parameters
        ----------
        latents : Array, shape (N, Q)
            Latents minus the prior mean.

        References
        ----------
        Bonilla, Krauth and Dezfouli (2019), Theorem 2.
        """
        precision = self.precision * identity(self.precision)
        return SiteFactors(precision, self.shift - ((self.precision - precision) @ latents[..., None])[..., 0])


class Marginals(NamedTuple):
    """Marginal distribution q(f_n) at each of B sites.

    Attributes
    ----------
    mean : Array, shape (B, Q)
        Means, including the prior mean.
    covariance : Array, shape (B, Q, Q)
        Covariances between the latents of a site.
    """

    mean: Array
    covariance: Array

    @staticmethod
    def concatenate(parts: Sequence[Marginals]) -> Marginals:
        """Join the marginals of several batches of sites.

        Parameters
        ----------
        parts : sequence of Marginals
            Marginals of the batches, in order.

        Returns
        -------
        Marginals
        """
        if len(parts) == 1:
            return parts[0]
        xp = array_namespace(parts[0].mean)
        return Marginals(xp.concat([p.mean for p in parts]), xp.concat([p.covariance for p in parts]))


@dataclass(frozen=True)
class CoupledGaussian:
    """Gaussian distribution of the whitened inducing variables of all latents.

    Attributes
    ----------
    mean : Array, shape (Q, M)
        Mean m.
    root : Array, shape (Q M, Q M)
        Lower triangular T with T^T T = S, the covariance.
    log_determinant : Array, shape ()
        Log determinant of the precision P = S^-1.
    """

    mean: Array
    root: Array
    log_determinant: Array

    def kl(self) -> Array:
        """Compute the KL divergence from the prior N(0, I), in nats."""
        xp = array_namespace(self.mean)
        size = self.root.shape[0]
        return 0.5 * (xp.sum(xp.square(self.root)) + xp.sum(xp.square(self.mean)) - float(size) + self.log_determinant)

    def marginals(self, geometry: Geometry, prior_mean: Array) -> Marginals:
        """Compute mean and covariance of the latents at each input.

        Parameters
        ----------
        geometry : Geometry
            Projection and conditional variance of B inputs.
        prior_mean : Array, shape (B, Q)
            Prior mean of each latent at each input.

        References
        ----------
        Bonilla, Krauth and Dezfouli (2019), Equations (22) and (23), extended to coupled latents.
        """
        xp = array_namespace(self.mean)
        W, M = geometry.projection, self.mean.shape[1]
        mean = self.mean_at(geometry, prior_mean)
        # Columns T A_n^T of all sites, for each latent. Latent j uses the columns of T from j M, which are zero above
        # row j M because T is lower triangular.
        Q = W.shape[0]
        columns = [product(self.root[j * M :, j * M : (j + 1) * M], W[j, ...]) for j in range(Q)]
        rows = [[sum_of_products(columns[i], columns[j][(i - j) * M :, :]) for j in range(i + 1)] for i in range(Q)]
        full = [xp.stack([rows[max(i, j)][min(i, j)] for j in range(Q)], axis=-1) for i in range(Q)]
        covariance = xp.stack(full, axis=-2)
        return Marginals(mean, covariance + geometry.residual.T[..., None] * identity(covariance))

    def mean_at(self, geometry: Geometry, prior_mean: Array) -> Array:
        """Compute the mean (B, Q) of the latents at each input; see `marginals`.

        Parameters
        ----------
        geometry : Geometry
            Interpolation from the inducing inputs to B inputs.
        prior_mean : array, shape (B, Q)
            Prior mean there.

        Returns
        -------
        array, shape (B, Q)
        """
        return (self.mean[:, None, :] @ geometry.projection)[:, 0, :].T + prior_mean

    def sample_sites(self, prior: Prior, normals: Array) -> Array:
        """Draw joint samples of E[f | v] at all sites, with v from this distribution.

        The conditional variance of the latents given the inducing variables is not included. It is zero for a dense
        prior.

        Parameters
        ----------
        prior : Prior
            Prior that defines the sites.
        normals : Array, shape (R, Q M)
            Standard normal numbers.

        Returns
        -------
        Array, shape (R, N, Q)
            Samples, including the prior mean.
        """
        xp = array_namespace(normals)
        v = xp.reshape(normals @ self.root, (-1, *self.mean.shape)) + self.mean
        by_latent = xp.permute_dims(v, (1, 0, 2))
        parts = [by_latent @ prior.geometry(*batch).projection for batch in prior.batches()]
        return xp.permute_dims(xp.concat(parts, axis=-1), (1, 2, 0)) + prior.mean


class NaturalParameters(NamedTuple):
    """Natural parameters of a `CoupledGaussian`.

    Attributes
    ----------
    precision : Array, shape (Q M, Q M)
        Precision P. Only its lower block triangle is used.
    shift : Array, shape (Q, M)
        P m.
    """

    precision: Array
    shift: Array


def natural_parameters(prior: Prior, sites: SiteFactors) -> NaturalParameters:
    """Compute the natural parameters of the posterior: the prior times the factors of all sites.

    Parameters
    ----------
    prior : Prior
        The prior.
    sites : SiteFactors
        Factors of all sites.

    Returns
    -------
    NaturalParameters
    """
    xp = array_namespace(sites.shift)
    size = prior.latent_count * prior.inducing_count
    total = NaturalParameters(
        xp.eye(size, dtype=sites.shift.dtype, device=sites.shift.device), xp.zeros_like(prior.Z[..., 0])
    )
    for start, stop in prior.batches():
        part = SiteFactors(sites.precision[start:stop, ...], sites.shift[start:stop, :])
        total = add_sites(total, prior.geometry(start, stop), part)
    return total


def add_sites(total: NaturalParameters, geometry: Geometry, sites: SiteFactors) -> NaturalParameters:
    """Add the factors of the sites of a geometry to natural parameters.

    Parameters
    ----------
    total : NaturalParameters
        Natural parameters so far.
    geometry : Geometry
        Interpolation from the inducing inputs to the sites.
    sites : SiteFactors
        Factors of these sites.

    Returns
    -------
    NaturalParameters
    """
    xp = array_namespace(sites.shift)
    W = geometry.projection
    Q, M, B = W.shape
    rows = []
    for i in range(Q):
        weighted = xp.reshape(W[: i + 1, ...] * sites.precision[:, i, : i + 1].T[:, None, :], ((i + 1) * M, B))
        row = product(W[i, ...], weighted.T)
        rows.append(row if i == Q - 1 else xp.concat([row, xp.zeros_like(total.precision[:M, (i + 1) * M :])], axis=1))
    shift = (W @ sites.shift.T[..., None])[..., 0]
    return NaturalParameters(total.precision + xp.concat(rows, axis=0), total.shift + shift)


def gaussian_from_natural(parameters: NaturalParameters) -> CoupledGaussian:
    """Compute the Gaussian with the given natural parameters.

    Parameters
    ----------
    parameters : NaturalParameters
        Precision and shift.

    Returns
    -------
    CoupledGaussian

    Raises
    ------
    numpy.linalg.LinAlgError
        If the precision is not positive definite.
    """
    xp = array_namespace(parameters.shift)
    factor = cholesky(parameters.precision, jitter=False)
    root = lower_inverse(factor)
    shift = xp.reshape(parameters.shift, (-1, 1))
    mean = xp.reshape(xp.matrix_transpose(root) @ (root @ shift), parameters.shift.shape)
    return CoupledGaussian(mean, root, 2.0 * xp.sum(xp.log(xp.linalg.diagonal(factor))))
