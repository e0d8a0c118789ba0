"""What the kernels and the inducing inputs say about a batch of inputs, and the way back to their parameters.

With L L^T = K_zz for one latent, the whitened inducing variables v = L^-1 (u - mean) are standard normal under the
prior, and the latent at input n is f_n = mean + w_n^T v + e_n, w_n = L^-1 k_zn, e_n ~ N(0, ktilde_n).
In the paper's terms a_n = K_zz^-1 k_zn = L^-T w_n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from invgp.core.backend import (
    Array,
    add_weighted_gram,
    array_namespace,
    cholesky,
    clip_negative,
    device_of,
    identity,
    lower_product,
    product,
    solve_triangular,
    stack_arrays,
    sum_of_squares,
    tril,
    tril_with_diagonal,
)
from invgp.core.kernels import Covariance, Kernel


@dataclass(frozen=True)
class Geometry:
    """Factors and projections, batched over the Q latents.

    Attributes
    ----------
    factor : L, (Q, M, M), lower triangular.
    projection : W, (Q, M, B), with columns w_n.
    residual : ktilde, (Q, B), prior variance that the inducing variables leave open.
    dense : the inputs are the inducing inputs (Z = X), so that W = L^T and nothing is left open.
    covariances : between inducing inputs and inputs, by latent, (M, B), where they are kept for the way back.
    """

    factor: Array
    projection: Array
    residual: Array
    dense: bool
    covariances: tuple[Covariance, ...] | None = None

    @cached_property
    def weights(self) -> Array:
        """a_n as columns, (Q, M, B)."""
        if self.dense:
            xp = array_namespace(self.factor)
            eye = xp.eye(self.factor.shape[-1], dtype=self.factor.dtype, device=device_of(self.factor))
            return xp.broadcast_to(eye, self.factor.shape)
        return solve_triangular(self.factor, self.projection, transposed=True)


class GeometryGradient(NamedTuple):
    """Gradient of a scalar with respect to a geometry.

    Attributes
    ----------
    factor : (Q, M, M), without the part that comes through the projection.
    projection : (Q, M, B), without the part that comes through the residual.
    residual : (Q, B).
    marginals : what is behind projection and residual where these are not worked out.
    """

    factor: Array
    projection: Array
    residual: Array
    marginals: MarginalGradient | None = None


class MarginalGradient(NamedTuple):
    """Gradient of a scalar that sees a geometry through marginals w_n^T v_k and ktilde_n + w_n^T S_k w_n only.

    Attributes
    ----------
    mean, variance : (K, Q, B, 1).
    """

    mean: Array
    variance: Array


class Gram(NamedTuple):
    """sum_n v_n w_n w_n^T, not summed yet.

    Attributes
    ----------
    vectors : W, (Q, M, B).
    weights : v, (K, Q, B).
    """

    vectors: Array
    weights: Array

    def added_to(self, total: Array) -> Array:
        """Lower triangles (K, Q, M, M) of a total, which is used up, and this sum."""
        return add_weighted_gram(total, self.vectors, self.weights)


@dataclass(frozen=True)
class Sensitivity:
    """How the marginals of Gaussians with whitened means v_k and covariances S_k feel the covariances k_zn.

    With C the gradient with respect to K_zx, C = sum_k L^-T v_k g_k^T + 2 L^-T (S_k - I) W diag(h_k) for gradients g
    and h of means and variances; and that with respect to L is -C W^T, which needs only what is summed over the sites.

    Attributes
    ----------
    mean : L^-T v_k, (K, Q, M, 1).
    variance : 2 L^-T (S_k - I), (K, Q, M, M).
    """

    mean: Array
    variance: Array

    @staticmethod
    def of(factor: Array, mean: Array, spread: Array) -> Sensitivity:
        """From L (Q, M, M), v (K, Q, M) and the factors R of S = R R^T (K, Q, M, M)."""
        xp = array_namespace(factor)
        excess = product(spread, xp.matrix_transpose(spread))
        excess -= identity(factor)
        excess *= 2.0
        solved_mean = solve_triangular(factor, mean[..., None], transposed=True)
        return Sensitivity(solved_mean, solve_triangular(factor, excess, transposed=True, overwrite=True))

    def covariance_gradient(self, projection: Array, gradient: MarginalGradient) -> Array:
        """C, (Q, M, B)."""
        xp = array_namespace(projection)
        C = 0.0
        for k in range(self.mean.shape[0]):
            part = product(self.variance[k, ...], projection)
            part *= xp.matrix_transpose(gradient.variance[k, ...])
            part += self.mean[k, ...] @ xp.matrix_transpose(gradient.mean[k, ...])
            C = part if k == 0 else C + part
        return C

    def factor_gradient(self, mean: Array, gram: Array) -> Array:
        """-C W^T, (Q, M, M), from sums over the sites: W g (K, Q, M) and W diag(h) W^T (K, Q, M, M)."""
        total = 0.0
        for k in range(mean.shape[0]):
            part = product(self.variance[k, ...], gram[k, ...])
            part += self.mean[k, ...] * mean[k, ..., None, :]
            total = part if k == 0 else total + part
        total *= -1.0
        return total


def inducing_factor(kernels: Sequence[Kernel], Z: Array, jitter: float = 0.0) -> Array:
    """L, (Q, M, M), for inducing inputs Z (Q, M, D), with a share of the variance added to the diagonal."""
    factors = []
    for j, kernel in enumerate(kernels):
        covariance = kernel(Z[j, ...], Z[j, ...])
        if jitter:
            covariance = covariance + jitter * kernel.variance * identity(covariance)
        factors.append(cholesky(covariance))
    return stack_arrays(factors)


def dense_geometry(factor: Array) -> Geometry:
    """The geometry of the inducing inputs themselves, from L (Q, M, M)."""
    xp = array_namespace(factor)
    return Geometry(factor, xp.matrix_transpose(factor), xp.zeros_like(factor[..., 0]), dense=True)


def sparse_geometry(kernels: Sequence[Kernel], Z: Array, factor: Array, X: Array, *, keep: bool = False) -> Geometry:
    """The geometry of inputs X (B, D), given Z (Q, M, D) and its factor (Q, M, M).

    Whoever means to go back to the kernels from a geometry that is used once had better `keep` the covariances.
    """
    xp = array_namespace(Z, X)
    kept = tuple(kernel.with_slope(Z[j, ...], X) for j, kernel in enumerate(kernels)) if keep else None
    covariance = stack_arrays([c.value for c in kept] if kept else [k(Z[j, ...], X) for j, k in enumerate(kernels)])
    projection = solve_triangular(factor, covariance, overwrite=not keep)
    variance = xp.stack([kernel.variance + xp.zeros_like(X[:, 0]) for kernel in kernels])
    # Rounding can leave a variance of minus a few units in the last place where an input is an inducing input.
    residual = clip_negative(variance - sum_of_squares(projection))
    return Geometry(factor, projection, residual, dense=False, covariances=kept)


def pull_back_batch(
    kernels: Sequence[Kernel], Z: Array, X: Array, geometry: Geometry, gradient: GeometryGradient
) -> tuple[Array, Array, Array]:
    """Gradient with respect to the kernels' free parameters (Q, 1 + D), Z (Q, M, D) and the factor (Q, M, M).

    The parts that go through the covariance between Z and the batch X; those through the factor are left to
    `pull_back_factor`, once for all batches. In the dense case everything goes through the factor.
    """
    xp = array_namespace(X, geometry.factor)
    if geometry.dense:
        nothing = xp.stack([xp.zeros_like(kernel.parameters) for kernel in kernels])
        factor_gradient = gradient.factor + xp.matrix_transpose(gradient.projection)
        return nothing, xp.zeros_like(Z), factor_gradient
    through_residual = -2.0 * gradient.residual[:, None, :] * geometry.projection
    covariance_gradient = solve_triangular(geometry.factor, gradient.projection + through_residual, transposed=True)
    factor_gradient = gradient.factor - product(covariance_gradient, xp.matrix_transpose(geometry.projection))
    parameters, inputs = pull_back_covariance(kernels, Z, X, geometry, covariance_gradient, gradient.residual)
    return parameters, inputs, factor_gradient


def pull_back_covariance(
    kernels: Sequence[Kernel],
    Z: Array,
    X: Array,
    geometry: Geometry,
    covariance_gradient: Array,
    residual_gradient: Array,
) -> tuple[Array, Array]:
    """Gradient with respect to the kernels' free parameters (Q, 1 + D) and Z (Q, M, D).

    From those with respect to the covariances between Z and X (Q, M, B), which is used up, and to the residual at fixed
    covariances (Q, B), which sees the prior variance.
    """
    xp = array_namespace(X, covariance_gradient)
    parameters, inputs = [], []
    for j, kernel in enumerate(kernels):
        covariance = geometry.covariances[j] if geometry.covariances else kernel.with_slope(Z[j, ...], X)
        across = kernel.pull_back(Z[j, ...], X, covariance, covariance_gradient[j, ...])
        log_variance = across.log_variance + kernel.variance * xp.sum(residual_gradient[j, :])
        parameters.append(xp.concat([xp.reshape(log_variance, (1,)), across.log_length_scale]))
        inputs.append(across.X1)
    return xp.stack(parameters), stack_arrays(inputs)


def pull_back_factor(
    kernels: Sequence[Kernel], Z: Array, factor: Array, gradient: Array, jitter: float = 0.0
) -> tuple[Array, Array]:
    """Gradient with respect to the kernels' free parameters (Q, 1 + D) and Z (Q, M, D) from that of the factor."""
    xp = array_namespace(Z, factor)
    covariance_gradient = cholesky_pull_back(factor, gradient)
    parameters, inputs = [], []
    for j, kernel in enumerate(kernels):
        trace = xp.sum(xp.linalg.diagonal(covariance_gradient[j, ...]))
        covariance = kernel.with_slope(Z[j, ...], Z[j, ...])
        within = kernel.pull_back(Z[j, ...], Z[j, ...], covariance, covariance_gradient[j, ...])
        log_variance = within.log_variance + jitter * kernel.variance * trace
        parameters.append(xp.concat([xp.reshape(log_variance, (1,)), within.log_length_scale]))
        inputs.append(2.0 * within.X1)  # the covariance is symmetric, so both sides add the same
    return xp.stack(parameters), stack_arrays(inputs)


def cholesky_pull_back(factor: Array, gradient: Array) -> Array:
    """Gradient with respect to the symmetric K = L L^T from that with respect to L, (Q, M, M) each."""
    xp = array_namespace(factor, gradient)
    inner = lower_product(factor, tril(gradient), transposed=True)
    inner = tril_with_diagonal(inner, 0.5 * xp.linalg.diagonal(inner))
    half = solve_triangular(factor, inner, transposed=True, overwrite=True)
    # The other half of a symmetric gradient is the transpose of this one.
    whole = solve_triangular(factor, xp.matrix_transpose(half), transposed=True)
    whole = whole + xp.matrix_transpose(whole)
    whole *= 0.5
    return whole
