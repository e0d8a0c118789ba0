"""Fields: the basis of the prior, the regression, and the posterior against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from helpers.linear_field import LinearProblem, kernel_on, line
from invgp.core.backend import Backend, to_numpy
from invgp.core.field.field_evidence import LinearisedData, NodeSlopes
from invgp.core.field.field_gaussian import LowRankGaussian, mirrored_normals
from invgp.core.field.field_inference import FieldInference
from invgp.core.field.grid_basis import leading_modes, pivoted_cholesky
from invgp.core.field.local_regression import Block, fit_blocks
from invgp.core.field.regression import Modes, Regression, fit_regression

Tolerance = Callable[..., float]


def test_that_a_complete_pivoted_cholesky_factor_reproduces_the_covariance(
    backend: Backend, tolerance: Tolerance
) -> None:
    X = backend.asarray(line(12))
    kernel = kernel_on(backend, 0.2, variance=2.5)
    factor, left, pivots = pivoted_cholesky(kernel, X, 1.0)
    assert sorted(pivots) == list(range(12))
    np.testing.assert_allclose(to_numpy(factor @ factor.T), to_numpy(kernel(X, X)), atol=tolerance(backend, 1e-9))
    np.testing.assert_allclose(to_numpy(left), 0.0, atol=tolerance(backend, 1e-9))


@pytest.mark.parametrize("share", [0.8, 0.95, 0.999])
def test_that_modes_are_as_few_as_the_share_allows(backend: Backend, share: float, tolerance: Tolerance) -> None:
    X = backend.asarray(line(60))
    kernel = kernel_on(backend, 0.1, variance=3.0)
    basis = leading_modes(kernel, X, share)
    exact = np.linalg.eigvalsh(to_numpy(kernel(X, X)))[::-1]
    kept = np.cumsum(exact) / exact.sum()
    assert basis.size - (int(np.argmax(kept >= share)) + 1) in (0, 1)
    np.testing.assert_allclose(to_numpy(basis.variances)[:5], exact[:5], rtol=0.05)
    whole = to_numpy(basis.modes) ** 2
    np.testing.assert_allclose(whole.sum(axis=1) + to_numpy(basis.omitted_variance), 3.0, rtol=tolerance(backend, 1e-9))
    assert to_numpy(basis.omitted_variance).mean() <= 3.0 * (1.0 - share) * (1.0 + tolerance(backend, 1e-9, 1e-2))


def test_that_fields_have_their_coordinates_back(backend: Backend, tolerance: Tolerance) -> None:
    basis = leading_modes(kernel_on(backend, 0.3), backend.asarray(line(40)), 0.99)
    w = backend.asarray(np.random.default_rng(0).standard_normal((4, basis.size)))
    np.testing.assert_allclose(
        to_numpy(basis.coordinates(w @ basis.modes.T)), to_numpy(w), atol=tolerance(backend, 1e-8, 1e-3)
    )


@pytest.mark.slow
def test_that_a_linear_model_has_its_exact_posterior_once_runs_exceed_the_variables(
    backend: Backend, tolerance: Tolerance
) -> None:
    problem = LinearProblem(backend)
    state = problem.run_batches(backend, [problem.size + 2, 10])
    np.testing.assert_allclose(to_numpy(state.q.mean), problem.mean, atol=tolerance(backend, 1e-6, 0.1))
    np.testing.assert_allclose(to_numpy(state.q.covariance), problem.covariance, atol=tolerance(backend, 1e-6, 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("runs", [6, 10, 14, 18])
@pytest.mark.parametrize("seed", range(4))
def test_that_few_runs_never_make_the_posterior_overconfident(runs: int, seed: int) -> None:
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend, seed=seed)
    assert runs < problem.size
    state = problem.run_batches(backend, [runs // 2, runs - runs // 2], seed)
    ratio = problem.spread(to_numpy(state.q.covariance)) / problem.spread(problem.covariance)
    assert np.median(ratio) > 0.9
    off = problem.modes @ (to_numpy(state.q.mean) - problem.truth) / problem.spread(to_numpy(state.q.covariance))
    assert np.sqrt(np.mean(off**2)) < 1.8


def test_that_student_t_noise_does_not_average_out_what_few_runs_leave_open() -> None:
    """Many data share what the regression does not know: samples are no surer than the linearisation."""
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend, data=400)
    problem.inference = replace(problem.inference, degrees=4.0)
    state = problem.run_batches(backend, [5, 5], seed=0)
    ratio = problem.spread(to_numpy(state.q.covariance)) / problem.spread(to_numpy(state.linear.to_dense().covariance))
    assert np.median(ratio) > 0.85


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("degrees", [None, 4.0])
@pytest.mark.parametrize("data", [40, 20])
def test_that_outputs_that_no_run_changes_leave_the_prior_alone(degrees: float | None, data: int) -> None:
    """All of them, or those of one block."""
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend)
    blocks = [Block(part, np.eye(problem.size), problem.inference.modes) for part in np.split(np.arange(40), 2)]
    problem.inference = replace(problem.inference, degrees=degrees, blocks=blocks)
    state = problem.run_batches(backend, [10], given=lambda outputs: np.where(np.arange(40) < data, 1.0, outputs))
    narrower = 1.0 - np.diagonal(state.q.covariance)
    assert np.isfinite(state.q.mean).all()
    assert narrower.max() < 1e-9 if data == 40 else narrower.max() > 0.05


@pytest.mark.slow
def test_that_student_t_noise_of_many_degrees_is_gaussian(backend: Backend, tolerance: Tolerance) -> None:
    """The density of data with an uncertain regression, in closed form."""
    problem = LinearProblem(backend, data=12)
    state = problem.run_batches(backend, [8])
    regression = replace(
        state.regression, variances=state.regression.variances * 30.0, scale=state.regression.scale * 0.5
    )
    w = backend.asarray(np.random.default_rng(5).standard_normal((6, problem.size)))
    ones = backend.asarray(np.ones(12))
    gaussian, student = (
        to_numpy(replace(problem.inference, degrees=degrees).likelihood.log_density(regression, w, ones))
        for degrees in (None, 1e9)
    )
    assert np.ptp(gaussian) > 1.0
    np.testing.assert_allclose(student - student[0], gaussian - gaussian[0], atol=tolerance(backend, 1e-4, 1.0))


def test_that_the_regression_knows_its_runs_and_doubts_far_from_them(backend: Backend) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((40, 3))
    outputs = np.stack([np.sin(w[:, 0]) + 0.3 * w[:, 1], w[:, 2] * w[:, 0]], axis=-1) * 10.0
    regression = fit_regression(
        Modes(backend.asarray([1.0, 0.5, 0.2]), (3,)), backend.asarray(w), backend.asarray(outputs)
    )
    np.testing.assert_allclose(to_numpy(regression.mean(backend.asarray(w))), outputs, atol=0.3)
    near, far = (float(regression.predictions(backend.asarray(s * w[:1]))[1][0, 0]) for s in (1.0, 20.0))
    assert far > 100.0 * near


def test_that_averages_of_the_regression_agree_with_quadrature(backend: Backend, tolerance: Tolerance) -> None:
    rng = np.random.default_rng(4)
    w = rng.standard_normal((30, 2))
    outputs = np.stack([np.sin(3.0 * w[:, 0]), w[:, 0] * w[:, 1]], axis=-1) * 5.0
    modes = Modes(backend.asarray([1.0, 0.7]), (2,))
    # A smooth part that outweighs the line and reaches less far than the posterior.
    wiggly = replace(
        fit_regression(modes, backend.asarray(w), backend.asarray(outputs)),
        hyper=np.asarray([1.0, 2.0, np.log(0.4), -10.0]),
    )
    mean, factor = np.asarray([0.3, -0.2]), np.asarray([[0.5, 0.0], [0.2, 0.4]])
    covariance = factor @ factor.T
    added = np.linalg.cholesky(np.linalg.inv(covariance) - np.eye(2))
    value, slope = wiggly.average_over(LowRankGaussian(backend.asarray(mean), backend.asarray(added)))
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    normals = np.stack([part.ravel() for part in np.meshgrid(points, points)], axis=-1)
    share = np.outer(weights, weights).ravel() / weights.sum() ** 2
    found = to_numpy(wiggly.predictions(backend.asarray(mean + normals @ factor.T))[0])
    exact = share @ found
    scale = np.abs(exact).max()
    np.testing.assert_allclose(to_numpy(value), exact, atol=tolerance(backend, 1e-8, 1e-3) * scale)
    # Stein: the average slope is the covariance of value and sample, times the precision.
    stein = np.linalg.solve(covariance, (share[:, None] * (normals @ factor.T)).T @ (found - exact)).T
    scale = np.abs(stein).max()
    np.testing.assert_allclose(to_numpy(slope), stein, atol=tolerance(backend, 1e-8, 1e-3) * scale)


def rounding_error(part: Regression) -> float:
    """How much rounding may change a prediction: kernel values, each known to a few eps, times the coefficients."""
    coefficients = np.abs(to_numpy(part.coefficients)) @ np.abs(to_numpy(part.directions))
    largest = np.abs(to_numpy(part.covariance)).max() * coefficients.sum(axis=0).max()
    return float(10.0 * np.finfo(to_numpy(part.w).dtype).eps * largest)


@pytest.mark.slow
def test_that_blocks_agree_with_a_regression_of_each_in_its_own_variables(
    backend: Backend, tolerance: Tolerance
) -> None:
    rng = np.random.default_rng(5)
    turns = [np.linalg.qr(rng.standard_normal((4, size)))[0] for size in (4, 2)]
    data, modes = [[2, 0], [1]], [Modes(backend.asarray(np.ones(size)), (size,)) for size in (4, 2)]
    w = rng.standard_normal((25, 4))
    outputs = 5.0 * np.stack([w[:, 0], np.sin(w @ turns[1][:, 0]), w[:, 1] * w[:, 2]], axis=-1)
    outputs += 0.5 * rng.standard_normal(outputs.shape)  # for a nugget that leaves the regression well conditioned
    blocks = [Block(np.asarray(d), backend.asarray(t), m) for d, t, m in zip(data, turns, modes, strict=True)]
    whole = fit_blocks(blocks, backend.asarray(w), backend.asarray(outputs), None)
    directions = to_numpy(whole.directions)
    orthonormal = tolerance(backend, 1e-14, 1e-5)
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(directions)), atol=orthonormal)
    points = rng.standard_normal((6, 4))
    q = LowRankGaussian(backend.asarray([0.1, -0.2, 0.3, 0.0]), backend.asarray(rng.standard_normal((4, 3))))
    expected, value = to_numpy(whole.mean(backend.asarray(points))), to_numpy(whole.average_over(q)[0]) @ directions
    inner_products = whole.inner_products(backend.asarray(points))
    np.testing.assert_array_equal(
        to_numpy(whole.predictions(backend.asarray(points), inner_products)[1]),
        to_numpy(whole.predictions(backend.asarray(points))[1]),
    )
    covariance = to_numpy(q.to_dense().covariance)
    for part, turn, columns in zip(whole.parts, turns, data, strict=True):
        close = rounding_error(part)
        assert close < tolerance(backend, 1e-10, 1e-2)
        alone = to_numpy(part.mean(backend.asarray(points @ turn)))
        np.testing.assert_allclose(expected[:, columns], alone, rtol=0.0, atol=close)
        along = np.linalg.inv(turn.T @ covariance @ turn) - np.eye(turn.shape[1])
        own = LowRankGaussian(
            backend.asarray(to_numpy(q.mean) @ turn),
            backend.asarray(np.linalg.svd(along)[0] * np.sqrt(np.linalg.svd(along)[1])),
        )
        found = to_numpy(part.average_over(own)[0]) @ to_numpy(part.directions)
        np.testing.assert_allclose(value[columns], found, rtol=0.0, atol=close)


def test_that_student_t_noise_shrugs_off_outliers() -> None:
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend, data=60)
    problem.y[::10] += 30.0
    spoilt = {}
    for degrees in (None, 4.0):
        problem.inference = FieldInference(
            problem.inference.modes, np.asarray(problem.y), problem.inference.normals, degrees
        )
        spoilt[degrees] = problem.modes @ (problem.run_batches(backend, [problem.size + 4]).q.mean - problem.truth)
    assert np.std(spoilt[4.0]) < 0.5 * np.std(spoilt[None])


@pytest.mark.slow
def test_that_a_bent_model_is_inverted_as_samples_say() -> None:
    """One variable, so that the exact posterior is a quadrature."""
    rng = np.random.default_rng(5)

    def forward(w: np.ndarray) -> np.ndarray:
        return np.concatenate([3.0 * np.exp(0.5 * w), 2.0 * w], axis=-1)

    y = forward(np.asarray([[0.8]]))[0] + np.asarray([0.3, -0.5])
    inference = FieldInference(Modes(np.ones(1), (1,)), y, mirrored_normals(rng, 64, 1))
    state = inference.init()
    for _ in range(3):
        w = inference.ask(state, 8, rng)
        state, _ = inference.tell(state, w, forward(w), rng, 200)
    points = np.linspace(-4.0, 4.0, 20_001)[:, None]
    density = np.exp(-0.5 * np.sum((y - forward(points)) ** 2, axis=1) - 0.5 * points[:, 0] ** 2)
    density /= density.sum()
    mean = density @ points[:, 0]
    std = np.sqrt(density @ (points[:, 0] - mean) ** 2)
    assert abs(state.q.mean[0] - mean) < 0.05 * std
    assert abs(np.sqrt(state.q.covariance[0, 0]) / std - 1.0) < 0.05


def test_that_the_evidence_is_that_of_the_data(backend: Backend, tolerance: Tolerance) -> None:
    """Of a linear model with known noise, under another kernel than the one that the runs were drawn with."""
    rng = np.random.default_rng(8)
    X = line(30)
    own, other = (kernel_on(backend, scale, variance=v) for scale, v in ((0.2, 1.0), (0.3, 2.0)))
    basis = leading_modes(own, backend.asarray(X), 0.9999999)
    J, residual, scales = rng.standard_normal((9, 30)), 3.0 * rng.standard_normal(9), 0.3 * rng.standard_normal(9)
    directions, excess = np.linalg.qr(rng.standard_normal((9, 9)))[0], rng.uniform(0.0, 2.0, 9)
    data = LinearisedData(
        backend.asarray(residual),
        backend.asarray(directions),
        backend.asarray(directions @ J @ to_numpy(basis.modes)),
        backend.asarray(np.ones(9)),
        backend.asarray(np.zeros(9)),
        backend.asarray(excess),
    )
    nodes = backend.asarray(X[basis.pivots])
    found = data.log_evidence(
        NodeSlopes.from_basis(own, basis, nodes, [data.slope]).covariance(other), backend.asarray(scales)
    )
    whole = J @ to_numpy(other(backend.asarray(X), backend.asarray(X))) @ J.T + np.diag(np.exp(2.0 * scales) + excess)
    exact = -0.5 * (residual @ np.linalg.solve(whole, residual) + np.linalg.slogdet(2.0 * np.pi * whole)[1])
    assert abs(found - exact) < tolerance(backend, 1e-3, 0.3)


@pytest.mark.slow
def test_that_student_t_noise_gives_the_posterior_of_a_sampler() -> None:
    """Gibbs sampling of the noise as a mixture of scales is exact for a linear model."""
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend, length_scale=0.15, data=40)
    problem.y[::8] += 12.0
    degrees, size = 4.0, problem.size
    problem.inference = FieldInference(problem.inference.modes, problem.y, problem.inference.normals, degrees)
    state = problem.inference.refine(problem.run_batches(backend, [size + 6, 10]), np.random.default_rng(2), 400)
    rng = np.random.default_rng(9)
    w, visited = np.zeros(size), []
    for _ in range(6000):
        residual = problem.y - problem.outputs(w)
        precision = rng.gamma(0.5 * (degrees + 1.0), 2.0 / (degrees + residual**2))
        factor = np.linalg.cholesky(np.eye(size) + (problem.A.T * precision) @ problem.A)
        mean = np.linalg.solve(factor, problem.A.T @ (precision * (problem.y - problem.offset)))
        w = np.linalg.solve(factor.T, mean + rng.standard_normal(size))
        visited.append(problem.modes @ w)
    samples = np.stack(visited[500:])
    off = (problem.modes @ to_numpy(state.q.mean) - samples.mean(axis=0)) / samples.std(axis=0)
    ratio = problem.spread(to_numpy(state.q.covariance)) / samples.std(axis=0)
    assert np.sqrt(np.mean(off**2)) < 0.1
    assert np.all(np.abs(ratio - 1.0) < 0.15)
