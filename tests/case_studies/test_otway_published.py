"""The paper's own Otway run, from the real times: needs the survey's folder (--otway-data, or $INVGP_OTWAY_DATA)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import invgp

PUBLISHED_ELBO = 384.4


@pytest.fixture(scope="module")
def survey(request):
    folder = request.config.getoption("--otway-data")
    if folder is None:
        pytest.skip(
            "the real Otway times are not ours to ship: give their folder with --otway-data or $INVGP_OTWAY_DATA"
        )
    return Path(folder)


@pytest.fixture(scope="module")
def posterior(survey, root):
    config = root / "case_studies" / "otway" / "paper_prior.toml"
    problem = invgp.load(config, data=survey / "two_way_times.csv")
    return invgp.invert(problem.with_inference(posterior="full gaussian"))


def test_that_the_bound_is_the_published_one(posterior):
    assert float(posterior["elbo"][-1]) == pytest.approx(PUBLISHED_ELBO, rel=0.01)


@pytest.mark.parametrize("latent", ["depth", "velocity"])
def test_that_the_spreads_are_the_published_ones(latent, posterior, survey):
    published = pd.read_csv(survey / "published_savigp.csv")
    unit = {"depth": "m", "velocity": "m_s"}[latent]
    for layer in (1, 2, 3, 4):
        theirs = published[f"std_{latent}_{layer}_{unit}"].to_numpy()
        ours = posterior[f"{latent}_std"].sel(layer=layer).to_numpy()
        assert np.mean(ours / theirs) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("latent", ["depth", "velocity"])
def test_that_the_means_are_the_published_ones_within_a_fraction_of_their_spread(latent, posterior, survey):
    published = pd.read_csv(survey / "published_savigp.csv")
    unit = {"depth": "m", "velocity": "m_s"}[latent]
    for layer in (1, 2, 3, 4):
        theirs = published[f"mean_{latent}_{layer}_{unit}"].to_numpy()
        spread = published[f"std_{latent}_{layer}_{unit}"].to_numpy()
        ours = posterior[latent].sel(layer=layer).to_numpy()
        assert np.sqrt(np.mean(((ours - theirs) / spread) ** 2)) < 0.15


@pytest.mark.parametrize(("learn", "least"), [({}, 470.0), ({"length_scale": np.inf}, 810.0)], ids=["given", "learnt"])
def test_that_the_coupled_bound_is_far_above_the_published_one(learn, least, survey, root):
    config = root / "case_studies" / "otway" / "paper_prior.toml"
    problem = invgp.load(config, data=survey / "two_way_times.csv")
    latents = problem.latents
    if learn:
        start = np.asarray([4480.0])
        latents = tuple(
            replace(latent, learn=learn, kernel=replace(latent.kernel, length_scale=start)) for latent in latents
        )
    found = invgp.invert(replace(problem, latents=latents))
    assert float(found["elbo"][-1]) > least
    assert found.attrs["invgp_converged"] == "yes"
    assert found.attrs["invgp_runs"] <= 10 * problem.survey.size
