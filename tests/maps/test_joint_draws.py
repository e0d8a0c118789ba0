"""Joint draws on maps: covariances against closed forms, and spectra against exact draws."""

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.exact_posterior import joint_posterior
from helpers.problems import linear_problem, map_problem
from invgp.core.geometry import inducing_factor
from invgp.core.kernels import STATIONARY, Matern32
from invgp.maps import joint_draws, prior_draws, prior_functions
from invgp.maps.grids import MapGrid
from invgp.maps.joint_draws import DrawMethods, JointDraws
from invgp.maps.predict import plan_map, predict
from invgp.maps.process_prior import SharedKernel
from invgp.maps.read_posterior_field import read_posterior_field

METHODS = ("exact", "circulant embedding", "sums of waves")
POINTS = 12


@pytest.fixture(scope="module")
def linear():
    return invgp.invert(linear_problem())


@pytest.fixture(scope="module")
def layered_posterior():
    return invgp.invert(map_problem())


@pytest.fixture(params=METHODS)
def method(request, monkeypatch):
    """Use one method for every map."""
    if request.param != "exact":
        monkeypatch.setattr(joint_draws, "DENSE_POINTS", 0)
    if request.param == "sums of waves":
        monkeypatch.setattr(joint_draws, "GRID_BYTES", 0)
    return request.param


def shared_kernel(name, Z, length_scale):
    kernel = STATIONARY[name](np.float64(1.0), length_scale)
    return SharedKernel(kernel, Z, inducing_factor([kernel], Z[None], 0.0)[0], 0.0)


def square_grid(count, extent=1.0):
    axis = np.linspace(0.0, extent, count)
    return MapGrid(("x", "y"), (axis, axis), None, ("y", "x"))


def all_points(grid):
    return grid.at(tuple(slice(0, size) for size in grid.shape))


@pytest.mark.slow
def test_that_draws_have_the_joint_covariance_of_the_exact_posterior(linear, method):
    found = predict(linear, grid="easting=10:90:20,northing=0:100:25", draws=4000, derive=["both = depth * velocity"])
    assert found.attrs["invgp_map_draws"] == method
    northing, easting = np.meshgrid(found["northing"], found["easting"], indexing="ij")
    X = np.stack([easting.ravel(), northing.ravel()], axis=-1)
    mean, covariance = joint_posterior(linear_problem(), X)
    draws = np.concatenate([found[f"{n}_sample"].values.reshape(4000, -1) for n in ("velocity", "depth")], axis=1)
    std = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / std, 0.0, atol=0.08)
    prior = np.repeat([2.0, 1.5], len(X))
    error = (np.cov(draws.T) - covariance) / (prior[:, None] * prior)
    assert np.max(np.abs(error)) < (0.07 + prior_functions.WAVE_ERROR if method == "sums of waves" else 0.07)
    np.testing.assert_allclose(found["both_sample"], found["velocity_sample"] * found["depth_sample"])


def test_that_draws_do_not_change_with_the_size_of_the_blocks(layered_posterior, method):
    whole = predict(layered_posterior, grid="10", draws=3, exceed=["thickness > 9"])
    pieces = predict(layered_posterior, grid="10", draws=3, exceed=["thickness > 9"], memory=10_000)
    assert plan_map(layered_posterior, grid="10", draws=3, memory=10_000).block_points < whole.sizes["easting"]
    assert whole.attrs["invgp_map_draws"] == method
    xr.testing.assert_allclose(whole.drop_attrs(), pieces.drop_attrs(), rtol=1e-9)


