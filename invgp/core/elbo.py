"""The terms of the evidence lower bound, each a function of arrays.

The bound is `expected_log_likelihood - kl` (equations elbo, kl and ell of the paper). The latent vector of
process j is written f_j = mean_j + L_j u_j with L_j L_j^T its prior covariance, so that the prior of the
whitened u_j is standard normal and the KL term needs no prior covariance at all.
"""

from __future__ import annotations

from invgp.core.backend import Array, array_namespace


def kl(whitened_mean: Array, whitened_cholesky: Array) -> Array:
    """KL(q || p), summed over latents, between N(v_j, R_j R_j^T) and the standard normal.

    Parameters
    ----------
    whitened_mean : v, (Q, N).
    whitened_cholesky : R, (Q, N, N), lower triangular with positive diagonal.
    """
    xp = array_namespace(whitened_mean, whitened_cholesky)
    quadratic = xp.sum(xp.square(whitened_mean)) + xp.sum(xp.square(whitened_cholesky))
    half_log_det = xp.sum(xp.log(xp.linalg.diagonal(whitened_cholesky)))
    size = whitened_mean.shape[0] * whitened_mean.shape[1]
    return 0.5 * (quadratic - size) - half_log_det


def expected_log_likelihood(site_values: Array) -> Array:
    """Sum over sites of E_q[log p(y_n | f_n)], from the (N,) values that an estimator gives."""
    return array_namespace(site_values).sum(site_values)
