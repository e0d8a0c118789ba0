"""One mode of a posterior in files, figures, reports and exports."""

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.problems import linear_problem
from helpers.two_modes import SHARES, add_modes
from invgp import netcdf, plots, reports
from invgp.errors import ConfigError
from invgp.maps.predict import predict
from invgp.maps.select_mode import select_mode


@pytest.fixture(scope="module")
def gaussian():
    return invgp.invert(linear_problem())


@pytest.fixture(scope="module")
def area(gaussian):
    return add_modes(gaussian)


@pytest.fixture(scope="module")
def line(area):
    """The same, as if along a line."""
    along = area.assign_coords(easting=("site", 10.0 * np.arange(15), area["easting"].attrs))
    return along.assign_attrs(invgp_coordinates="easting").drop_vars(["whitened_sample", "draw_mode"])


def test_that_a_file_keeps_the_modes(area, tmp_path):
    again = netcdf.read(netcdf.write(area, tmp_path / "modes.nc"))
    np.testing.assert_allclose(again.attrs["invgp_mode_probabilities"], SHARES)
    np.testing.assert_array_equal(again["draw_mode"], area["draw_mode"])


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("draw_mode", 3, "its variable 'draw_mode' must hold numbers of modes, from 1 to 2"),
        ("mode", 0, "its variable 'mode' must hold numbers of modes, from 1 to 2"),
        ("whitened_sample", np.nan, "its variable 'whitened_sample' must hold finite numbers"),
    ],
)
def test_that_damaged_draws_are_refused(area, tmp_path, name, change, sentence):
    damaged = area.copy(deep=True)
    damaged[name].values.flat[0] = change
    with pytest.raises(ConfigError, match=sentence):
        netcdf.read(netcdf.write(damaged, tmp_path / "damaged.nc"))


def test_that_the_first_mode_is_the_gaussian_and_the_second_lies_above(gaussian, area):
    for mode, shift in ((1, 0.0), (2, 4.0)):
        found = select_mode(area, mode)
        for name, prior_std in (("velocity", 2.0), ("depth", 1.5)):
            offset = (found[name] - gaussian[name] - shift * prior_std) / gaussian[f"{name}_std"]
            np.testing.assert_allclose(offset, 0.0, atol=0.35)
            np.testing.assert_allclose(found[f"{name}_std"] / gaussian[f"{name}_std"], 1.0, atol=0.3)
            np.testing.assert_allclose(found[f"{name}_information"], gaussian[f"{name}_information"], atol=0.2)
        assert found["depth_sample"].sizes["realization"] == int((area["mode"] == mode).sum())
        assert np.all(np.diagonal(found["correlation"].values, axis1=1, axis2=2) > 0.999)
        np.testing.assert_allclose(found["first_predicted"], gaussian["first_predicted"] + (mode - 1.0), rtol=1e-6)
        residual = found["first_observed"] - found["first_predicted"]
        np.testing.assert_allclose(found["first_residual"], residual)
        assert float(found["first_chi_square"]) == pytest.approx(float(((residual / 0.7) ** 2).mean()))
        assert "depth_r_hat" not in found
        assert "posterior_mode" not in found.dims


def test_that_a_map_has_no_modes_to_select(area):
    with pytest.raises(
        ConfigError, match=r"^mode: must be given to `invgp predict`, since the dataset is a map, was 1$"
    ):
        select_mode(predict(area, "50"), 1)


def test_that_draws_on_a_map_have_their_modes(area):
    found = predict(area, "50", draws=60)
    high = found["depth_sample"].mean(["easting", "northing"]) > 9.0
    np.testing.assert_array_equal(found["mode"] == 2, high)
    assert 0.1 < float(high.mean()) < 0.4


def test_that_maps_and_sections_state_the_mode(area, line):
    assert "2 modes (75%, 25%)." in plots.plot_map(area).get_suptitle()
    assert "Mode 2, with a probability of 25%." in plots.plot_map(select_mode(area, 2)).get_suptitle()
    labels = [text.get_text() for text in plots.plot_draws(line).legends[0].get_texts()]
    assert labels[:2] == ["draw of mode 1 (75%)", "draw of mode 2 (25%)"]


def test_that_a_section_draws_the_mean_of_each_mode(gaussian):
    single = gaussian.assign_attrs(invgp_coordinates="easting")
    for name in ("velocity", "depth"):
        scale = single[name].attrs["length_scale"]
        single[name] = single[name].assign_attrs(length_scale=float(np.atleast_1d(scale)[0]))
    both = add_modes(single.assign_coords(easting=("site", 10.0 * np.arange(15), single["easting"].attrs)))
    figure = plots.plot_section(both, latents="depth")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:3] == ["mean of mode 1 (75%)", "mean of mode 2 (25%)", "95% credible interval"]
    means = [select_mode(both, mode)["depth"].values for mode in (1, 2)]
    drawn = [curve.get_ydata() for curve in figure.axes[0].lines]
    for mean in means:
        assert any(np.isclose(values[0], mean[0], atol=0.05) and len(values) > 100 for values in drawn)


def test_that_the_api_writes_one_mode(area, tmp_path):
    [path, *_] = invgp.export(area, "csv", tmp_path / "second.csv", mode=2)
    table = np.genfromtxt(path, delimiter=",", names=True)
    np.testing.assert_allclose(table["depth_m"], select_mode(area, 2)["depth"], rtol=1e-5)
    figures = invgp.plot(area, tmp_path / "second.png", kinds=["map"], mode=2, dpi=50)
    assert [figure.name for figure in figures] == ["second.png"]
    with pytest.raises(ConfigError, match=r"^mode: must be from 1 to 2, was 3$"):
        invgp.plot(area, tmp_path / "third.png", mode=3)


def test_that_the_report_shows_modes_and_diagnostics(area):
    page = reports.render(area, "area.nc", kinds=())
    for text in (
        "The posterior has 2 modes",
        "Mode 1: probability 75.0%",
        "Mode 2: probability 25.0%",
        "Largest R-hat</th><td>1.003</td>",
        "the chains agree",
        "Smallest effective sample size</th><td>2,500</td>",
        "Pareto k of the Gaussian</th><td>1.40</td>",
        "the posterior is not Gaussian, far from it",
        "Log evidence</th><td>\N{MINUS SIGN}12.50</td>",
    ):
        assert text in page, text


def test_that_the_report_of_a_gaussian_has_no_modes(gaussian):
    page = reports.render(gaussian, "area.nc", kinds=())
    assert "Mode 1" not in page
    assert "R-hat" not in page


@pytest.mark.parametrize(
    ("information", "words"),
    [
        (0.995, "determined by the data"),
        (0.8, "strongly constrained"),
        (0.6, "constrained"),
        (0.3, "weakly constrained"),
        (0.1, "mostly the prior"),
    ],
)
def test_that_words_match_the_information(gaussian, information, words):
    changed = gaussian.assign(depth_information=xr.full_like(gaussian["depth_information"], information))
    [row] = reports.findings.latent_tables(changed)[1]["rows"]
    assert row["words"] == words