def test_that_draws_at_the_sites_are_those_of_the_inducing_variables(linear, method):
    # At the sites of a dense posterior no variance is left: a draw there is given by the inducing variables.
    field = read_posterior_field(linear)
    X = np.stack([linear["easting"], linear["northing"]], axis=-1)
    axes = np.linspace(0.0, 100.0, POINTS)
    on_grid = MapGrid(("easting", "northing"), (axes, axes), None, ("northing", "easting"))
    at_sites = MapGrid(("easting", "northing"), None, X, ("site",))
    grid = on_grid if method == "circulant embedding" else at_sites
    methods = DrawMethods.choose(field, grid, 50)
    drawn = JointDraws.sample(field, methods, 50, np.random.default_rng(1))
    [group] = field.draw_inducing(np.random.default_rng(1).spawn(2)[0], 50)
    if method == "circulant embedding":
        # The sites are not nodes: the draw at the inducing points takes the place of the draw at nodes.
        at = field.at(X, [0, 1]).projections[0]
        part = drawn.parts[0]
        f = np.stack(
            [
                part.draws[i].at_inducing + part.corrections[j] @ at[i][0]
                for j, i in enumerate(field.prior.kernel_index)
            ],
            axis=-1,
        )
        f = field.at(X, [0, 1]).mean + field.prior.std * f
    else:
        f = drawn.at(X, np.arange(len(X)), field.at(X, [0, 1]))
    for j in (0, 1):
        kernel = field.prior.kernels[field.prior.kernel_index[j]]
        expected = field.at(X, [0, 1]).mean[:, j] + field.prior.std[j] * group.whitened[:, j] @ kernel.factor.T
        np.testing.assert_allclose(f[..., j], expected, atol=2e-3)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("name", STATIONARY)
def test_that_waves_have_the_correlations_of_the_kernel(name, dimensions, rng):
    kernel = STATIONARY[name](1.0, np.ones(dimensions))
    lags = rng.standard_normal((2000, dimensions))
    lags *= (10.0 * rng.random(2000) / np.linalg.norm(lags, axis=1))[:, None]
    factors = [(kernel, tuple(range(dimensions)))]
    frequencies, shares = prior_functions.product_frequencies(factors, dimensions)
    error = np.abs(np.cos(lags @ frequencies.T) @ shares - kernel(lags, np.zeros((1, dimensions)))[:, 0])
    assert shares.sum() == pytest.approx(1.0)
    assert error.max() < prior_functions.WAVE_ERROR
    assert np.sqrt(np.mean(error**2)) < 0.006


