"""The comparison at a single site: intervals side by side; and what it shares with that along a line."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from invgp.plots.labels import axis_label
from invgp.plots.positions import name_site
from invgp.plots.reading import Curve, Floats, points_down, read_curves, read_interval, read_values
from invgp.plots.style import COLUMN, GREY, PAGE, STYLE, add_legend, letter_panels

FILL = 0.22
EDGE = 0.8  # points
_BAR = 9.0  # points
_WIDE = 6  # labels in a panel, from where each needs a page
_POSTERIOR = (0, (4, 2))


def at_one_site(posterior: xr.Dataset, reference: xr.Dataset, latents: list[str]) -> Figure:
    """One column a latent: for each label the intervals above, error of the mean and ratio of spreads below."""
    most = max(len(read_curves(posterior, name)) for name in latents)
    columns = 1 if most > _WIDE else min(len(latents), 2)
    blocks = -(-len(latents) // columns)
    figure = Figure((COLUMN if columns == 1 and most <= _WIDE else PAGE, 4.9 * blocks + 0.5), layout="constrained")
    grid = figure.subplots(3 * blocks, columns, squeeze=False, sharex="col", height_ratios=(3, 1, 1) * blocks)
    for i in range(blocks * columns):
        panels = grid[3 * (i // columns) : 3 * (i // columns) + 3, i % columns]
        if i < len(latents):
            _draw_latent(panels, posterior, reference, latents[i])
        else:
            for ax in panels:
                ax.remove()
    letter_panels(np.asarray([grid[3 * (i // columns), i % columns] for i in range(len(latents))]))
    figure.align_ylabels()
    figure.supxlabel(name_site(posterior, 0), fontsize=STYLE["axes.labelsize"])
    add_legend(figure, band_handles())
    return figure


def _draw_latent(panels: np.ndarray, posterior: xr.Dataset, reference: xr.Dataset, name: str) -> None:
    above, middle, below = panels
    curves = read_curves(posterior, name)
    for i, curve in enumerate(curves):
        x = np.asarray([float(i)])
        other = f"{name}_reference"
        above.vlines(x, *read_interval(reference, other, curve), color=to_rgba(curve.colour, FILL), linewidth=_BAR)
        above.plot(
            x,
            read_values(reference, other, curve),
            "_",
            color=curve.colour,
            alpha=0.6,
            markersize=_BAR,
            markeredgewidth=2.2,
        )
        lower, upper = read_interval(posterior, name, curve)
        above.vlines(x, lower, upper, color=curve.colour, linewidth=EDGE, linestyle=[_POSTERIOR])
        for edge in (lower, upper):
            above.plot(x, edge, "_", color=curve.colour, markersize=_BAR, markeredgewidth=EDGE)
        above.plot(
            x, read_values(posterior, name, curve), "_", color="black", markersize=1.4 * _BAR, markeredgewidth=0.8
        )
        for ax, value, doubt in zip((middle, below), *errors(reference, name, curve), strict=True):
            ax.errorbar(x, value, doubt, fmt="o", color=curve.colour, markersize=2.5, elinewidth=EDGE, capsize=2.0)
    above.set_ylabel(axis_label(posterior[name]))
    above.spines[["top", "right"]].set_visible(False)
    if points_down(posterior[name]):
        above.invert_yaxis()
    frame_errors(middle, below)
    below.set_xlim(-0.6, len(curves) - 0.4)
    below.set_xticks(range(len(curves)), labels=[curve.label for curve in curves])
    below.tick_params(axis="x", length=0.0, rotation=0 if len(curves) <= _WIDE else 90)


def errors(reference: xr.Dataset, name: str, curve: Curve) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Error of the mean and ratio of spreads, and twice the Monte Carlo errors of both."""
    std = read_values(reference, f"{name}_reference_std", curve)
    error, ratio = (read_values(reference, f"{name}_{what}", curve) for what in ("error", "ratio"))
    doubt = 2.0 * read_values(reference, f"{name}_reference_mcse", curve) / std
    return (error, ratio), (doubt, 2.0 * ratio * read_values(reference, f"{name}_reference_std_mcse", curve) / std)


def frame_errors(middle: Axes, below: Axes) -> None:
    """Frame the errors of the mean and the ratios of spreads, once drawn."""
    for ax, exact, least, label in (
        (middle, 0.0, 0.5, "Error of mean /\nreference std"),
        (below, 1.0, 0.25, "Spread /\nreference's"),
    ):
        ax.axhline(exact, color=GREY, linewidth=0.6, zorder=0.5)
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, exact - least), max(high, exact + least))
        ax.set_ylabel(label)
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.spines[["top", "right"]].set_visible(False)


def band_handles() -> list[Artist]:
    """Samples for the legend."""
    return [
        Line2D([], [], color="black", linewidth=0.7, label="posterior mean"),
        Line2D([], [], color=GREY, linewidth=EDGE, linestyle=_POSTERIOR, label="its 95% interval"),
        Line2D([], [], color=to_rgba(GREY, 0.6), linewidth=2.2, label="reference mean"),
        Patch(facecolor=to_rgba(GREY, FILL), label="its 95% interval"),
    ]
