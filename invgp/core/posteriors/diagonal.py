"""Mixtures of Gaussians with diagonal covariances over the inducing variables (MoG in the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgp.core.backend import (
    Array,
    add_weighted_gram,
    array_namespace,
    identity,
    lower_inverse,
    solve_triangular,
    sum_of_squares,
    symmetrise,
    zeros_like,
)
from invgp.core.geometry import Geometry, GeometryGradient
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
class Diagonal:
    """K Gaussians; the spread is the variance of each inducing variable u (not whitened).

    Free parameters: K logits of the weights (none for K = 1), v, and the logarithms of the variances.

    Parameters
    ----------
    latents, inducing, components : int
        Q, M and K.
    """

    latents: int
    inducing: int
    components: int = 1

    def initial_parameters(self, factor: Array, variance_share: float, jitter: Array) -> Array:
        """Return parameters at the prior mean plus `jitter`, with a fraction of each conditional variance.

        The conditional variances 1 / (K_zz^-1)_mm are the optimal diagonal covariance without data.
        """
        xp = array_namespace(factor)
        variances = variance_share * self.conditional_variance(factor, xp.zeros_like(factor[..., 0]))
        spread = xp.broadcast_to(xp.log(variances), (self.components, *variances.shape))
        return self._pack(xp.zeros_like(jitter[:, 0, 0]), jitter, spread)

    def conditional_variance(self, factor: Array, precision: Array) -> Array:
        """Compute the variance of each variable given the others, with data that add precisions (Q, M).

        Raises
        ------
        numpy.linalg.LinAlgError
            A total precision is not positive.
        """
        xp = array_namespace(factor)
        total = _precisions(lower_inverse(factor)) + precision
        if not bool(xp.all(total > 0.0)):
            raise np.linalg.LinAlgError("a conditional variance is not positive")
        return 1.0 / total

    def unpack(self, parameters: Array, factor: Array) -> Mixture:  # noqa: ARG002 - same arguments in all families
        """Convert free parameters to a mixture."""
        xp = array_namespace(parameters)
        K, shape = self.components, (self.components, self.latents, self.inducing)
        logits = parameters[:K] if K > 1 else None
        mean, spread = (xp.reshape(part, shape) for part in _halves(parameters[K:] if K > 1 else parameters))
        return Mixture(weights_of(logits, parameters), mean, xp.exp(spread))

    def pack(self, q: Mixture) -> Array:
        """Convert a mixture to free parameters; the inverse of `unpack`."""
        xp = array_namespace(q.mean)
        return self._pack(xp.log(q.weights), q.mean, xp.log(q.spread))

    def marginals(self, q: Mixture, geometry: Geometry) -> tuple[Array, Array]:
        """Compute means (minus the prior mean) and variances (K, B, Q) of the latents."""
        xp = array_namespace(q.mean)
        mean = (xp.matrix_transpose(geometry.projection) @ q.mean[..., None])[..., 0]
        squares = xp.matrix_transpose(xp.square(geometry.weights))
        variance = geometry.residual + (squares @ q.spread[..., None])[..., 0]
        return xp.permute_dims(mean, (0, 2, 1)), xp.permute_dims(variance, (0, 2, 1))

    def covariance(self, q: Mixture, geometry: Geometry, component: int) -> Array:
        """Compute the part (Q, B, B) of the covariance between inputs that comes from the inducing variables."""
        xp = array_namespace(q.mean)
        A = geometry.weights
        return xp.matrix_transpose(A) @ (q.spread[component, ..., None] * A)

    def negative_kl(self, q: Mixture, factor: Array) -> Array:
        """Compute entropy (exact for K = 1, else the bound of eq. (18)) plus negative cross-entropy, eq. (19)."""
        xp = array_namespace(q.mean)
        cross = -0.5 * xp.sum(q.weights * self._cross_terms(q, factor, _precisions(lower_inverse(factor))))
        if self.components == 1:
            return cross + 0.5 * xp.sum(LOG_2PI + 1.0 + xp.log(q.spread))
        return cross + self.entropy_bound(q, factor)

    def entropy_bound(self, q: Mixture, factor: Array) -> Array:
        """Compute the lower bound of the entropy of u, eq. (18)."""
        return mixture_entropy(q.weights, self._overlaps(q, factor)[0])[0]

    def negative_kl_gradient(self, q: Mixture, factor: Array) -> MixtureGradient:
        """Compute the gradient of `negative_kl`."""
        xp = array_namespace(q.mean)
        pi, inverse = q.weights[:, None, None], lower_inverse(factor)
        precisions = _precisions(inverse)
        weights = -0.5 * self._cross_terms(q, factor, precisions)
        mean, spread = -pi * q.mean, -0.5 * pi * precisions
        by_factor = self._cross_factor_gradient(q, factor, inverse)
        if self.components == 1:
            spread = spread + 0.5 / q.spread
        else:
            overlaps, difference, total = self._overlaps(q, factor)
            _, by_weight, coupling = mixture_entropy(q.weights, overlaps)
            weights = weights + by_weight
            coupling = coupling[..., None, None]
            solved = difference / total
            by_u = xp.sum(coupling * solved, axis=1)
            spread = spread + 0.5 * xp.sum(coupling * (1.0 / total - xp.square(solved)), axis=1)
            mean = mean + (xp.matrix_transpose(factor) @ by_u[..., None])[..., 0]
            by_factor = by_factor + xp.sum(by_u[..., :, None] * q.mean[..., None, :], axis=0)
        nothing = xp.zeros_like(factor[..., :0])
        return MixtureGradient(weights, mean, spread, GeometryGradient(by_factor, nothing, nothing[:, 0, :]))

    def pull_back(
        self, q: Mixture, geometry: Geometry, mean_gradient: Array, variance_gradient: Array
    ) -> MixtureGradient:
        """Convert gradients (K, B, Q) with respect to the marginals to that of the mixture."""
        xp = array_namespace(q.mean)
        by_mean, by_variance = site_gradients(mean_gradient, variance_gradient)
        W, A = geometry.projection, geometry.weights
        by_projection = xp.sum(q.mean[..., :, None] * xp.matrix_transpose(by_mean), axis=0)
        by_factor = xp.zeros_like(geometry.factor)
        if not geometry.dense:
            # A = L^-T W; in the dense case A is the identity for every L.
            by_weights = 2.0 * A * xp.sum(q.spread[..., :, None] * xp.matrix_transpose(by_variance), axis=0)
            whitened = solve_triangular(geometry.factor, by_weights)
            by_projection = by_projection + whitened
            by_factor = by_factor - A @ xp.matrix_transpose(whitened)
        return MixtureGradient(
            weights=xp.zeros_like(q.weights),
            mean=(W @ by_mean)[..., 0],
            spread=(xp.square(A) @ by_variance)[..., 0],
            geometry=GeometryGradient(by_factor, by_projection, xp.sum(by_variance[..., 0], axis=0)),
        )

    def parameter_gradient(self, q: Mixture, gradient: MixtureGradient, parameters: Array) -> Array:  # noqa: ARG002
        """Convert the gradient of a mixture to that of the free parameters."""
        return self._pack(logit_gradient(q.weights, gradient.weights), gradient.mean, gradient.spread * q.spread)

    def hold_distribution(self, q: Mixture, factor: Array, gradient: MixtureGradient) -> Array:
        """Compute the gradient of the factor at fixed distribution of u, with v = L^-1 m."""
        xp = array_namespace(factor)
        by_mean = xp.sum(gradient.mean[..., :, None] * q.mean[..., None, :], axis=0)
        return -solve_triangular(factor, by_mean, transposed=True)

    def rewhiten(self, q: Mixture, old_factor: Array, new_factor: Array) -> Mixture:
        """Convert a mixture to the same distribution of u, with means whitened by another factor."""
        change = solve_triangular(new_factor, old_factor)
        return Mixture(q.weights, (change @ q.mean[..., None])[..., 0], q.spread)

    def _cross_terms(self, q: Mixture, factor: Array, precisions: Array) -> Array:
        """Compute the bracket of eq. (19) of the paper, summed over latents, (K,)."""
        xp = array_namespace(q.mean)
        log_det = 2.0 * xp.sum(xp.log(xp.linalg.diagonal(factor)))
        constant = self.latents * self.inducing * LOG_2PI + log_det
        return constant + xp.sum(xp.square(q.mean) + precisions * q.spread, axis=(1, 2))

    def _cross_factor_gradient(self, q: Mixture, factor: Array, inverse: Array) -> Array:
        xp = array_namespace(q.mean)
        expected = xp.sum(q.weights[:, None, None] * q.spread, axis=0)
        whitened = symmetrise(add_weighted_gram(zeros_like(factor), inverse, expected))
        by_trace = solve_triangular(factor, whitened, transposed=True, overwrite=True)
        return by_trace - identity(factor) / xp.linalg.diagonal(factor)[..., None]

    def _overlaps(self, q: Mixture, factor: Array) -> tuple[Array, Array, Array]:
        """Compute log N_kl (K, K), differences of means and sums of variances of u, (K, K, Q, M)."""
        xp = array_namespace(q.mean)
        u = (factor @ q.mean[..., None])[..., 0]
        difference = u[:, None, ...] - u[None, :, ...]
        total = q.spread[:, None, ...] + q.spread[None, :, ...]
        return -0.5 * xp.sum(LOG_2PI + xp.log(total) + xp.square(difference) / total, axis=(2, 3)), difference, total

    def _pack(self, logits: Array, mean: Array, spread: Array) -> Array:
        xp = array_namespace(mean)
        parts = [logits] if self.components > 1 else []
        return xp.concat([*parts, xp.reshape(mean, (-1,)), xp.reshape(spread, (-1,))])


def _halves(values: Array) -> tuple[Array, Array]:
    middle = values.shape[0] // 2
    return values[:middle], values[middle:]


def _precisions(inverse: Array) -> Array:
    """Compute the diagonal of (L L^T)^-1 from L^-1, (Q, M)."""
    return sum_of_squares(inverse)
