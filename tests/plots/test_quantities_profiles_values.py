"""Figures of exceedance and quantiles, profiles through maps, known values, and colour maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from helpers.problems import reflector_map
from invgp import invert, plots, predict
from invgp.errors import PlotError
from invgp.plots.profile_figure import read_profile

LINE = (501e3, 5721e3, 510e3, 5728e3)


@pytest.fixture(scope="module")
def area() -> xr.Dataset:
    """Forty sites on a map."""
    return invert(reflector_map(40))


@pytest.fixture(scope="module")
def grid(area: xr.Dataset) -> xr.Dataset:
    """A map with two thresholds of one latent, and a derived quantity."""
    return predict(area, "1000", exceed=["depth > 1200 m", "depth > 1.5 km"], derive=["half [m] = depth[2] / 2"])


def panel_titles(figure: object) -> list[str]:
    return [" ".join(ax.get_title(loc="left").split()) for ax in figure.axes if ax.get_title(loc="left")]  # type: ignore[attr-defined]


def test_that_exceedance_has_one_map_per_threshold_from_0_to_1(grid: xr.Dataset) -> None:
    figure = plots.plot_map(grid, show="exceedance", labels=2)
    assert panel_titles(figure) == [
        "(a) depth, layer 2: probability of more than 1200 m",
        "(b) depth, layer 2: probability of more than 1500 m",
    ]
    mesh = figure.axes[0].collections[0]
    assert mesh.get_clim() == (0.0, 1.0)
    expected = grid["depth_exceedance"].isel(depth_threshold=0).sel(layer=2)
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).ravel(), expected.values.ravel())
    with pytest.raises(PlotError, match="`invgp predict --exceed`"):
        plots.plot_map(grid, show="exceedance", latents="velocity")


def test_that_quantiles_share_the_colours_of_the_mean(grid: xr.Dataset) -> None:
    figure = plots.plot_map(grid, show=("mean", "quantiles"), latents="half")
    assert [title.split(": ")[1] for title in panel_titles(figure)] == [
        *("mean", "2.5% quantile", "50% quantile", "97.5% quantile")
    ]
    scales = {figure.axes[k].collections[0].get_clim() for k in range(4)}
    assert len(scales) == 1


def test_that_maps_name_their_coordinates_and_take_a_colour_map(area: xr.Dataset) -> None:
    figure = plots.plot_map(area, latents="depth", labels=1, show="mean", colour_map="magma")
    assert "Coordinates: GDA94 / MGA zone 54." in figure.get_suptitle()
    assert figure.axes[0].collections[0].get_cmap().name == "magma"
    with pytest.raises(PlotError, match="colour_map"):
        plots.plot_map(area, colour_map="no such map")


def test_that_a_profile_is_the_posterior_along_the_line(area: xr.Dataset, grid: xr.Dataset, tmp_path: Path) -> None:
    along = read_profile(area, LINE)
    middle = along.sizes["site"] // 2
    (tmp_path / "one.csv").write_text(f"easting,northing\n{along.easting[middle]:.17g},{along.northing[middle]:.17g}\n")
    np.testing.assert_allclose(along["depth"][middle], predict(area, tmp_path / "one.csv")["depth"][0], rtol=1e-10)
    assert float(along["distance"][-1]) == pytest.approx(np.hypot(9e3, 7e3))
    interpolated = read_profile(grid, LINE)
    np.testing.assert_allclose(interpolated["depth"], along["depth"].transpose(*interpolated["depth"].dims), rtol=0.05)
    figure = plots.plot_profile(area, LINE[:2], LINE[2:], latents="depth")
    assert figure.axes[0].get_xlabel() == "Distance from A to A\N{PRIME} (km)"
    with pytest.raises(PlotError, match="two ends"):
        plots.plot_profile(area, LINE[:2], LINE[:2])


def test_that_a_line_is_drawn_on_maps_and_gives_a_profile(area: xr.Dataset, tmp_path: Path) -> None:
    options = plots.FigureOptions(line=LINE, latents=("depth",), show=("mean",))
    files = plots.plot(area, tmp_path / "area.png", options=options, dpi=50)
    assert [path.name for path in files] == ["area.png", "area_fit.png", "area_profile.png"]
    figure = plots.KINDS["map"](area, options, None)
    assert {"A", "A\N{PRIME}"} <= {text.get_text() for text in figure.axes[0].texts}


@pytest.mark.parametrize("direction", [(1.0, 1.0), (1.0, -1.0), (-1.0, 0.0), (0.0, 1.0)])
def test_that_the_ends_of_a_line_are_labelled_inside_the_map(area: xr.Dataset, direction: tuple[float, float]) -> None:
    corners = [area[name].values for name in ("easting", "northing")]
    ends = [
        ((low + high) / 2.0, sign * (high - low) / 2.0)
        for (low, high), sign in zip(((c.min(), c.max()) for c in corners), direction, strict=True)
    ]
    line = tuple(middle + sign * reach for sign in (-1.0, 1.0) for middle, reach in ends)
    options = plots.FigureOptions(line=line, latents=("depth",), labels=("1",), show=("mean",))
    figure = plots.KINDS["map"](area, options, None)
    figure.draw_without_rendering()
    panel = figure.axes[0]
    labels = [text for text in panel.texts if text.get_text().startswith("A")]
    assert len(labels) == 2
    for label in labels:
        box, frame = label.get_window_extent(), panel.get_window_extent()
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1
        assert frame.y0 <= box.y0
        assert box.y1 <= frame.y1


def test_that_known_values_are_drawn_and_compared(area: xr.Dataset, tmp_path: Path) -> None:
    places = area.isel(site=[3, 17, 30])
    mean, std = places["depth"].values, places["depth_std"].values
    rows = [
        f"{e:.17g},{n:.17g},{top:.17g},{bottom:.17g}"
        for e, n, top, bottom in zip(places.easting.values, places.northing.values, mean[:, 0] - std[:, 0],
                                     mean[:, 1] + 10.0 * std[:, 1], strict=True)
    ]  # fmt: skip
    rows[2] = ",".join([*rows[2].split(",")[:3], ""])  # unknown
    (tmp_path / "wells.csv").write_text("\n".join(["easting,northing,depth_1,depth_2", *rows]))
    known = plots.read_known_values(tmp_path / "wells.csv", area)
    first, second = plots.compare_with_values(area, known)
    assert (first.size, second.size) == (3, 2)
    assert first.standardised == pytest.approx(1.0, rel=1e-6)
    assert first.mean_error == pytest.approx(std[:, 0].mean(), rel=1e-6)
    assert (first.inside, second.inside) == (1.0, 0.0)
    figure = plots.KINDS["map"](area, plots.FigureOptions(known=known, show=("mean",), latents=("depth",)), None)
    diamonds = [c for c in figure.axes[0].collections if np.size(c.get_array()) == 3]
    np.testing.assert_array_equal(diamonds[0].get_array(), known[0].values)
    for text, fault in (("a,b\n1,2\n", "easting"), ("easting,northing\n1,2\n", "depth_1")):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(PlotError, match=fault):
            plots.read_known_values(tmp_path / "bad.csv", area)
