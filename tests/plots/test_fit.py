"""Data beside what the posterior makes of them."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.container import ErrorbarContainer

from helpers.plotted_posteriors import assert_that_labels_can_be_read, bands, draw, edges_of
from invgp import plots


def test_that_the_cross_plot_of_one_site_shows_the_diagonal(area: xr.Dataset) -> None:
    above = plots.plot_fit(area.isel(site=[0])).axes[0]
    assert above.get_xlim() == above.get_ylim()


def test_that_the_fit_shows_data_prediction_and_normalised_residuals(line: xr.Dataset) -> None:
    figure = plots.plot_fit(line)
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
    above, below = plots.plot_fit(line).axes
    drawn = [bars[0] for bars in above.containers[:4] if isinstance(bars, ErrorbarContainer)]
    assert [np.size(line.get_xdata()) for line in drawn] == [113, 113, 112, 113]
    assert np.size(below.lines[2].get_xdata()) == 112


def test_that_the_fit_over_an_area_is_a_cross_plot(area: xr.Dataset) -> None:
    figure = plots.plot_fit(area)
    draw(figure)
    above, below = figure.axes
    assert above.get_ylabel() == "Observed two-way travel time (s)"
    assert below.get_xlabel() == "Predicted two-way travel time (s)"


def test_that_two_way_times_increase_downwards_and_other_times_upwards(line: xr.Dataset) -> None:
    assert plots.plot_fit(line).axes[0].yaxis_inverted()
    line["time_observed"].attrs["long_name"] = "observed arrival time"
    assert plots.plot_fit(line).axes[0].yaxis_inverted()  # its labels are those of a depth
    line["depth"].attrs.pop("positive")
    assert not plots.plot_fit(line).axes[0].yaxis_inverted()
    line["time_observed"].attrs |= {"long_name": "two-way travel time", "units": "m"}
    assert not plots.plot_fit(line).axes[0].yaxis_inverted()


def test_that_positive_observations_over_decades_have_logarithmic_axes(line: xr.Dataset, area: xr.Dataset) -> None:
    for ds in (line, area):
        assert plots.plot_fit(ds).axes[0].get_yscale() == "linear"
        for name in ("observed", "predicted", "noise_std", "predicted_std"):
            ds[f"time_{name}"] = ds[f"time_{name}"].copy(data=ds[f"time_{name}"].values * 10.0 ** ds["layer"].values)
        figure = plots.plot_fit(ds)
        assert figure.axes[0].get_yscale() == "log"
        draw(figure)
        assert_that_labels_can_be_read(figure)
        ds["time_observed"][0, 0] = -0.1
        assert plots.plot_fit(ds).axes[0].get_yscale() == "linear"


def test_that_direct_data_of_a_field_model_have_a_panel(line: xr.Dataset) -> None:
    place = "core_place"
    ds = line.assign(
        core_depth=(place, [3.0, 5.0], {"units": "m", "long_name": "depth"}),
        k_observed=(place, [0.3, 0.4], {"units": "1", "long_name": "observed k"}),
        k_noise_std=(place, [0.1, 0.1]),
        k_predicted=(place, [0.35, 0.35]),
        k_predicted_std=(place, [0.02, 0.03]),
        k_residual=(place, [-0.05, 0.05]),
    )
    ds.attrs["invgp_direct_sources"] = "core"
    figure = plots.plot_fit(ds)
    draw(figure)
    above, below = figure.axes[1], figure.axes[3]
    predicted, observed = (c for c in above.containers if isinstance(c, ErrorbarContainer))
    np.testing.assert_allclose(np.asarray(observed.lines[0].get_xydata()), [[3.0, 0.3], [5.0, 0.4]])
    np.testing.assert_allclose(np.asarray(predicted.lines[0].get_ydata()), [0.35, 0.35])
    np.testing.assert_allclose(np.asarray(below.lines[0].get_ydata()), [-0.5, 0.5])
    assert below.get_xlabel() == "Depth (m)"
    assert figure.legends[0].get_texts()[-1].get_text() == "predicted mean, 95% interval"
    assert_that_labels_can_be_read(figure)
