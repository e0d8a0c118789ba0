"""Posteriors of a line and of an area."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.plotted_posteriors import distance, posterior
from helpers.problems import map_problem


@pytest.fixture
def line() -> xr.Dataset:
    return posterior(distance(400.0 * np.arange(113)))


@pytest.fixture
def area() -> xr.Dataset:
    rng = np.random.default_rng(2)
    attributes = [{"units": "m", "long_name": name} for name in ("easting", "northing")]
    return posterior(
        {
            "easting": xr.DataArray(500e3 + rng.uniform(0.0, 12e3, 150), dims="site", attrs=attributes[0]),
            "northing": xr.DataArray(5720e3 + rng.uniform(0.0, 9e3, 150), dims="site", attrs=attributes[1]),
        }
    )


@pytest.fixture(scope="session")
def sounding_map() -> xr.Dataset:
    """A posterior that predicts, of fields that vary between the sites; the northing comes first."""
    problem = map_problem()
    survey = replace(problem.survey, coordinates=problem.survey.coordinates[::-1])
    rough = tuple(
        replace(latent, kernel=replace(latent.kernel, length_scale=0.1 * latent.kernel.length_scale))
        for latent in problem.latents
    )
    return invgp.invert(replace(problem, survey=survey, latents=rough))
