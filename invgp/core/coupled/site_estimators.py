"""From samples at a site to its expected log likelihood, and to what the site says of its latents.

With f = b + F z, F F^T = Sigma and z standard normal, the gradient and Hessian of log p, averaged over q, are wanted in
terms of z. All three estimators are least-squares fits to Hermite polynomials of z, which are orthogonal under q:

- of the noise-whitened residuals r (Gaussian noise, log p = -|r|^2 / 2) to 1 and z: statistical linearisation;
- of the same residuals to 1, z and second-order terms: the exact gradient and Hessian of quadratic residuals;
- of log p itself: for any likelihood, the score estimator of the paper with all its control variates.

The points z are the same for every site; sites differ in the rotation that F holds.
"""

from __future__ import annotations

from typing import NamedTuple

from invgp.core.backend import Array, array_namespace, device_of, product
from invgp.core.hermite import coefficients, hermite_features
from invgp.core.hermite import quadratic as quadratic_of
from invgp.core.natural_gradients import limit_precision


class GaussianNoise(NamedTuple):
    """Observations with Gaussian noise: log p = log_normaliser - |whitening (y - outputs)|^2 / 2.

    Attributes
    ----------
    y : (N, P); anything where nothing was observed.
    whitening : (N, P, P), zero in the rows and columns of what was not observed.
    log_normaliser : (N,).
    observed : (N, P), 1 where there is an observation, 0 where there is none.
    """

    y: Array
    whitening: Array
    log_normaliser: Array
    observed: Array

    def at(self, rows: Array) -> GaussianNoise:
        """The noise of some sites, by their numbers (B,)."""
        xp = array_namespace(self.y)
        return GaussianNoise(*(xp.take(part, rows, axis=0) for part in self))

    def scaled(self, log_scale: Array) -> GaussianNoise:
        """The noise of each output scaled by exp(log_scale), (P,); the same for outputs whose noise is correlated."""
        xp = array_namespace(self.y)
        return self._replace(
            whitening=xp.exp(-log_scale)[:, None] * self.whitening,
            log_normaliser=self.log_normaliser - (self.observed @ log_scale[:, None])[:, 0],
        )

    def residuals(self, outputs: Array) -> Array:
        """Whitened residuals (S, N, P) of outputs (S, N, P)."""
        xp = array_namespace(outputs)
        difference = xp.permute_dims(self.y - outputs, (1, 2, 0))
        return xp.permute_dims(self.whitening @ difference, (2, 0, 1))

    def known(self, present: Array) -> Array:
        """Which residuals (S, N, P) can be told where only some outputs (S, N, P) are present."""
        xp = array_namespace(self.y)
        missing = xp.permute_dims(xp.astype(~present, self.y.dtype), (1, 2, 0))
        return xp.permute_dims(xp.abs(self.whitening) @ missing, (2, 0, 1)) == 0.0

    def log_density(self, outputs: Array) -> Array:
        """Log p(y_n | outputs), (S, N)."""
        xp = array_namespace(outputs)
        return self.log_normaliser - 0.5 * xp.sum(xp.square(self.residuals(outputs)), axis=-1)


class SiteTerms(NamedTuple):
    """What the samples tell of each site, in terms of z; or what some of its outputs tell.

    Attributes
    ----------
    value : E[log p], (..., N).
    gradient : E[d log p / dz], (..., N, Q).
    curvature : E[d^2 log p / dz^2], (..., N, Q, Q).
    """

    value: Array
    gradient: Array
    curvature: Array


def fewest_samples(latents: int, *, quadratic: bool) -> int:
    """Fewest samples a site for a fit that is well posed, with some to spare."""
    features = (latents + 1) * (latents + 2) // 2 if quadratic else latents + 1
    return features + (features + 1) // 2


class Fit(NamedTuple):
    """Hermite coefficients: value ~ constant + slope z + (z^T bend z - tr bend) / 2.

    Attributes
    ----------
    constant : (N, T).
    slope : (N, T, Q).
    bend : (N, T, Q, Q); zero for a linear fit.
    rest : mean square of what the fit leaves, (N, T).
    doubt : variance of a coefficient of a polynomial of unit variance, (N, T).
    """

    constant: Array
    slope: Array
    bend: Array
    rest: Array
    doubt: Array


