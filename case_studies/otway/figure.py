"""Figure of posteriors of the Otway line and a reference, like the last figure of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from invgp.plots.style import COLOURS, GREY, PAGE, STYLE, add_legend, letter_panels

Floats = NDArray[np.float64]
INTERVAL = 1.96  # standard deviations: 95% of a Gaussian
LATENTS = {"depth": "depth (m)", "velocity": "velocity (m/s)"}
MARKERS = "osD^"  # of the truth, by layer, so that they differ without colours too
BETWEEN_MARKERS = 0.11  # relative to the length of the line
TRUTH: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (1, 1)), "markersize": 3.6, "markeredgewidth": 0.7}


class Field(NamedTuple):
    """Mean and standard deviation (N, 4), at the sites and layers."""

    mean: Floats
    std: Floats


class Row(NamedTuple):
    """One posterior and a reference: a field for each latent."""

    title: str
    lines: Mapping[str, Field]
    filled: Mapping[str, Field]


def draw(position: Floats, rows: Sequence[Row], path: Path, truth: Mapping[str, Floats] | None = None) -> None:
    """Write the figure: layer boundaries on the left, velocities on the right, one row per posterior.

    Parameters
    ----------
    position : (N,), along the line in m.
    truth : (N, 4) by latent, if it is known.
    """
    with rc_context(STYLE):
        figure = Figure((PAGE, 2.3 * len(rows) + 0.5), layout="constrained")
        axes = figure.subplots(len(rows), 2, sharex=True, sharey="col", squeeze=False)
        for row, pair in zip(rows, axes, strict=True):
            for ax, (latent, label) in zip(pair, LATENTS.items(), strict=True):
                draw_panel(ax, position / 1000.0, row.lines[latent], row.filled[latent], (truth or {}).get(latent))
                ax.set_ylabel(label)
        axes[0, 0].invert_yaxis()
        for ax in axes[-1]:
            ax.set_xlabel("distance along the line (km)")
        letter_panels(axes.ravel(), [row.title for row in rows for _ in LATENTS])
        handles = [
            Line2D([], [], color="black", label="posterior: mean"),
            Line2D([], [], color="black", linewidth=0.9, linestyle=(0, (4, 2)), label="and 95% band"),
            Patch(facecolor=to_rgba(GREY, 0.3), label="reference: mean and 95% band"),
        ]
        if truth is not None:
            label = "truth, in the colour of its layer"
            handles.append(
                Line2D([], [], color="black", marker=MARKERS[0], markerfacecolor="white", label=label, **TRUTH)
            )
        add_legend(figure, handles)
        figure.savefig(path)


def draw_panel(ax: Axes, x: Floats, lines: Field, filled: Field, truth: Floats | None) -> None:
    """Draw four layers at positions x (N,), with names at the right end of their means."""
    for layer, colour in enumerate(COLOURS[:4]):
        centre, reach = filled.mean[:, layer], INTERVAL * filled.std[:, layer]
        ax.fill_between(x, centre - reach, centre + reach, facecolor=to_rgba(colour, 0.25), linewidth=0.0)
        ax.plot(x, centre, color=to_rgba(colour, 0.45), linewidth=2.4)
        centre, reach = lines.mean[:, layer], INTERVAL * lines.std[:, layer]
        ax.plot(x, centre, color=colour)
        for edge in (centre - reach, centre + reach):
            ax.plot(x, edge, color=colour, linewidth=0.9, linestyle=(0, (4, 2)))
        name_layer(ax, layer, lines.mean[-1, layer])
    if truth is not None:
        for layer in range(4):  # on top of everything else
            draw_truth(ax, x, truth[:, layer], layer)
    ax.margins(x=0.0)


def draw_truth(ax: Axes, x: Floats, values: Floats, layer: int) -> None:
    """Draw a dark line in the colour of the layer, with markers at different positions on each line."""
    colour = COLOURS[layer]
    dark = tuple(0.55 * part for part in to_rgb(colour))
    where = (BETWEEN_MARKERS * (layer + 0.5) / 4, BETWEEN_MARKERS)
    style = {"marker": MARKERS[layer], "markerfacecolor": colour, "markeredgecolor": "black", "markevery": where}
    ax.plot(x, values, color=dark, zorder=3.0, **style, **TRUTH)


def name_layer(ax: Axes, layer: int, height: float) -> None:
    """Write the name of a layer in the right margin."""
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    text = f"layer {layer + 1}"
    ax.annotate(text, (1.0, height), (3.0, 0.0), color=COLOURS[layer], fontsize=7.5, annotation_clip=False, **place)
