"""Mixtures of Gaussians with a full covariance per latent; one component is the full Gaussian (FG) of the paper."""

from __future__ import annotations

from dataclasses import dataclass

from invgp.core.backend import (
    Array,
    array_namespace,
    cholesky,
    device_of,
    identity,
    lower_outer_product,
    lower_product,
    matrix_vector_product,
    product,
    solve_triangular,
    sum_of_squares,
    transpose_multiply,
    tril_with_diagonal,
    vector_matrix_product,
    zeros_like,
)
from invgp.core.geometry import Geometry, GeometryGradient, Gram, MarginalGradient
from invgp.core.posteriors.mixture import (
    LOG_2PI,
    Mixture,
    MixtureGradient,
    logit_gradient,
    mixture_entropy,
    site_gradients,
    weights_of,
)


@dataclass(frozen=True)
class Full:
    """K Gaussians; the spread is the whitened lower Cholesky factor R of each covariance.

    Free parameters: K logits of the weights (none for K = 1), v, and R with the logarithm of its diagonal (elements
    above the diagonal are ignored).

    Parameters
    ----------
    latents, inducing, components : int
        Q, M and K.
    """

    latents: int
    inducing: int
    components: int = 1

    def initial_parameters(self, factor: Array, variance_share: float, jitter: Array) -> Array:
        """Return parameters at the prior mean plus `jitter` (K, Q, M), with a fraction of the prior variance."""
        xp = array_namespace(factor)
        share = xp.asarray(variance_share, dtype=factor.dtype, device=device_of(factor))
        raw = xp.broadcast_to(identity(factor) * (0.5 * xp.log(share)), (self.components, *factor.shape))
        return self._pack(xp.zeros_like(jitter[:, 0, 0]), jitter, raw)

    def unpack(self, parameters: Array, factor: Array) -> Mixture:  # noqa: ARG002 - same arguments in all families
        """Convert free parameters to a mixture."""
        xp = array_namespace(parameters)
        K, Q, M = self.components, self.latents, self.inducing
        logits = parameters[:K] if K > 1 else None
        rest = parameters[K:] if K > 1 else parameters
        raw = xp.reshape(rest[K * Q * M :], (K, Q, M, M))
        R = tril_with_diagonal(raw, xp.exp(xp.linalg.diagonal(raw)))
        return Mixture(weights_of(logits, parameters), xp.reshape(rest[: K * Q * M], (K, Q, M)), R)

    def pack(self, q: Mixture) -> Array:
        """Convert a mixture to free parameters; the inverse of `unpack`.

        Parameters
        ----------
        q : Mixture
            The posterior.

        Returns
        -------
        array, shape (F,)
            Free parameters.
        """
        xp = array_namespace(q.spread)
        raw = tril_with_diagonal(q.spread, xp.log(xp.linalg.diagonal(q.spread)))
        return self._pack(xp.log(q.weights), q.mean, raw)

    def marginals(self, q: Mixture, geometry: Geometry) -> tuple[Array, Array]:
        """Compute means (minus the prior mean) and variances (K, B, Q) of the latents."""
        return factor_marginals(q, geometry, lower=True)

    def covariance(self, q: Mixture, geometry: Geometry, component: int) -> Array:
        """Compute the part (Q, B, B) of the covariance between inputs that comes from the inducing variables."""
        return factor_covariance(q, geometry, component)

    def negative_kl(self, q: Mixture, factor: Array) -> Array:
        """Compute entropy (exact for K = 1, else the bound of eq. (18)) plus negative cross-entropy, eq. (19)."""
        xp = array_namespace(q.mean)
        size = self.latents * self.inducing
        cross = -0.5 * xp.sum(q.weights * (size * LOG_2PI + _quadratic(q)))
        if self.components == 1:
            return cross + 0.5 * size * (LOG_2PI + 1.0) + xp.sum(xp.log(_positive_diagonal(q.spread)))
        return cross + self.entropy_bound(q, factor)

    def entropy_bound(self, q: Mixture, factor: Array) -> Array:  # noqa: ARG002 - same arguments in all families
        """Compute the lower bound of the entropy of the whitened variables, eq. (18).

        Parameters
        ----------
        q : Mixture
            The posterior.
        factor : array, shape (Q, M, M)
            Cholesky factors of the prior covariances.

        Returns
        -------
        array, shape (), in nats
        """
        return mixture_entropy(q.weights, self._overlaps(q)[0])[0]

    def negative_kl_gradient(self, q: Mixture, factor: Array) -> MixtureGradient:
        """Compute the gradient of `negative_kl`."""
        xp = array_namespace(q.mean)
        pi = q.weights[:, None, None]
        weights = -0.5 * (self.latents * self.inducing * LOG_2PI + _quadratic(q))
        mean, spread = -pi * q.mean, -pi[..., None] * q.spread
        if self.components == 1:
            on_diagonal = xp.linalg.diagonal(spread) + 1.0 / xp.linalg.diagonal(q.spread)
            spread = tril_with_diagonal(spread, on_diagonal, lower=True)
        else:
            overlaps, solved, inverse = self._overlaps(q)
            _, by_weight, coupling = mixture_entropy(q.weights, overlaps)
            weights = weights + by_weight
            coupling = coupling[..., None, None]
            mean = mean + xp.sum(coupling * solved, axis=1)
            outer = solved[..., :, None] * solved[..., None, :]
            by_covariance = 0.5 * xp.sum(coupling[..., None] * (inverse - outer), axis=1)
            spread = spread + 2.0 * by_covariance @ q.spread
        return MixtureGradient(weights, mean, spread, _no_geometry(factor))

    def pull_back(
        self, q: Mixture, geometry: Geometry, mean_gradient: Array, variance_gradient: Array
    ) -> MixtureGradient:
        """Convert gradients (K, B, Q) with respect to the marginals to that of the mixture."""
        return factor_pull_back(q, geometry, mean_gradient, variance_gradient)

    def parameter_gradient(self, q: Mixture, gradient: MixtureGradient, parameters: Array) -> Array:  # noqa: ARG002
        """Convert the gradient of a mixture to that of the free parameters."""
        xp = array_namespace(q.mean)
        on_diagonal = xp.linalg.diagonal(gradient.spread) * xp.linalg.diagonal(q.spread)
        raw = tril_with_diagonal(gradient.spread, on_diagonal)
        return self._pack(logit_gradient(q.weights, gradient.weights), gradient.mean, raw)

    def hold_distribution(self, q: Mixture, factor: Array, gradient: MixtureGradient) -> Array:
        """Compute the gradient of the factor at fixed distribution of u, with v = L^-1 m and R = L^-1 C.

        Parameters
        ----------
        q : Mixture
            The posterior.
        factor : array, shape (Q, M, M)
            Cholesky factors L of the prior covariances.
        gradient : MixtureGradient
            Gradient with respect to the whitened mixture.

        Returns
        -------
        array, shape (Q, M, M)
        """
        xp = array_namespace(factor)
        by_mean = gradient.mean[..., :, None] * q.mean[..., None, :]
        by_spread = gradient.spread @ xp.matrix_transpose(q.spread)
        return -solve_triangular(factor, xp.sum(by_mean + by_spread, axis=0), transposed=True)

    def rewhiten(self, q: Mixture, old_factor: Array, new_factor: Array) -> Mixture:
        """Convert a mixture to the same distribution of u, whitened by another factor.

        Parameters
        ----------
        q : Mixture
            The posterior.
        old_factor, new_factor : array, shape (Q, M, M)
            Cholesky factors of the prior covariances by which the mixture is, and will be, whitened.

        Returns
        -------
        Mixture
        """
        xp = array_namespace(old_factor)
        K = self.components
        change = solve_triangular(new_factor, old_factor)
        mean = (xp.broadcast_to(change, (K, *change.shape)) @ q.mean[..., None])[..., 0]
        return Mixture(q.weights, mean, change @ q.spread)

    def _overlaps(self, q: Mixture) -> tuple[Array, Array, Array]:
        """Compute log N_kl (K, K), C_kl^-1 (m_k - m_l) (K, K, Q, M) and C_kl^-1 (K, K, Q, M, M), C_kl = S_k + S_l."""
        xp = array_namespace(q.mean)
        covariance = q.spread @ xp.matrix_transpose(q.spread)
        factors = cholesky(covariance[:, None, ...] + covariance[None, :, ...])
        difference = (q.mean[:, None, ...] - q.mean[None, :, ...])[..., None]
        half = solve_triangular(factors, difference)
        solved = solve_triangular(factors, half, transposed=True)[..., 0]
        eye = xp.broadcast_to(identity(covariance), factors.shape)
        inverse_half = solve_triangular(factors, eye)
        inverse = xp.matrix_transpose(inverse_half) @ inverse_half
        log_det = 2.0 * xp.sum(xp.log(xp.linalg.diagonal(factors)), axis=(2, 3))
        distance = xp.sum(xp.square(half), axis=(2, 3, 4))
        size = self.latents * self.inducing
        return -0.5 * (size * LOG_2PI + log_det + distance), solved, inverse

    def _pack(self, logits: Array, mean: Array, raw: Array) -> Array:
        xp = array_namespace(mean)
        parts = [logits] if self.components > 1 else []
        return xp.concat([*parts, xp.reshape(mean, (-1,)), xp.reshape(raw, (-1,))])


