"""Linear Gaussian problems with any prior, and their closed-form posterior, computed without the package's kernels."""

import numpy as np

import invgp

SLOPES = (1.0, 0.6)  # of the outputs with respect to two latents


def matern52(X1, X2, length):
    """Correlation of a Matern kernel."""
    scaled = np.sqrt(5.0) * np.linalg.norm((X1[:, None] - X2[None]) / length, axis=-1)
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)


def condition(mean, covariance, rows, y, noise):
    """Return mean and covariance of a Gaussian vector given y = rows f + noise."""
    gram = rows @ covariance @ rows.T + np.diag(np.broadcast_to(noise, y.shape) ** 2)
    gain = np.linalg.solve(gram, rows @ covariance).T
    return mean + gain @ (y - rows @ mean), covariance - gain @ rows @ covariance


def depth(depth):
    """Return the only latent, or a weighted sum of its two labels."""
    return depth if depth.ndim == 1 else depth @ np.asarray(SLOPES)


def density_and_velocity(density, velocity):
    """Return a weighted sum of two latents."""
    return SLOPES[0] * density + SLOPES[1] * velocity


def site_problem(X, y, latents, noise=1.0, **keys):
    """A site model whose data are a weighted sum of one or two latents, or of the labels of one."""
    names = ("x", "y")[: X.shape[1]]
    data = dict(zip(names, X.T, strict=True)) | {"data": y}
    return invgp.define(
        data,
        coordinates=dict.fromkeys(names, "m"),
        observations={"data": "1"},
        latents=latents,
        forward=depth if len(latents) == 1 else density_and_velocity,
        noise={"data": noise},
        **{"inference": {"posterior": "coupled gaussian"}} | keys,
    )


def assert_same_posterior(found, name, mean, std, tolerance=1e-6):
    """Check mean and standard deviation of a latent, in its standard deviations."""
    actual, spread = found[name].values.ravel(), found[f"{name}_std"].values.ravel()
    np.testing.assert_allclose((actual - mean) / std, 0.0, atol=tolerance)
    np.testing.assert_allclose(spread / std, 1.0, atol=tolerance)
