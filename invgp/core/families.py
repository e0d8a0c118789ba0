"""Posterior families: free parameters <-> Gaussian over the latents at the sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from invgp.core import elbo
from invgp.core.backend import Array, array_namespace, device_of


class Family(Protocol):
    """What the optimisation loop needs of a posterior family. `parameters` is one flat array."""

    def initial(self, variance_share: float) -> Array:
        """Parameters with the prior's mean and the given share of the prior's variance."""

    def marginals(self, parameters: Array) -> tuple[Array, Array]:
        """Mean (N, Q) and variance (N, Q) of each latent at each site."""

    def kl(self, parameters: Array) -> Array:
        """KL divergence from the prior."""

    def gradient(self, parameters: Array, mean_gradient: Array, curvature: Array) -> Array:
        """Gradient of the bound, from the (N, Q) gradients and curvatures of the sites' expected log likelihoods."""

    def sample(self, parameters: Array, normals: Array) -> Array:
        """Joint draws (R, N, Q) over all sites, from standard normals (R, N, Q)."""


@dataclass(frozen=True)
class FullGaussian:
    """The paper's full Gaussian (FG), dense (Z = X): one Gaussian, a full covariance for each latent.

    q(f_j) = N(mean_j + L_j v_j, L_j R_j R_j^T L_j^T) with R_j lower triangular; the latents are independent of
    each other. Parameters, flat: v (Q, N), then the raw (Q, N, N) with R below its diagonal and log R on it
    (what lies above it is not used).

    Parameters
    ----------
    prior_mean : (Q, N).
    prior_cholesky : L, (Q, N, N).
    """

    prior_mean: Array
    prior_cholesky: Array

    def initial(self, variance_share: float) -> Array:
        """Parameters with the prior's mean and the given share of the prior's variance."""
        xp = array_namespace(self.prior_mean)
        Q, N = self.prior_mean.shape
        share = xp.asarray(variance_share, dtype=self.prior_mean.dtype, device=device_of(self.prior_mean))
        raw = xp.broadcast_to(self._eye() * (0.5 * xp.log(share)), (Q, N, N))
        return self._pack(xp.zeros_like(self.prior_mean), raw)

    def whitened(self, parameters: Array) -> tuple[Array, Array]:
        """Whitened mean v (Q, N) and Cholesky factor R (Q, N, N)."""
        xp = array_namespace(parameters)
        Q, N = self.prior_mean.shape
        raw = xp.reshape(parameters[Q * N :], (Q, N, N))
        R = xp.tril(raw, k=-1) + xp.exp(xp.linalg.diagonal(raw))[..., None] * self._eye()
        return xp.reshape(parameters[: Q * N], (Q, N)), R

    def covariance_factor(self, parameters: Array) -> Array:
        """L R, (Q, N, N), with which the covariance of latent j is (L R)_j (L R)_j^T."""
        return self.prior_cholesky @ self.whitened(parameters)[1]

    def mean(self, parameters: Array) -> Array:
        """Posterior mean (Q, N)."""
        v, _ = self.whitened(parameters)
        return self.prior_mean + (self.prior_cholesky @ v[..., None])[..., 0]

    def marginals(self, parameters: Array) -> tuple[Array, Array]:
        """Mean (N, Q) and variance (N, Q) of each latent at each site: b_kn and Sigma_kn in the paper."""
        xp = array_namespace(parameters)
        variance = xp.sum(xp.square(self.covariance_factor(parameters)), axis=-1)
        return self.mean(parameters).T, variance.T

    def kl(self, parameters: Array) -> Array:
        """KL divergence from the prior."""
        return elbo.kl(*self.whitened(parameters))

    def gradient(self, parameters: Array, mean_gradient: Array, curvature: Array) -> Array:
        """Gradient of the bound with respect to the parameters.

        Parameters
        ----------
        mean_gradient : (N, Q), of each site's expected log likelihood with respect to its mean.
        curvature : (N, Q), twice the gradient with respect to its variance.
        """
        xp = array_namespace(parameters)
        v, R = self.whitened(parameters)
        L = self.prior_cholesky
        Lt = xp.matrix_transpose(L)
        grad_v = (Lt @ mean_gradient.T[..., None])[..., 0] - v
        # d KL / d R is R off the diagonal; on it, in log R, R^2 - 1.
        grad_R = Lt @ (curvature.T[..., None] * (L @ R)) - R
        grad_log_diagonal = xp.linalg.diagonal(grad_R) * xp.linalg.diagonal(R) + 1.0
        return self._pack(grad_v, xp.tril(grad_R, k=-1) + grad_log_diagonal[..., None] * self._eye())

    def sample(self, parameters: Array, normals: Array) -> Array:
        """Joint draws (R, N, Q) over all sites, from standard normals (R, N, Q)."""
        xp = array_namespace(parameters, normals)
        factor = self.covariance_factor(parameters)
        draws = factor @ xp.permute_dims(normals, (2, 1, 0))
        return xp.permute_dims(self.mean(parameters)[..., None] + draws, (2, 1, 0))

    def _eye(self) -> Array:
        xp = array_namespace(self.prior_mean)
        return xp.eye(self.prior_mean.shape[1], dtype=self.prior_mean.dtype, device=device_of(self.prior_mean))

    @staticmethod
    def _pack(v: Array, raw: Array) -> Array:
        xp = array_namespace(v, raw)
        return xp.concat([xp.reshape(v, (-1,)), xp.reshape(raw, (-1,))])
