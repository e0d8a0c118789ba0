"""What sites expect, found in pieces: the same numbers, within the memory budget, whatever N and S are."""

import tracemalloc

import numpy as np
import pytest

from helpers.savigp_models import FAMILIES, Quadratic, small_model
from invgp.core import expectations
from invgp.core.backend import to_numpy
from invgp.core.expectations import NotFiniteError
from invgp.core.memory import BATCH_BUDGET
from invgp.core.parameters import BLOCKS
from invgp.core.training import Blocks
from invgp.estimator import SAVIGP
from invgp.likelihoods import Gaussian

KINDS = ("squared exponential", "matern 5/2")


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("family", FAMILIES)
def test_that_pieces_of_a_batch_add_up(family, dense, numpy_backend, monkeypatch):
    bound, parameters, points = small_model(family, KINDS, dense)(numpy_backend)
    density = Quadratic(np.random.default_rng(7)).at(numpy_backend, parameters.likelihood)
    asked = []

    def count_calls(f, start, stop):
        asked.append((start, stop))
        return density(f, start, stop)

    whole = bound.bound_state(parameters).evaluate(density, points)
    monkeypatch.setattr(expectations, "BATCH_SITES", 3)
    pieces = bound.bound_state(parameters).evaluate(count_calls, points)
    assert sorted(set(asked)) == [(0, 3), (3, 6), (6, 7)]
    assert float(pieces.elbo) == pytest.approx(float(whole.elbo), rel=1e-12)
    np.testing.assert_allclose(pieces.gradient.flatten(BLOCKS), whole.gradient.flatten(BLOCKS), atol=1e-9)


def test_that_a_sample_without_a_density_is_an_error_where_it_has_to_be(backend, monkeypatch):
    bound, parameters, points = small_model("full", KINDS, dense=True)(backend)
    density, xp = Quadratic(np.random.default_rng(7)).at(backend, parameters.likelihood), backend.namespace
    monkeypatch.setattr(expectations, "BATCH_SITES", 3)

    def last_site_fails(f, start, stop):
        values, derivatives = density(f, start, stop)
        return (values if stop < 7 else xp.nan * values), derivatives

    bound_state = bound.bound_state(parameters)
    assert np.isfinite(to_numpy(bound_state.evaluate(density, points, strict=True).elbo))
    with pytest.raises(NotFiniteError):
        bound_state.evaluate(last_site_fails, points, strict=True)


@pytest.mark.slow
def test_that_a_dense_fit_with_very_many_samples_keeps_to_the_memory_budget():
    """All at once, the samples of 300 sites and what is made of them take nearly a gigabyte."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, (300, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(300)
    method = Blocks(learn=("posterior",), rounds=1, evaluations=1)
    few, many = (SAVIGP(Gaussian(0.2), method=method, samples=samples) for samples in (64, 60_000))
    few.fit(X, y)
    tracemalloc.start()
    many.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * BATCH_BUDGET
    assert many.trace_[-1] == pytest.approx(few.trace_[-1], abs=1e-6)
