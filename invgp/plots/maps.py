"""Maps: the mean and the standard deviation of the latents over the two coordinates of a survey."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

from invgp.plots.labels import axis_label
from invgp.plots.reading import (
    Floats,
    points_down,
    read_coordinates,
    read_curves,
    read_names,
    read_positions,
    read_values,
)
from invgp.plots.style import PAGE, STYLE, letter_panels


def maps(ds: xr.Dataset) -> Figure:
    """Draw the posterior mean and standard deviation of every latent over the two coordinates of the survey.

    One row a latent and label. The colours are interpolated between neighbouring sites, which are dotted;
    nothing is drawn between sites much further apart than the others.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with two coordinates.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or its sites do not have two coordinates.
    """
    across, up = read_coordinates(ds, 2, "A map")
    (x, x_label), (y, y_label) = read_positions(ds, [across, up])
    rows = [(name, curve) for name in read_names(ds, "latents") for curve in read_curves(ds, name)]
    with rc_context(STYLE):
        figure = Figure((PAGE, _row_height(x, y) * len(rows) + 0.3), layout="constrained")
        axes = figure.subplots(len(rows), 2, squeeze=False, sharex=True, sharey=True)
        titles = []
        for (left, right), (name, curve) in zip(axes, rows, strict=True):
            down = points_down(ds[name])
            mean = _draw_map(left, x, y, read_values(ds, name, curve), "viridis_r" if down else "viridis")
            _add_bar(left, mean, axis_label(ds[name], width=32), inverted=down)
            std = _draw_map(right, x, y, read_values(ds, f"{name}_std", curve), "cividis")
            _add_bar(right, std, axis_label(ds[name], "standard deviation", width=32), inverted=False)
            title = ", ".join(filter(None, (name.replace("_", " "), curve.label)))
            titles += [f"{title}: mean", f"{title}: standard deviation"]
        for ax in axes.flat:
            ax.set_aspect(_aspect(ds[up].attrs.get("units"), y))
        for ax in axes[:, 0]:
            ax.set_ylabel(y_label)
        for ax in axes[-1]:
            ax.set_xlabel(x_label)
        letter_panels(axes.ravel(), titles)
    return figure


def _row_height(x: Floats, y: Floats) -> float:
    """Height in inches of a row of maps of these sites."""
    ratio = np.ptp(y) / np.ptp(x) if np.ptp(x) > 0.0 else 1.0
    return float(np.clip(2.45 * ratio, 1.0, 4.0)) + 0.35


def _aspect(unit: str | None, y: Floats) -> float:
    """Height over width of a unit of the map; a degree of longitude is shorter than one of latitude."""
    if unit in ("degrees_north", "degree_north", "degrees_N", "degree_N"):
        return float(1.0 / np.cos(np.deg2rad(np.mean(y))))
    return 1.0


def _draw_map(ax: Axes, x: Floats, y: Floats, values: Floats, colours: str) -> ScalarMappable:
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.ticklabel_format(useOffset=False, style="plain")
    ax.margins(0.04)
    seen = np.isfinite(values)
    triangles = _triangulate(x[seen], y[seen])
    if triangles is None:
        return ax.scatter(x[seen], y[seen], c=values[seen], cmap=colours, s=14.0, linewidths=0.0)
    ax.plot(x, y, "o", color="black", markersize=0.9, markeredgewidth=0.0)
    # A vector format would hold thousands of triangles with hairlines between them.
    return ax.tripcolor(triangles, values[seen], cmap=colours, shading="gouraud", rasterized=True)


def _triangulate(x: Floats, y: Floats) -> Triangulation | None:
    """Triangles between neighbouring sites, or None if the sites span no area."""
    if x.size < 4 or np.linalg.matrix_rank(np.column_stack([x - x.mean(), y - y.mean()]), tol=1e-9) < 2:
        return None
    triangulation = Triangulation(x, y)
    corners = np.stack([x, y], axis=-1)[triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    triangulation.set_mask(longest > 5.0 * np.median(longest))
    return triangulation


def _add_bar(ax: Axes, artist: ScalarMappable, label: str, inverted: bool) -> None:
    """Stand a colour bar at the right of a map."""
    bar = ax.figure.colorbar(artist, cax=ax.inset_axes((1.03, 0.0, 0.045, 1.0)))
    bar.set_label(label)
    bar.ax.yaxis.set_inverted(inverted)
    bar.outline.set_linewidth(0.4)
