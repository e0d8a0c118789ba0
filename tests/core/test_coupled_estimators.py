"""What samples at a site tell: fits, without bias."""

import numpy as np
import pytest

from helpers.coupled_models import sobol
from invgp.core.backend import to_numpy
from invgp.core.coupled.site_estimators import estimate_by_output, estimate_log_density, fit_hermite, sum_over_outputs
from invgp.core.point_sets import Points


@pytest.mark.parametrize("quadratic", [True, False])
def test_that_a_fit_with_failed_runs_is_in_all_its_parts_the_fit_of_the_others_alone(
    quadratic, backend, tolerance, rng
):
    S, N, Q, T = 48, 4, 2, 3
    z = to_numpy(sobol(backend, S, 1, Q).base).astype(float)
    values = np.sin(z @ rng.standard_normal((Q, N * T)) + 1.0).reshape(S, N, T)
    valid = rng.random((S, N)) > np.asarray([0.0, 0.1, 0.3, 0.5])
    assert valid[:, 0].all()
    assert not valid[:, 1:].all(axis=0).any()
    broken = np.where(valid[..., None], values, 1e3)
    found = fit_hermite(backend.asarray(z), backend.asarray(broken), backend.asmask(valid), quadratic=quadratic)
    assert np.all(to_numpy(found.residual_variance) > 1e-6)
    for n in range(N):
        some = valid[:, n]
        alone = fit_hermite(
            backend.asarray(z[some]),
            backend.asarray(values[some, n : n + 1]),
            backend.asmask(np.ones((some.sum(), 1), dtype=bool)),
            quadratic=quadratic,
        )
        for name in found._fields:
            one, other = to_numpy(getattr(found, name))[n], to_numpy(getattr(alone, name))[0]
            close = {"rtol": tolerance(backend, 1e-8, 5e-3), "atol": tolerance(backend, 1e-9, 2e-3)}
            np.testing.assert_allclose(one, other, err_msg=name, **close)


def test_that_a_fit_is_that_of_least_squares(numpy_backend, rng):
    S, Q = 40, 2
    z = sobol(numpy_backend, S, 1, Q).base
    values = np.exp(0.5 * z @ rng.standard_normal((Q, 3)))[:, None, :]
    features = np.column_stack([np.ones(S), z, z**2 - 1.0, z[:, 0] * z[:, 1]])
    expected, left, *_ = np.linalg.lstsq(features, values[:, 0], rcond=None)
    fit = fit_hermite(z, values, np.ones((S, 1), dtype=bool), quadratic=True)
    np.testing.assert_allclose(fit.value[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(fit.gradient[0], expected[1:3].T, rtol=1e-9)
    np.testing.assert_allclose(fit.curvature[0][:, [0, 1], [0, 1]], 2.0 * expected[3:5].T, rtol=1e-9)
    np.testing.assert_allclose(fit.curvature[0][:, 0, 1], expected[5], rtol=1e-9)
    assert np.all((left / S <= fit.residual_variance[0] + 1e-15) & (fit.residual_variance[0] <= left / (S - 6) + 1e-15))


def coupled_residuals(z):
    """Whitened residuals (S, 2, 3) at two sites of three latents: beyond quadratic in all of them."""
    a, b, c = z[..., 0], z[..., 1], z[..., 2]
    first = np.stack([np.sin(a + 0.5 * b) + c, np.exp(0.4 * b - 0.3 * a) - 1.0, 0.3 * a * b * c + b], axis=-1)
    second = np.stack([a * c + 0.2 * a**3, np.tanh(b - c), 0.5 + np.cos(a) * b], axis=-1)
    return np.stack([first, second], axis=1)


def exact_expectations(function):
    """Of function (S, N), times 1, z, and z z^T - I, under three standard normals."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * 3, indexing="ij")], axis=-1)
    weight = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * 3, indexing="ij")), axis=0).ravel()
    values = function(grid) * weight[(..., *[None] * (function(grid).ndim - 1))]
    second = grid[:, :, None] * grid[:, None, :] - np.eye(3)
    return np.sum(values, axis=0), np.tensordot(values, grid, (0, 0)), np.tensordot(values, second, (0, 0))


def exact_terms(kind):
    """What the estimators estimate: (N,), (N, Q), (N, Q, Q)."""

    def log_p(z):
        return -0.5 * np.sum(coupled_residuals(z) ** 2, axis=-1)

    value, gradient, curvature = exact_expectations(log_p)
    if kind != "log density":
        a, b, H = exact_expectations(coupled_residuals)
        H = H if kind == "hermite" else np.zeros_like(H)
        # What a line leaves counts as noise.
        rest = exact_expectations(lambda z: coupled_residuals(z) ** 2)[0] - a**2 - np.sum(b**2, axis=-1)
        noise = (np.ones_like(a) if kind == "hermite" else 1.0 + rest)[..., None]
        gradient = -np.sum((a[..., None] * b + np.einsum("npij,npj->npi", H, b)) / noise, axis=1)
        curvature = b[..., :, None] * b[..., None, :] + a[..., None, None] * H + H @ H
        curvature = -np.sum(curvature / noise[..., None], axis=1)
    return value, gradient, curvature


@pytest.mark.parametrize("share_valid", [1.0, 0.8])
@pytest.mark.parametrize("kind", ["linear", "hermite", "log density"])
def test_that_the_coupled_estimators_have_no_bias_beyond_their_standard_error(kind, share_valid, numpy_backend):
    sets, S = 250, 256
    found = []
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        z = Points.draw(rng, S, 1, 3, numpy_backend).base
        residuals = coupled_residuals(z)
        valid = rng.random((S, 2)) < share_valid
        if kind == "log density":
            found.append(estimate_log_density(z, -0.5 * np.sum(residuals**2, axis=-1), valid))
        else:
            by_output = estimate_by_output(z, residuals, valid, quadratic=kind == "hermite")
            found.append(sum_over_outputs(by_output, np.zeros(2)))
    for name, expected in zip(("value", "gradient", "curvature"), exact_terms(kind), strict=True):
        estimates = np.asarray([getattr(terms, name) for terms in found])
        error = np.abs(estimates.mean(axis=0) - expected)
        spread = estimates.std(axis=0)
        # A regression on its own samples has a bias of order 1/S.
        allowed = 4.5 / np.sqrt(sets) * spread + np.maximum(4.0 / S, 0.2 * spread)
        assert np.all(error < allowed), (name, error, allowed)
