"""The report of a posterior: what the page says, and what it does in a browser."""

from __future__ import annotations

import base64
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from helpers.browser import HOSTILE, choose, needs_chromium, text_of
from helpers.problems import map_problem, reflector_map
from invgp import invert, netcdf, reports
from invgp.errors import ConfigError
from invgp.ledger import Ledger
from invgp.ledger.rows import ROW
from invgp.maps.predict import predict
from invgp.posterior.attributes import has_converged
from invgp.reports.provenance import summarise_ledger

PAPER = 670  # pixels across A4, without its margins
PHONE = 360  # px
LARGEST_PAGE = 5e6  # bytes


@pytest.fixture(scope="session")
def area() -> xr.Dataset:
    """Forty sites on a map, some without data."""
    return invert(reflector_map(40))


def test_that_learnt_hyperparameters_have_a_table(area: xr.Dataset) -> None:
    assert "Learnt hyperparameters" not in reports.render(area, kinds=[])
    about = {"long_name": "posterior draw of the length-scale of depth along easting", "units": "m"}
    about |= {"prior_median": 500.0, "prior_factor": 2.0, "most_probable": 610.0}
    learnt = area.assign(depth_length_scale_easting_sample=("draw", np.linspace(400.0, 800.0, 401), about))
    page = reports.render(learnt.assign_attrs(invgp_hyperparameters="depth_length_scale_easting"), kinds=[])
    for text in (
        "Learnt hyperparameters",
        "Length-scale of depth along easting (m)",
        "410 to 790",
        "610",
        "<td>600</td>",
    ):
        assert text in page


@pytest.fixture(scope="session")
def page(area: xr.Dataset) -> str:
    """Its whole report, which takes a moment to draw."""
    return reports.render(area, "area.nc")


@pytest.fixture(scope="session")
def line(area: xr.Dataset) -> xr.Dataset:
    """The same, as if along a line."""
    along = area.assign_coords(easting=("site", 250.0 * np.arange(40), area["easting"].attrs))
    return along.assign_attrs(invgp_coordinates="easting")


def many_sites(area: xr.Dataset, sites: int) -> xr.Dataset:
    """A posterior over so many sites, of eight processes."""
    rng = np.random.default_rng(4)
    large = area.isel(site=rng.integers(0, area.sizes["site"], sites)).isel(layer=[0, 1, 0, 1])
    large = large.drop_vars("correlation").assign_coords(site=np.arange(1, sites + 1), layer=[1, 2, 3, 4])
    for name, start in (("easting", 5e5), ("northing", 5.72e6)):
        large[name] = ("site", start + rng.uniform(0.0, 5e4, sites), area[name].attrs)
    for name, array in large.data_vars.items():
        if "site" in array.dims and np.issubdtype(array.dtype, np.floating):
            large[name] = array * (1.0 + 0.01 * rng.standard_normal(array.shape))
    return large


