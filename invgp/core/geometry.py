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

from invgp.core.backend import Array, array_namespace, cholesky, device_of, solve_triangular
from invgp.core.kernels import Kernel


@dataclass(frozen=True)
class Geometry:
    """Factors and projections, batched over the Q latents.

    Attributes
    ----------
    factor : L, (Q, M, M), lower triangular.
    projection : W, (Q, M, B), with columns w_n.
    residual : ktilde, (Q, B), prior variance that the inducing variables leave open.
    dense : the inputs are the inducing inputs (Z = X), so that W = L^T and nothing is left open.
    """

    factor: Array
    projection: Array
    residual: Array
    dense: bool

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
    """

    factor: Array
    projection: Array
    residual: Array


def inducing_factor(kernels: Sequence[Kernel], Z: Array) -> Array:
    """L, (Q, M, M), for inducing inputs Z (Q, M, D)."""
    xp = array_namespace(Z)
    return xp.stack([cholesky(kernel(Z[j, ...], Z[j, ...])) for j, kernel in enumerate(kernels)])


def dense_geometry(factor: Array) -> Geometry:
    """The geometry of the inducing inputs themselves, from L (Q, M, M)."""
    xp = array_namespace(factor)
    return Geometry(factor, xp.matrix_transpose(factor), xp.zeros_like(factor[..., 0]), dense=True)


def sparse_geometry(kernels: Sequence[Kernel], Z: Array, factor: Array, X: Array) -> Geometry:
    """The geometry of inputs X (B, D), given Z (Q, M, D) and its factor (Q, M, M)."""
    xp = array_namespace(Z, X)
    covariance = xp.stack([kernel(Z[j, ...], X) for j, kernel in enumerate(kernels)])
    projection = solve_triangular(factor, covariance)
    variance = xp.stack([kernel.variance + xp.zeros_like(X[:, 0]) for kernel in kernels])
    # Rounding can leave a variance of minus a few units in the last place where an input is an inducing input.
    residual = xp.maximum(variance - xp.sum(xp.square(projection), axis=1), xp.zeros_like(variance))
    return Geometry(factor, projection, residual, dense=False)


def pull_back_batch(
    kernels: Sequence[Kernel], Z: Array, X: Array, geometry: Geometry, gradient: GeometryGradient
) -> tuple[Array, Array, Array]:
    """Gradient with respect to the kernels' free parameters (Q, 1 + D), Z (Q, M, D) and the factor (Q, M, M).

    The parts that go through the covariance between Z and the batch X; those through the factor are left to
    `pull_back_factor`, once for all batches. In the dense case everything goes through the factor.
    """
    xp = array_namespace(X, geometry.factor)
    if geometry.dense:
        nothing = xp.zeros_like(Z[:, 0, :])
        factor_gradient = gradient.factor + xp.matrix_transpose(gradient.projection)
        return xp.concat([nothing[:, :1], nothing], axis=-1), xp.zeros_like(Z), factor_gradient
    through_residual = -2.0 * gradient.residual[:, None, :] * geometry.projection
    covariance_gradient = solve_triangular(geometry.factor, gradient.projection + through_residual, transposed=True)
    factor_gradient = gradient.factor - covariance_gradient @ xp.matrix_transpose(geometry.projection)
    parameters, inputs = [], []
    for j, kernel in enumerate(kernels):
        across = kernel.pull_back(Z[j, ...], X, covariance_gradient[j, ...])
        log_variance = across.log_variance + kernel.variance * xp.sum(gradient.residual[j, :])
        parameters.append(xp.concat([xp.reshape(log_variance, (1,)), across.log_length_scale]))
        inputs.append(across.X1)
    return xp.stack(parameters), xp.stack(inputs), factor_gradient


def pull_back_factor(kernels: Sequence[Kernel], Z: Array, factor: Array, gradient: Array) -> tuple[Array, Array]:
    """Gradient with respect to the kernels' free parameters (Q, 1 + D) and Z (Q, M, D) from that of the factor."""
    xp = array_namespace(Z, factor)
    covariance_gradient = cholesky_pull_back(factor, gradient)
    parameters, inputs = [], []
    for j, kernel in enumerate(kernels):
        within = kernel.pull_back(Z[j, ...], Z[j, ...], covariance_gradient[j, ...])
        parameters.append(xp.concat([xp.reshape(within.log_variance, (1,)), within.log_length_scale]))
        inputs.append(within.X1 + within.X2)
    return xp.stack(parameters), xp.stack(inputs)


def cholesky_pull_back(factor: Array, gradient: Array) -> Array:
    """Gradient with respect to the symmetric K = L L^T from that with respect to L, (Q, M, M) each."""
    xp = array_namespace(factor, gradient)
    inner = xp.tril(xp.matrix_transpose(factor) @ xp.tril(gradient))
    inner = inner - 0.5 * xp.linalg.diagonal(inner)[..., None] * _eye(factor)
    half = solve_triangular(factor, inner, transposed=True)
    whole = xp.matrix_transpose(solve_triangular(factor, xp.matrix_transpose(half), transposed=True))
    return 0.5 * (whole + xp.matrix_transpose(whole))


def _eye(matrices: Array) -> Array:
    xp = array_namespace(matrices)
    return xp.eye(matrices.shape[-1], dtype=matrices.dtype, device=device_of(matrices))
