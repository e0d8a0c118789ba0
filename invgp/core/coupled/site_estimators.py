"""Estimators of the expected log likelihood of a site, its gradient and its Hessian, from samples.

With f = b + F z, F F^T = Sigma and z standard normal, the estimators return the expectation over q of log p and of its
gradient and Hessian with respect to z. All three are least-squares fits of Hermite polynomials in z, which are
orthogonal under q. They fit

- the noise-whitened residuals r (Gaussian noise, log p = -|r|^2 / 2) with 1 and z: statistical linearisation;
- the same residuals with 1, z and second-order terms: exact for quadratic residuals;
- log p itself, for any likelihood: the score-function estimator of the paper with all its control variates.

The points z are the same for all sites. The factor F of a site includes a random rotation.

References
----------
Bonilla, Krauth and Dezfouli (2019), Equations (25) and (30), for the score-function estimator; Steinberg and Bonilla
(2014) and García-Fernández et al. (2015), for statistical linearisation.
"""

from __future__ import annotations

from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, device_of, product
from invgp.core.hermite import build_quadratic, coefficients, hermite_features
from invgp.core.natural_gradients import limit_precision


class GaussianNoise(NamedTuple):
    """Observations with Gaussian noise: log p = log_normaliser - |whitening (y - outputs)|^2 / 2.

    Attributes
    ----------
    y : Array, shape (N, P)
        Observations. Missing observations can have any finite value.
    whitening : Array, shape (N, P, P)
        Inverse Cholesky factor of the noise covariance, with zero rows and columns for missing observations.
    log_normaliser : Array, shape (N,)
        Logarithm of the normalisation constant of the density.
    observed : Array, shape (N, P)
        1 for an observation, 0 for a missing one.
    """

    y: Array
    whitening: Array
    log_normaliser: Array
    observed: Array

    def take(self, rows: Array) -> GaussianNoise:
        """Select the sites with the indices `rows`, shape (B,).

        Parameters
        ----------
        rows : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        GaussianNoise
        """
        xp = array_namespace(self.y)
        return GaussianNoise(*(xp.take(part, rows, axis=0) for part in self))

    def scale(self, log_scale: Array) -> GaussianNoise:
        """Multiply the noise of each output by exp(log_scale), shape (P,).

        Outputs with correlated noise must have the same scale.

        Parameters
        ----------
        log_scale : array, shape (P,)
            Logarithm of the factor of each output.

        Returns
        -------
        GaussianNoise
        """
        xp = array_namespace(self.y)
        return self._replace(
            whitening=xp.exp(-log_scale)[:, None] * self.whitening,
            log_normaliser=self.log_normaliser - (self.observed @ log_scale[:, None])[:, 0],
        )

    def residuals(self, outputs: Array) -> Array:
        """Compute whitened residuals (S, N, P) of outputs (S, N, P).

        Parameters
        ----------
        outputs : array, shape (S, N, P)
            Outputs of the simulator, in the units of the data.

        Returns
        -------
        array, shape (S, N, P)
        """
        xp = array_namespace(outputs)
        difference = xp.permute_dims(self.y - outputs, (1, 2, 0))
        return xp.permute_dims(self.whitening @ difference, (2, 0, 1))

    def available_residuals(self, present: Array) -> Array:
        """Find the whitened residuals (S, N, P) that depend only on outputs that are present, (S, N, P).

        Parameters
        ----------
        present : array of bool, shape (S, N, P)
            Which outputs the runs have.

        Returns
        -------
        array of bool, shape (S, N, P)
        """
        xp = array_namespace(self.y)
        missing = xp.permute_dims(xp.astype(~present, self.y.dtype), (1, 2, 0))
        return xp.permute_dims(xp.abs(self.whitening) @ missing, (2, 0, 1)) == 0.0

    def log_density(self, outputs: Array) -> Array:
        """Compute log p(y_n | outputs), shape (S, N), from outputs (S, N, P).

        Parameters
        ----------
        outputs : array, shape (S, N, P)
            Outputs of the simulator, in the units of the data.

        Returns
        -------
        array, shape (S, N), in nats
        """
        xp = array_namespace(outputs)
        return self.log_normaliser - 0.5 * xp.sum(xp.square(self.residuals(outputs)), axis=-1)


