"""The look of every figure: palette, fonts, widths, legend and letters of the panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray

# Okabe and Ito (2008), without the yellow, which vanishes on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY = "0.35"
COLUMN, PAGE = 3.5, 7.2  # inches, the widths of a column and of a page of two columns
PAGE_HEIGHT = 9.2  # inches
STYLE: dict[Any, Any] = {
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8.0,
    "figure.constrained_layout.h_pad": 0.06,  # inches
    "figure.constrained_layout.w_pad": 0.06,
    "font.family": "sans-serif",
    "font.size": 8.0,
    "hatch.linewidth": 0.35,  # the colours below stay visible
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # journals want text that stays text
    "savefig.dpi": 300.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "invgp",  # the same posterior gives the same file
    "xtick.direction": "out",
    "xtick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 7.5,
    "ytick.major.width": 0.6,
}


def colours_for(count: int) -> Sequence[Any]:
    """Colours that tell `count` curves apart: the palette, or a gradient if it is too short."""
    return COLOURS[:count] if count <= len(COLOURS) else list(colormaps["viridis"](np.linspace(0.0, 0.9, count)))


def add_legend(figure: Figure, handles: list[Any]) -> None:
    """Put a legend on top of a figure, in one row where that has room."""
    columns = len(handles) if figure.get_figwidth() >= PAGE else math.ceil(len(handles) / 2)
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        columnspacing=1.5,
        handlelength=1.6,
    )


def letter_panels(axes: NDArray[Any], titles: Sequence[str] = ()) -> None:
    """Title panels, an array (n,) of Axes, with a letter each if they are several."""
    lettered = 1 < len(axes) <= len(ascii_lowercase)
    for i, ax in enumerate(axes):
        words = [f"({ascii_lowercase[i]})"] if lettered else []
        ax.set_title(" ".join([*words, *titles[i : i + 1]]), loc="left")
