"""Ticks, labels and units."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from helpers.plotted_posteriors import assert_that_labels_can_be_read, distance, draw, posterior
from invgp import plots


@pytest.mark.slow
@pytest.mark.parametrize("extent", [1.0, 100.0, 1e3, 4e3, 20e3])
@pytest.mark.parametrize("start", [250.0, 12_345.0, 500_250.0, -500_250.0])
def test_that_tick_labels_do_not_overlap(start: float, extent: float) -> None:
    ds = posterior(distance(start + extent * np.linspace(0.0, 1.0, 40)))
    for figure in (plots.plot_section(ds), plots.plot_fit(ds)):
        draw(figure)
        assert_that_labels_can_be_read(figure)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "extent", "label"),
    [
        (500_250.0, 4e3, "Distance along the line \N{MINUS SIGN} 500 000 (m)"),
        (-500_250.0, 100.0, "Distance along the line + 500 300 (m)"),
        (500_250.0, 20e3, "Distance along the line (km)"),
        (12_345.0, 100.0, "Distance along the line (m)"),
        (12_345.678, 0.05, "Distance along the line \N{MINUS SIGN} 12 345.6 (m)"),
    ],
)
def test_that_a_far_origin_is_named_in_the_label(start: float, extent: float, label: str) -> None:
    ds = posterior(distance(start + extent * np.linspace(0.0, 1.0, 11)))
    assert plots.plot_section(ds).axes[0].get_xlabel() == label
    assert plots.plot_fit(ds).axes[1].get_xlabel() == label


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "pretty"),
    [("m s-1", "m s⁻¹"), ("kg m-3", "kg m⁻³"), ("ohm m", "Ω m"), ("m^2", "m²"), ("1e-5 m s-2", "1e-5 m s⁻²")],
)
def test_that_units_are_typeset(line: xr.Dataset, unit: str, pretty: str) -> None:
    line["velocity"].attrs["units"] = unit
    assert plots.plot_section(line).axes[1].get_ylabel() == f"Seismic velocity ({pretty})"


def test_that_a_dimensionless_latent_has_no_brackets(line: xr.Dataset) -> None:
    line["velocity"].attrs["units"] = "1"
    assert plots.plot_section(line).axes[1].get_ylabel() == "Seismic velocity"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "label"),
    [("y", "y"), ("a", "a"), ("vs", "vs"), ("pH", "pH"), ("a thing", "A thing"), ("depth", "Depth"), ("GPR", "GPR")],
)
def test_that_symbols_keep_their_case(line: xr.Dataset, name: str, label: str) -> None:
    line["velocity"].attrs = {"units": "1", "long_name": name}
    assert plots.plot_section(line).axes[1].get_ylabel() == label


def test_that_small_numbers_have_their_power_of_ten_in_the_label(area: xr.Dataset) -> None:
    area["depth"] = (area["depth"] * 1e-7).assign_attrs(units="m", long_name="storage")
    area["depth_std"] = area["depth"] * 0.1
    figure = plots.plot_map(area, latents=("depth",), labels=("4",))
    draw(figure)
    bar = figure.axes[0].child_axes[0]
    assert bar.get_ylabel() == "Storage (10⁻⁴ m)"
    assert {len(tick.get_text()) for tick in bar.get_yticklabels()} <= {3, 4}