@pytest.mark.parametrize("length_scale", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("name", STATIONARY)
def test_that_an_embedding_has_the_covariance_of_the_kernel(name, length_scale):
    axis = np.linspace(0.0, 1.0, 20), np.linspace(2.0, 0.0, 15)  # the second falls, with another step
    grid = MapGrid(("x", "y"), axis, None, ("y", "x"))
    kernel = STATIONARY[name](np.float64(1.0), np.asarray([length_scale, 0.7]))
    embedding = prior_draws.Embedding.build(kernel, grid)
    assert embedding.shape == (15, 20)
    # The covariance of a stationary periodic process is the Fourier transform of its eigenvalues.
    covariance = np.fft.fftn(embedding.roots**2).real[:15, :20]
    X = all_points(grid)
    np.testing.assert_allclose(covariance.ravel(), kernel(X, X[:1])[:, 0], atol=3e-6)


def test_that_draws_by_an_embedding_have_its_covariance():
    grid = square_grid(10)
    kernel = Matern32(np.float64(1.0), np.asarray([0.3, 0.3]))
    drawn = prior_draws.Embedding.build(kernel, grid).draw(6001, np.random.default_rng(2)).reshape(6001, -1)
    X = all_points(grid)
    assert np.abs(np.cov(drawn.T) - kernel(X, X)).max() < 0.07


@pytest.mark.parametrize("length_scale", [0.03, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("name", STATIONARY)
def test_that_draws_on_a_grid_have_the_exact_covariance_given_the_data(name, length_scale):
    # The distribution at the inducing points given the nodes is linear, so that its covariance is known. The data
    # have a noise of a tenth of the prior standard deviation. Two sites nearly coincide, and some are off the grid.
    grid = square_grid(25)
    Z = np.random.default_rng(1).uniform(-0.2, 1.2, (30, 2))
    Z[1] = Z[0] + 0.002
    kernel = shared_kernel(name, Z, np.full(2, length_scale))
    X = all_points(grid)
    K, Kzz, Kzx = kernel.kernel(X, X), kernel.kernel(Z, Z), kernel.kernel(Z, X)
    found = prior_draws.InducingConditionals.build(kernel, X)
    A, B = np.zeros((30, len(X))), np.zeros((30, 30))
    for i, (nodes, before, weights) in enumerate(zip(found.nodes, found.previous, found.weights, strict=True)):
        A[i, nodes] = weights[: len(nodes)]
        A[i] += weights[len(nodes) :] @ A[before]
        B[i] = weights[len(nodes) :] @ B[before]
        B[i, i] = found.spread[i]
    error = prior_draws.LOCATION_ERROR * np.eye(30)
    gain = np.linalg.solve(Kzz + error, Kzx)
    posterior = Kzz - Kzz @ np.linalg.solve(Kzz + 0.01 * np.eye(30), Kzz)  # of the inducing variables
    across = gain.T @ A @ K
    covariance = K - across - across.T + gain.T @ (A @ K @ A.T + B @ B.T + error + posterior) @ gain
    exact = K - Kzx.T @ np.linalg.solve(Kzz + 0.01 * np.eye(30), Kzx)
    assert np.abs(covariance - exact).max() < 0.03


def power_in_few_cells(fields, few=8):
    """Share of the power at 8 to 12 cycles over the map that is in the strongest cells of the Fourier transform."""
    n = fields.shape[-1]
    window = np.hanning(n)[:, None] * np.hanning(n)
    power = np.abs(np.fft.fft2((fields - fields.mean(axis=(1, 2), keepdims=True)) * window)) ** 2
    cycles = n * np.fft.fftfreq(n)
    radius = np.hypot(cycles[:, None], cycles)
    ring = (radius >= 8.0) & (radius <= 12.0) & (cycles[:, None] > 0.0)
    strongest = np.sort(power[:, ring], axis=1)[:, ::-1]
    return float(np.median(strongest[:, :few].sum(axis=1) / strongest.sum(axis=1)))


@pytest.mark.slow
@pytest.mark.parametrize("length_scale", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("name", ["exponential", "matern 3/2", "matern 5/2"])
def test_that_draws_have_no_ripples(name, length_scale):
    # A few waves would hold most of the power at high frequencies and be visible as parallel ripples.
    grid, rng = square_grid(52), np.random.default_rng(4)
    X = all_points(grid)
    kernel = shared_kernel(name, np.random.default_rng(1).random((5, 2)), np.full(2, length_scale))
    covariance = kernel.kernel(X, X) + 1e-10 * np.eye(len(X))
    exact = rng.standard_normal((30, len(X))) @ np.linalg.cholesky(covariance).T
    embedding = prior_draws.Embedding.build(kernel.kernel, grid)
    waves = prior_draws.WaveDraw.sample(kernel, 30, rng).at(X, np.arange(len(X)))
    shares = {
        name: power_in_few_cells(fields.reshape(30, 52, 52))
        for name, fields in (("exact", exact), ("grid", embedding.draw(30, rng)), ("waves", waves))
    }
    assert shares["grid"] < shares["exact"] + 0.12
    assert shares["waves"] < shares["exact"] + 0.12


def test_that_a_large_embedding_is_replaced_by_waves(monkeypatch):
    monkeypatch.setattr(prior_draws, "LARGEST_EMBEDDING", 60**2)
    grid = square_grid(30)
    short, long = (Matern32(np.float64(1.0), np.full(2, scale)) for scale in (0.02, 2.0))
    assert prior_draws.Embedding.build(short, grid) is not None
    assert prior_draws.Embedding.build(long, grid) is None


def test_that_unequal_steps_and_lists_of_points_are_not_regular():
    axis = np.asarray([0.0, 1.0, 3.0])
    assert prior_draws.is_regular(square_grid(4))
    assert not prior_draws.is_regular(MapGrid(("x",), (axis,), None, ("x",)))
    assert not prior_draws.is_regular(MapGrid(("x",), None, axis[:, None], ("site",)))
