"""Maps of posteriors with direct data, against the closed form."""

from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.joint_problems import COMPOSED, LOG, MEAN, WELLS, ClosedForm, composed_correlation, latents, line_problem
from invgp.maps import joint_draws
from invgp.maps.prior_functions import WAVE_ERROR

BOTH = {"wells": WELLS, "log": LOG}
GRID = "x=-100:2000:75"


@pytest.fixture(scope="module")
def posterior():
    return invgp.invert(line_problem(BOTH))


def test_that_a_map_is_the_closed_form(posterior, tmp_path):
    path = invgp.write(posterior, tmp_path / "posterior.nc")
    found = invgp.predict(path, grid=GRID)
    mean, covariance = ClosedForm(BOTH.values()).at(found["x"].values)
    std = np.sqrt(np.diagonal(covariance)).reshape(2, -1).T
    for j, name in enumerate(MEAN):
        np.testing.assert_allclose((found[name].values - mean[:, j]) / std[:, j], 0.0, atol=1e-5)
        np.testing.assert_allclose(found[f"{name}_std"].values / std[:, j], 1.0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("method", ["exact", "circulant embedding", "sums of waves"])
def test_that_draws_on_a_map_have_the_covariance_of_the_closed_form(posterior, method, composed, monkeypatch):
    if composed:
        posterior = invgp.invert(line_problem(BOTH, latent_keys=latents(kernel=COMPOSED)))
    if method != "exact":
        monkeypatch.setattr(joint_draws, "DENSE_POINTS", 0)
    if method == "sums of waves":
        monkeypatch.setattr(joint_draws, "GRID_BYTES", 0)
    found = invgp.predict(posterior, grid=GRID, draws=4000)
    assert found.attrs["invgp_map_draws"] == method
    mean, covariance = ClosedForm(BOTH.values(), kernel=composed_correlation if composed else None).at(
        found["x"].values
    )
    draws = np.concatenate([found[f"{name}_sample"].values for name in MEAN], axis=1)
    prior = np.repeat([20.0, 8.0], found.sizes["x"])
    np.testing.assert_allclose((draws.mean(axis=0) - mean.T.ravel()) / prior, 0.0, atol=0.08)
    error = (np.cov(draws.T) - covariance) / (prior[:, None] * prior)
    assert np.max(np.abs(error)) < (0.07 + WAVE_ERROR if method == "sums of waves" else 0.07)


def test_that_exports_and_figures_and_the_report_take_direct_data(posterior, tmp_path):
    path = invgp.write(posterior, tmp_path / "posterior.nc")
    for files in (invgp.export(path, "csv", output=tmp_path / "sites.csv"), invgp.plot(path)):
        assert files
        assert all(Path(file).exists() for file in files)
    page = invgp.report(path).read_text()
    assert "top" in page
    assert "mean_velocity" in page
