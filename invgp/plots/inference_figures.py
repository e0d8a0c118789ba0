"""Figures of the inference: correlations between latents at a site, and convergence of the bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from invgp.errors import PlotError
from invgp.maps.nodes import as_points
from invgp.plots.axis_labels import MINUS, site_title
from invgp.plots.figure_options import FigureOptions, as_names
from invgp.plots.plot_data import Floats, read_curves, read_names, read_site, read_values, select_latents
from invgp.plots.style import (
    COLOURS,
    COLUMN,
    GREY,
    PAGE,
    STYLE,
    NotebookFigure,
    add_legend,
    arrange_panels,
    figure_style,
    letter_panels,
    note_convergence,
    root_figure,
)

_NEW_EMULATOR = (0, (2, 2))
_MOST_NUMBERS = 12  # per row of the matrix, to be legible
_DARK = 0.6  # correlation from which its number is white


class Correlations(NamedTuple):
    """Correlations between the latents at a site.

    Attributes
    ----------
    values : array, shape (Q, Q)
    names : list of str, length Q
        Latents and labels.
    draws : int
        Number of draws that the correlations were estimated from; 0 if they are exact.
    """

    values: Floats
    names: list[str]
    draws: int


def plot_correlation(
    posterior: xr.Dataset,
    site: int | None = None,
    *,
    latents: str | Sequence[str] = (),
    labels: str | int | Sequence[object] = (),
    size: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the posterior correlations between the latents at a site.

    Parameters
    ----------
    posterior : Dataset
        A posterior.
    site : int
        Number of the site, from 1; by default the site in the middle of the survey table.
    latents : str or sequence of str
        Latents to draw; by default all.
    labels : str, int, or sequence of them
        Labels to draw, such as layers; by default all.
    size : tuple of float
        Width and height in inches.
    ax : Axes
        Axes to draw into; by default a new figure.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior, has one latent process only, or the site does not exist.

    Examples
    --------
    >>> figure = invgp.plots.plot_correlation(posterior, site=12)  # doctest: +SKIP
    """
    options = FigureOptions(latents=as_names(latents), labels=as_names(labels), size=size)
    return correlation_figure(posterior, options, site, ax)


def correlation_figure(
    ds: xr.Dataset, options: FigureOptions, site: int | None = None, ax: Axes | None = None
) -> Figure:
    """Draw the posterior correlations at a site; see `plot_correlation`."""
    ds = select_latents(as_points(ds), options.latents, options.labels)
    index = read_site(ds, site)
    correlations = read_correlations(ds, index)
    count = len(correlations.names)
    if count < 2:
        raise PlotError("A correlation needs at least two latents, or two labels of one latent.")
    with figure_style(ax):
        own = ax is None
        if ax is None:
            width = min(PAGE, max(COLUMN, 0.36 * count + 1.9))
            ax = NotebookFigure(options.size or (width, width - 0.6), layout="constrained").subplots()
        image = ax.imshow(correlations.values, cmap=colormaps["RdBu_r"], vmin=-1.0, vmax=1.0)
        ax.set_xticks(range(count), labels=correlations.names, rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(count), labels=correlations.names)
        ax.spines[:].set_visible(False)
        ax.set_xticks(np.arange(1, count) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, count) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.0)
        ax.tick_params(which="both", length=0.0)
        if count <= _MOST_NUMBERS:
            _write_numbers(ax, correlations.values)
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.75, aspect=25)
        bar.set_label("Posterior correlation")
        bar.outline.set_linewidth(0.4)
        draws = correlations.draws
        source = f"from {draws} draws, ± {1.0 / math.sqrt(draws):.2f}" if draws else ""
        ax.set_title("\n".join(filter(None, (site_title(ds, index), source))), loc="left")
        if own:
            note_convergence(root_figure(ax), ds)
    return root_figure(ax)


def read_correlations(ds: xr.Dataset, index: int) -> Correlations:
    """Return the correlations of the latent processes at a site: those of the file, or estimated from its draws."""
    curves = [(name, curve) for name in read_names(ds, "latents") for curve in read_curves(ds, name)]
    names = [", ".join(filter(None, (name.replace("_", " "), curve.label))) for name, curve in curves]
    if "correlation" in ds and ds.sizes["process"] == len(names):
        values: Floats = ds["correlation"].isel(site=index, missing_dims="ignore").values.astype(np.float64)
        return Correlations(values, names, 0)
    if any(f"{name}_sample" not in ds for name, _ in curves):
        raise PlotError("The dataset is not a complete invgp posterior: it lacks the correlations and the draws.")
    one = ds.isel(site=index, drop=True, missing_dims="ignore").rename(realization="site")
    draws = np.stack([read_values(one, f"{name}_sample", curve) for name, curve in curves])
    matrix: Floats = np.atleast_2d(np.corrcoef(draws))
    return Correlations(matrix, names, draws.shape[1])


