"""Figures in files: their formats, their sizes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.text import Text

import invgp
from helpers.plotted_posteriors import assert_that_labels_can_be_read, draw, overlaps
from invgp import plots
from invgp.errors import PlotError


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_that_both_figures_are_written_in_each_format(line: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    written = plots.plot(line, tmp_path / "new" / f"otway{suffix}")
    assert [path.name for path in written] == [f"otway{suffix}", f"otway_fit{suffix}"]
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert all(path.read_bytes().startswith(start) for path in written)


@pytest.mark.slow
def test_that_two_coordinates_give_maps_from_a_netcdf_file(area: xr.Dataset, tmp_path: Path) -> None:
    area.to_netcdf(tmp_path / "area.nc")
    with xr.open_dataset(tmp_path / "area.nc") as ds:
        written = plots.plot(ds, str(tmp_path / "area.png"))
    assert all(path.stat().st_size > 10_000 for path in written)


@pytest.mark.slow
def test_that_the_same_posterior_gives_the_same_file(line: xr.Dataset, tmp_path: Path) -> None:
    first, _ = plots.plot(line, tmp_path / "a.svg")
    second, _ = plots.plot(line, tmp_path / "b.svg")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("function", [plots.plot_section, plots.plot_map, plots.plot_fit])
def test_that_another_dataset_is_refused(function: object) -> None:
    with pytest.raises(ValueError, match=r"not an invgp posterior: .* 'invgp_coordinates' is missing"):
        function(xr.Dataset({"depth": ("site", [1.0])}))  # type: ignore[operator]


def test_that_a_posterior_that_lost_a_variable_is_refused(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="it lacks depth_std"):
        plots.plot_section(line.drop_vars("depth_std"))


def test_that_a_figure_of_the_wrong_kind_is_refused(line: xr.Dataset, area: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="A section needs sites with 1 coordinate, but these have 2"):
        plots.plot_section(area)
    with pytest.raises(ValueError, match="A map needs sites with 2 coordinates or more, but these have 1: position"):
        plots.plot_map(line)
    with pytest.raises(ValueError, match=r"^path: must end in \.png, \.svg or \.pdf, was 'otway\.jpg'$"):
        plots.plot(line, "otway.jpg")


def texts(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(Text)).replace("\n", " ")


@pytest.mark.parametrize("kind", ["section", "map", "fit", "correlation"])
def test_that_a_figure_of_an_unconverged_posterior_states_this(kind: str, line: xr.Dataset, area: xr.Dataset) -> None:
    ds = area if kind == "map" else line
    process = np.tile(np.eye(8), (ds.sizes["site"], 1, 1))
    ds = ds.assign(correlation=(("site", "process", "other_process"), process))
    note = "The posterior has not converged (interrupted before it converged)."
    stopped = ds.assign_attrs(invgp_converged="no", invgp_status="interrupted before it converged")
    options = plots.FigureOptions(latents=("depth",))
    figure = plots.KINDS[kind](stopped, options, None)
    draw(figure)
    assert note in texts(figure)
    assert "converged" not in texts(plots.KINDS[kind](ds.assign_attrs(invgp_converged="yes"), options, None))


def test_that_the_plot_of_an_unconverged_posterior_warns(
    line: xr.Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for converged in ("yes", "no"):
        ds = line.assign_attrs(invgp_converged=converged, invgp_status="stopped at inference.max_runs = 20")
        invgp.plot(ds, tmp_path / "line.png", kinds=["fit"], dpi=40)
    message = "the posterior has not converged (stopped at inference.max_runs = 20)"
    assert [record.getMessage() for record in caplog.records] == [message]


def test_that_what_is_not_there_cannot_be_chosen(line: xr.Dataset) -> None:
    with pytest.raises(ValueError, match=r"^latents: must be one of depth, velocity, was 'density'$"):
        plots.select_latents(line, ["density"])
    with pytest.raises(ValueError, match=r"^layers: must be one of 1, 2, 3, 4, was '9'$"):
        plots.select_latents(line, labels=["9"])
    with pytest.raises(ValueError, match=r"^layers: must be left out, was '9'$"):
        plots.select_latents(line.isel(layer=0, drop=True), labels=["9"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [(8.5, 9.0), (12.0, 9.0), (18.0, 24.0), (40.0, 10.0)])
@pytest.mark.parametrize("kind", ["section", "map", "fit", "draws", "convergence"])
def test_that_a_figure_is_laid_out_for_its_size(
    kind: str, size: tuple[float, float], line: xr.Dataset, sounding_map: xr.Dataset
) -> None:
    ds = line if kind == "section" else sounding_map
    options = plots.FigureOptions(
        size=(size[0] / 2.54, size[1] / 2.54), latents=(ds.attrs["invgp_latents"].split()[-1],)
    )
    figure = plots.KINDS[kind](ds, options, None)
    draw(figure)
    np.testing.assert_allclose(figure.get_size_inches() * 2.54, size)
    assert_that_labels_can_be_read(figure)
    assert not overlaps([ax._left_title for ax in figure.axes])  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["section", "map", "fit", "correlation", "draws", "convergence"])
def test_that_a_size_too_small_to_be_read_is_refused(
    kind: str, line: xr.Dataset, sounding_map: xr.Dataset, tmp_path: Path
) -> None:
    ds = line if kind == "section" else sounding_map
    with pytest.raises(PlotError, match=r"size: must leave room for .*, was 3 x 3 cm"):
        plots.plot(ds, tmp_path / "small.png", [kind], plots.FigureOptions(size=(3.0 / 2.54, 3.0 / 2.54)), alone=True)
    assert list(tmp_path.iterdir()) == []
