"""Figure of learnt hyperparameters: posterior and prior of each."""

from __future__ import annotations

from textwrap import wrap

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from invgp.errors import PlotError
from invgp.latent_model.learnt_parameters import log_scale_density
from invgp.plots.axis_labels import unit_label
from invgp.plots.figure_options import FigureOptions
from invgp.plots.style import (
    COLOURS,
    STYLE,
    NotebookFigure,
    add_legend,
    arrange_panels,
    letter_panels,
    note_convergence,
)

_BINS = 16  # the draws have at most some hundred different values
_LINE = 26  # characters per line of a label
_TAIL = 0.002  # probability of the draws beyond each end of the axis
_PRIOR_COLOUR = "#666666"


def plot_hyperparameters(posterior: xr.Dataset, *, size: tuple[float, float] | None = None) -> Figure:
    """Draw the posterior of each learnt hyperparameter, with its prior and its most probable value.

    Parameters
    ----------
    posterior : Dataset
        A posterior that is averaged over hyperparameters (`posterior = "sampled"`, with `learn`).
    size : tuple of float
        Width and height in inches.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset has no draws of hyperparameters, or the size is too small.

    Examples
    --------
    >>> figure = invgp.plots.plot_hyperparameters(posterior)  # doctest: +SKIP
    """
    return hyperparameter_figure(posterior, FigureOptions(size=size))


def read_hyperparameters(ds: xr.Dataset) -> list[xr.DataArray]:
    """Return the draws of each learnt hyperparameter; empty if the posterior is not averaged over any."""
    return [ds[f"{name}_sample"] for name in str(ds.attrs.get("invgp_hyperparameters", "")).split()]


def hyperparameter_figure(ds: xr.Dataset, options: FigureOptions) -> Figure:
    """Draw the learnt hyperparameters; see `plot_hyperparameters`."""
    learnt = read_hyperparameters(ds)
    if not learnt:
        raise PlotError(
            "The posterior has no draws of hyperparameters: it needs `learn` and inference.posterior = 'sampled'."
        )
    layout = arrange_panels(len(learnt), options.size, most=3)
    with rc_context(STYLE):
        figure = NotebookFigure(layout.size, layout="constrained")
        axes, spare = np.split(figure.subplots(layout.rows, layout.columns, squeeze=False).ravel(), [len(learnt)])
        for empty in spare:
            empty.remove()
        for ax, draws in zip(axes, learnt, strict=True):
            _draw_panel(ax, draws)
        letter_panels(axes)
        handles = [
            Patch(color=COLOURS[0], alpha=0.5, linewidth=0.0, label="posterior"),
            Line2D([], [], color=_PRIOR_COLOUR, label="prior"),
            Line2D([], [], color=COLOURS[1], linestyle="--", label="most probable"),
        ]
        add_legend(figure, handles)
        note_convergence(figure, ds)
    return figure


def _draw_panel(ax: Axes, draws: xr.DataArray) -> None:
    """Draw the densities of the logarithm of one hyperparameter."""
    logs = np.log(np.asarray(draws.values, dtype=np.float64))
    centre, spread = np.log(float(draws.attrs["prior_median"])), np.log(float(draws.attrs["prior_factor"]))
    low, high = np.quantile(logs, [_TAIL, 1.0 - _TAIL])
    low, high = min(low, centre - 0.5 * spread), max(high, centre + 0.5 * spread)
    edges = np.linspace(low, high, _BINS + 1)
    heights = np.histogram(logs, edges)[0] / (len(logs) * np.diff(edges))
    ax.stairs(heights, np.exp(edges), fill=True, color=COLOURS[0], alpha=0.5, linewidth=0.0)
    x = np.linspace(low, high, 200)
    if "prior_degrees" in draws.attrs:
        prior = np.exp(log_scale_density(x, np.asarray(float(draws.attrs["prior_degrees"]))))
    else:
        prior = np.exp(-0.5 * ((x - centre) / spread) ** 2) / (spread * np.sqrt(2.0 * np.pi))
    ax.plot(np.exp(x), prior, color=_PRIOR_COLOUR)
    ax.axvline(float(draws.attrs["most_probable"]), color=COLOURS[1], linestyle="--", linewidth=1.0)
    ax.set_xscale("log")
    ax.set_xlim(np.exp(low), np.exp(high))
    decades = (high - low) / np.log(10.0)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2.0 else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylim(bottom=0.0)
    ax.set_yticks([])
    ax.set(xlabel=_label(draws), ylabel="Density")
    ax.spines[["top", "right"]].set_visible(False)


def _label(draws: xr.DataArray) -> str:
    """Return the label of the axis, in short lines."""
    words, unit = hyperparameter_words(draws), unit_label(draws)
    words = f"{words[:1].upper()}{words[1:]}{f' ({unit})' if unit else ''}"
    return "\n".join(wrap(words, _LINE))


def hyperparameter_words(draws: xr.DataArray) -> str:
    """Return the name of a hyperparameter for users, such as ``length-scale of depth along x``."""
    return str(draws.attrs.get("long_name", draws.name)).removeprefix("posterior draw of the ")
