"""Whole inversions and fits with arrays on a GPU, or on the stand-in for CuPy; see tests/core/test_cupy.py."""

import numpy as np
import pytest

import invgp
from helpers.averaged_fields import field_problem, quadratic_averages
from helpers.problems import map_problem
from invgp.likelihoods import Poisson


@pytest.fixture(autouse=True)
def _device(backend):
    if "cupy" not in backend.namespace.__name__:
        pytest.skip("needs --device cuda or --device stand-in")


def assert_equal(on_gpu, on_cpu, *names):
    for name in names:
        np.testing.assert_allclose(on_gpu[name].values, on_cpu[name].values, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("settings", [{}, {"emulator": False}, {"inducing": 6}, {"batch": 5}])
def test_that_a_gaussian_posterior_is_that_of_the_cpu(settings):
    problem = map_problem(posterior="coupled gaussian", **settings)
    on_gpu, on_cpu = (invgp.invert(problem, device=device) for device in ("cuda", "cpu"))
    assert_equal(on_gpu, on_cpu, "resistivity", "resistivity_std", "thickness", "thickness_std")


def test_that_draws_from_the_exact_posterior_are_those_of_the_cpu():
    problem = map_problem(posterior="sampled")
    on_gpu, on_cpu = (invgp.invert(problem, device=device) for device in ("cuda", "cpu"))
    assert on_gpu.attrs["invgp_runs"] == on_cpu.attrs["invgp_runs"]
    spread = on_cpu["thickness_std"].values
    np.testing.assert_allclose(on_gpu["thickness"].values, on_cpu["thickness"].values, atol=0.1 * spread.max())
    np.testing.assert_allclose(on_gpu["thickness_std"].values, spread, rtol=0.1)


def test_that_a_fit_is_that_of_the_cpu(rng):
    X = np.linspace(0.0, 6.0, 40)[:, None]
    counts = rng.poisson(np.exp(1.0 + np.sin(X)))
    on_gpu, on_cpu = (
        invgp.SAVIGP(Poisson(), inducing=8, device=device, random_state=0).fit(X, counts) for device in ("cuda", "cpu")
    )
    assert on_gpu.bound_ == pytest.approx(on_cpu.bound_, rel=1e-4)


def test_that_a_field_is_that_of_the_cpu():
    problem = field_problem(quadratic_averages)
    on_gpu, on_cpu = (invgp.invert(problem, device=device) for device in ("cuda", "cpu"))
    name = problem.latents[0].name
    assert on_gpu.attrs["invgp_runs"] == on_cpu.attrs["invgp_runs"]
    spread = on_cpu[f"{name}_std"].values
    np.testing.assert_allclose(on_gpu[name].values, on_cpu[name].values, atol=0.1 * spread.max())
    np.testing.assert_allclose(on_gpu[f"{name}_std"].values, spread, rtol=0.1)
