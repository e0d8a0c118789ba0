"""Profiles A-A' through a map: the latents along a straight line between two points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from invgp.errors import PlotError
from invgp.maps.nodes import as_map
from invgp.maps.predict import predict
from invgp.plots.axis_labels import read_survey_positions
from invgp.plots.figure_options import FigureOptions, as_names
from invgp.plots.plot_data import Floats, read_grid, read_two_coordinates
from invgp.plots.sections import section_figure

PROFILE_POINTS = 200
ENDS = ("A", "A\N{PRIME}")
POINTS_PER_INCH = 72.0
LABEL_DISTANCE, LABEL_ROOM = 8.0, 7.0  # points, from an end to the centre of its label, and from there to the edge


def plot_profile(
    posterior: xr.Dataset,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    show: str | tuple[str, ...] = (),
    latents: str | tuple[str, ...] = (),
    labels: str | int | tuple[object, ...] = (),
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draw the latents along a straight line A-A' through a map.

    Parameters
    ----------
    posterior : Dataset
        A posterior over two coordinates, at whose points along the line it is predicted; or a map on a grid, which is
        interpolated.
    start, end : tuple of float
        Coordinates of A and A', east before north, in the units of the dataset.
    show, latents, labels, size
        As in `plot_section`.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset does not have two coordinates, or the line has no length.

    Examples
    --------
    >>> figure = invgp.plots.plot_profile(posterior, (500e3, 6000e3), (510e3, 6004e3))  # doctest: +SKIP
    """
    options = FigureOptions(
        as_names(show), latents=as_names(latents), labels=as_names(labels), size=size, line=(*start, *end)
    )
    return profile_figure(posterior, options)


def profile_figure(ds: xr.Dataset, options: FigureOptions) -> Figure:
    """Draw the latents along the line of the options; see `plot_profile`."""
    if options.line is None:
        raise PlotError("line: must be given for a profile: the two coordinates of A, then of A\N{PRIME}")
    figure = section_figure(read_profile(ds, options.line), replace(options, line=None))
    for panel in figure.axes:
        for text, x, side in zip(ENDS, (0.0, 1.0), (1, -1), strict=True):
            panel.annotate(text, (x, 1.0), xytext=(6 * side, -9), xycoords="axes fraction", textcoords="offset points",
                           ha="center", fontsize=8.0, fontweight="bold")  # fmt: skip
    return figure


def read_profile(ds: xr.Dataset, line: tuple[float, float, float, float]) -> xr.Dataset:
    """Return the latents along a line, with the distance from its start as the only coordinate.

    Parameters
    ----------
    ds : Dataset
        A posterior or a map, with two coordinates.
    line : tuple of float
        Coordinates of the start, east before north, then of the end.

    Returns
    -------
    Dataset
    """
    names, hidden = read_two_coordinates(as_map(ds))
    if hidden:
        raise PlotError(f"line: needs a map with two coordinates; cut {hidden[0]} with `at` first")
    across, up = np.linspace(line[:2], line[2:], PROFILE_POINTS).T
    distance = np.hypot(across - line[0], up - line[1])
    if not (np.isfinite(distance).all() and distance[-1] > 0.0):
        raise PlotError(f"line: must have two ends at different places, was {line}")
    about = {"long_name": f"distance from {ENDS[0]} to {ENDS[1]}", "units": ds[names[0]].attrs.get("units", "1")}
    if "invgp_map" in ds.attrs:
        if read_grid(ds) is None:
            raise PlotError("line: needs a posterior or a map on a grid, not a map at points")
        places = {name: xr.DataArray(at, dims="site") for name, at in zip(names, (across, up), strict=True)}
        found = ds.drop_dims("survey_site", errors="ignore").interp(places)
        found = found.assign_coords(site=np.arange(1, PROFILE_POINTS + 1))
    else:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "line.csv"
            np.savetxt(file, np.stack([across, up], axis=-1), "%.17g", ",", header=",".join(names), comments="")
            found = predict(ds, file)
    along = found.assign_coords(distance=("site", distance, about))
    return along.assign_attrs(invgp_coordinates="distance")


def draw_profile_line(
    ax: Axes,
    ds: xr.Dataset,
    names: list[str],
    line: tuple[float, float, float, float],
    size: tuple[float, float],
) -> None:
    """Draw the line of a profile on a map with these coordinates and this size (inches), with A and A' at its ends."""
    ends = {name: ("site", [line[k], line[k + 2]], ds[name].attrs) for k, name in enumerate(names)}
    x, y = read_survey_positions(ds, xr.Dataset(ends), names)
    halo = [withStroke(linewidth=2.0, foreground="white")]
    ax.plot(x, y, color="black", linewidth=0.9, path_effects=halo, zorder=5)
    places = np.column_stack([x, y])
    inside = (ax.transData - ax.transAxes).transform(places) * POINTS_PER_INCH * np.asarray(size)  # in points
    for text, place, offset in zip(ENDS, places, _label_offsets(inside, size), strict=True):
        ax.annotate(text, place, xytext=offset, textcoords="offset points", ha="center", va="center", fontsize=8.0,
                    fontweight="bold", path_effects=halo, zorder=6)  # fmt: skip


def _label_offsets(ends: Floats, size: tuple[float, float]) -> list[tuple[float, float]]:
    """Return the offsets of the labels from the ends (2, 2) of a line, in points, so that they stay in the map.

    A label is beyond its end if there is room, else beside it.
    """
    along = (ends[1] - ends[0]) / max(float(np.hypot(*(ends[1] - ends[0]))), 1e-300)
    beside = np.array([-along[1], along[0]])
    highest = POINTS_PER_INCH * np.asarray(size) - LABEL_ROOM
    found = []
    for end, beyond in zip(ends, (-along, along), strict=True):
        places = [end + LABEL_DISTANCE * direction for direction in (beyond, beside, -beside)]
        free = [place for place in places if np.all((place >= LABEL_ROOM) & (place <= highest))]
        x, y = (free[0] if free else np.clip(places[1], LABEL_ROOM, highest)) - end
        found.append((float(x), float(y)))
    return found