def factor_marginals(q: Mixture, geometry: Geometry, *, lower: bool = False) -> tuple[Array, Array]:
    """Means and variances (K, B, Q) when the spread is a whitened factor: b_kn and Sigma_kn in the paper.

    A spread that is known to be `lower` triangular takes half the time.
    """
    xp = array_namespace(q.mean)
    W = geometry.projection
    mean = vector_matrix_product(W, q.mean)
    half = transpose_multiply(q.spread, W) if lower else xp.matrix_transpose(q.spread) @ W
    variance = geometry.residual + sum_of_squares(half)
    return xp.permute_dims(mean, (0, 2, 1)), xp.permute_dims(variance, (0, 2, 1))


def factor_covariance(q: Mixture, geometry: Geometry, component: int) -> Array:
    """Compute W^T R R^T W, (Q, B, B)."""
    xp = array_namespace(q.mean)
    half = xp.matrix_transpose(geometry.projection) @ q.spread[component, ...]
    return half @ xp.matrix_transpose(half)


def factor_pull_back(q: Mixture, geometry: Geometry, mean_gradient: Array, variance_gradient: Array) -> MixtureGradient:
    """Pull-back of `factor_marginals`.

    For the spread, it returns only the terms to sum over the sites, which `spread_gradient` converts to the gradient.
    For the geometry, it returns only the gradients with respect to the marginals.
    """
    xp = array_namespace(q.mean)
    by_mean, by_variance = site_gradients(mean_gradient, variance_gradient)
    W = geometry.projection
    return MixtureGradient(
        weights=xp.zeros_like(q.weights),
        mean=matrix_vector_product(W, by_mean[..., 0]),
        spread=Gram(W, by_variance[..., 0]),
        geometry=GeometryGradient(None, None, None, MarginalGradient(by_mean, by_variance)),
    )


