"""Lines: curves with bands over a coordinate."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.plotted_posteriors import bands, draw, edges_of, informed
from invgp import plots


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


def test_that_a_band_thinner_than_its_mean_can_be_seen(line: xr.Dataset) -> None:
    thin = line.drop_vars("depth_quantile").assign(depth_std=1e-6 * line["depth_std"])
    ax = plots.section(thin).axes[0]
    assert bands(ax)[0].get_linewidth()[0] > 1.3 * ax.lines[0].get_linewidth()  # type: ignore[index]


def test_that_regions_with_little_information_are_hatched(line: xr.Dataset) -> None:
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


def test_that_a_section_shows_the_posterior_between_sites(sounded: xr.Dataset) -> None:
    line = invgp.predict(sounded, f"easting={float(sounded['easting'][0])},northing=::5", draws=2)
    cut = plots.cut(line, {"easting": float(sounded["easting"][0])})
    drawn = np.asarray(plots.section(cut, plots.Look(latents=("thickness",))).axes[0].lines[0].get_ydata())
    np.testing.assert_allclose(drawn, line["thickness"].values.ravel())
