"""How many draws a posterior stores, and which."""

import numpy as np
import pytest

import invgp
from helpers.problems import linear_problem, map_problem
from invgp.posterior import Samples
from invgp.settings import OutputSettings


def samples(chain, mode):
    ones = np.ones((2, 1))
    latents = np.zeros((len(chain), 2, 1))
    return Samples(latents, np.asarray(chain), np.asarray(mode), "a sampler", np.nan, ones, ones)


@pytest.mark.parametrize(("unknowns", "stored"), [(1, 200), (50_000, 200), (100_000, 100), (400_000, 25), (10**7, 20)])
def test_that_large_surveys_store_fewer_draws(unknowns, stored):
    assert OutputSettings().stored_draws(unknowns) == stored
    assert OutputSettings(realizations=300).stored_draws(unknowns) == 300


def test_that_the_file_states_fewer_draws(monkeypatch):
    problem = linear_problem().with_output(realizations=None)
    assert invgp.invert(problem).sizes["realization"] == 200
    monkeypatch.setattr("invgp.settings.inference_settings.MOST_DRAWN_NUMBERS", 3000)
    few = invgp.invert(problem)
    assert few.sizes["realization"] == 100
    assert few["realization"].attrs["comment"] == "100 draws are stored instead of 200, since there are many unknowns"
    assert few["depth_sample"].dtype == np.float32
    named = invgp.invert(map_problem())
    assert "comment" not in named["realization"].attrs


def test_that_thinning_keeps_the_shares_of_modes_and_chains():
    # Evenly spaced draws, 100 of 256 in each iteration, would all come from the same 100 chains.
    chain = np.tile(np.arange(256), 40)
    mode = (chain % 64 == 0).astype(np.intp)
    found = samples(chain, mode)
    chosen = found.thin(4000)
    assert len(np.unique(chosen)) == 4000
    assert np.all(np.diff(chosen) > 0)
    counts = np.bincount(chain[chosen], minlength=256)
    assert counts.min() >= 15
    assert counts.max() <= 16
    assert np.mean(mode[chosen]) == pytest.approx(np.mean(mode), abs=1e-3)
    np.testing.assert_array_equal(found.thin(10**6), np.arange(len(chain)))
