"""q(v) = N(v; m, S), full across latents, from what each site says about its own latents.

With f_n the latents of site n less the prior mean, f_n = A_n v + e_n for whitened inducing variables v. Site n says
t_n(f_n) = exp(eta_n^T f_n - f_n^T Lambda_n f_n / 2), and q(v) is proportional to N(v; 0, I) prod_n t_n(A_n v):

    S^-1 = P = I + sum_n A_n^T Lambda_n A_n,    P m = sum_n A_n^T eta_n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, cholesky, identity, lower_inverse, product
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import Geometry


class SiteFactors(NamedTuple):
    """What each site says about its latents.

    Attributes
    ----------
    precision : Lambda, (N, Q, Q), symmetric.
    shift : eta, (N, Q).
    """

    precision: Array
    shift: Array

    def step_towards(self, target: SiteFactors, step: float) -> SiteFactors:
        """A natural-gradient step: a convex combination."""
        return SiteFactors(
            (1.0 - step) * self.precision + step * target.precision, (1.0 - step) * self.shift + step * target.shift
        )


class Marginals(NamedTuple):
    """The posterior at each site by itself.

    Attributes
    ----------
    mean : (B, Q), with the prior mean.
    covariance : (B, Q, Q).
    """

    mean: Array
    covariance: Array

    @staticmethod
    def concatenate(parts: Sequence[Marginals]) -> Marginals:
        """Of several batches of sites."""
        if len(parts) == 1:
            return parts[0]
        xp = array_namespace(parts[0].mean)
        return Marginals(xp.concat([p.mean for p in parts]), xp.concat([p.covariance for p in parts]))


@dataclass(frozen=True)
class Coupled:
    """A Gaussian over the whitened inducing variables of all latents.

    Attributes
    ----------
    mean : m, (Q, M).
    root : T with T^T T = S, lower triangular, (Q M, Q M).
    log_determinant : of P, ().
    """

    mean: Array
    root: Array
    log_determinant: Array

    def kl(self) -> Array:
        """KL divergence from the prior."""
        xp = array_namespace(self.mean)
        size = self.root.shape[0]
        return 0.5 * (xp.sum(xp.square(self.root)) + xp.sum(xp.square(self.mean)) - float(size) + self.log_determinant)

    def marginals(self, geometry: Geometry, prior_mean: Array) -> Marginals:
        """Mean and covariance of the latents at each of the geometry's inputs."""
        xp = array_namespace(self.mean)
        W, M = geometry.projection, self.mean.shape[1]
        mean = (self.mean[:, None, :] @ W)[:, 0, :].T + prior_mean
        # Columns T A_n^T of every site, by latent: (Q, QM, B); those of latent j begin at row j M.
        seen = xp.stack([product(self.root[:, j * M : (j + 1) * M], W[j, ...]) for j in range(W.shape[0])])
        by_site = xp.permute_dims(seen, (2, 0, 1))
        covariance = by_site @ xp.matrix_transpose(by_site)
        return Marginals(mean, covariance + geometry.residual.T[..., None] * identity(covariance))

    def site_draws(self, prior: Prior, normals: Array) -> Array:
        """Joint draws (R, N, Q) of what the inducing variables say of the sites, from normals (R, Q M)."""
        xp = array_namespace(normals)
        v = xp.reshape(normals @ self.root, (-1, *self.mean.shape)) + self.mean
        by_latent = xp.permute_dims(v, (1, 0, 2))
        parts = [by_latent @ prior.geometry(*batch).projection for batch in prior.batches()]
        return xp.permute_dims(xp.concat(parts, axis=-1), (1, 2, 0)) + prior.mean


class NaturalParameters(NamedTuple):
    """P, (Q M, Q M), of which only the lower block triangle is used, and P m, (Q, M)."""

    precision: Array
    shift: Array


def natural_parameters(prior: Prior, sites: SiteFactors) -> NaturalParameters:
    """Of the posterior that these sites make."""
    xp = array_namespace(sites.shift)
    size = prior.latents * prior.inducing
    total = NaturalParameters(
        xp.eye(size, dtype=sites.shift.dtype, device=sites.shift.device), xp.zeros_like(prior.Z[..., 0])
    )
    for start, stop in prior.batches():
        part = SiteFactors(sites.precision[start:stop, ...], sites.shift[start:stop, :])
        total = add_sites(total, prior.geometry(start, stop), part)
    return total


def add_sites(total: NaturalParameters, geometry: Geometry, sites: SiteFactors) -> NaturalParameters:
    """Add what some sites say."""
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


def gaussian_from_natural(parameters: NaturalParameters) -> Coupled:
    """The Gaussian with these natural parameters.

    Raises
    ------
    numpy.linalg.LinAlgError
        The precision is not positive definite.
    """
    xp = array_namespace(parameters.shift)
    factor = cholesky(parameters.precision, jitter=False)
    root = lower_inverse(factor)
    shift = xp.reshape(parameters.shift, (-1, 1))
    mean = xp.reshape(xp.matrix_transpose(root) @ (root @ shift), parameters.shift.shape)
    return Coupled(mean, root, 2.0 * xp.sum(xp.log(xp.linalg.diagonal(factor))))
