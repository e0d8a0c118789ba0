"""Areas and volumes: maps of every quantity, on sites or on a grid."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from helpers.plotted_posteriors import add_information, assert_that_labels_can_be_read, draw, overlaps
from invgp import plots
from invgp.plots.map_colours import MapPoints


def test_that_maps_show_mean_and_spread_with_equal_aspect_and_units(area: xr.Dataset) -> None:
    figure = plots.plot_map(area.isel(layer=[0]))
    draw(figure)
    panels = figure.axes
    bars = [ax.child_axes[0] for ax in panels]
    assert len(panels) == 2 * 2
    assert all(ax.get_aspect() == 1.0 for ax in panels)
    assert panels[1].get_title(loc="left") == "(b) depth, layer 1: standard deviation"
    assert figure.get_supxlabel() == "Easting (km)"
    assert figure.get_supylabel() == "Northing (km)"
    assert bars[0].get_ylabel() == "Depth of the reflector (m)"
    assert bars[-1].get_ylabel() == "Standard deviation (m s⁻¹)"
    assert bars[0].yaxis_inverted()
    assert not bars[-1].yaxis_inverted()


@pytest.mark.slow
@pytest.mark.parametrize(("flatter", "columns"), [(1.0, 4), (0.3, 2)])
def test_that_eight_maps_fit_on_a_page_and_can_be_read(area: xr.Dataset, flatter: float, columns: int) -> None:
    northing = area["northing"]
    area["northing"] = ("site", 5720e3 + flatter * (northing.values - 5720e3), northing.attrs)
    figure = plots.plot_map(area)
    draw(figure)
    bars = [ax.child_axes[0] for ax in figure.axes]
    assert len(figure.axes) == 2 * 4 * 2
    assert len({round(ax.get_position().x0, 3) for ax in figure.axes}) == columns
    assert figure.get_figheight() < 10.0
    assert min(ax.get_position().height * figure.get_figheight() for ax in figure.axes) > 0.6
    assert bars[0].get_ylabel() == "m"  # the title says of what
    assert not overlaps([ax._left_title for ax in figure.axes])  # type: ignore[attr-defined]
    assert_that_labels_can_be_read(figure)


def test_that_an_odd_number_of_maps_leaves_no_column_without_ticks(area: xr.Dataset) -> None:
    five = xr.concat([area, area.isel(layer=[0])], "layer", data_vars="minimal").assign_attrs(
        area.attrs, invgp_latents="depth"
    )
    figure = plots.plot_map(five, show=("mean",))
    draw(figure)
    assert len(figure.axes) == 5
    shown = [bool(ax.xaxis.get_major_ticks()[0].label1.get_visible()) for ax in figure.axes]
    assert shown == [False] * 3 + [True] * 2


def test_that_a_third_coordinate_is_left_out_of_the_maps_and_named(area: xr.Dataset, tmp_path: Path) -> None:
    depths = np.linspace(0.4, 30.0, area.sizes["site"])
    area = area.assign_coords(level=("site", depths, {"units": "m", "long_name": "depth of the sensor"}))
    area.attrs["invgp_coordinates"] = "easting northing level"
    figure = plots.plot_map(area)
    draw(figure)
    assert figure.get_suptitle() == "Sites at every depth of the sensor, from 0.4 to 30.0 m, on one map."
    assert np.asarray(figure.axes[0].collections[0].get_offsets()).shape == (150, 2)  # dots, nothing between them
    assert plots.plot_fit(area).axes[1].get_xlabel() == "Predicted two-way travel time (s)"
    assert all(path.exists() for path in plots.plot(area, tmp_path / "volume.png"))


def test_that_the_least_informed_of_coincident_sites_is_on_top_and_the_title_states_it(area: xr.Dataset) -> None:
    area = area.isel(site=[0, 1, 2]).assign_coords(level=("site", [5.0, 20.0, 1.0]))
    area["easting"], area["northing"] = (area[name].isel(site=[0, 0, 2]) for name in ("easting", "northing"))
    area.attrs["invgp_coordinates"] = "easting northing level"
    figure = plots.plot_map(area)
    np.testing.assert_array_equal(
        np.asarray(figure.axes[0].collections[0].get_array()), area["depth"][[1, 0, 2], 0].values
    )
    assert "Where sites coincide, the one with the lowest level is on top." in figure.get_suptitle().replace("\n", " ")


def test_that_maps_of_projected_coordinates_are_drawn_from_an_origin(area: xr.Dataset) -> None:
    for name, start in (("easting", 500_250.0), ("northing", 5_720_300.0)):
        area[name] = ("site", start + (area[name].values - area[name].values.min()) / 10.0, area[name].attrs)
    figure = plots.plot_map(area.isel(layer=[0]))
    draw(figure)
    assert figure.get_supxlabel() == "Easting \N{MINUS SIGN} 500 000 (m)"
    assert figure.get_supylabel() == "Northing \N{MINUS SIGN} 5 720 000 (m)"
    assert_that_labels_can_be_read(figure)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["site", "pair", "northwards", "eastwards"])
def test_that_sites_without_an_area_get_a_frame_of_a_good_shape(area: xr.Dataset, shape: str) -> None:
    sites = area.isel(site=slice({"site": 1, "pair": 2}.get(shape, 20)), layer=[0, 1])
    if shape in ("northwards", "eastwards"):
        constant = "easting" if shape == "northwards" else "northing"
        sites[constant] = ("site", np.full(20, area[constant].values[0]), area[constant].attrs)
    figure = plots.plot_map(sites)
    draw(figure)
    for ax in figure.axes:
        box = ax.get_window_extent()
        assert 0.3 < box.height / box.width < 2.0
        bar = ax.child_axes[0].get_window_extent()
        assert bar.height == pytest.approx(box.height)
        assert bar.width > 0.07 * figure.dpi
        assert ax.get_aspect() == 1.0
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        for dots in (np.asarray(dots.get_offsets()) for dots in ax.collections):
            assert ((dots > (left, bottom)) & (dots < (right, top))).all()
    assert_that_labels_can_be_read(figure)


@pytest.mark.slow
def test_that_a_lone_site_has_one_tick_at_its_place(line: xr.Dataset, area: xr.Dataset) -> None:
    lone = area.isel(site=[0]).assign_coords(easting=("site", [500_123.4], area["easting"].attrs))
    ax = plots.plot_map(lone).axes[-2]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["500123.4"]
    figure = plots.plot_section(line.isel(site=[3]))
    left, right = figure.axes[0].get_xlim()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1200"]
    assert (left + right) / 2.0 == 1200.0


@pytest.mark.parametrize("latitude", [-91.0, 90.0, 5_720_000.0])
def test_that_an_impossible_latitude_is_drawn_and_named(area: xr.Dataset, latitude: float) -> None:
    values = latitude + np.linspace(-0.5, 0.0, 150)
    area["northing"] = ("site", values, {"units": "degrees_north", "long_name": "latitude"})
    area["easting"].attrs["units"] = "degrees_east"
    figure = plots.plot_map(area.isel(layer=[0]))
    draw(figure)
    assert figure.get_suptitle().startswith("Not to scale: the latitudes range from ")
    assert figure.axes[0].get_aspect() == 1.0


@pytest.mark.slow
def test_that_maps_of_sites_on_a_line_are_drawn(area: xr.Dataset) -> None:
    area["northing"] = ("site", area["easting"].values, area["northing"].attrs)
    draw(plots.plot_map(area.isel(site=slice(20))))


def test_that_degrees_keep_their_shape(area: xr.Dataset) -> None:
    rng = np.random.default_rng(4)
    area["easting"] = (
        "site",
        rng.uniform(141.0, 142.0, 150),
        {"units": "degrees_east", "long_name": "longitude"},
    )
    area["northing"] = (
        "site",
        rng.uniform(-60.5, -59.5, 150),
        {"units": "degrees_north", "long_name": "latitude"},
    )
    figure = plots.plot_map(area)
    assert figure.axes[0].get_aspect() == pytest.approx(2.0, rel=0.02)
    assert figure.get_supylabel() == "Latitude (°N)"
    assert figure.get_suptitle() == ""


def on_grid(ds: xr.Dataset, shape: tuple[int, int] = (6, 9)) -> xr.Dataset:
    """The posterior as `invgp predict` writes it: layers first, then the axes of a grid."""
    rows, columns = shape
    one = ds.isel(site=slice(rows * columns)).drop_vars(["easting", "northing"])
    names = [name for name in one.data_vars if not str(name).startswith("time")]
    axes = {"northing": 5720e3 + 500.0 * np.arange(rows), "easting": 500e3 + 500.0 * np.arange(columns)}
    index = pd.MultiIndex.from_product(axes.values(), names=list(axes))
    made = one[names].assign_coords(xr.Coordinates.from_pandas_multiindex(index, "site")).unstack("site")
    made = made.transpose("quantile", "layer", "northing", "easting", missing_dims="ignore")
    for name in axes:
        made[name].attrs = dict(ds[name].attrs)
    return made.assign_attrs(ds.attrs, invgp_observations="", invgp_derived="")


def test_that_a_map_shows_every_requested_quantity(area: xr.Dataset) -> None:
    show = ("mean", "std", "difference", "information")
    selected = plots.select_latents(add_information(area), ["depth"], ["2"])
    figure = plots.plot_map(selected, show=show, limits={"depth_std": (0.0, 40.0)})
    draw(figure)
    titles = [ax.get_title(loc="left").replace("\n", " ") for ax in figure.axes]
    assert titles[2] == "(c) depth, layer 2: posterior minus prior mean"
    std, difference, information = (ax.child_axes[0].get_ylim() for ax in figure.axes[1:])
    assert std == (0.0, 40.0)
    assert difference[0] == -difference[1]  # white is no difference
    assert information == (0.0, 1.0)
    assert figure.get_suptitle() == "Hatched: information below 0.2."
    assert_that_labels_can_be_read(figure)


def test_that_a_grid_is_drawn_cell_by_cell_and_can_be_cut(area: xr.Dataset, tmp_path: Path) -> None:
    grid = on_grid(add_information(area))
    grid.to_netcdf(tmp_path / "map.nc")
    with xr.open_dataset(tmp_path / "map.nc") as opened:
        figure = plots.plot_map(plots.select_latents(opened, ["depth"], ["3"]))
        assert plots.suitable_kinds(opened) == ("map",)
    cells = figure.axes[0].collections[0]
    np.testing.assert_allclose(np.asarray(cells.get_array()), grid["depth"][2])
    cut = plots.slice_grid(grid, {"northing": 5721.1e3})
    ax = plots.plot_section(cut).axes[0]
    np.testing.assert_allclose(np.asarray(ax.lines[0].get_ydata()), grid["depth"][0, 2])
    with pytest.raises(ValueError, match=r"^at: must name one of northing, easting, was 'height'$"):
        plots.slice_grid(grid, {"height": 1.0})
    with pytest.raises(ValueError, match="only a grid can be cut"):
        plots.slice_grid(area, {"northing": 1.0})


@pytest.mark.slow
def test_that_a_volume_is_cut_in_the_middle_by_default(area: xr.Dataset) -> None:
    volume = xr.concat([on_grid(area)] * 3, xr.DataArray([0.0, 5.0, 10.0], dims="height", name="height"))
    volume.attrs["invgp_coordinates"] = "easting northing height"
    title = plots.plot_map(volume).get_suptitle()
    assert title.startswith("Slice at height 5.")
    assert (
        len(plots.plot_map(plots.select_latents(plots.slice_grid(volume, {"height": 6.0}), ["depth"], ["1"])).axes) == 2
    )


def test_that_a_map_shows_the_posterior_between_sites_not_an_interpolation(sounding_map: xr.Dataset) -> None:
    figure = plots.plot_map(sounding_map, show=("std",), latents=("thickness",))
    cells = np.asarray(figure.axes[0].collections[0].get_array())
    assert float(sounding_map["thickness_std"].max()) < 2.95
    assert cells.max() > 2.999  # as in the prior: the data say nothing there
    [circles] = figure.axes[0].lines
    assert len(np.asarray(circles.get_xdata())) == sounding_map.sizes["site"]
    assert "Circles: sites." in figure.get_suptitle()
    assert figure.get_supxlabel().startswith("Easting")  # though the survey has its northing first


def test_that_sites_too_many_to_be_distinguished_do_not_cover_a_map(
    sounding_map: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["invgp.plots.map_figures"], "MANY", sounding_map.sizes["site"] - 1)
    figure = plots.plot_map(sounding_map, show=("mean",))
    assert not figure.axes[0].lines
    assert figure.get_suptitle().startswith(f"The {sounding_map.sizes['site']} sites are too many to be marked.")


def test_that_depth_runs_downwards_on_a_slice_of_a_volume(area: xr.Dataset) -> None:
    about = {"units": "m", "positive": "down"}
    at = {"easting": [0.0, 100.0, 200.0, 300.0], "below": [0.0, 10.0, 20.0]}
    values = np.arange(12.0).reshape(3, 4)
    attributes = {"invgp_coordinates": "easting below", "invgp_latents": "rho", "invgp_map": "grid"}
    ds = xr.Dataset({"rho": (("below", "easting"), values, {"units": "ohm m"})}, at, attributes)
    ds["rho_std"] = ds["rho"] + 1.0
    ds["below"].attrs = {**about, "axis": "Z"}
    ds["easting"].attrs = {"units": "m", "axis": "X"}
    figure = plots.plot_map(ds)
    assert figure.axes[0].yaxis_inverted()
    assert figure.get_supylabel() == "Below (m)"
    assert "Vertical exaggeration" in figure.get_suptitle()


def test_that_nothing_is_drawn_between_surveys_far_apart() -> None:
    x, y = (axis.ravel() for axis in np.meshgrid([0.0, 1.0, 2.0, 100.0, 101.0, 102.0], np.arange(4.0)))
    triangles = MapPoints(x, y, None, interpolate=True).triangles(np.ones(x.size, dtype=bool))
    assert triangles is not None
    across = np.ptp(x[triangles.get_masked_triangles()], axis=1)
    assert across.max() == 1.0
