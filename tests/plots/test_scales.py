"""Colours of maps: what their ends leave out, and where they run logarithmically."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from helpers.plotted_posteriors import assert_that_labels_can_be_read, draw
from invgp import plots
from invgp.plots.axis_labels import log_ticks

from .test_maps import on_grid


def on_cells(area: xr.Dataset) -> xr.Dataset:
    """One layer on a grid of 150 cells."""
    return on_grid(area, (10, 15)).isel(layer=[0])


def colours_of(figure: Figure) -> list[ScalarMappable]:
    return [ax.collections[0] for ax in figure.axes]


def spread_out(area: xr.Dataset, factor: float) -> xr.Dataset:
    """Velocities from 10 m/s to `factor` times that."""
    values = np.geomspace(10.0, 10.0 * factor, area["velocity"].size).reshape(area["velocity"].shape)
    return area.assign(velocity=(area["velocity"].dims, values, area["velocity"].attrs | {"link": "log"}))


def test_that_a_few_extreme_cells_do_not_stretch_the_colours(area: xr.Dataset) -> None:
    grid = on_cells(area)
    others = float(grid["depth_std"].max())
    grid["depth_std"][0, 0, 0] = 50.0 * others
    mean, std = colours_of(plots.plot_map(grid, latents=("depth",)))
    assert std.get_clim()[1] == others
    assert std.colorbar is not None
    assert std.colorbar.extend == "max"  # an arrow where a value lies beyond
    assert mean.get_clim() == (grid["depth"].min(), grid["depth"].max())
    assert mean.colorbar is not None
    assert mean.colorbar.extend == "neither"
    limits = {"depth_std": (0.0, 50.0 * others)}
    asked = colours_of(plots.plot_map(grid, show=("std",), limits=limits, latents=("depth",)))[0]
    assert asked.get_clim() == limits["depth_std"]


def test_that_a_difference_without_its_extremes_is_white_at_nothing(area: xr.Dataset) -> None:
    grid = on_cells(area)
    grid["depth_prior"][0, 0, 0] = 1e6
    (difference,) = colours_of(plots.plot_map(grid, show=("difference",), latents=("depth",)))
    low, high = difference.get_clim()
    assert low == -high
    assert high < 100.0


def test_that_none_of_a_few_sites_is_left_out(area: xr.Dataset) -> None:
    sites = area.isel(site=slice(30), layer=[0]).assign_coords(level=("site", np.arange(30.0)))
    sites.attrs["invgp_coordinates"] = "easting northing level"
    sites["depth"][7, 0] = 1e5
    assert colours_of(plots.plot_map(sites, show=("mean",)))[0].get_clim()[1] == 1e5


@pytest.mark.parametrize(("factor", "logarithmic"), [(2.0, False), (4.0, True), (1e4, True)])
def test_that_colours_of_a_log_link_run_logarithmically_over_a_wide_range(
    area: xr.Dataset, factor: float, logarithmic: bool
) -> None:
    grid = on_cells(spread_out(area, factor))
    figure = plots.plot_map(grid, latents=("velocity",))
    draw(figure)
    mean, std = colours_of(figure)
    assert isinstance(mean.norm, LogNorm) == logarithmic
    assert not isinstance(std.norm, LogNorm)  # it spans less than a factor of three
    assert_that_labels_can_be_read(figure)
    identity = grid.assign(velocity=grid["velocity"].assign_attrs(link="identity"))
    assert not isinstance(colours_of(plots.plot_map(identity, latents=("velocity",)))[0].norm, LogNorm)


def test_that_depths_and_limits_from_nothing_are_on_an_even_scale(area: xr.Dataset) -> None:
    wide = on_cells(spread_out(area, 100.0))
    wide["velocity"].attrs["positive"] = "down"
    (depth,) = colours_of(plots.plot_map(wide, show=("mean",), latents=("velocity",)))
    del wide["velocity"].attrs["positive"]
    for limits, logarithmic in (((0.0, 500.0), False), ((10.0, 20.0), False), ((10.0, 500.0), True)):
        asked = {"velocity": limits}
        (colours,) = colours_of(plots.plot_map(wide, show="mean", limits=asked, latents="velocity"))
        assert isinstance(colours.norm, LogNorm) == logarithmic
        assert colours.get_clim() == limits
    assert not isinstance(depth.norm, LogNorm)


def test_that_a_predicted_map_has_the_scale_of_its_link(sounding_map: xr.Dataset) -> None:
    limits = {"resistivity": (10.0, 100.0), "thickness": (1.0, 10.0)}
    first, second, thickness = colours_of(plots.plot_map(sounding_map, show=("mean",), limits=limits))
    assert isinstance(first.norm, LogNorm)
    assert isinstance(second.norm, LogNorm)
    assert not isinstance(thickness.norm, LogNorm)


def test_that_shades_between_sites_are_even_on_a_logarithmic_scale(area: xr.Dataset) -> None:
    figure = plots.plot_map(spread_out(area, 100.0).isel(layer=[0]), show="mean", latents="velocity")
    levels = next(np.asarray(part.levels) for part in figure.axes[0].collections if hasattr(part, "levels"))
    steps = np.diff(np.log(levels))
    np.testing.assert_allclose(steps, steps[0])


@pytest.mark.parametrize(
    ("ends", "most", "ticks"),
    [
        ((12.0, 40.0), 5, [15, 20, 30, 40]),
        ((10.0, 200.0), 5, [10, 20, 50, 100, 200]),
        ((0.01, 2e4), 4, [0.01, 1, 100, 1e4]),
        ((30.0, 150.0), 2, [50, 100]),
    ],
)
def test_that_ticks_of_a_logarithmic_bar_are_round_and_few(
    ends: tuple[float, float], most: int, ticks: list[float]
) -> None:
    np.testing.assert_allclose(log_ticks(*ends, most), ticks)