class Text(HTMLParser):
    """Whatever a reader sees of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = False

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words.append(data)

    def __str__(self) -> str:
        return " ".join(" ".join(self.words).split())


def payload(page: str) -> dict[str, Any]:
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return found


def floats(packed: dict[str, str]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["f32"]), "<f4")


def steps(packed: dict[str, Any]) -> np.ndarray:
    counts = np.frombuffer(base64.b64decode(packed["u16"]), "<u2")
    values = packed["low"] + (packed["high"] - packed["low"]) * counts / 65534
    return np.where(counts == 65535, np.nan, np.exp(values) if packed["logarithmic"] else values)


def test_that_the_report_describes_the_inversion_and_how_to_repeat_it(area: xr.Dataset, page: str) -> None:
    words = str(Text(page))
    observed = int(area["time_observed"].notnull().sum())
    assert "Two reflectors on a map, synthetic" in words
    assert f"2 fields of depth and 2 fields of velocity below 40 sites, from {observed} observations" in words
    assert "The posterior has converged" in words
    assert "invgp run survey.toml --seed 3 -o area.nc" in words
    assert area.attrs["invgp_simulator_digest"] in words
    assert "GDA94 / MGA zone 54" in words
    assert f"numpy {np.__version__}" in words
    assert f"{area.attrs['invgp_runs']:,} runs of the simulator" in words
    assert "There is no ledger of these runs beside the posterior" in words


def test_that_the_page_loads_nothing(page: str) -> None:
    addresses = [value or "" for _, attrs in Text(page).tags for key, value in attrs.items() if key in ("src", "href")]
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert "default-src 'none'" in page


def test_that_every_figure_has_a_text(page: str) -> None:
    tags = Text(page).tags
    images = [attrs for tag, attrs in tags if tag == "img"]
    assert len(images) >= 5
    assert all(attrs.get("alt") for attrs in images)
    assert {"en"} == {attrs["lang"] for tag, attrs in tags if tag == "html"}


def test_that_the_numbers_in_the_page_are_those_of_the_file(area: xr.Dataset, page: str) -> None:
    found = payload(page)
    lower = found["latents"][0]["layers"][1]
    np.testing.assert_allclose(floats(lower["mean"]), area["depth"][:, 1], rtol=1e-6)
    assert lower["prior"] == 1150.0  # the same at every site: one number
    observed = floats(found["observations"][0]["layers"][1]["observed"])
    np.testing.assert_array_equal(np.isnan(observed), np.isnan(area["time_observed"][:, 1]))
    east = found["coordinates"][0]
    np.testing.assert_allclose(floats(east["values"]) + east["origin"], area["easting"].values / 1e3, atol=1e-5)


def test_that_a_map_in_the_page_is_the_posterior_between_the_sites(area: xr.Dataset, page: str) -> None:
    between = payload(page)["between"]
    across, up = (np.linspace(one["from"], one["to"], one["count"]) for one in (between["across"], between["up"]))
    row, column = up.size // 3, across.size // 2
    there = predict(area, grid=f"easting={1e3 * across[column]:.6f},northing={1e3 * up[row]:.6f}")
    for key, name in (("mean", "velocity"), ("information", "velocity_information")):
        shown = steps(between["latents"][1][1][key]).reshape(up.size, across.size)[row, column]
        assert shown == pytest.approx(there[name].isel(layer=1).item(), rel=1e-3)


def test_that_hostile_names_stay_text(area: xr.Dataset) -> None:
    hostile = area.assign_attrs(title=HOSTILE, invgp_config=HOSTILE, invgp_diagnostics=HOSTILE)
    hostile["depth"] = hostile["depth"].assign_attrs(long_name=HOSTILE, units=HOSTILE)
    hostile = hostile.assign_coords(layer_label=("layer", [HOSTILE, "early"]))
    page = reports.render(hostile, HOSTILE, kinds=["fit"])
    assert page.count("</script>") == 2
    assert not [attrs for tag, attrs in Text(page).tags if "onerror" in attrs]
    assert payload(page)["latents"][0]["words"] == HOSTILE


@pytest.mark.slow
def test_that_missing_numbers_are_handled(area: xr.Dataset) -> None:
    missing = area.copy(deep=True)
    missing["depth"][3:6, 0] = np.nan
    missing["depth_information"][:, 1] = np.nan
    missing["time_observed"][:, 1] = np.nan
    page = reports.render(missing, kinds=["map", "fit"])
    assert payload(page)["latents"][0]["layers"][1]["information"] is None
    assert "no observation" in str(Text(page))


@pytest.mark.parametrize("earlier", ["yes", "no"])
def test_that_files_of_earlier_versions_state_whether_they_converged(earlier: str, area: xr.Dataset) -> None:
    old = area.assign_attrs(invgp_settled=earlier)
    del old.attrs["invgp_converged"]
    assert has_converged(old) == (earlier == "yes")
    assert ("has not converged" in str(Text(reports.render(old, kinds=())))) == (earlier == "no")


def test_that_a_posterior_that_has_not_converged_is_reported_as_such(area: xr.Dataset) -> None:
    words = str(
        Text(reports.render(area.assign_attrs(invgp_converged="no", invgp_status="max_runs were spent"), kinds=()))
    )
    assert "The posterior has not converged (max_runs were spent). Do not rely on its standard deviations yet." in words
    doubtful = str(
        Text(reports.render(area.assign_attrs(invgp_diagnostics="time 2 is fitted worse than it should"), kinds=()))
    )
    assert "Read with care" in doubtful
    assert "time 2 is fitted worse than it should" in doubtful


def test_that_ten_thousand_sites_fit_in_a_page(area: xr.Dataset) -> None:
    large = many_sites(area, 10_000)
    large["depth_std"] = large["depth_std"] * np.exp(np.linspace(-8.0, 8.0, 10_000))[:, None]
    large["depth_std"][5] = np.nan
    page = reports.render(large, kinds=())
    assert len(page.encode()) < LARGEST_PAGE / 2  # the other half is for figures
    found = payload(page)
    assert found["step"] == 1
    for name, key in (("depth", "mean"), ("depth_std", "std")):
        packed = found["latents"][0]["layers"][0][key]
        values = steps(packed)
        np.testing.assert_allclose(values, large[name][:, 0], rtol=3e-4)


def test_that_large_surveys_are_thinned_and_the_page_states_it(area: xr.Dataset) -> None:
    found = payload(reports.render(many_sites(area, 40_000), kinds=()))
    assert found["every"] == 40_000
    assert found["count"] == len(range(0, 40_000, found["step"])) < 30_000


def test_that_runs_and_failures_come_from_the_ledger(tmp_path: Path) -> None:
    problem = map_problem()
    posterior = invert(problem, ledger=tmp_path / "map.ledger.sqlite")
    with Ledger(tmp_path / "map.ledger.sqlite") as ledger:
        for change in ("status = 'exit code', message = 'it <b>diverged</b>'", f"checksum = run_checksum({ROW})"):
            ledger.connection.execute(f"UPDATE runs SET {change} WHERE run = 2")
    kept = summarise_ledger(tmp_path / "map.ledger.sqlite", problem.forward.digest)
    assert kept is not None
    assert kept.total == posterior.attrs["invgp_runs"]
    words = str(Text(reports.render(posterior, "map.nc", kept, kinds=())))
    assert "The ledger map.ledger.sqlite contains" in words
    assert "it <b>diverged</b>" in words
    assert summarise_ledger(tmp_path / "map.ledger.sqlite", "another simulator") is None
    (tmp_path / "none.sqlite").write_text("no ledger")
    with pytest.raises(ConfigError, match="ledger"):
        summarise_ledger(tmp_path / "none.sqlite", problem.forward.digest)


def open_report(browser: Any, ds: xr.Dataset, folder: Path, kinds: tuple[str, ...] = ()) -> None:
    """Open the report with these figures, without a word of complaint from the browser."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(reports.write(ds, folder / "report.html", kinds=kinds).as_uri())
    assert browser.get_log("browser") == []