class SiteTerms(NamedTuple):
    """Expected log likelihood of each site and its derivatives with respect to z; optionally per output or group.

    Attributes
    ----------
    value : Array, shape (..., N)
        E[log p].
    gradient : Array, shape (..., N, Q)
        E[d log p / dz].
    curvature : Array, shape (..., N, Q, Q)
        E[d^2 log p / dz^2].
    """

    value: Array
    gradient: Array
    curvature: Array


def min_fit_samples(latents: int, *, quadratic: bool) -> int:
    """Compute the minimum number of samples per site for a fit: one and a half times the number of coefficients.

    Parameters
    ----------
    latents : int
        Number of latents, Q.
    quadratic : bool
        Whether second-order terms are fitted.

    Returns
    -------
    int
    """
    features = (latents + 1) * (latents + 2) // 2 if quadratic else latents + 1
    return features + (features + 1) // 2


class HermiteFit(NamedTuple):
    """Hermite coefficients of T functions per site: y ~ value + gradient z + (z^T curvature z - tr curvature) / 2.

    Attributes
    ----------
    value : Array, shape (N, T)
    gradient : Array, shape (N, T, Q)
    curvature : Array, shape (N, T, Q, Q)
        Zero for a linear fit.
    residual_variance : Array, shape (N, T)
        Mean square of the residuals of the fit.
    coefficient_variance : Array, shape (N, T)
        Estimated variance of the coefficient of a polynomial of unit variance.
    """

    value: Array
    gradient: Array
    curvature: Array
    residual_variance: Array
    coefficient_variance: Array


def fit_hermite(z: Array, values: Array, valid: Array, *, quadratic: bool) -> HermiteFit:
    """Fit Hermite polynomials to values (S, N, T) at points z (S, Q) for each site, without samples that are not valid.

    Parameters
    ----------
    z : Array, shape (S, Q)
        Standard normal points, the same for all sites.
    values : Array, shape (S, N, T)
        Function values.
    valid : Array of bool, shape (S, N)
        False for the samples to omit.
    quadratic : bool
        Whether to fit second-order terms.
    """
    xp = array_namespace(z, values)
    features = hermite_features(z, cross_terms=True) if quadratic else xp.concat([xp.ones_like(z[:, :1]), z], axis=1)
    F = features.shape[1]
    values = xp.where(valid[..., None], values, xp.zeros_like(values))
    fitted = coefficients(features, values, None if bool(xp.all(valid)) else valid)
    by_feature = xp.reshape(xp.permute_dims(fitted, (2, 0, 1)), (F, -1))
    predicted = xp.reshape(product(features, by_feature), values.shape)
    weight = xp.astype(valid, z.dtype)
    squares = xp.sum(weight[..., None] * xp.square(values - predicted), axis=0)
    count = xp.sum(weight, axis=0)
    ones = xp.ones_like(count)
    residual_variance = squares / xp.maximum(count, ones)[:, None]
    coefficient_variance = residual_variance / xp.maximum(count - float(F), ones)[:, None]
    return HermiteFit(*build_quadratic(fitted, z.shape[1]), residual_variance, coefficient_variance)


