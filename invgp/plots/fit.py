"""The fit: the data against what the posterior predicts, and the residuals."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from invgp.plots.labels import axis_label, quantity_name
from invgp.plots.lines import band_handles, draw_band, finish_panel
from invgp.plots.look import Look
from invgp.plots.positions import read_positions
from invgp.plots.reading import (
    TWO_SIGMA,
    Curve,
    Floats,
    read_curves,
    read_interval,
    read_names,
    read_site_coordinates,
    read_values,
)
from invgp.plots.style import CHARACTERS, COLUMN, GREY, PAGE, STYLE, add_legend, letter_panels, too_small

_NARROWEST, _LOWEST = 1.5, 2.0  # inches, of a fit that can be read
_POINT: dict[str, Any] = {"markersize": 1.8, "markeredgewidth": 0.0}
_ERROR_BAR: dict[str, Any] = {"fmt": "o", "elinewidth": 0.4, **_POINT}


def data_fit(ds: xr.Dataset, look: Look | None = None) -> Figure:
    """Draw the data against what the posterior predicts, and the residuals in units of the noise.

    Along a line, the observations stand over the predicted mean and its 95% interval. For sites with more
    coordinates, observed stands against predicted. Missing observations are not drawn.

    Parameters
    ----------
    ds : Dataset
        A posterior.
    look : Look
        The size of the figure.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp.
    """
    on_a_line = len(read_site_coordinates(ds)) == 1
    observations = read_names(ds, "observations")
    with rc_context(STYLE):
        width = COLUMN + 0.5 if len(observations) == 1 else PAGE / 2 * len(observations)
        size = (look.size if look else None) or (width, 4.2)
        if size[0] / len(observations) < _NARROWEST or size[1] < _LOWEST:
            raise too_small(size, f"{len(observations)} fits" if len(observations) > 1 else "the fit")
        figure = Figure(size, layout="constrained")
        axes = figure.subplots(2, len(observations), squeeze=False, sharex="col", height_ratios=(3, 1))
        draw = _draw_along_line if on_a_line else _draw_cross_plot
        for (above, below), name in zip(axes.T, observations, strict=True):
            draw(above, below, ds, name)
            _frame_residuals(below)
            below.set_xlabel(_wrapped(below.get_xlabel(), size[0] / len(observations) - 0.7))
            above.set_ylabel(_wrapped(above.get_ylabel(), 0.55 * size[1]))
        letter_panels(axes[0])
        figure.align_ylabels()
        sample = axes[0, 0].errorbar([], [], yerr=[], color=GREY, label="observed ± noise std", **_ERROR_BAR)
        diagonal = Line2D([], [], color=GREY, linewidth=0.7, label="observed = predicted")
        add_legend(figure, [sample, *(band_handles("predicted") if on_a_line else [diagonal])])
    return figure


def _wrapped(label: str, inches: float) -> str:
    """A label in lines of this length; its unit is not broken."""
    text, bracket, unit = label.replace("\n", " ").partition("(")
    whole = text + (bracket + unit).replace(" ", "\xa0")
    lines = textwrap.wrap(whole, max(10, int(CHARACTERS * inches)), break_long_words=False)
    return "\n".join(lines).replace("\xa0", " ")


def _draw_along_line(above: Axes, below: Axes, ds: xr.Dataset, name: str) -> None:
    ((x, x_label),) = read_positions(ds, read_site_coordinates(ds))
    curves = read_curves(ds, f"{name}_observed")
    means = [read_values(ds, f"{name}_predicted", curve) for curve in curves]
    for curve, mean in zip(curves, means, strict=True):
        draw_band(above, x, mean, read_interval(ds, f"{name}_predicted", curve), curve.colour)
        _draw_data(above, below, ds, name, curve, x)
    below.set_xlabel(x_label)
    last = int(np.argmax(x))
    finish_panel(above, x, ds[f"{name}_observed"], curves, ends=[float(mean[last]) for mean in means], margin=0.01)


def _draw_cross_plot(above: Axes, below: Axes, ds: xr.Dataset, name: str) -> None:
    observations = ds[f"{name}_observed"]
    curves = read_curves(ds, f"{name}_observed")
    for curve in curves:
        _draw_data(above, below, ds, name, curve, read_values(ds, f"{name}_predicted", curve))
    both = (*above.get_xlim(), *above.get_ylim())
    ends = (min(both), max(both))
    above.set(xlim=ends, ylim=ends)  # so that the line runs from corner to corner
    above.plot(ends, ends, color=GREY, linewidth=0.7, zorder=0.5)
    above.set_ylabel(axis_label(observations, f"observed {quantity_name(observations)}"))
    below.set_xlabel(axis_label(observations, f"predicted {quantity_name(observations)}"))
    below.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    above.spines[["top", "right"]].set_visible(False)
    if curves[0].label:
        above.legend(frameon=False, loc="upper left", handletextpad=0.1)


def _draw_data(above: Axes, below: Axes, ds: xr.Dataset, name: str, curve: Curve, x: Floats) -> None:
    """Draw observations with their noise above, and residuals in units of it below, at abscissae (N,)."""
    observed, noise = read_values(ds, f"{name}_observed", curve), read_values(ds, f"{name}_noise_std", curve)
    seen = np.isfinite(observed)
    above.errorbar(x[seen], observed[seen], noise[seen], color=curve.colour, label=curve.label, **_ERROR_BAR)
    normalised = read_values(ds, f"{name}_residual", curve) / noise
    seen = np.isfinite(normalised)
    below.plot(x[seen], normalised[seen], "o", color=curve.colour, **_POINT)


def _frame_residuals(ax: Axes) -> None:
    """Put the residuals on a grey strip in which 95% of them belong."""
    ax.axhspan(-TWO_SIGMA, TWO_SIGMA, color="0.92", linewidth=0.0, zorder=0)
    ax.axhline(0.0, color=GREY, linewidth=0.6, zorder=0.5)
    largest = max(float(np.max(np.abs(line.get_ydata()), initial=0.0)) for line in ax.lines)
    limit = max(3.0, 1.1 * largest)
    ax.set_ylim(-limit, limit)
    ax.set_ylabel("Residual /\nnoise std")
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.spines[["top", "right"]].set_visible(False)