@needs_chromium
def test_that_the_controls_of_a_map_work(browser: Any, area: xr.Dataset, tmp_path: Path) -> None:
    open_report(browser, area, tmp_path)
    pixels = "const c = document.querySelector('#field canvas'); return c.toDataURL().length"
    before = browser.execute_script("return document.querySelector('#field canvas').toDataURL()")
    assert browser.execute_script(pixels) > 1000
    filled = "const c = document.querySelector('#field canvas'); const {width: w, height: h} = c; "
    filled += "const d = c.getContext('2d').getImageData(0, 0, w, h).data; "
    filled += "return [...Array(h).keys()].filter(r => d[4 * (r * w + (w >> 1)) + 3] === 255).length / h"
    assert browser.execute_script(filled) > 0.85, "down the middle the field is shown between the sites, too"
    choose(browser, "latent", "1")
    choose(browser, "layer", "1")
    choose(browser, "quantity", "std")
    assert browser.execute_script("return document.querySelector('#field canvas').toDataURL()") != before
    choose(browser, "site", "7")
    assert text_of(browser, "site-title").startswith("Site 7:")
    assert "Site 7" in text_of(browser, "readout")
    assert f"{area['velocity'][6, 1].item():,.0f}" in text_of(browser, "readout")
    assert "layer 2" in text_of(browser, "site-data")
    correlation = f"{area['correlation'][6, 1, 0].item():.2f}"
    assert correlation.replace("-", "\N{MINUS SIGN}") in text_of(browser, "correlation")
    browser.find_element("id", "next").click()
    assert text_of(browser, "site-title").startswith("Site 8:")
    assert browser.get_log("browser") == []


