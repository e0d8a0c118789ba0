"""Figures of values at places."""

from __future__ import annotations

import numpy as np
import xarray as xr

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
        attrs={"invgp_coordinates": "position", "invgp_observations": "time"},
    )
    figure = plots.plot_influence(result)
    (legend,) = figure.legends
    for handle, drawn in zip(legend.get_lines(), figure.axes[0].lines, strict=True):
        assert handle.get_marker() == drawn.get_marker() == "o"
        assert handle.get_linestyle() == drawn.get_linestyle() == "None"
        assert handle.get_color() == drawn.get_color()
