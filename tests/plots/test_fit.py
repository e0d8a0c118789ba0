"""Data beside what the posterior makes of them."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.container import ErrorbarContainer

from helpers.plotted_posteriors import bands, draw, edges_of
from invgp import plots


def test_that_the_cross_plot_of_one_site_shows_the_diagonal(area: xr.Dataset) -> None:
    above = plots.data_fit(area.isel(site=[0])).axes[0]
    assert above.get_xlim() == above.get_ylim()


def test_that_the_fit_shows_data_prediction_and_normalised_residuals(line: xr.Dataset) -> None:
    figure = plots.data_fit(line)
    draw(figure)
    above, below = figure.axes
    assert above.get_ylabel() == "Two-way travel time (s)"
    assert below.get_xlabel() == "Distance along the line (km)"
    lower, upper = edges_of(bands(above)[0], line["position"].values / 1e3)
    np.testing.assert_allclose((lower + upper) / 2.0, line["time_predicted"][:, 0])
    np.testing.assert_allclose(upper - lower, 2.0 * 1.96 * line["time_predicted_std"][:, 0])
    normalised = (line["time_residual"] / line["time_noise_std"]).values
    np.testing.assert_allclose(np.asarray(below.lines[0].get_ydata()), normalised[:, 0])


def test_that_missing_observations_are_not_drawn(line: xr.Dataset) -> None:
    above, below = plots.data_fit(line).axes
    drawn = [bars[0] for bars in above.containers[:4] if isinstance(bars, ErrorbarContainer)]
    assert [np.size(line.get_xdata()) for line in drawn] == [113, 113, 112, 113]
    assert np.size(below.lines[2].get_xdata()) == 112


def test_that_the_fit_over_an_area_is_a_cross_plot(area: xr.Dataset) -> None:
    figure = plots.data_fit(area)
    draw(figure)
    above, below = figure.axes
    assert above.get_ylabel() == "Observed two-way travel time (s)"
    assert below.get_xlabel() == "Predicted two-way travel time (s)"