def _write_numbers(ax: Axes, values: Floats) -> None:
    for (row, column), value in np.ndenumerate(values):
        text = f"{value:.2f}".replace("-", MINUS) if np.isfinite(value) else ""
        colour = "white" if abs(value) > _DARK else "black"
        ax.text(column, row, text, ha="center", va="center", color=colour, fontsize=6.5)


def plot_convergence(posterior: xr.Dataset, *, size: tuple[float, float] | None = None) -> Figure:
    """Draw the evidence lower bound and the number of simulator runs for each iteration.

    Three panels show the bound at all iterations, the bound in the last half, and the runs.

    Parameters
    ----------
    posterior : Dataset
        A posterior.
    size : tuple of float
        Width and height in inches.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior, or the size is too small.

    Examples
    --------
    >>> figure = invgp.plots.plot_convergence(posterior)
    """
    return convergence_figure(posterior, FigureOptions(size=size))


def convergence_figure(ds: xr.Dataset, options: FigureOptions) -> Figure:
    """Draw the bound and the runs; see `plot_convergence`."""
    if "elbo" not in ds or "runs" not in ds:
        raise PlotError("The dataset is not a complete invgp posterior: it lacks elbo or runs.")
    iteration, bound, runs = (np.asarray(ds[name].values, dtype=np.float64) for name in ("iteration", "elbo", "runs"))
    half, stages = len(iteration) // 2, find_stages(runs)
    layout = arrange_panels(3, options.size or (PAGE, 2.4), most=3)
    with rc_context(STYLE):
        figure = NotebookFigure(layout.size, layout="constrained")
        axes, spare = np.split(figure.subplots(layout.rows, layout.columns, squeeze=False).ravel(), [3])
        for empty in spare:
            empty.remove()
        label = "Bound (nats)" if layout.rows > 1 else "Evidence lower bound (nats)"
        _draw_iterations(axes[0], iteration, bound, label, stages=stages)
        _draw_iterations(axes[1], iteration[half:], bound[half:], label, stages=stages[stages > half] - half)
        _draw_iterations(axes[2], iteration, runs, "Simulator runs", steps=True)
        axes[2].set_ylim(bottom=0.0)
        letter_panels(axes, ["all iterations", "last half", "runs"])
        if stages.size:
            text = "new runs, and a new emulator: bounds on both sides cannot be compared"
            add_legend(figure, [Line2D([], [], color=GREY, linewidth=0.6, linestyle=_NEW_EMULATOR, label=text)])
        note_convergence(figure, ds)
    return figure


def find_stages(runs: Floats) -> NDArray[np.intp]:
    """Return the iterations, from 0, at which runs were added, if not at most of them as without an emulator.

    Parameters
    ----------
    runs : array, shape (I,)
        Number of runs at each iteration.
    """
    added = np.flatnonzero(np.diff(runs) > 0) + 1
    return added if 2 * len(added) < len(runs) else added[:0]


def _draw_iterations(
    ax: Axes,
    iteration: Floats,
    values: Floats,
    label: str,
    *,
    steps: bool = False,
    stages: NDArray[np.intp] | None = None,
) -> None:
    style = "steps-post" if steps else "default"
    for part in np.split(np.arange(len(values)), [] if stages is None else stages):
        ax.plot(iteration[part], values[part], "-o", color=COLOURS[0], markersize=2.4, linewidth=0.9, drawstyle=style)
    for start in [] if stages is None else stages:
        ax.axvline(float(iteration[start]) - 0.5, color=GREY, linewidth=0.6, linestyle=_NEW_EMULATOR, zorder=0)
    ax.set(xlabel="Iteration", ylabel=label)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    digits = max(0, 1 - int(np.floor(np.log10(np.ptp(values))))) if np.ptp(values) > 0.0 else 1
    decimals = digits if np.ptp(values) < 10.0 else 0
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.{decimals}f}".replace("-", MINUS)))
    ax.spines[["top", "right"]].set_visible(False)
