"""Figure of posterior draws: sample fields along a line or on maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from invgp.errors import PlotError
from invgp.maps.nodes import as_map
from invgp.plots.figure_options import FigureOptions, as_names
from invgp.plots.map_figures import map_figure
from invgp.plots.plot_data import (
    predict_between_sites,
    read_curves,
    read_interval,
    read_names,
    read_values,
    spread_draws,
)
from invgp.plots.sections import (
    LinePanels,
    band_handles,
    draw_band,
    finish_figure,
    finish_panel,
    read_line,
    use_log_axis,
    with_label_width,
)
from invgp.plots.style import (
    GREY,
    MODE_STYLES,
    add_legend,
    figure_style,
    make_panels,
    mode_line_style,
    note_convergence,
)
from invgp.posterior.contents import mode_probabilities

_MOST_DRAWS = 20  # lines that can be distinguished
_MOST_MAPS = 3  # in addition to the mean

SMALLEST_SHARE = 0.005  # probability of modes without a draw that the legend mentions


def plot_draws(
    posterior: xr.Dataset,
    *,
    latents: str | Sequence[str] = (),
    labels: str | int | Sequence[object] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
    size: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw joint posterior samples.

    Along a line, up to twenty draws are thin lines over the central 95% interval, with one line style per mode. For
    sites with two or more coordinates, there are maps of the mean and of three draws with the same colours.

    Parameters
    ----------
    posterior : Dataset
        A posterior with draws.
    latents : str or sequence of str
        Latents to draw; by default all.
    labels : str, int, or sequence of them
        Labels to draw, such as layers; by default all.
    limits : mapping of str to tuple of float
        Lowest and highest value of an axis or of the colours, by latent.
    size : tuple of float
        Width and height in inches.
    ax : Axes
        Axes to draw into, for a single latent along a line; by default a new figure.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior, has no draws, or an argument is invalid.

    Examples
    --------
    >>> figure = invgp.plots.plot_draws(posterior)
    """
    options = FigureOptions((), dict(limits or {}), 0.0, as_names(latents), as_names(labels), size)
    return draws_figure(posterior, options, ax)


def draws_figure(ds: xr.Dataset, options: FigureOptions, ax: Axes | None = None) -> Figure:
    """Draw posterior samples; see `plot_draws`."""
    missing = [name for name in read_names(ds, "fields") if f"{name}_sample" not in ds]
    if missing or not ds.sizes["realization"]:
        raise PlotError("The dataset has no draws: output.realizations of its config must be 1 or more.")
    if len(read_names(as_map(ds), "coordinates")) == 1:
        return _line_figure(spread_draws(ds, _MOST_DRAWS), options, ax)
    ds = spread_draws(ds, _MOST_MAPS)
    count = ds.sizes["realization"]
    shown = ("mean", *(f"draw {i + 1}" for i in range(count)))
    return map_figure(predict_between_sites(ds, count), replace(options, show=shown, hatch_below=0.0), ax)


def _line_figure(ds: xr.Dataset, options: FigureOptions, ax: Axes | None = None) -> Figure:
    """Draw posterior samples along a line; see `plot_draws`."""
    ds, line = read_line(ds, options, draws=ds.sizes["realization"])
    latents = read_names(ds, "fields")
    with figure_style(ax):
        figure, axes, layout = make_panels(len(latents), options.size, ax)
        line = with_label_width(line, layout)
        for panel, name in zip(axes, latents, strict=True):
            _draw_samples(panel, ds, name, line, options)
        finish_figure(axes, line, layout, (), single=ax is not None)
        add_legend(ax or figure, [*_draw_handles(ds), *band_handles("")])
        if ax is None:
            note_convergence(figure, ds)
    return figure


def _read_modes(ds: xr.Dataset) -> NDArray[np.intp]:
    """Return the number (R,) of the mode of each draw, from 1."""
    if "mode" not in ds or ds["mode"].dims != ("realization",):
        return np.ones(ds.sizes["realization"], dtype=np.intp)
    return np.asarray(ds["mode"].values, dtype=np.intp)


def _draw_handles(ds: xr.Dataset) -> list[Artist]:
    """Return a legend handle for the draws, or one for the draws of each mode."""
    probabilities, modes = mode_probabilities(ds), np.unique(_read_modes(ds))
    if len(probabilities) == 1:
        return [Line2D([], [], color=GREY, linewidth=0.5, label="posterior draw")]
    labels: dict[int, str] = {}
    left = 1.0
    for mode in modes.tolist():
        if min(mode, len(MODE_STYLES)) in labels:
            continue
        last = mode >= len(MODE_STYLES) and len(probabilities) > len(MODE_STYLES)
        share = probabilities[len(MODE_STYLES) - 1 :].sum() if last else probabilities[mode - 1]
        labels[min(mode, len(MODE_STYLES))] = f"draw of {'other modes' if last else f'mode {mode}'} ({share:.0%})"
        left -= share
    handles: list[Artist] = [
        Line2D([], [], color=GREY, linewidth=0.7, linestyle=mode_line_style(mode), label=label)
        for mode, label in labels.items()
    ]
    if left >= SMALLEST_SHARE:
        handles.append(Line2D([], [], linestyle="none", label=f"modes of which no draw is shown ({left:.0%})"))
    return handles


def _draw_samples(ax: Axes, ds: xr.Dataset, name: str, line: LinePanels, options: FigureOptions) -> None:
    """Draw posterior samples over the 95% interval, one line per draw and label."""
    x, order = line.x, np.argsort(line.x, kind="stable")
    curves, modes = read_curves(ds, name), _read_modes(ds)
    intervals = [read_interval(ds, name, curve) for curve in curves]
    for curve, ends in zip(curves, intervals, strict=True):
        draw_band(ax, x, np.full_like(x, np.nan), ends, curve.colour)
        for i in range(ds.sizes["realization"]):
            draw = read_values(ds.isel(realization=i), f"{name}_sample", curve)
            marker = "." if x.size == 1 else ""
            style = {"linestyle": mode_line_style(int(modes[i])), "marker": marker, "markersize": 2.5}
            ax.plot(x[order], draw[order], color=curve.colour, linewidth=0.5, alpha=0.6, **style)
    ends_of_means = [float(read_values(ds, name, curve)[order[-1]]) for curve in curves]
    logarithmic = use_log_axis(ds, name, intervals)
    limits = options.limits_for(name, "mean")
    finish_panel(ax, line, ds[name], curves, ends_of_means, limits=limits, logarithmic=logarithmic)
