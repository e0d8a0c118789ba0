"""The figure of a comparison: a posterior over the reference, latent by latent."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from invgp.errors import PlotError
from invgp.plots.labels import axis_label, quantity_name
from invgp.plots.lines import finish_panel
from invgp.plots.lone_site import EDGE, FILL, at_one_site, band_handles, errors, frame_errors
from invgp.plots.positions import read_positions
from invgp.plots.reading import Curve, Floats, read_curves, read_interval, read_names, read_values
from invgp.plots.style import GREY, PAGE, STYLE, add_legend, letter_panels

_POINT = 2.2


def comparison(posterior: xr.Dataset, reference: xr.Dataset) -> Figure:
    """Draw a posterior over a reference.

    Along a line, one panel a latent: mean and 95% band of the reference filled, those of the posterior as lines. At a
    single site, intervals side by side, for each label of a latent. For sites with more coordinates, one row a latent:
    means against means, and spreads against spreads. Below, or beside, stand errors of the mean and ratios of spreads.

    Parameters
    ----------
    posterior : Dataset
        As `invgp run` writes it.
    reference : Dataset
        As `invgp compare` writes it for that posterior.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``reference`` is not of this posterior.
    """
    latents = read_names(posterior, "latents")
    missing = [name for name in latents if f"{name}_reference" not in reference]
    if missing:
        raise PlotError(f"The dataset is not an invgp comparison of this posterior: it lacks {missing[0]}_reference.")
    on_a_line = len(read_names(posterior, "coordinates")) == 1
    with rc_context(STYLE):
        if posterior.sizes["site"] == 1:
            return at_one_site(posterior, reference, latents)
        return (_along_line if on_a_line else _cross_plots)(posterior, reference, latents)


def _along_line(posterior: xr.Dataset, reference: xr.Dataset, latents: list[str]) -> Figure:
    """One column a latent: the fields above, errors of the mean and ratios of spreads below."""
    ((x, x_label),) = read_positions(posterior, read_names(posterior, "coordinates"))
    columns = min(len(latents), 2)
    blocks = math.ceil(len(latents) / columns)
    figure = Figure((PAGE, 4.9 * blocks + 0.3), layout="constrained")
    grid = figure.subplots(3 * blocks, columns, squeeze=False, sharex=True, height_ratios=(3, 1, 1) * blocks)
    for i, name in enumerate(latents):
        above, middle, below = grid[3 * (i // columns) : 3 * (i // columns) + 3, i % columns]
        _draw_fields(above, posterior, reference, name, x)
        _draw_errors(middle, below, reference, name, x)
        below.set_xlabel(x_label)
    for i in range(len(latents), blocks * columns):
        for ax in grid[3 * (i // columns) : 3 * (i // columns) + 3, i % columns]:
            ax.remove()
    letter_panels(np.asarray([grid[3 * (i // columns), i % columns] for i in range(len(latents))]))
    figure.align_ylabels()
    add_legend(figure, band_handles())
    return figure


def _draw_fields(ax: Axes, posterior: xr.Dataset, reference: xr.Dataset, name: str, x: Floats) -> None:
    order = np.argsort(x, kind="stable")
    curves = read_curves(posterior, name)
    ends = []
    for curve in curves:
        lower, upper = (edge[order] for edge in read_interval(reference, f"{name}_reference", curve))
        mean = read_values(reference, f"{name}_reference", curve)[order]
        ax.fill_between(x[order], lower, upper, facecolor=to_rgba(curve.colour, FILL), linewidth=0.0)
        ax.plot(x[order], mean, color=to_rgba(curve.colour, 0.6), linewidth=2.2)
        for edge in read_interval(posterior, name, curve):
            ax.plot(x[order], edge[order], color=curve.colour, linewidth=EDGE, linestyle=(0, (4, 2)))
        ax.plot(x[order], read_values(posterior, name, curve)[order], color="black", linewidth=0.7)
        ends.append(float(mean[-1]))
    finish_panel(ax, x, posterior[name], curves, ends=ends)


def _draw_errors(middle: Axes, below: Axes, reference: xr.Dataset, name: str, x: Floats) -> None:
    """Errors of the mean and ratios of spreads, in bands of twice the Monte Carlo error of the reference."""
    order = np.argsort(x, kind="stable")
    for curve in read_curves(reference, f"{name}_error"):
        for ax, values, around in zip((middle, below), *errors(reference, name, curve), strict=True):
            lower, upper = (values - around)[order], (values + around)[order]
            ax.fill_between(x[order], lower, upper, facecolor=to_rgba(curve.colour, FILL), linewidth=0.0)
            ax.plot(x[order], values[order], color=curve.colour, linewidth=EDGE)
    frame_errors(middle, below)


def _cross_plots(posterior: xr.Dataset, reference: xr.Dataset, latents: list[str]) -> Figure:
    """One row a latent: means against means, spreads against spreads."""
    figure = Figure((PAGE, 3.0 * len(latents) + 0.2), layout="constrained")
    axes = figure.subplots(len(latents), 2, squeeze=False)
    for (left, right), name in zip(axes, latents, strict=True):
        curves = read_curves(posterior, name)
        for curve in curves:
            _draw_cross(left, posterior, reference, (name, f"{name}_reference", "_mcse"), curve)
            _draw_cross(right, posterior, reference, (f"{name}_std", f"{name}_reference_std", "_mcse"), curve)
        for ax, what in ((left, "mean"), (right, "standard deviation")):
            _frame_cross(ax)
            quantity = f"{what} of {quantity_name(posterior[name])}"
            ax.set_xlabel(axis_label(posterior[name], f"reference {quantity}"))
            ax.set_ylabel(axis_label(posterior[name], f"posterior {quantity}"))
        if curves[0].label:
            left.legend(frameon=False, loc="upper left", handletextpad=0.1)
    letter_panels(axes.ravel())
    bar = axes[0, 0].errorbar([], [], xerr=[], fmt="o", color=GREY, markersize=_POINT, elinewidth=0.4)
    bar.set_label("site ± 2 Monte Carlo errors of the reference")
    add_legend(figure, [bar, Line2D([], [], color=GREY, linewidth=0.7, label="posterior = reference")])
    return figure


def _draw_cross(
    ax: Axes, posterior: xr.Dataset, reference: xr.Dataset, names: tuple[str, str, str], curve: Curve
) -> None:
    own, other, error = names
    ax.errorbar(
        read_values(reference, other, curve),
        read_values(posterior, own, curve),
        xerr=2.0 * read_values(reference, other + error, curve),
        fmt="o",
        color=curve.colour,
        markersize=_POINT,
        markeredgewidth=0.0,
        elinewidth=0.4,
        label=curve.label,
    )


def _frame_cross(ax: Axes) -> None:
    both = (*ax.get_xlim(), *ax.get_ylim())
    ends = (min(both), max(both))
    ax.set(xlim=ends, ylim=ends)  # so that the line runs from corner to corner
    ax.plot(ends, ends, color=GREY, linewidth=0.7, zorder=0.5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    ax.spines[["top", "right"]].set_visible(False)