@needs_chromium
def test_that_a_map_shows_values_between_the_sites_and_zooms(browser: Any, area: xr.Dataset, tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415

    open_report(browser, area, tmp_path)
    assert text_of(browser, "dimension") == "Layer"
    chart = browser.find_element("id", "field")
    texts = []
    for step in range(6):
        ActionChains(browser).move_to_element_with_offset(chart, -60 + 23 * step, 31).perform()
        texts.append(text_of(browser, "tooltip"))
    [between, *_] = [text for text in texts if text.startswith("easting ")]
    assert re.fullmatch(r"easting [\d,.]+ km, northing [\d,.]+ km\ndepth, layer 1: [\d.]+ m", between)
    axis = "return [...document.querySelectorAll('#field svg > text')].map(one => one.textContent).join(' ')"
    before = browser.execute_script(axis)
    browser.find_element("id", "zoom-in").click()
    assert browser.execute_script(axis) != before
    browser.find_element("id", "zoom-all").click()
    assert browser.execute_script(axis) == before
    ActionChains(browser).double_click(chart).perform()
    assert browser.execute_script(axis) != before
    browser.find_element("id", "zoom-out").click()
    assert browser.execute_script(axis) == before
    assert browser.get_log("browser") == []


@needs_chromium
def test_that_a_line_can_be_pointed_at_clicked_and_walked_along(browser: Any, line: xr.Dataset, tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415

    open_report(browser, line, tmp_path)
    chart = browser.find_element("id", "field")
    ActionChains(browser).move_to_element(chart).perform()
    assert text_of(browser, "tooltip").startswith("Site ")
    ActionChains(browser).move_to_element(chart).click().perform()
    clicked = int(text_of(browser, "site-title").split(":")[0].split()[1])
    chart.send_keys(Keys.ARROW_RIGHT)
    assert text_of(browser, "site-title").startswith(f"Site {clicked + 1}:")
    residuals = browser.find_element("id", "residuals")
    assert residuals.find_elements("tag name", "svg")
    assert browser.get_log("browser") == []


@needs_chromium
@pytest.mark.parametrize("kind", ["area", "line", "site"])
def test_that_a_phone_needs_not_scroll_sideways(
    browser: Any, kind: str, area: xr.Dataset, line: xr.Dataset, tmp_path: Path
) -> None:
    ds = {"area": area, "line": line, "site": line.isel(site=[3])}[kind]
    open_report(browser, ds, tmp_path)
    metrics = {"width": PHONE, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    # The panels are drawn again one after the other.
    edge = "document.querySelector('#field svg').getBoundingClientRect().right"
    widest = f"return Math.max({edge}, document.documentElement.scrollWidth)"
    deadline = time.monotonic() + 30.0
    while browser.execute_script(widest) > PHONE and time.monotonic() < deadline:
        time.sleep(0.05)
    assert browser.execute_script(widest) <= PHONE
    assert browser.get_log("browser") == []


@needs_chromium
def test_that_a_hostile_posterior_runs_nothing(browser: Any, area: xr.Dataset, tmp_path: Path) -> None:
    hostile = area.assign_attrs(title=HOSTILE).assign_coords(layer_label=("layer", [HOSTILE, "early"]))
    hostile["depth"] = hostile["depth"].assign_attrs(long_name=HOSTILE, units=HOSTILE)
    open_report(browser, hostile, tmp_path)
    assert browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 0
    assert HOSTILE.replace("\u2028", "") in text_of(browser, "site-latents").replace("\u2028", "")


@needs_chromium
def test_that_a_map_of_a_grid_is_its_cells(browser: Any, area: xr.Dataset, tmp_path: Path) -> None:
    nodes = many_sites(area, 30).drop_vars(["site_precision", "site_shift"])  # nothing is known between them
    easting, northing = np.meshgrid(1e3 * np.arange(6.0), 5e3 + 2e3 * np.arange(5.0))
    for name, at in (("easting", easting), ("northing", northing)):
        nodes[name] = ("site", at.ravel(), area[name].attrs)
    open_report(browser, nodes, tmp_path)
    script = "const c = document.querySelector('#field canvas'); const {width: w, height: h} = c; "
    script += "const d = c.getContext('2d').getImageData(0, 0, w, h).data; "
    script += "return [...Array(w * h).keys()].map(i => d[4 * i + 3] === 255 ? 1 : 0).concat([w])"
    *painted, width = browser.execute_script(script)
    shown = np.reshape(painted, (-1, width)).astype(bool)
    rows, columns = (np.flatnonzero(shown.any(axis=axis)) for axis in (1, 0))
    assert shown[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
    assert rows.size / columns.size == pytest.approx(10.0 / 6.0, rel=0.05)


@needs_chromium
def test_that_ten_thousand_sites_with_gaps_are_drawn(browser: Any, area: xr.Dataset, tmp_path: Path) -> None:
    large = many_sites(area, 10_000)
    large["depth"][100:300] = np.nan
    open_report(browser, large, tmp_path)
    choose(browser, "site", "150")
    assert text_of(browser, "site-title").startswith("Site 150:")
    assert "\N{EN DASH}" in text_of(browser, "readout")
    assert browser.get_log("browser") == []


@needs_chromium
@pytest.mark.parametrize(("width", "media", "scrolls"), [(390, "", True), (PAPER, "print", False)])
def test_that_a_wide_table_scrolls_in_its_box_on_a_phone_and_is_whole_on_paper(
    browser: Any, width: int, media: str, scrolls: bool, area: xr.Dataset, tmp_path: Path
) -> None:
    wide = area.copy()
    for name in str(area.attrs["invgp_observations"]).split():
        wide[f"{name}_noise_std"] = area[f"{name}_noise_std"] * (100.0 + wide["site"])  # a range, and long words
    open_report(browser, wide, tmp_path)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    widths = "return [...document.querySelectorAll('.table')].map(box => [box.clientWidth, box.scrollWidth])"
    boxes = np.asarray(browser.execute_script(widths))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert np.all(boxes[:, 0] <= width)
    assert np.any(boxes[:, 1] > boxes[:, 0]) == scrolls


@pytest.mark.slow
@needs_chromium
def test_that_the_page_prints(browser: Any, area: xr.Dataset, tmp_path: Path) -> None:
    open_report(browser, area, tmp_path, ("map",))
    printed = base64.b64decode(
        browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})["data"]
    )
    assert printed.startswith(b"%PDF")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = "return getComputedStyle(document.getElementById(arguments[0])).display"
    assert browser.execute_script(shown, "explorer") == "none"
    assert browser.execute_script(shown, "figure-map") != "none"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.slow
def test_that_a_posterior_gives_the_same_page_before_and_after_it_was_written(
    area: xr.Dataset, page: str, tmp_path: Path
) -> None:
    path = netcdf.write(area, tmp_path / "area.nc")
    assert reports.render(netcdf.read(path), "area.nc") == page
