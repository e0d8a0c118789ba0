"""Interpolation from inducing inputs to a batch of inputs, and gradients with respect to kernels and inducing inputs.

With L L^T = K_zz for one latent, the whitened inducing variables v = L^-1 (u - mean) are standard normal under the
prior, and the latent at input n is f_n = mean + w_n^T v + e_n, w_n = L^-1 k_zn, e_n ~ N(0, ktilde_n).
In the notation of the paper a_n = K_zz^-1 k_zn = L^-T w_n, with K-tilde and A as in eq. (6) of Bonilla, Krauth and
Dezfouli (2019).

The covariance of a scalar has rank one. Its factor L has the standard deviation in the first column and zeros
elsewhere, so that every f_n is the first whitened variable times the standard deviation. The other variables have no
effect.
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
from invgp.core.kernels import Kernel, Linearised, Scalar


@dataclass(frozen=True)
class Geometry:
    """Factors and projections, batched over the Q latents.

    Attributes
    ----------
    factor : array, shape (Q, M, M)
        L, lower triangular.
    projection : array, shape (Q, M, B)
        W, with columns w_n.
    residual : array, shape (Q, B)
        ktilde, the prior variance of the latents given the inducing variables.
    dense : bool
        Whether the inputs are the inducing inputs (Z = X), so that W = L^T and ktilde = 0.
    covariances : tuple of Linearised, length Q, or None
        Covariances (M, B) between inducing inputs and inputs with their derivatives, if they are stored for gradients.
    """

    factor: Array
    projection: Array
    residual: Array
    dense: bool
    covariances: tuple[Linearised, ...] | None = None

    @cached_property
    def weights(self) -> Array:
        """The vectors a_n as columns, (Q, M, B)."""
        if self.dense:
            xp = array_namespace(self.factor)
            eye = xp.eye(self.factor.shape[-1], dtype=self.factor.dtype, device=device_of(self.factor))
            return xp.broadcast_to(eye, self.factor.shape)
        return solve_triangular(self.factor, self.projection, transposed=True)


class GeometryGradient(NamedTuple):
    """Gradient of a scalar with respect to a geometry.

    Attributes
    ----------
    factor : array, shape (Q, M, M)
        Without the part that passes through the projection.
    projection : array, shape (Q, M, B)
        Without the part that passes through the residual.
    residual : array, shape (Q, B)
        Gradient with respect to ktilde.
    marginals : MarginalGradient or None
        Gradient with respect to the marginals, if those of projection and residual are not computed; they are None.
    """

    factor: Array
    projection: Array
    residual: Array
    marginals: MarginalGradient | None = None


class MarginalGradient(NamedTuple):
    """Gradient of a scalar that depends on a geometry only through marginals w_n^T v_k and ktilde_n + w_n^T S_k w_n.

    Attributes
    ----------
    mean, variance : array, shape (K, Q, B, 1)
    """

    mean: Array
    variance: Array


class Gram(NamedTuple):
    """Terms of the sum of v_n w_n w_n^T over n.

    Attributes
    ----------
    vectors : array, shape (Q, M, B)
        W, with columns w_n.
    weights : array, shape (K, Q, B)
        v.
    """

    vectors: Array
    weights: Array

    def add_to(self, total: Array) -> Array:
        """Add this sum to the lower triangles (K, Q, M, M) of a total, which is overwritten."""
        return add_weighted_gram(total, self.vectors, self.weights)


@dataclass(frozen=True)
class Sensitivity:
    """Derivatives of the marginals of Gaussians, with whitened means v_k and covariances S_k, with respect to K_zx.

    Let g_k and h_k be the gradients with respect to means and variances. The gradient with respect to K_zx is
    C = sum_k L^-T v_k g_k^T + 2 L^-T (S_k - I) W diag(h_k). The gradient with respect to L is -C W^T, which follows
    from sums over the sites.

    Attributes
    ----------
    mean : array, shape (K, Q, M, 1)
        L^-T v_k.
    variance : array, shape (K, Q, M, M)
        2 L^-T (S_k - I).
    """

    mean: Array
    variance: Array

    @staticmethod
    def of(factor: Array, mean: Array, spread: Array) -> Sensitivity:
        """Compute it from L (Q, M, M), v (K, Q, M) and the factors R of S = R R^T (K, Q, M, M)."""
        xp = array_namespace(factor)
        excess = product(spread, xp.matrix_transpose(spread))
        excess -= identity(factor)
        excess *= 2.0
        solved_mean = solve_triangular(factor, mean[..., None], transposed=True)
        return Sensitivity(solved_mean, solve_triangular(factor, excess, transposed=True, overwrite=True))

    def covariance_gradient(self, projection: Array, gradient: MarginalGradient) -> Array:
        """Compute C, (Q, M, B)."""
        xp = array_namespace(projection)
        C = 0.0
        for k in range(self.mean.shape[0]):
            part = product(self.variance[k, ...], projection)
            part *= xp.matrix_transpose(gradient.variance[k, ...])
            part += self.mean[k, ...] @ xp.matrix_transpose(gradient.mean[k, ...])
            C = part if k == 0 else C + part
        return C

    def factor_gradient(self, mean: Array, gram: Array) -> Array:
        """Compute -C W^T, (Q, M, M), from sums over the sites: W g (K, Q, M) and W diag(h) W^T (K, Q, M, M)."""
        total = 0.0
        for k in range(mean.shape[0]):
            part = product(self.variance[k, ...], gram[k, ...])
            part += self.mean[k, ...] * mean[k, ..., None, :]
            total = part if k == 0 else total + part
        total *= -1.0
        return total


def inducing_factor(kernels: Sequence[Kernel], Z: Array, jitter: float = 0.0) -> Array:
    """Compute L (Q, M, M) for inducing inputs Z (Q, M, D); the diagonal is multiplied by 1 + `jitter`.

    That of a scalar is exact, and singular: see `solvable_factor`.

    Parameters
    ----------
    kernels : sequence of Kernel, length Q
        Kernels of the latents.
    Z : array, shape (Q, M, D)
        Inducing inputs.
    jitter : float
        Relative increase of the diagonal.

    Returns
    -------
    array, shape (Q, M, M)
    """
    factors = []
    for j, kernel in enumerate(kernels):
        if isinstance(kernel, Scalar):
            factors.append(_scalar_factor(kernel, Z[j, ...]))
            continue
        covariance = kernel(Z[j, ...], Z[j, ...])
        if jitter:
            covariance = covariance + jitter * kernel.diagonal(Z[j, ...]) * identity(covariance)
        factors.append(cholesky(covariance))
    return stack_arrays(factors)


def _scalar_factor(kernel: Scalar, Z: Array) -> Array:
    """Compute L (M, M) of a scalar, with the standard deviation in its first column."""
    xp = array_namespace(Z)
    column = kernel.variance**0.5 + xp.zeros_like(Z[:, :1])
    return xp.concat([column, xp.zeros((Z.shape[0], Z.shape[0] - 1), dtype=Z.dtype, device=device_of(Z))], axis=1)


def solvable_factor(kernels: Sequence[Kernel], factor: Array) -> Array:
    """Return L (Q, M, M) with ones instead of the zeros on the diagonal of scalars.

    L x = b then has a solution, which is that of L x = b with the singular L if there is one: all rows but the first
    are zero.

    Parameters
    ----------
    kernels : sequence of Kernel, length Q
        Kernels of the latents.
    factor : array, shape (Q, M, M)
        Cholesky factor of each covariance.

    Returns
    -------
    array, shape (Q, M, M)
    """
    if not any(isinstance(kernel, Scalar) for kernel in kernels):
        return factor
    xp = array_namespace(factor)
    diagonal = xp.linalg.diagonal(factor)
    return tril_with_diagonal(factor, xp.where(diagonal == 0.0, xp.ones_like(diagonal), diagonal))


def join_parameters(kernels: Sequence[Kernel]) -> Array:
    """Concatenate the free parameters of kernels, shape (P,).

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels of the latents.

    Returns
    -------
    array, shape (P,)
    """
    found = [kernel.parameters for kernel in kernels]
    return array_namespace(*found).concat(found)


def split_parameters(kernels: Sequence[Kernel], parameters: Array) -> tuple[Kernel, ...]:
    """Return the kernels with the free parameters (P,) of all of them.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernels with any parameters.
    parameters : array, shape (P,)
        Free parameters of all kernels, in order.

    Returns
    -------
    tuple of Kernel
    """
    found, start = [], 0
    for kernel in kernels:
        end = start + len(kernel.parameter_names)
        found.append(kernel.with_parameters(parameters[start:end]))
        start = end
    return tuple(found)


def dense_geometry(factor: Array) -> Geometry:
    """Compute the geometry of the inducing inputs themselves, from L (Q, M, M).

    Parameters
    ----------
    factor : array, shape (Q, M, M)
        Cholesky factor of each covariance.

    Returns
    -------
    Geometry
    """
    xp = array_namespace(factor)
    return Geometry(factor, xp.matrix_transpose(factor), xp.zeros_like(factor[..., 0]), dense=True)


def sparse_geometry(kernels: Sequence[Kernel], Z: Array, factor: Array, X: Array, *, keep: bool = False) -> Geometry:
    """Compute the geometry of inputs X (B, D), given Z (Q, M, D) and its factor (Q, M, M).

    With `keep`, the covariances are stored, which makes gradients with respect to the kernels cheaper.

    Parameters
    ----------
    kernels : sequence of Kernel, length Q
        Kernels of the latents.
    Z : array, shape (Q, M, D)
        Inducing inputs.
    factor : array, shape (Q, M, M)
        Cholesky factor of their covariances.
    X : array, shape (B, D)
        Inputs.
    keep : bool
        Whether the covariances are stored.

    Returns
    -------
    Geometry
    """
    xp = array_namespace(Z, X)
    kept = tuple(kernel.linearise(Z[j, ...], X) for j, kernel in enumerate(kernels)) if keep else None
    covariance = stack_arrays([c.value for c in kept] if kept else [k(Z[j, ...], X) for j, k in enumerate(kernels)])
    projection = solve_triangular(solvable_factor(kernels, factor), covariance, overwrite=not keep)
    variance = xp.stack([kernel.diagonal(X) for kernel in kernels])
    # Rounding can make the variance slightly negative where an input is an inducing input.
    residual = clip_negative(variance - sum_of_squares(projection))
    return Geometry(factor, projection, residual, dense=False, covariances=kept)


def pull_back_batch(
    kernels: Sequence[Kernel], Z: Array, X: Array, geometry: Geometry, gradient: GeometryGradient
) -> tuple[Array, Array, Array]:
    """Compute the gradient with respect to the kernels' free parameters (P,), Z (Q, M, D) and L (Q, M, M).

    It contains the parts that pass through the covariance between Z and the batch X. `pull_back_factor` adds the part
    that passes through L, once for all batches. In the dense case everything passes through L.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernel of each of the Q latents.
    Z : Array, shape (Q, M, D)
        Inducing inputs.
    X : Array, shape (B, D)
        Inputs of the batch.
    geometry : Geometry
        Interpolation from Z to X.
    gradient : GeometryGradient
        Gradient with respect to the geometry.

    Returns
    -------
    kernels : Array, shape (P,)
    Z : Array, shape (Q, M, D)
    factor : Array, shape (Q, M, M)
    """
    xp = array_namespace(X, geometry.factor)
    if geometry.dense:
        nothing = xp.zeros_like(join_parameters(kernels))
        factor_gradient = gradient.factor + xp.matrix_transpose(gradient.projection)
        return nothing, xp.zeros_like(Z), factor_gradient
    through_residual = -2.0 * gradient.residual[:, None, :] * geometry.projection
    covariance_gradient = solve_triangular(
        solvable_factor(kernels, geometry.factor), gradient.projection + through_residual, transposed=True
    )
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
    """Compute the gradient with respect to the kernels' free parameters (P,) and Z (Q, M, D).

    It follows from the gradients with respect to the covariances between Z and X (Q, M, B), which is overwritten, and
    to the residual at fixed covariances (Q, B), which depends on the prior variance.

    Parameters
    ----------
    kernels : sequence of Kernel
        Kernel of each of the Q latents.
    Z : Array, shape (Q, M, D)
        Inducing inputs.
    X : Array, shape (B, D)
        Inputs of the batch.
    geometry : Geometry
        Interpolation from Z to X.
    covariance_gradient : Array, shape (Q, M, B)
    residual_gradient : Array, shape (Q, B)

    Returns
    -------
    kernels : Array, shape (P,)
    Z : Array, shape (Q, M, D)
    """
    xp = array_namespace(X, covariance_gradient)
    parameters, inputs = [], []
    for j, kernel in enumerate(kernels):
        covariance = geometry.covariances[j] if geometry.covariances else kernel.linearise(Z[j, ...], X)
        across = covariance.pull_back(covariance_gradient[j, ...])
        parameters.append(across.parameters + kernel.pull_back_diagonal(X, residual_gradient[j, :]).parameters)
        inputs.append(across.X1)
    return xp.concat(parameters), stack_arrays(inputs)


def pull_back_factor(
    kernels: Sequence[Kernel], Z: Array, factor: Array, gradient: Array, jitter: float = 0.0
) -> tuple[Array, Array]:
    """Convert the gradient with respect to L to the kernels' free parameters (P,) and Z (Q, M, D).

    Parameters
    ----------
    kernels : sequence of Kernel, length Q
        Kernels of the latents.
    Z : array, shape (Q, M, D)
        Inducing inputs.
    factor : array, shape (Q, M, M)
        L.
    gradient : array, shape (Q, M, M)
        Gradient with respect to L.
    jitter : float
        As in `inducing_factor`.

    Returns
    -------
    tuple of array, shapes (P,) and (Q, M, D)
    """
    xp = array_namespace(Z, factor)
    covariance_gradient = cholesky_pull_back(solvable_factor(kernels, factor), gradient)
    parameters, inputs = [], []
    for j, kernel in enumerate(kernels):
        own = Z[j, ...]
        if isinstance(kernel, Scalar):  # L is proportional to the square root of the variance
            parameters.append(xp.reshape(0.5 * xp.sum(tril(gradient[j, ...]) * factor[j, ...]), (1,)))
            inputs.append(xp.zeros_like(own))
            continue
        added = kernel.pull_back_diagonal(own, jitter * xp.linalg.diagonal(covariance_gradient[j, ...]))
        within = kernel.linearise(own, own).pull_back(covariance_gradient[j, ...])
        parameters.append(within.parameters + added.parameters)
        inputs.append(2.0 * within.X1 + added.X1)  # the covariance is symmetric: both arguments contribute equally
    return xp.concat(parameters), stack_arrays(inputs)


def cholesky_pull_back(factor: Array, gradient: Array) -> Array:
    """Convert the gradient with respect to L to that with respect to the symmetric K = L L^T, (Q, M, M) each.

    Parameters
    ----------
    factor : array, shape (Q, M, M)
        L.
    gradient : array, shape (Q, M, M)
        Gradient with respect to L.

    Returns
    -------
    array, shape (Q, M, M)
    """
    xp = array_namespace(factor, gradient)
    inner = lower_product(factor, tril(gradient), transposed=True)
    inner = tril_with_diagonal(inner, 0.5 * xp.linalg.diagonal(inner))
    half = solve_triangular(factor, inner, transposed=True, overwrite=True)
    # The other half of a symmetric gradient is the transpose of this one.
    whole = solve_triangular(factor, xp.matrix_transpose(half), transposed=True)
    whole = whole + xp.matrix_transpose(whole)
    whole *= 0.5
    return whole
