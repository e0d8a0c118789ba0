"""Figures of a posterior: what stands on them, and the files they are written to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

import invgp
from invgp import plots
from invgp.errors import PlotError
from invgp.plots.areas import Place
from invgp.plots.look import read_quantity
from invgp.plots.reading import Curve
from problems import map_problem

QUANTILES = np.array([0.025, 0.5, 0.975])
SCORES = np.array([-1.96, 0.0, 1.96])
PRIOR = {"depth": [200.0, 500.0, 1600.0, 2200.0], "velocity": [1950.0, 2300.0, 2750.0, 3650.0]}
ATTRIBUTES = {
    "depth": {"units": "m", "long_name": "depth of the reflector", "positive": "down"},
    "velocity": {"units": "m s-1", "long_name": "seismic velocity"},
}


def wave(coordinates: dict[str, xr.DataArray], phase: float) -> np.ndarray:
    """Return a smooth field (N, 1) between -1 and 1 over the coordinates."""
    waves = [np.sin(phase + (x - x.min()).values / 7e3) for x in coordinates.values()]
    return np.asarray(np.prod(waves, axis=0))[:, None]


def posterior(coordinates: dict[str, xr.DataArray], seed: int = 1) -> xr.Dataset:
    """Build a posterior of four layers as `invgp run` writes it, with skewed quantiles and a missing time."""
    rng = np.random.default_rng(seed)
    sites, layers = next(iter(coordinates.values())).size, 4
    dims = ("site", "layer")
    ds = xr.Dataset(coords={**coordinates, "layer": np.arange(1, layers + 1), "quantile": QUANTILES})
    for phase, (name, prior) in enumerate(PRIOR.items()):
        mean = np.array(prior) * (1.0 + 0.06 * wave(coordinates, phase))
        std = np.broadcast_to(0.05 * np.array(prior), mean.shape) * (1.0 + 0.3 * wave(coordinates, phase + 2))
        ds[name] = (dims, mean, ATTRIBUTES[name])
        ds[f"{name}_std"] = (dims, std, {"units": ATTRIBUTES[name]["units"]})
        ds[f"{name}_prior"] = (dims, np.tile(prior, (sites, 1)))
        skew = 1.0 + 0.2 * (SCORES[:, None, None] > 0.0)
        ds[f"{name}_quantile"] = (("quantile", *dims), mean + skew * SCORES[:, None, None] * std)
    thickness = np.diff(ds["depth"].values, axis=1, prepend=0.0)
    predicted = np.cumsum(2.0 * thickness / ds["velocity"].values, axis=1)
    noise = np.broadcast_to([0.025, 0.05, 0.075, 0.1], predicted.shape)
    observed = predicted + noise * rng.standard_normal(predicted.shape)
    observed[1, 2] = np.nan
    attributes = {"units": "s", "long_name": "observed two-way travel time"}
    ds["time_observed"] = (dims, observed, attributes)
    ds["time_noise_std"] = (dims, noise)
    ds["time_predicted"] = (dims, predicted)
    ds["time_predicted_std"] = (dims, 0.4 * noise)
    ds["time_residual"] = (dims, observed - predicted)
    ds.attrs = {
        "invgp_coordinates": " ".join(coordinates),
        "invgp_latents": "depth velocity",
        "invgp_observations": "time",
    }
    return ds


def distance(metres: np.ndarray) -> dict[str, xr.DataArray]:
    attributes = {"units": "m", "long_name": "distance along the line"}
    return {"position": xr.DataArray(metres, dims="site", attrs=attributes)}


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


def bands(ax: Axes) -> list[PolyCollection]:
    return [collection for collection in ax.collections if isinstance(collection, PolyCollection)]


def edges_of(band: PolyCollection, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    vertices = np.asarray(band.get_paths()[0].vertices)
    columns = [vertices[np.isclose(vertices[:, 0], value), 1] for value in x]
    return np.array([c.min() for c in columns]), np.array([c.max() for c in columns])


def overlaps(texts: list[Text]) -> bool:
    boxes = [text.get_window_extent() for text in texts if text.get_visible() and text.get_text()]
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def assert_that_labels_can_be_read(figure: Figure) -> None:
    """Labels of ticks stand clear of each other and of the labels of the axes, and on the page, once drawn."""
    for ax in [*figure.axes, *(bar for panel in figure.axes for bar in panel.child_axes)]:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            labels = [tick.label2 if tick.label2.get_visible() else tick.label1 for tick in inside]
            assert not overlaps([*labels, axis.label]), [label.get_text() for label in labels]
            for text in (*labels, axis.label):
                if text.get_visible() and text.get_text():
                    box = text.get_window_extent()
                    assert figure.bbox.x0 <= box.x0
                    assert box.x1 <= figure.bbox.x1


def draw(figure: Figure) -> None:
    figure.draw_without_rendering()


def test_that_a_section_labels_its_axes_with_units(line: xr.Dataset) -> None:
    figure = plots.section(line)
    left, right = figure.axes
    assert left.get_xlabel() == right.get_xlabel() == "Distance along the line (km)"
    assert left.get_ylabel() == "Depth of the reflector (m)"
    assert right.get_ylabel() == "Seismic velocity (m s⁻¹)"
    assert left.get_xlim() == (0.0, 44.8)
    draw(figure)


def test_that_a_short_line_stays_in_metres(line: xr.Dataset) -> None:
    figure = plots.section(line.isel(site=slice(10)))
    assert figure.axes[0].get_xlabel() == "Distance along the line (m)"


def test_that_depth_points_down_and_velocity_up(line: xr.Dataset) -> None:
    left, right = plots.section(line).axes
    assert left.yaxis_inverted()
    assert left.get_ylim()[1] == 0.0
    assert not right.yaxis_inverted()


def test_that_the_band_lies_between_the_quantiles(line: xr.Dataset) -> None:
    x = line["position"].values / 1e3
    for ax, name in zip(plots.section(line).axes, ("depth", "velocity"), strict=True):
        assert len(bands(ax)) == 4
        for band, layer in zip(bands(ax), line["layer"], strict=True):
            lower, upper = edges_of(band, x)
            quantile = line[f"{name}_quantile"].sel(layer=layer)
            np.testing.assert_allclose(lower, quantile.sel(quantile=0.025))
            np.testing.assert_allclose(upper, quantile.sel(quantile=0.975))


def test_that_the_band_falls_back_on_the_standard_deviation(line: xr.Dataset) -> None:
    without = line.isel(quantile=[1])
    lower, upper = edges_of(bands(plots.section(without).axes[0])[2], line["position"].values / 1e3)
    mean, std = line["depth"][:, 2], line["depth_std"][:, 2]
    np.testing.assert_allclose(lower, mean - 1.96 * std)
    np.testing.assert_allclose(upper, mean + 1.96 * std)


def test_that_sites_in_any_order_give_the_same_section(line: xr.Dataset) -> None:
    shuffled = line.isel(site=np.random.default_rng(3).permutation(line.sizes["site"]))
    for ax, other in zip(plots.section(line).axes, plots.section(shuffled).axes, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), other.lines[0].get_ydata())
        texts = [[(text.get_text(), text.xy) for text in a.texts] for a in (ax, other)]  # type: ignore[attr-defined]
        assert texts[0] == texts[1]


def test_that_curves_are_named_at_their_right_end_without_overlap(line: xr.Dataset) -> None:
    line["depth"] = line["depth"] * 0.0 + 1000.0
    figure = plots.section(line)
    draw(figure)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert [text.get_text() for text in figure.axes[0].texts] == ["layer 1", "layer 2", "layer 3", "layer 4"]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_that_a_latent_without_a_dimension_and_a_single_site_can_be_drawn(line: xr.Dataset) -> None:
    scalar = line.isel(layer=0, drop=True)
    figures = [plots.section(scalar), plots.data_fit(scalar)]
    figures += [plots.section(line.isel(site=[0])), plots.data_fit(line.isel(site=[0]))]
    for figure in figures:
        draw(figure)


def test_that_many_labels_get_a_colour_bar(line: xr.Dataset) -> None:
    many = xr.concat([line.assign_coords(layer=line["layer"] + 4 * i) for i in range(5)], "layer")
    many.attrs = line.attrs
    figure = plots.section(many)
    assert len(figure.axes) == 4
    draw(figure)


def test_that_maps_show_mean_and_spread_with_equal_aspect_and_units(area: xr.Dataset) -> None:
    figure = plots.maps(area.isel(layer=[0]))
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


@pytest.mark.parametrize(("flatter", "columns"), [(1.0, 4), (0.3, 2)])
def test_that_eight_maps_fit_on_a_page_and_can_be_read(area: xr.Dataset, flatter: float, columns: int) -> None:
    northing = area["northing"]
    area["northing"] = ("site", 5720e3 + flatter * (northing.values - 5720e3), northing.attrs)
    figure = plots.maps(area)
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
    figure = plots.maps(five, plots.Look(("mean",)))
    draw(figure)
    assert len(figure.axes) == 5
    shown = [bool(ax.xaxis.get_major_ticks()[0].label1.get_visible()) for ax in figure.axes]
    assert shown == [False] * 3 + [True] * 2


def test_that_a_third_coordinate_is_left_out_of_the_maps_and_named(area: xr.Dataset, tmp_path: Path) -> None:
    depths = np.linspace(0.4, 30.0, area.sizes["site"])
    area = area.assign_coords(level=("site", depths, {"units": "m", "long_name": "depth of the sensor"}))
    area.attrs["invgp_coordinates"] = "easting northing level"
    figure = plots.maps(area)
    draw(figure)
    assert figure.get_suptitle() == "Sites at every depth of the sensor, from 0.4 to 30.0 m, on one map."
    assert np.asarray(figure.axes[0].collections[0].get_offsets()).shape == (150, 2)  # dots, nothing between them
    assert plots.data_fit(area).axes[1].get_xlabel() == "Predicted two-way travel time (s)"
    assert all(path.exists() for path in plots.plot(area, tmp_path / "volume.png"))


def test_that_of_sites_above_each_other_the_least_is_on_top_and_said_so(area: xr.Dataset) -> None:
    area = area.isel(site=[0, 1, 2]).assign_coords(level=("site", [5.0, 20.0, 1.0]))
    area["easting"], area["northing"] = (area[name].isel(site=[0, 0, 2]) for name in ("easting", "northing"))
    area.attrs["invgp_coordinates"] = "easting northing level"
    figure = plots.maps(area)
    np.testing.assert_array_equal(
        np.asarray(figure.axes[0].collections[0].get_array()), area["depth"][[1, 0, 2], 0].values
    )
    assert "Where sites coincide, that of the least level is on top." in figure.get_suptitle().replace("\n", " ")


@pytest.mark.parametrize("extent", [1.0, 100.0, 1e3, 4e3, 20e3])
@pytest.mark.parametrize("start", [250.0, 12_345.0, 500_250.0, -500_250.0])
def test_that_ticks_stand_clear_of_each_other(start: float, extent: float) -> None:
    ds = posterior(distance(start + extent * np.linspace(0.0, 1.0, 40)))
    for figure in (plots.section(ds), plots.data_fit(ds)):
        draw(figure)
        assert_that_labels_can_be_read(figure)


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
    assert plots.section(ds).axes[0].get_xlabel() == label
    assert plots.data_fit(ds).axes[1].get_xlabel() == label


def test_that_maps_of_projected_coordinates_are_drawn_from_an_origin(area: xr.Dataset) -> None:
    for name, start in (("easting", 500_250.0), ("northing", 5_720_300.0)):
        area[name] = ("site", start + (area[name].values - area[name].values.min()) / 10.0, area[name].attrs)
    figure = plots.maps(area.isel(layer=[0]))
    draw(figure)
    assert figure.get_supxlabel() == "Easting \N{MINUS SIGN} 500 000 (m)"
    assert figure.get_supylabel() == "Northing \N{MINUS SIGN} 5 720 000 (m)"
    assert_that_labels_can_be_read(figure)


@pytest.mark.parametrize("shape", ["site", "pair", "northwards", "eastwards"])
def test_that_sites_without_an_area_get_a_frame_of_a_good_shape(area: xr.Dataset, shape: str) -> None:
    sites = area.isel(site=slice({"site": 1, "pair": 2}.get(shape, 20)), layer=[0, 1])
    if shape in ("northwards", "eastwards"):
        constant = "easting" if shape == "northwards" else "northing"
        sites[constant] = ("site", np.full(20, area[constant].values[0]), area[constant].attrs)
    figure = plots.maps(sites)
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


def test_that_a_lone_site_has_one_tick_at_its_place(line: xr.Dataset, area: xr.Dataset) -> None:
    lone = area.isel(site=[0]).assign_coords(easting=("site", [500_123.4], area["easting"].attrs))
    ax = plots.maps(lone).axes[-2]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["500123.4"]
    figure = plots.section(line.isel(site=[3]))
    left, right = figure.axes[0].get_xlim()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1200"]
    assert (left + right) / 2.0 == 1200.0


@pytest.mark.parametrize("latitude", [-91.0, 90.0, 5_720_000.0])
def test_that_an_impossible_latitude_is_drawn_and_named(area: xr.Dataset, latitude: float) -> None:
    values = latitude + np.linspace(-0.5, 0.0, 150)
    area["northing"] = ("site", values, {"units": "degrees_north", "long_name": "latitude"})
    area["easting"].attrs["units"] = "degrees_east"
    figure = plots.maps(area.isel(layer=[0]))
    draw(figure)
    assert figure.get_suptitle().startswith("Not to scale: the latitudes run from ")
    assert figure.axes[0].get_aspect() == 1.0


def test_that_a_band_thinner_than_its_mean_can_be_seen(line: xr.Dataset) -> None:
    thin = line.drop_vars("depth_quantile").assign(depth_std=1e-6 * line["depth_std"])
    ax = plots.section(thin).axes[0]
    assert bands(ax)[0].get_linewidth()[0] > 1.3 * ax.lines[0].get_linewidth()  # type: ignore[index]


def test_that_the_cross_plot_of_one_site_shows_the_diagonal(area: xr.Dataset) -> None:
    above = plots.data_fit(area.isel(site=[0])).axes[0]
    assert above.get_xlim() == above.get_ylim()


def test_that_maps_of_sites_on_a_line_are_drawn(area: xr.Dataset) -> None:
    area["northing"] = ("site", area["easting"].values, area["northing"].attrs)
    draw(plots.maps(area.isel(site=slice(20))))


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
    figure = plots.maps(area)
    assert figure.axes[0].get_aspect() == pytest.approx(2.0, rel=0.02)
    assert figure.get_supylabel() == "Latitude (°N)"
    assert figure.get_suptitle() == ""


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


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_that_both_figures_are_written_in_each_format(line: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    written = plots.plot(line, tmp_path / "new" / f"otway{suffix}")
    assert [path.name for path in written] == [f"otway{suffix}", f"otway_fit{suffix}"]
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert all(path.read_bytes().startswith(start) for path in written)


def test_that_two_coordinates_give_maps_from_a_netcdf_file(area: xr.Dataset, tmp_path: Path) -> None:
    area.to_netcdf(tmp_path / "area.nc")
    with xr.open_dataset(tmp_path / "area.nc") as ds:
        written = plots.plot(ds, str(tmp_path / "area.png"))
    assert all(path.stat().st_size > 10_000 for path in written)


def test_that_the_same_posterior_gives_the_same_file(line: xr.Dataset, tmp_path: Path) -> None:
    first, _ = plots.plot(line, tmp_path / "a.svg")
    second, _ = plots.plot(line, tmp_path / "b.svg")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("function", [plots.section, plots.maps, plots.data_fit])
def test_that_another_dataset_is_refused(function: object) -> None:
    with pytest.raises(ValueError, match=r"not an invgp posterior: .* 'invgp_coordinates' is missing"):
        function(xr.Dataset({"depth": ("site", [1.0])}))  # type: ignore[operator]


def test_that_a_posterior_that_lost_a_variable_is_refused(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="it lacks depth_std"):
        plots.section(line.drop_vars("depth_std"))


def test_that_a_figure_of_the_wrong_kind_is_refused(line: xr.Dataset, area: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="A section needs sites with 1 coordinate, but these have 2"):
        plots.section(area)
    with pytest.raises(ValueError, match="A map needs sites with 2 coordinates or more, but these have 1: position"):
        plots.maps(line)
    with pytest.raises(ValueError, match=r"^--output: must end in \.png, \.svg or \.pdf, was 'otway\.jpg'$"):
        plots.plot(line, "otway.jpg")


@pytest.mark.parametrize(
    ("unit", "pretty"),
    [("m s-1", "m s⁻¹"), ("kg m-3", "kg m⁻³"), ("ohm m", "Ω m"), ("m^2", "m²"), ("1e-5 m s-2", "1e-5 m s⁻²")],
)
def test_that_units_are_typeset(line: xr.Dataset, unit: str, pretty: str) -> None:
    line["velocity"].attrs["units"] = unit
    assert plots.section(line).axes[1].get_ylabel() == f"Seismic velocity ({pretty})"


def test_that_a_dimensionless_latent_has_no_brackets(line: xr.Dataset) -> None:
    line["velocity"].attrs["units"] = "1"
    assert plots.section(line).axes[1].get_ylabel() == "Seismic velocity"


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


def informed(ds: xr.Dataset) -> xr.Dataset:
    """With information of 0.1 at the first half of the sites, and 0.9 at the others."""
    values = np.where(np.arange(ds.sizes["site"]) < ds.sizes["site"] / 2, 0.1, 0.9)
    shape = ("site", "layer"), np.tile(values[:, None], ds.sizes["layer"])
    return ds.assign(depth_information=shape, velocity_information=shape)


def test_that_a_map_shows_every_quantity_it_is_asked_for(area: xr.Dataset) -> None:
    look = plots.Look(("mean", "std", "difference", "information"), {"depth_std": (0.0, 40.0)})
    figure = plots.maps(plots.choose(informed(area), ["depth"], ["2"]), look)
    draw(figure)
    titles = [ax.get_title(loc="left").replace("\n", " ") for ax in figure.axes]
    assert titles[2] == "(c) depth, layer 2: prior minus posterior mean"
    std, difference, information = (ax.child_axes[0].get_ylim() for ax in figure.axes[1:])
    assert std == (0.0, 40.0)
    assert difference[0] == -difference[1]  # white is no difference
    assert information == (0.0, 1.0)
    assert figure.get_suptitle() == "Hatched: information below 0.2."
    assert_that_labels_can_be_read(figure)


def test_that_what_the_data_say_little_of_is_hatched(line: xr.Dataset) -> None:
    ds = informed(line)
    ax = plots.section(ds).axes[0]
    hatched = [band for band in bands(ax) if band.get_hatch()]
    assert len(hatched) == 4
    ends = [np.asarray(band.get_paths()[0].vertices)[:, 0].max() for band in hatched]
    assert ends == pytest.approx([22.6] * 4)  # halfway between the last site without and the first with information
    assert not [band for band in bands(plots.section(ds, plots.Look(hatch_below=0.0)).axes[0]) if band.get_hatch()]


def test_that_a_section_shows_quantities_and_keeps_limits(line: xr.Dataset) -> None:
    look = plots.Look(("mean", "information"), {"depth": (100.0, 900.0)})
    figure = plots.section(plots.choose(informed(line), ["depth"]), look)
    assert figure.axes[0].get_ylim() == (900.0, 100.0)  # downwards
    assert figure.axes[1].get_ylabel() == "Information"
    np.testing.assert_array_equal(np.unique(np.asarray(figure.axes[1].lines[0].get_ydata())), [0.1, 0.9])


def test_that_the_correlations_at_a_site_are_those_of_the_file_or_of_the_draws(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="lacks the correlations, and the draws"):
        plots.correlation(line)
    rng = np.random.default_rng(6)
    draws = rng.standard_normal((50, line.sizes["site"], 4))
    dims = ("realization", "site", "layer")
    sampled = line.assign(depth_sample=(dims, draws), velocity_sample=(dims, -draws))
    sampled = sampled.assign_coords(site=np.arange(1, 114))
    figure = plots.correlation(sampled, site=3)
    assert figure.axes[0].get_title(loc="left") == "Site 3 (position 800 m)\nfrom 50 draws, ± 0.14"
    assert np.asarray(figure.axes[0].images[0].get_array())[0, 4] == pytest.approx(-1.0)
    exact = rng.uniform(-0.9, 0.9, (113, 8, 8))
    known = sampled.assign(correlation=(("site", "process", "other_process"), exact))
    shown = plots.correlation(plots.choose(known, ["velocity"], ["2", "3"]), site=3).axes[0]
    np.testing.assert_array_equal(np.asarray(shown.images[0].get_array()), exact[2][np.ix_([5, 6], [5, 6])])
    with pytest.raises(ValueError, match=r"^--site: must be the number of a site, 1 to 113, was 200$"):
        plots.correlation(known, site=200)


def test_that_draws_stand_over_their_band_or_beside_their_mean(line: xr.Dataset, area: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="no draws"):
        plots.draws(line)
    for ds in (line, area):
        for name in ("depth", "velocity"):
            ds[f"{name}_sample"] = xr.concat([ds[name] * 0.9, ds[name] * 1.1], "realization")
    drawn = [np.asarray(one.get_ydata()) for one in plots.draws(line).axes[0].lines]
    np.testing.assert_allclose(drawn[1], 0.9 * line["depth"][:, 0])
    figure = plots.draws(plots.choose(area, ["depth"], ["1"]))
    assert len({ax.child_axes[0].get_ylim() for ax in figure.axes}) == 1  # the same colours
    assert len(figure.axes) == 3
    assert figure.axes[2].get_title(loc="left").endswith("draw\N{NO-BREAK SPACE}2")
    at_sites = [read_quantity(area.isel(layer=[0]), "depth", f"draw {i}", Curve(0, "", "")) for i in (1, 2)]
    np.testing.assert_allclose(at_sites, np.outer([0.9, 1.1], area["depth"].isel(layer=0)))


def test_that_convergence_shows_bound_and_runs(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="lacks elbo or runs"):
        plots.convergence(line)
    bound = np.array([-900.0, 10.0, 12.0, 12.5])
    ds = line.assign(elbo=("iteration", bound), runs=("iteration", [100, 100, 200, 200]))
    ds = ds.assign_coords(iteration=np.arange(1, 5))
    figure = plots.convergence(ds)
    draw(figure)
    np.testing.assert_array_equal(np.asarray(figure.axes[1].lines[0].get_ydata()), bound[2:])
    assert figure.axes[0].get_ylabel() == "Evidence lower bound (nats)"


def test_that_a_grid_is_drawn_cell_by_cell_and_can_be_cut(area: xr.Dataset, tmp_path: Path) -> None:
    grid = on_grid(informed(area))
    grid.to_netcdf(tmp_path / "map.nc")
    with xr.open_dataset(tmp_path / "map.nc") as opened:
        figure = plots.maps(plots.choose(opened, ["depth"], ["3"]))
        assert plots.suitable(opened) == ("map",)
    cells = figure.axes[0].collections[0]
    np.testing.assert_allclose(np.asarray(cells.get_array()), grid["depth"][2])
    cut = plots.cut(grid, {"northing": 5721.1e3})
    ax = plots.section(cut).axes[0]
    np.testing.assert_allclose(np.asarray(ax.lines[0].get_ydata()), grid["depth"][0, 2])
    with pytest.raises(ValueError, match=r"^--at: must name one of northing, easting, was 'height'$"):
        plots.cut(grid, {"height": 1.0})
    with pytest.raises(ValueError, match="only a grid can be cut"):
        plots.cut(area, {"northing": 1.0})


def test_that_a_volume_is_cut_in_its_middle_unless_elsewhere(area: xr.Dataset) -> None:
    volume = xr.concat([on_grid(area)] * 3, xr.DataArray([0.0, 5.0, 10.0], dims="height", name="height"))
    volume.attrs["invgp_coordinates"] = "easting northing height"
    title = plots.maps(volume).get_suptitle()
    assert title.startswith("Cut at height 5; --at height VALUE cuts elsewhere.")
    assert len(plots.maps(plots.choose(plots.cut(volume, {"height": 6.0}), ["depth"], ["1"])).axes) == 2


def test_that_what_is_not_there_cannot_be_chosen(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match=r"^--latent: must be one of depth, velocity, was 'density'$"):
        plots.choose(line, ["density"])
    with pytest.raises(ValueError, match=r"^--layer: must be one of 1, 2, 3, 4, was '9'$"):
        plots.choose(line, labels=["9"])
    with pytest.raises(ValueError, match=r"^--layer: must be left out, was '9'$"):
        plots.choose(line.isel(layer=0, drop=True), labels=["9"])


@pytest.mark.parametrize(
    ("name", "label"),
    [("y", "y"), ("a", "a"), ("vs", "vs"), ("pH", "pH"), ("a thing", "A thing"), ("depth", "Depth"), ("GPR", "GPR")],
)
def test_that_symbols_keep_their_case(line: xr.Dataset, name: str, label: str) -> None:
    line["velocity"].attrs = {"units": "1", "long_name": name}
    assert plots.section(line).axes[1].get_ylabel() == label


def test_that_a_comparison_at_one_site_shows_intervals_of_every_layer(line: xr.Dataset) -> None:
    one = line.isel(site=[3]).assign_coords(site=[4])
    reference = one.copy()
    for name in ("depth", "velocity"):
        std = one[f"{name}_std"]
        reference = reference.assign({f"{name}_reference": one[name], f"{name}_reference_std": std})
        reference = reference.assign({f"{name}_reference_mcse": 0.05 * std, f"{name}_reference_std_mcse": 0.05 * std})
        reference = reference.assign({f"{name}_error": 0.0 * std + 0.1, f"{name}_ratio": 0.0 * std + 1.1})
    figure = plots.comparison(one, reference)
    draw(figure)
    above, below = figure.axes[0], figure.axes[4]
    assert [label.get_text() for label in below.get_xticklabels()] == ["layer 1", "layer 2", "layer 3", "layer 4"]
    heights = [np.asarray(mark.get_ydata()).item() for mark in above.lines if mark.get_color() == "black"]
    np.testing.assert_allclose(heights, one["depth"].values[0])
    assert figure.get_supxlabel() == "Site 4 (position 1200 m)"
    assert_that_labels_can_be_read(figure)


@pytest.fixture(scope="module")
def sounded() -> xr.Dataset:
    """A posterior that predicts, of fields that vary between the sites; the northing comes first."""
    problem = map_problem()
    survey = replace(problem.survey, coordinates=problem.survey.coordinates[::-1])
    rough = tuple(replace(latent, length_scale=0.1 * latent.length_scale) for latent in problem.latents)
    return invgp.invert(replace(problem, survey=survey, latents=rough))


def test_that_a_map_shows_the_posterior_between_sites_not_an_interpolation(sounded: xr.Dataset) -> None:
    figure = plots.maps(sounded, plots.Look(("std",), latents=("thickness",)))
    cells = np.asarray(figure.axes[0].collections[0].get_array())
    assert float(sounded["thickness_std"].max()) < 2.95
    assert cells.max() > 2.999  # as in the prior: the data say nothing there
    [circles] = figure.axes[0].lines
    assert len(np.asarray(circles.get_xdata())) == sounded.sizes["site"]
    assert "Circles: sites." in figure.get_suptitle()
    assert figure.get_supxlabel().startswith("Easting")  # though the survey has its northing first


def test_that_a_section_shows_the_posterior_between_sites(sounded: xr.Dataset) -> None:
    line = invgp.predict(sounded, f"easting={float(sounded['easting'][0])},northing=::5", draws=2)
    cut = plots.cut(line, {"easting": float(sounded["easting"][0])})
    drawn = np.asarray(plots.section(cut, plots.Look(latents=("thickness",))).axes[0].lines[0].get_ydata())
    np.testing.assert_allclose(drawn, line["thickness"].values.ravel())


def test_that_depth_runs_downwards_on_a_slice_of_a_volume(area: xr.Dataset) -> None:
    about = {"units": "m", "positive": "down"}
    at = {"easting": [0.0, 100.0, 200.0, 300.0], "below": [0.0, 10.0, 20.0]}
    values = np.arange(12.0).reshape(3, 4)
    attributes = {"invgp_coordinates": "easting below", "invgp_latents": "rho", "invgp_map": "grid"}
    ds = xr.Dataset({"rho": (("below", "easting"), values, {"units": "ohm m"})}, at, attributes)
    ds["rho_std"] = ds["rho"] + 1.0
    ds["below"].attrs = {**about, "axis": "Z"}
    ds["easting"].attrs = {"units": "m", "axis": "X"}
    figure = plots.maps(ds)
    assert figure.axes[0].yaxis_inverted()
    assert figure.get_supylabel() == "Below (m)"
    assert "Vertical exaggeration" in figure.get_suptitle()


@pytest.mark.parametrize("size", [(8.5, 9.0), (12.0, 9.0), (18.0, 24.0), (40.0, 10.0)])
@pytest.mark.parametrize("kind", ["section", "map", "fit", "draws", "convergence"])
def test_that_a_figure_is_laid_out_for_its_size(
    kind: str, size: tuple[float, float], line: xr.Dataset, sounded: xr.Dataset
) -> None:
    ds = line if kind == "section" else sounded
    look = plots.Look(size=(size[0] / 2.54, size[1] / 2.54), latents=(ds.attrs["invgp_latents"].split()[-1],))
    figure = plots.KINDS[kind](ds, look, None)
    draw(figure)
    np.testing.assert_allclose(figure.get_size_inches() * 2.54, size)
    assert_that_labels_can_be_read(figure)
    assert not overlaps([ax._left_title for ax in figure.axes])  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["section", "map", "fit", "correlation", "draws", "convergence"])
def test_that_a_size_too_small_to_be_read_is_refused(
    kind: str, line: xr.Dataset, sounded: xr.Dataset, tmp_path: Path
) -> None:
    ds = line if kind == "section" else sounded
    with pytest.raises(PlotError, match=r"--size: must leave room for .*, was 3 x 3 cm"):
        plots.plot(ds, tmp_path / "small.png", [kind], plots.Look(size=(3.0 / 2.54, 3.0 / 2.54)), alone=True)
    assert list(tmp_path.iterdir()) == []


def test_that_small_numbers_have_their_power_of_ten_in_the_label(area: xr.Dataset) -> None:
    area["depth"] = (area["depth"] * 1e-7).assign_attrs(units="m", long_name="storage")
    area["depth_std"] = area["depth"] * 0.1
    figure = plots.maps(area, plots.Look(latents=("depth",), labels=("4",)))
    draw(figure)
    bar = figure.axes[0].child_axes[0]
    assert bar.get_ylabel() == "Storage (10⁻⁴ m)"
    assert {len(tick.get_text()) for tick in bar.get_yticklabels()} <= {3, 4}


def test_that_nothing_is_drawn_between_surveys_far_apart() -> None:
    x, y = (axis.ravel() for axis in np.meshgrid([0.0, 1.0, 2.0, 100.0, 101.0, 102.0], np.arange(4.0)))
    triangles = Place(x, y, None, flat=True).triangles(np.ones(x.size, dtype=bool))
    assert triangles is not None
    across = np.ptp(x[triangles.get_masked_triangles()], axis=1)
    assert across.max() == 1.0
