"""Lines: curves with bands over a coordinate."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import invgp
from helpers.plotted_posteriors import add_information, assert_that_labels_can_be_read, bands, draw, edges_of
from invgp import plots


def test_that_a_section_labels_its_axes_with_units(line: xr.Dataset) -> None:
    figure = plots.plot_section(line)
    left, right = figure.axes
    assert left.get_xlabel() == right.get_xlabel() == "Distance along the line (km)"
    assert left.get_ylabel() == "Depth of the reflector (m)"
    assert right.get_ylabel() == "Seismic velocity (m s⁻¹)"
    assert left.get_xlim() == (0.0, 44.8)
    draw(figure)


def test_that_a_short_line_stays_in_metres(line: xr.Dataset) -> None:
    figure = plots.plot_section(line.isel(site=slice(10)))
    assert figure.axes[0].get_xlabel() == "Distance along the line (m)"


def test_that_depth_points_down_and_velocity_up(line: xr.Dataset) -> None:
    left, right = plots.plot_section(line).axes
    assert left.yaxis_inverted()
    assert left.get_ylim()[1] == 0.0
    assert not right.yaxis_inverted()


def test_that_the_band_lies_between_the_quantiles(line: xr.Dataset) -> None:
    x = line["position"].values / 1e3
    for ax, name in zip(plots.plot_section(line).axes, ("depth", "velocity"), strict=True):
        assert len(bands(ax)) == 4
        for band, layer in zip(bands(ax), line["layer"], strict=True):
            lower, upper = edges_of(band, x)
            quantile = line[f"{name}_quantile"].sel(layer=layer)
            np.testing.assert_allclose(lower, quantile.sel(quantile=0.025))
            np.testing.assert_allclose(upper, quantile.sel(quantile=0.975))


def test_that_the_band_falls_back_on_the_standard_deviation(line: xr.Dataset) -> None:
    without = line.isel(quantile=[1])
    lower, upper = edges_of(bands(plots.plot_section(without).axes[0])[2], line["position"].values / 1e3)
    mean, std = line["depth"][:, 2], line["depth_std"][:, 2]
    np.testing.assert_allclose(lower, mean - 1.96 * std)
    np.testing.assert_allclose(upper, mean + 1.96 * std)


def test_that_sites_in_any_order_give_the_same_section(line: xr.Dataset) -> None:
    shuffled = line.isel(site=np.random.default_rng(3).permutation(line.sizes["site"]))
    for ax, other in zip(plots.plot_section(line).axes, plots.plot_section(shuffled).axes, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), other.lines[0].get_ydata())
        texts = [[(text.get_text(), text.xy) for text in a.texts] for a in (ax, other)]  # type: ignore[attr-defined]
        assert texts[0] == texts[1]


def test_that_curves_are_named_at_their_right_end_without_overlap(line: xr.Dataset) -> None:
    line["depth"] = line["depth"] * 0.0 + 1000.0
    figure = plots.plot_section(line)
    draw(figure)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert [text.get_text() for text in figure.axes[0].texts] == ["layer 1", "layer 2", "layer 3", "layer 4"]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.slow
def test_that_a_latent_without_a_dimension_and_a_single_site_can_be_drawn(line: xr.Dataset) -> None:
    scalar = line.isel(layer=0, drop=True)
    figures = [plots.plot_section(scalar), plots.plot_fit(scalar)]
    figures += [plots.plot_section(line.isel(site=[0])), plots.plot_fit(line.isel(site=[0]))]
    for figure in figures:
        draw(figure)


def test_that_many_labels_get_a_colour_bar(line: xr.Dataset) -> None:
    many = xr.concat([line.assign_coords(layer=line["layer"] + 4 * i) for i in range(5)], "layer")
    many.attrs = line.attrs
    figure = plots.plot_section(many)
    assert len(figure.axes) == 4
    draw(figure)


def test_that_a_band_thinner_than_its_mean_can_be_seen(line: xr.Dataset) -> None:
    thin = line.drop_vars("depth_quantile").assign(depth_std=1e-6 * line["depth_std"])
    ax = plots.plot_section(thin).axes[0]
    assert bands(ax)[0].get_linewidth()[0] > 1.3 * ax.lines[0].get_linewidth()  # type: ignore[index]


def test_that_regions_with_little_information_are_hatched(line: xr.Dataset) -> None:
    ds = add_information(line)
    ax = plots.plot_section(ds).axes[0]
    hatched = [band for band in bands(ax) if band.get_hatch()]
    assert len(hatched) == 4
    ends = [np.asarray(band.get_paths()[0].vertices)[:, 0].max() for band in hatched]
    assert ends == pytest.approx([22.6] * 4)  # halfway between the last site without and the first with information
    assert not [band for band in bands(plots.plot_section(ds, hatch_below=0.0).axes[0]) if band.get_hatch()]


def test_that_a_section_shows_quantities_and_keeps_limits(line: xr.Dataset) -> None:
    selected = plots.select_latents(add_information(line), ["depth"])
    figure = plots.plot_section(selected, show=("mean", "information"), limits={"depth": (100.0, 900.0)})
    assert figure.axes[0].get_ylim() == (900.0, 100.0)  # downwards
    assert figure.axes[1].get_ylabel() == "Information"
    np.testing.assert_array_equal(np.unique(np.asarray(figure.axes[1].lines[0].get_ydata())), [0.1, 0.9])


def test_that_a_section_shows_the_posterior_between_sites(sounding_map: xr.Dataset) -> None:
    line = invgp.predict(sounding_map, f"easting={float(sounding_map['easting'][0])},northing=::5", draws=2)
    cut = plots.slice_grid(line, {"easting": float(sounding_map["easting"][0])})
    drawn = np.asarray(plots.plot_section(cut, latents=("thickness",)).axes[0].lines[0].get_ydata())
    np.testing.assert_allclose(drawn, line["thickness"].values.ravel())


def test_that_the_difference_is_posterior_minus_prior(line: xr.Dataset) -> None:
    (ax,) = plots.plot_section(line, show="difference", latents="depth", labels=3).axes
    np.testing.assert_allclose(ax.lines[0].get_ydata(), (line["depth"] - line["depth_prior"]).sel(layer=3))


@pytest.mark.parametrize("link", ["identity", "log", "increasing"])
def test_that_the_interval_of_the_prior_is_drawn(link: str, line: xr.Dataset) -> None:
    line["velocity_prior_std"] = 0.2 * line["velocity_prior"]
    line["velocity"].attrs["link"] = link
    (ax,) = plots.plot_section(line, latents="velocity", labels=2).axes
    drawn = [np.asarray(one.get_ydata())[0] for one in ax.lines if one.get_alpha() == 0.8]
    sigma = math.sqrt(math.log(1.04))
    median = 2300.0 / math.sqrt(1.04)
    expected = [2300.0 * (1.0 - 0.392), 2300.0 * (1.0 + 0.392)]
    if link != "identity":
        expected = [median * math.exp(-1.96 * sigma), median * math.exp(1.96 * sigma)]
    np.testing.assert_allclose(drawn, expected)


def test_that_a_remote_prior_does_not_flatten_the_posterior(line: xr.Dataset) -> None:
    line["velocity_prior_std"] = 20.0 * line["velocity_prior"]
    (ax,) = plots.plot_section(line, latents="velocity").axes
    lower, upper = (float(line["velocity_quantile"].isel(quantile=i).reduce(f)) for i, f in ((0, np.min), (2, np.max)))
    assert np.ptp(ax.get_ylim()) < 2.0 * (upper - lower)


def test_that_a_latent_with_a_log_link_has_a_logarithmic_axis_if_its_values_span_a_factor(line: xr.Dataset) -> None:
    for name in ("velocity", "velocity_quantile", "velocity_prior"):
        line[name] = line[name] * 10.0 ** (line["layer"] - 1)
    assert plots.plot_section(line, latents="velocity").axes[0].get_yscale() == "linear"
    line["velocity"].attrs = {"link": "log", "units": "m s-1", "long_name": "seismic velocity"}
    figure = plots.plot_section(line, latents="velocity")
    assert figure.axes[0].get_yscale() == "log"
    assert plots.plot_section(line, latents="velocity", labels=1).axes[0].get_yscale() == "linear"
    draw(figure)
    assert_that_labels_can_be_read(figure)


def test_that_a_figure_of_one_panel_is_drawn_into_given_axes(line: xr.Dataset, area: xr.Dataset) -> None:
    figure = Figure((8.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.set_title("mine")
    assert plots.plot_section(line, latents="depth", ax=left) is figure
    assert plots.plot_map(area, latents="depth", labels=[1], show="mean", ax=right) is figure
    assert left.get_title() == "mine"
    assert left.get_ylabel() == "Depth of the reflector (m)"
    assert right.get_ylabel() == "Northing (km)"
    draw(figure)
    assert_that_labels_can_be_read(figure)
    with pytest.raises(ValueError, match="ax: must be left out for a figure of 2 panels"):
        plots.plot_section(line, ax=left)
    with pytest.raises(ValueError, match="ax: must be left out for a figure of 16 panels"):
        plots.plot_map(area, ax=left)
    inside = figure.add_subfigure(right.get_gridspec()[0, 1]).subplots()
    assert plots.plot_section(line, latents="velocity", show="std", ax=inside) is figure


def test_that_an_unknown_quantity_is_refused(line: xr.Dataset) -> None:
    known = "mean, std, difference, information, few-runs, prior, quantiles, exceedance"
    with pytest.raises(ValueError, match=f"show: must be one of {known}, was 'mode'"):
        plots.plot_section(line, show="mode")


@pytest.mark.slow
def test_that_the_module_of_figures_is_loaded_on_first_use() -> None:
    loaded = "assert ('matplotlib' in sys.modules) is"
    code = f"import sys, invgp; {loaded} False; invgp.plots.plot_section; {loaded} True"
    subprocess.run([sys.executable, "-c", code], check=True)
