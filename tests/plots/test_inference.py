"""How the posterior was found: correlations, draws, convergence, comparison."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr

from helpers.plotted_posteriors import assert_that_labels_can_be_read, draw
from invgp import plots
from invgp.plots.figure_options import read_quantity
from invgp.plots.plot_data import Curve


def test_that_the_correlations_at_a_site_are_those_of_the_file_or_of_the_draws(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="lacks the correlations and the draws"):
        plots.plot_correlation(line)
    rng = np.random.default_rng(6)
    draws = rng.standard_normal((50, line.sizes["site"], 4))
    dims = ("realization", "site", "layer")
    sampled = line.assign(depth_sample=(dims, draws), velocity_sample=(dims, -draws))
    sampled = sampled.assign_coords(site=np.arange(1, 114))
    figure = plots.plot_correlation(sampled, site=3)
    assert figure.axes[0].get_title(loc="left") == "Site 3 (position 800 m)\nfrom 50 draws, ± 0.14"
    assert np.asarray(figure.axes[0].images[0].get_array())[0, 4] == pytest.approx(-1.0)
    exact = rng.uniform(-0.9, 0.9, (113, 8, 8))
    known = sampled.assign(correlation=(("site", "process", "other_process"), exact))
    shown = plots.plot_correlation(plots.select_latents(known, ["velocity"], ["2", "3"]), site=3).axes[0]
    np.testing.assert_array_equal(np.asarray(shown.images[0].get_array()), exact[2][np.ix_([5, 6], [5, 6])])
    with pytest.raises(ValueError, match=r"^site: must be the number of a site, 1 to 113, was 200$"):
        plots.plot_correlation(known, site=200)


def test_that_draws_are_drawn_over_the_band_or_next_to_the_mean(line: xr.Dataset, area: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="no draws"):
        plots.plot_draws(line)
    for ds in (line, area):
        for name in ("depth", "velocity"):
            ds[f"{name}_sample"] = xr.concat([ds[name] * 0.9, ds[name] * 1.1], "realization")
    drawn = [np.asarray(one.get_ydata()) for one in plots.plot_draws(line).axes[0].lines]
    np.testing.assert_allclose(drawn[1], 0.9 * line["depth"][:, 0])
    figure = plots.plot_draws(plots.select_latents(area, ["depth"], ["1"]))
    assert len({ax.child_axes[0].get_ylim() for ax in figure.axes}) == 1  # the same colours
    assert len(figure.axes) == 3
    assert figure.axes[2].get_title(loc="left").endswith("draw\N{NO-BREAK SPACE}2")
    at_sites = [read_quantity(area.isel(layer=[0]), "depth", f"draw {i}", Curve(0, "", "")) for i in (1, 2)]
    np.testing.assert_allclose(at_sites, np.outer([0.9, 1.1], area["depth"].isel(layer=0)))


def test_that_convergence_shows_bound_and_runs(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="lacks elbo or runs"):
        plots.plot_convergence(line)
    bound = np.array([-900.0, 10.0, 12.0, 12.5])
    ds = line.assign(elbo=("iteration", bound), runs=("iteration", [100, 100, 200, 200]))
    ds = ds.assign_coords(iteration=np.arange(1, 5))
    figure = plots.plot_convergence(ds)
    draw(figure)
    np.testing.assert_array_equal(np.asarray(figure.axes[1].lines[0].get_ydata()), bound[2:])
    assert figure.axes[0].get_ylabel() == "Evidence lower bound (nats)"


def learnt(ds: xr.Dataset) -> xr.Dataset:
    """The posterior with draws of two hyperparameters."""
    rng = np.random.default_rng(8)
    prior = {"prior_median": 2000.0, "prior_factor": 2.0, "most_probable": 2500.0}
    about = {"long_name": "posterior draw of the length-scale of depth along position", "units": "m", **prior}
    factor = {"prior_median": 1.0, "prior_factor": 1.5, "most_probable": 1.1, "units": "1"}
    factor["long_name"] = "posterior draw of the factor on the configured noise of travel time"
    ds = ds.assign(
        depth_length_scale_position_sample=("draw", np.exp(rng.normal(np.log(2600.0), 0.2, 400)), about),
        time_noise_factor_sample=("draw", np.exp(rng.normal(0.1, 0.1, 400)), factor),
    )
    return ds.assign_attrs(invgp_hyperparameters="depth_length_scale_position time_noise_factor")


def test_that_hyperparameters_show_posterior_prior_and_most_probable_value(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="no draws of hyperparameters"):
        plots.plot_hyperparameters(line)
    assert "hyperparameters" not in plots.suitable_kinds(line)
    ds = learnt(line)
    assert "hyperparameters" in plots.suitable_kinds(ds)
    figure = plots.plot_hyperparameters(ds)
    draw(figure)
    first, second = figure.axes
    assert first.get_xlabel().replace("\n", " ") == "Length-scale of depth along position (m)"
    assert second.get_xlabel().replace("\n", " ") == "Factor on the configured noise of travel time"
    heights, edges, _ = first.patches[0].get_data()
    assert np.sum(heights * np.diff(np.log(edges))) == pytest.approx(1.0, abs=0.02)  # a density of the logarithm
    prior, best = first.lines
    x, y = np.asarray(prior.get_xdata(), dtype=float), np.asarray(prior.get_ydata(), dtype=float)
    assert x[np.argmax(y)] == pytest.approx(2000.0, rel=0.02)
    assert y.max() == pytest.approx(1.0 / (np.log(2.0) * np.sqrt(2.0 * np.pi)), rel=1e-3)
    np.testing.assert_allclose(best.get_xdata(), 2500.0)
    assert_that_labels_can_be_read(figure)


def test_that_a_comparison_at_one_site_shows_intervals_of_every_layer(line: xr.Dataset) -> None:
    one = line.isel(site=[3]).assign_coords(site=[4])
    reference = one.copy()
    for name in ("depth", "velocity"):
        std = one[f"{name}_std"]
        reference = reference.assign({f"{name}_reference": one[name], f"{name}_reference_std": std})
        reference = reference.assign({f"{name}_reference_mcse": 0.05 * std, f"{name}_reference_std_mcse": 0.05 * std})
        reference = reference.assign({f"{name}_error": 0.0 * std + 0.1, f"{name}_ratio": 0.0 * std + 1.1})
    figure = plots.plot_comparison(one, reference)
    draw(figure)
    above, below = figure.axes[0], figure.axes[4]
    assert [label.get_text() for label in below.get_xticklabels()] == ["layer 1", "layer 2", "layer 3", "layer 4"]
    heights = [np.asarray(mark.get_ydata()).item() for mark in above.lines if mark.get_color() == "black"]
    np.testing.assert_allclose(heights, one["depth"].values[0])
    assert figure.get_supxlabel() == "Site 4 (position 1200 m)"
    assert_that_labels_can_be_read(figure)


def test_that_draws_of_all_chains_are_shown_at_the_sites(line: xr.Dataset) -> None:
    rng = np.random.default_rng(4)
    draws = line["depth"].values + 20.0 * rng.standard_normal((60, *line["depth"].shape))
    line["depth_sample"] = (("realization", "site", "layer"), draws)
    line["velocity_sample"] = line["depth_sample"]
    first = plots.plot_draws(line, latents="depth", labels=1).axes[0].lines
    chains = line.assign(chain=("realization", np.repeat([1, 2], 30)))
    spread = plots.plot_draws(chains, latents="depth", labels=1).axes[0].lines
    for lines, expected in ((first, range(20)), (spread, range(1, 60, 3))):
        values = [np.asarray(one.get_ydata()) for one in lines if one.get_alpha() == 0.6]
        np.testing.assert_array_equal(values, draws[list(expected), :, 0])


def test_that_convergence_marks_new_emulators(line: xr.Dataset) -> None:
    bound, runs = np.array([-90.0, 10.0, 12.0, 8.0, 11.0]), np.array([20, 20, 20, 40, 40])
    ds = line.assign(elbo=("iteration", bound), runs=("iteration", runs)).assign_coords(iteration=np.arange(1, 6))
    figure = plots.plot_convergence(ds)
    first, second, mark = figure.axes[0].lines
    np.testing.assert_array_equal(np.asarray(first.get_ydata()), bound[:3])
    np.testing.assert_array_equal(np.asarray(second.get_ydata()), bound[3:])
    assert list(mark.get_xdata()) == [3.5, 3.5]
    assert "new emulator" in figure.legends[0].get_texts()[0].get_text()
    each = plots.plot_convergence(ds.assign(runs=("iteration", [20, 40, 60, 80, 100])))  # without an emulator
    assert len(each.axes[0].lines) == 1
    assert not each.legends


def test_that_the_legend_of_draws_contains_the_probability_of_all_modes(line: xr.Dataset) -> None:
    for name in ("depth", "velocity"):
        line[f"{name}_sample"] = xr.concat([line[name] * 0.9, line[name] * 1.1], "realization")
    ds = line.assign(mode=("realization", [1, 3]))
    ds.attrs["invgp_mode_probabilities"] = [0.6, 0.3, 0.1]
    texts = [text.get_text() for text in plots.plot_draws(ds).legends[0].get_texts()]
    assert "modes of which no draw is shown (30%)" in texts
    shares = [int(share) for text in texts for share in re.findall(r"\((\d+)%\)", text)]
    assert sum(shares) == 100
