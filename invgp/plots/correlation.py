"""The figure of correlations: which latents the data at a site cannot tell apart."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from invgp.errors import PlotError
from invgp.maps.nodes import as_points
from invgp.plots.labels import MINUS
from invgp.plots.look import Look
from invgp.plots.positions import name_site
from invgp.plots.reading import Floats, choose, read_curves, read_names, read_site, read_values
from invgp.plots.style import COLUMN, PAGE, STYLE

_READABLE = 12  # numbers in a row of the matrix
_DARK = 0.6  # from here on, figures on a colour are white


class Correlations(NamedTuple):
    """Correlations (Q, Q) between the latents at a site, their names, and the draws they come from, 0 if exact."""

    values: Floats
    names: list[str]
    draws: int


def correlation(ds: xr.Dataset, site: int | None = None, look: Look | None = None) -> Figure:
    """Draw the posterior correlation between the latents at a site.

    Parameters
    ----------
    ds : Dataset
        A posterior.
    site : int
        Number of the site, counted from 1; by default that in the middle of the survey's table.
    look : Look
        Latents and labels to show; the size of the figure.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, has one latent process only, or no such site.
    """
    look = look or Look()
    ds = choose(as_points(ds), look.latents, look.labels)
    index = read_site(ds, site)
    found = read_correlations(ds, index)
    count = len(found.names)
    if count < 2:
        raise PlotError("A correlation needs two latents, or labels of one, at the least.")
    with rc_context(STYLE):
        width = min(PAGE, max(COLUMN, 0.36 * count + 1.9))
        figure = Figure(look.size or (width, width - 0.6), layout="constrained")
        ax = figure.subplots()
        shown = ax.imshow(found.values, cmap=colormaps["RdBu_r"], vmin=-1.0, vmax=1.0)
        ax.set_xticks(range(count), labels=found.names, rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(count), labels=found.names)
        ax.spines[:].set_visible(False)
        ax.set_xticks(np.arange(1, count) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, count) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.0)
        ax.tick_params(which="both", length=0.0)
        if count <= _READABLE:
            _write_figures(ax, found.values)
        bar = figure.colorbar(shown, ax=ax, shrink=0.75, aspect=25)
        bar.set_label("Posterior correlation")
        bar.outline.set_linewidth(0.4)
        source = f"from {found.draws} draws, ± {1.0 / math.sqrt(found.draws):.2f}" if found.draws else ""
        ax.set_title("\n".join(filter(None, (name_site(ds, index), source))), loc="left")
    return figure


def read_correlations(ds: xr.Dataset, index: int) -> Correlations:
    """Correlations of the latent processes at a site: as the file has them, or else from its draws."""
    curves = [(name, curve) for name in read_names(ds, "latents") for curve in read_curves(ds, name)]
    names = [", ".join(filter(None, (name.replace("_", " "), curve.label))) for name, curve in curves]
    if "correlation" in ds and ds.sizes["process"] == len(names):
        values: Floats = ds["correlation"].isel(site=index).values.astype(np.float64)
        return Correlations(values, names, 0)
    if any(f"{name}_sample" not in ds for name, _ in curves):
        raise PlotError("The dataset is not a whole invgp posterior: it lacks the correlations, and the draws.")
    one = ds.isel(site=index, drop=True).rename(realization="site")
    draws = np.stack([read_values(one, f"{name}_sample", curve) for name, curve in curves])
    matrix: Floats = np.atleast_2d(np.corrcoef(draws))
    return Correlations(matrix, names, draws.shape[1])


def _write_figures(ax: Axes, values: Floats) -> None:
    for (row, column), value in np.ndenumerate(values):
        text = f"{value:.2f}".replace("-", MINUS) if np.isfinite(value) else ""
        colour = "white" if abs(value) > _DARK else "black"
        ax.text(column, row, text, ha="center", va="center", color=colour, fontsize=6.5)
