"""Figures of a posterior: what stands on them, and the files they are written to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from invgp import plots

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
    figure = plots.maps(area)
    draw(figure)
    panels = figure.axes
    bars = [ax.child_axes[0] for ax in panels]
    assert len(panels) == 2 * 4 * 2
    assert all(ax.get_aspect() == 1.0 for ax in panels)
    assert panels[1].get_title(loc="left") == "(b) depth, layer 1: standard deviation"
    assert panels[-2].get_xlabel() == "Easting (km)"
    assert panels[0].get_ylabel() == "Northing (km)"
    assert bars[0].get_ylabel() == "Depth of the reflector (m)"
    assert bars[-1].get_ylabel() == "Standard deviation (m s⁻¹)"
    assert bars[0].yaxis_inverted()
    assert not bars[-1].yaxis_inverted()


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
    ax = plots.maps(area).axes[0]
    assert ax.get_aspect() == pytest.approx(2.0, rel=0.02)
    assert ax.get_ylabel() == "Latitude (°N)"


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


def test_that_a_figure_of_the_wrong_kind_is_refused(line: xr.Dataset, area: xr.Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="A section needs sites with 1 coordinate, but these have 2"):
        plots.section(area)
    with pytest.raises(ValueError, match="A map needs sites with 2 coordinates, but these have 1: position"):
        plots.maps(line)
    with pytest.raises(ValueError, match=r"one of \.pdf, \.png, \.svg, but it is '\.jpg'"):
        plots.plot(line, tmp_path / "otway.jpg")


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