def estimate_by_output(z: Array, residuals: Array, valid: Array, *, quadratic: bool) -> SiteTerms:
    """Estimate the terms of each output for Gaussian noise, without the normaliser.

    Parameters
    ----------
    z : Array, shape (S, Q)
        Standard normal points.
    residuals : Array, shape (S, N, P)
        Whitened residuals at the points.
    valid : Array of bool, shape (S, N) or (S, N, P)
        Samples that the fit uses, for all outputs or for each of them.
    quadratic : bool
        Whether to fit second-order terms. Without them, this is statistical linearisation.

    Returns
    -------
    SiteTerms
        Terms with a leading dimension of P outputs.
    """
    xp = array_namespace(z, residuals)
    if valid.ndim == 2:
        fit = fit_hermite(z, residuals, valid, quadratic=quadratic)
    else:
        each = [
            fit_hermite(z, residuals[..., k : k + 1], valid[..., k], quadratic=quadratic)
            for k in range(residuals.shape[-1])
        ]
        fit = HermiteFit(*(xp.concat(parts, axis=1) for parts in zip(*each, strict=True)))
    a, b, H = fit.value, fit.gradient, fit.curvature
    square = (
        xp.square(a) + xp.sum(xp.square(b), axis=-1) + 0.5 * xp.sum(xp.square(H), axis=(-2, -1)) + fit.residual_variance
    )
    gradient = -(a[..., None] * b + (H @ b[..., None])[..., 0])
    # Squares of estimated coefficients are biased by their variances: one from b b^T and Q + 1 from each diagonal entry
    # of H H.
    variances = fit.coefficient_variance * (z.shape[1] + 2.0 if quadratic else 1.0)
    excess = variances[..., None, None] * xp.eye(z.shape[1], dtype=z.dtype, device=device_of(z))
    curvature = -(b[..., :, None] * b[..., None, :] + a[..., None, None] * H + H @ H - excess)
    if not quadratic:
        # The residual variance of a linear fit counts as noise. Otherwise a site with a strongly nonlinear or
        # discontinuous simulator would have far too much precision.
        noise = 1.0 + fit.residual_variance
        gradient, curvature = gradient / noise[..., None], curvature / noise[..., None, None]
    parts = (-0.5 * square, gradient, curvature)
    return SiteTerms(*(xp.permute_dims(part, (1, 0, *range(2, part.ndim))) for part in parts))


def sum_over_outputs(by_output: SiteTerms, log_normaliser: Array) -> SiteTerms:
    """Sum the terms of all outputs and add the normaliser, shape (N,).

    Parameters
    ----------
    by_output : SiteTerms
        Terms of each output.
    log_normaliser : Array, shape (N,)

    Returns
    -------
    SiteTerms
    """
    xp = array_namespace(log_normaliser)
    value, gradient, curvature = (xp.sum(part, axis=0) for part in by_output)
    return SiteTerms(log_normaliser + value, gradient, curvature)


def estimate_log_density(z: Array, log_density: Array, valid: Array) -> SiteTerms:
    """Estimate the terms of each site from log densities (S, N) of any likelihood at points z (S, Q).

    Parameters
    ----------
    z : array, shape (S, Q)
        Standard normal points.
    log_density : array, shape (S, N)
        Log densities of the data of each site at its samples.
    valid : array of bool, shape (S, N)
        Which runs succeeded.

    Returns
    -------
    SiteTerms
    """
    fit = fit_hermite(z, log_density[..., None], valid, quadratic=True)
    return SiteTerms(fit.value[:, 0], fit.gradient[:, 0, :], fit.curvature[:, 0, ...])


def mean_log_densities(log_density: Array, valid: Array) -> Array:
    """Compute E[log p], shape (N,), as the mean of the valid log densities (S, N), for sites with too few for a fit.

    Parameters
    ----------
    log_density : array, shape (S, N), in nats
        Log density of each sample.
    valid : array of bool, shape (S, N)
        Which samples are used.

    Returns
    -------
    array, shape (N,), in nats
    """
    xp = array_namespace(log_density)
    weight = xp.astype(valid, log_density.dtype)
    total = xp.sum(xp.where(valid, log_density, xp.zeros_like(log_density)), axis=0)
    return total / xp.maximum(xp.sum(weight, axis=0), xp.ones_like(total))


def limit_site_precision(curvature: Array) -> Array:
    """Compute the precision -curvature (N, Q, Q) in terms of z, with its negative eigenvalues limited.

    Parameters
    ----------
    curvature : array, shape (N, Q, Q)
        Expected second derivatives of the log density.

    Returns
    -------
    array, shape (N, Q, Q)
    """
    xp = array_namespace(curvature)
    values, vectors = xp.linalg.eigh(-0.5 * (curvature + xp.matrix_transpose(curvature)))
    return (vectors * limit_precision(values)[:, None, :]) @ xp.matrix_transpose(vectors)
