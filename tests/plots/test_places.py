"""Figures of values at places."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg

from invgp import plots


def test_that_the_legend_of_the_influence_shows_circles() -> None:
    rng = np.random.default_rng(3)
    by_layer = ("site", "layer")
    result = xr.Dataset(
        {
            "time_leverage": (by_layer, rng.uniform(size=(9, 2))),
            "time_pull": (by_layer, rng.normal(size=(9, 2))),
            "site_information": ("site", rng.uniform(size=9)),
        },
        coords={"position": ("site", 100.0 * np.arange(9), {"units": "m"}), "layer": [1, 2]},
        attrs={"invgp_coordinates": "position", "invgp_observations": "time", "invgp_latents": ""},
    )
    figure = plots.plot_influence(result)
    (legend,) = figure.legends
    for handle, drawn in zip(legend.get_lines(), figure.axes[0].lines, strict=True):
        assert handle.get_marker() == drawn.get_marker() == "o"
        assert handle.get_linestyle() == drawn.get_linestyle() == "None"
        assert handle.get_color() == drawn.get_color()


def test_that_the_influence_shows_the_reductions_by_each_source_at_the_places_of_the_field() -> None:
    result = xr.Dataset(
        {
            "time_leverage": ("site", [0.1, 0.2]),
            "time_pull": ("site", [1.0, 2.0]),
            "site_information": ("site", [0.3, 0.4]),
            "depth_reduction": (("data", "node", "layer"), np.arange(12.0).reshape(2, 3, 2) / 100.0),
            "density_reduction": ("data", [0.5, 0.6]),
        },
        coords={
            "site_position": ("site", [100.0, 200.0], {"units": "m"}),
            "position": ("node", [0.0, 150.0, 300.0], {"units": "m"}),
            "layer": [1, 2],
            "data_label": ("data", ["seismic", "gravity"]),
        },
        attrs={
            "invgp_coordinates": "site_position",
            "invgp_node_coordinates": "position",
            "invgp_observations": "time",
            "invgp_latents": "depth density",
        },
    )
    figure = plots.plot_influence(result)
    first, second = figure.axes[3:]
    for k, ax in enumerate((first, second)):
        assert f"layer {k + 1}" in ax.get_ylabel()
        for line, values in zip(ax.lines, result["depth_reduction"].values[..., k], strict=True):
            np.testing.assert_array_equal(line.get_xdata(), [0.0, 150.0, 300.0])
            np.testing.assert_array_equal(line.get_ydata(), values)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["seismic", "gravity"]
    elsewhere = result.assign_coords(northing=("node", [0.0, 1.0, 2.0], {"units": "m"}))
    elsewhere.attrs["invgp_node_coordinates"] = "position northing"
    assert len(plots.plot_influence(elsewhere).axes) == 3  # a map of a field does not fit to sites on a line


@pytest.mark.parametrize("coordinates", ["x", "x y"])
def test_that_the_prior_shows_fields_scalars_and_labels(coordinates: str) -> None:
    rng = np.random.default_rng(1)
    names = coordinates.split()
    prior = xr.Dataset(
        {
            "depth_prior_sample": (("realization", "site", "layer"), rng.normal(size=(20, 6, 2)), {"units": "m"}),
            "shift_prior_sample": ("realization", rng.normal(size=20), {"units": "s"}),
            "time_observed": (("site", "layer"), rng.normal(size=(6, 2)), {"units": "s"}),
            "time_simulated": (("run", "site", "layer"), rng.normal(size=(4, 6, 2)), {"units": "s"}),
        },
        coords={"layer": [1, 2], **{name: ("site", rng.uniform(size=6), {"units": "m"}) for name in names}},
        attrs={
            "invgp_coordinates": coordinates,
            "invgp_site_coordinates": coordinates,
            "invgp_latents": "depth shift",
            "invgp_observations": "time",
        },
    )
    figure = plots.plot_prior(prior)
    maps = [ax for ax in figure.axes if ax.collections and ax.get_ylabel() == "y (m)"]
    assert len(maps) == (0 if len(names) == 1 else 6)  # three draws of both layers
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["layer 1", "layer 2", "simulated from the prior", "observed"]
    (scalar,) = [ax for ax in figure.axes if ax.get_xlabel().startswith("Shift, prior")]
    np.testing.assert_array_equal(scalar.lines[0].get_xdata(), prior["shift_prior_sample"])
    only = prior.drop_vars(["depth_prior_sample"]).isel(run=slice(0)).assign_attrs(invgp_latents="shift")
    assert len(plots.plot_prior(only).axes) == 1


@pytest.mark.parametrize("names", [["one", "two"], ["a model with a name of forty characters..", "two"]])
def test_that_the_texts_of_the_evidence_are_inside_the_figure(names: list[str]) -> None:
    weighed = xr.Dataset(
        {"log_bayes_factor": ("model", [0.0, -2.0]), "log_bayes_factor_error": ("model", [0.1, 0.1])},
        coords={"model_label": ("model", names)},
    )
    figure = plots.plot_evidence(weighed)
    FigureCanvasAgg(figure).draw()
    (ax,) = figure.axes
    for text in (ax.title, ax._left_title, ax.xaxis.label, *ax.get_yticklabels()):  # type: ignore[attr-defined]
        box = text.get_window_extent()
        assert not text.get_text() or (figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1)


def test_that_bars_of_all_targets_fit_into_the_figure_of_a_design_of_scalars() -> None:
    design = xr.Dataset(
        {
            "reduction": (("candidate", "target"), [[0.1, 0.9], [0.2, 0.1]]),
            "reduction_error": (("candidate", "target"), np.full((2, 2), 0.01)),
            "rank": ("candidate", [1, 0]),
        },
        coords={"candidate_label": ("candidate", ["test", "repeat"]), "target_label": ("target", ["a", "b"])},
        attrs={"invgp_scalars": "a b", "invgp_coordinates": "site_number"},
    )
    figure = plots.plot_design(design)
    for ax in figure.axes:
        assert ax.get_xlim()[0] == 0.0
        assert ax.get_xlim()[1] > 91.0
    labels = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert labels == ["test (1)", "repeat"]


def test_that_data_without_a_label_do_not_have_the_colour_of_a_source() -> None:
    result = xr.Dataset(
        {
            "flux_leverage": ("site", [0.1, 0.2]),
            "flux_pull": ("site", [1.0, 2.0]),
            "site_information": ("site", [0.3, 0.4]),
            "depth_reduction": (("data", "site"), [[0.1, 0.2], [0.3, 0.4]]),
        },
        coords={"position": ("site", [0.0, 1.0], {"units": "m"}), "data": ["speed", "flux"]},
        attrs={"invgp_coordinates": "position", "invgp_observations": "flux", "invgp_latents": "depth"},
    )
    figure = plots.plot_influence(result)
    named = {handle.get_color() for handle in figure.legends[0].get_lines()}
    assert len(named) == 2
    assert figure.axes[0].lines[0].get_color() not in named
