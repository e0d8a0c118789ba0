"""The full Gaussian with N parameters per latent (Theorem 2 of the paper) instead of M (M + 1) / 2."""

from __future__ import annotations

from dataclasses import dataclass, replace

from invgp.core.backend import Array, array_namespace, cholesky, device_of, identity, lower_inverse
from invgp.core.geometry import Geometry, GeometryGradient
from invgp.core.posteriors.full import Full, factor_covariance, factor_marginals, factor_pull_back
from invgp.core.posteriors.mixture import Mixture, MixtureGradient


@dataclass(frozen=True)
class Sites:
    """One Gaussian whose whitened precision is I + W Lambda W^T, with Lambda (Q, N) diagonal.

    By Theorem 2 the optimal full Gaussian has this form, with lambda_jn = -2 d l_n / d Sigma_n. The free parameters are
    v and asinh(Lambda / scale); this transformation gives small and large precisions, of either sign, a similar scale.
    The covariance depends on W, the projection of all sites: call `with_projection` before any other method. The
    kernels are learnt with Lambda held fixed.

    Parameters
    ----------
    latents, inducing, sites : int
        Q, M and N.
    scale : array, shape (Q, 1)
        Typical precision, for example the inverse of the prior variance.
    projection : array, shape (Q, M, N)
        W, see `invgp.core.geometry`.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), Theorem 2 and eq. (34).
    """

    latents: int
    inducing: int
    sites: int
    scale: Array
    projection: Array = None
    components: int = 1

    def with_projection(self, projection: Array) -> Sites:
        """Return the family for sites with this projection."""
        return replace(self, projection=projection)

    def initial_parameters(self, factor: Array, variance_share: float, jitter: Array) -> Array:  # noqa: ARG002 - same arguments in all families
        """Return parameters at the prior mean plus `jitter`; the covariance is that of the prior."""
        xp = array_namespace(jitter)
        precisions = xp.zeros((self.latents, self.sites), dtype=jitter.dtype, device=device_of(jitter))
        return xp.concat([xp.reshape(jitter, (-1,)), xp.reshape(precisions, (-1,))])

    def unpack(self, parameters: Array, factor: Array) -> Mixture:  # noqa: ARG002 - same arguments in all families
        """Convert free parameters to a mixture; the whitened factor of the covariance is upper triangular."""
        xp = array_namespace(parameters)
        Q, M = self.latents, self.inducing
        mean = xp.reshape(parameters[: Q * M], (1, Q, M))
        precision = self._precisions(parameters)[:, None, :]
        P = (self.projection * precision) @ xp.matrix_transpose(self.projection)
        P = P + identity(P)
        inverse = lower_inverse(cholesky(P))
        return Mixture(xp.ones_like(mean[:, 0, 0]), mean, xp.matrix_transpose(inverse)[None, ...])

    def marginals(self, q: Mixture, geometry: Geometry) -> tuple[Array, Array]:
        """Compute means (minus the prior mean) and variances (K, B, Q) of the latents."""
        return factor_marginals(q, geometry)

    def covariance(self, q: Mixture, geometry: Geometry, component: int) -> Array:
        """Compute the part (Q, B, B) of the covariance between inputs that comes from the inducing variables."""
        return factor_covariance(q, geometry, component)

    def negative_kl(self, q: Mixture, factor: Array) -> Array:
        """Compute minus the KL divergence."""
        return self._as_full().negative_kl(q, factor)

    def negative_kl_gradient(self, q: Mixture, factor: Array) -> MixtureGradient:
        """Compute the gradient of `negative_kl`; that of the spread is a full matrix, not only a triangle."""
        xp = array_namespace(q.mean)
        inverse = lower_inverse(xp.matrix_transpose(q.spread))
        nothing = xp.zeros_like(factor[..., :0])
        geometry = GeometryGradient(xp.zeros_like(factor), nothing, nothing[:, 0, :])
        return MixtureGradient(xp.zeros_like(q.weights), -q.mean, inverse - q.spread, geometry)

    def pull_back(
        self, q: Mixture, geometry: Geometry, mean_gradient: Array, variance_gradient: Array
    ) -> MixtureGradient:
        """Convert gradients (K, B, Q) with respect to the marginals to that of the mixture."""
        return factor_pull_back(q, geometry, mean_gradient, variance_gradient)

    def parameter_gradient(self, q: Mixture, gradient: MixtureGradient, parameters: Array) -> Array:
        """Convert the gradient of a mixture to that of the free parameters: -w_n^T S (dB / dS) S w_n for lambda_n."""
        xp = array_namespace(q.mean)
        R = q.spread[0, ...]
        inner = xp.matrix_transpose(R) @ gradient.spread[0, ...]
        seen = xp.matrix_transpose(R) @ self.projection
        by_precision = -0.5 * xp.sum(seen * (inner @ seen), axis=1)
        free = xp.reshape(parameters[self.latents * self.inducing :], by_precision.shape)
        by_free = by_precision * self.scale * xp.cosh(free)
        return xp.concat([xp.reshape(gradient.mean, (-1,)), xp.reshape(by_free, (-1,))])

    def projection_gradient(self, q: Mixture, parameters: Array, gradient: MixtureGradient) -> Array:
        """Compute the gradient (Q, M, N) with respect to W through the precision I + W Lambda W^T, at fixed Lambda."""
        xp = array_namespace(q.mean)
        R = q.spread[0, ...]
        by_precision = -0.5 * R @ (xp.matrix_transpose(R) @ gradient.spread[0, ...]) @ xp.matrix_transpose(R)
        precision = self._precisions(parameters)[:, None, :]
        return (by_precision + xp.matrix_transpose(by_precision)) @ (self.projection * precision)

    def _precisions(self, parameters: Array) -> Array:
        """Compute Lambda, (Q, N)."""
        xp = array_namespace(parameters)
        free = xp.reshape(parameters[self.latents * self.inducing :], (self.latents, self.sites))
        return self.scale * xp.sinh(free)

    def _as_full(self) -> Full:
        return Full(self.latents, self.inducing)