def dense_marginals(q: Mixture, factor: Array, unwhitened_factor: Array) -> tuple[Array, Array]:
    """Compute `factor_marginals` at the inducing inputs, from the lower factors L R (K, Q, M, M) of covariances."""
    xp = array_namespace(q.mean)
    mean, variance = matrix_vector_product(factor, q.mean), xp.vecdot(unwhitened_factor, unwhitened_factor)
    return xp.permute_dims(mean, (0, 2, 1)), xp.permute_dims(variance, (0, 2, 1))


def dense_pull_back(
    q: Mixture, factor: Array, unwhitened_factor: Array, mean_gradient: Array, variance_gradient: Array
) -> MixtureGradient:
    """Pull-back of `dense_marginals`.

    For the spread, it returns the lower triangles; for the geometry, the argument of `dense_factor_gradient`.
    """
    xp = array_namespace(q.mean)
    by_mean, by_variance = site_gradients(mean_gradient, variance_gradient)
    return MixtureGradient(
        weights=xp.zeros_like(q.weights),
        mean=vector_matrix_product(factor, by_mean[..., 0]),
        spread=lower_product(factor, 2.0 * by_variance * unwhitened_factor, transposed=True),
        geometry=GeometryGradient(None, None, None, MarginalGradient(by_mean, by_variance)),
    )


def dense_factor_gradient(q: Mixture, unwhitened_factor: Array, marginals: MarginalGradient) -> Array:
    """Compute the gradient with respect to L, (Q, M, M), at fixed mixture; only its lower triangle is valid."""
    xp = array_namespace(q.mean)
    by_factor = lower_outer_product(2.0 * marginals.variance * unwhitened_factor, q.spread)
    by_factor += marginals.mean * q.mean[..., None, :]
    return by_factor[0, ...] if by_factor.shape[0] == 1 else xp.sum(by_factor, axis=0)


def spread_gradient(q: Mixture, gram: Array, *, lower: bool) -> Array:
    """Convert the gradient G with respect to covariances to 2 G R with respect to factors R, (K, Q, M, M) each."""
    xp = array_namespace(gram)
    both = xp.matrix_transpose(transpose_multiply(q.spread, gram)) if lower else product(gram, q.spread)
    both *= 2.0
    return both


def projection_gradient(q: Mixture, geometry: Geometry, marginals: MarginalGradient) -> Array:
    """Compute the gradient with respect to the projection (Q, M, B), without the part through the residual."""
    xp = array_namespace(q.mean)
    weighted = product(xp.matrix_transpose(geometry.projection), q.spread)
    weighted *= 2.0 * marginals.variance
    by_projection = product(q.spread, xp.matrix_transpose(weighted))
    by_projection += q.mean[..., :, None] * xp.matrix_transpose(marginals.mean)
    return by_projection[0, ...] if by_projection.shape[0] == 1 else xp.sum(by_projection, axis=0)


def _no_geometry(factor: Array) -> GeometryGradient:
    xp = array_namespace(factor)
    return GeometryGradient(zeros_like(factor), xp.zeros_like(factor[..., :0]), xp.zeros_like(factor[:, 0, :0]))


def _quadratic(q: Mixture) -> Array:
    """Compute v_k^T v_k + trace S_k, summed over latents, (K,)."""
    xp = array_namespace(q.mean)
    return xp.sum(xp.square(q.mean), axis=(1, 2)) + xp.sum(sum_of_squares(q.spread), axis=(1, 2))


def _positive_diagonal(factors: Array) -> Array:
    return array_namespace(factors).abs(array_namespace(factors).linalg.diagonal(factors))