def hermite_fit(z: Array, values: Array, valid: Array, *, quadratic: bool) -> Fit:
    """Fit values (S, N, T) at points z (S, Q), site by site, leaving out what is not valid (S, N)."""
    xp = array_namespace(z, values)
    features = hermite_features(z, cross_terms=True) if quadratic else xp.concat([xp.ones_like(z[:, :1]), z], axis=1)
    F = features.shape[1]
    values = xp.where(valid[..., None], values, xp.zeros_like(values))
    fitted = coefficients(features, values, None if bool(xp.all(valid)) else valid)
    by_feature = xp.reshape(xp.permute_dims(fitted, (2, 0, 1)), (F, -1))
    there = xp.reshape(product(features, by_feature), values.shape)
    weight = xp.astype(valid, z.dtype)
    left = xp.sum(weight[..., None] * xp.square(values - there), axis=0)
    count = xp.sum(weight, axis=0)
    ones = xp.ones_like(count)
    rest = left / xp.maximum(count, ones)[:, None]
    doubt = rest / xp.maximum(count - float(F), ones)[:, None]
    return Fit(*quadratic_of(fitted, z.shape[1]), rest, doubt)


def estimate_by_output(z: Array, residuals: Array, valid: Array, *, quadratic: bool) -> SiteTerms:
    """What each output tells, (P, N, ...), from whitened residuals (S, N, P) of Gaussian noise, without normaliser.

    Statistical linearisation, or the Hermite terms as well. The regression of each output leaves out the runs where its
    residual is not valid: of all outputs (S, N), or by output (S, N, P).
    """
    xp = array_namespace(z, residuals)
    if valid.ndim == 2:
        fit = hermite_fit(z, residuals, valid, quadratic=quadratic)
    else:
        each = [
            hermite_fit(z, residuals[..., k : k + 1], valid[..., k], quadratic=quadratic)
            for k in range(residuals.shape[-1])
        ]
        fit = Fit(*(xp.concat(parts, axis=1) for parts in zip(*each, strict=True)))
    a, b, H = fit.constant, fit.slope, fit.bend
    square = xp.square(a) + xp.sum(xp.square(b), axis=-1) + 0.5 * xp.sum(xp.square(H), axis=(-2, -1)) + fit.rest
    gradient = -(a[..., None] * b + (H @ b[..., None])[..., 0])
    # The squares of coefficients are too large by their variances: Q + 1 of them in each diagonal of H H.
    variances = fit.doubt * (z.shape[1] + 2.0 if quadratic else 1.0)
    excess = variances[..., None, None] * xp.eye(z.shape[1], dtype=z.dtype, device=device_of(z))
    curvature = -(b[..., :, None] * b[..., None, :] + a[..., None, None] * H + H @ H - excess)
    if not quadratic:
        # What a line leaves is noise to it: otherwise a site seen through a bend or a jump would say far too much.
        noise = 1.0 + fit.rest
        gradient, curvature = gradient / noise[..., None], curvature / noise[..., None, None]
    parts = (-0.5 * square, gradient, curvature)
    return SiteTerms(*(xp.permute_dims(part, (1, 0, *range(2, part.ndim))) for part in parts))


def all_outputs(by_output: SiteTerms, log_normaliser: Array) -> SiteTerms:
    """What the sites tell, all outputs together, with the normaliser (N,)."""
    xp = array_namespace(log_normaliser)
    value, gradient, curvature = (xp.sum(part, axis=0) for part in by_output)
    return SiteTerms(log_normaliser + value, gradient, curvature)


def estimate_log_density(z: Array, log_density: Array, valid: Array) -> SiteTerms:
    """From log densities (S, N) of any likelihood."""
    fit = hermite_fit(z, log_density[..., None], valid, quadratic=True)
    return SiteTerms(fit.constant[:, 0], fit.slope[:, 0, :], fit.bend[:, 0, ...])


def plain_values(log_density: Array, valid: Array) -> Array:
    """E[log p], (N,), as the mean of the valid log densities (S, N): for sites with too few of them for a fit."""
    xp = array_namespace(log_density)
    weight = xp.astype(valid, log_density.dtype)
    total = xp.sum(xp.where(valid, log_density, xp.zeros_like(log_density)), axis=0)
    return total / xp.maximum(xp.sum(weight, axis=0), xp.ones_like(total))


def bounded_precision(curvature: Array) -> Array:
    """-curvature (N, Q, Q) in terms of z, without eigenvalues that would take too much precision away."""
    xp = array_namespace(curvature)
    values, vectors = xp.linalg.eigh(-0.5 * (curvature + xp.matrix_transpose(curvature)))
    return (vectors * limit_precision(values)[:, None, :]) @ xp.matrix_transpose(vectors)
