"""The look of every figure: palette, fonts, widths, legend and letters of the panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray

from invgp.errors import PlotError

# Okabe and Ito (2008), without the yellow, which vanishes on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY = "0.35"
COLUMN, PAGE = 3.5, 7.2  # inches, the widths of a column and of a page of two columns
PAGE_HEIGHT = 9.2  # inches
INCH = 2.54  # cm
CHARACTERS = 16.0  # in an inch of 8 point text
_LEGEND_COLUMN = 1.4  # inches
_AROUND, _LEGEND, _SMALLEST = (0.95, 0.45), 0.3, (0.75, 0.45)  # inches: labels of a panel, legend, panel itself
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
    columns = min(len(handles), max(1, int(figure.get_figwidth() / _LEGEND_COLUMN)))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        columnspacing=1.5,
        handlelength=1.6,
    )


class Sheet(NamedTuple):
    """Rows and columns of panels, and the size of their figure in inches."""

    rows: int
    columns: int
    size: tuple[float, float]

    @property
    def characters(self) -> int:
        """Of a label that is as long as a panel is high."""
        return max(12, int(CHARACTERS * (self.size[1] / self.rows - _AROUND[1])))


def arrange(count: int, size: tuple[float, float] | None, *, most: int = 2, row_height: float = 2.9) -> Sheet:
    """Arrange panels on a page, or on a figure of this size so that they are as large as can be.

    Raises
    ------
    PlotError
        If they would be too small to be read.
    """
    if size is None:
        columns = min(count, most)
        rows = math.ceil(count / columns)
        return Sheet(rows, columns, (COLUMN if columns == 1 else PAGE, row_height * rows + 0.3))
    sheets = [Sheet(math.ceil(count / columns), columns, size) for columns in range(1, min(count, most) + 1)]
    best = max(sheets, key=_readable)
    if _readable(best) < 1.0:
        raise too_small(size, f"{count} panels" if count > 1 else "a panel")
    return best


def _readable(sheet: Sheet) -> float:
    """How large a panel is, where the smallest that can be read is 1."""
    width = sheet.size[0] / sheet.columns - _AROUND[0]
    height = (sheet.size[1] - _LEGEND) / sheet.rows - _AROUND[1]
    return min(width / _SMALLEST[0], height / _SMALLEST[1])


def too_small(size: tuple[float, float], what: str) -> PlotError:
    """What is said of a size on which the figure cannot be read."""
    given = " x ".join(f"{INCH * length:g}" for length in size)
    return PlotError(
        f"--size: must leave room for {what}, was {given} cm; make it larger, or draw less (--kind, --latent, --layer, "
        "--show)"
    )


def letter_panels(axes: NDArray[Any], titles: Sequence[str] = ()) -> None:
    """Title panels, an array (n,) of Axes, with a letter each if they are several."""
    lettered = 1 < len(axes) <= len(ascii_lowercase)
    for i, ax in enumerate(axes):
        words = [f"({ascii_lowercase[i]})"] if lettered else []
        ax.set_title(" ".join([*words, *titles[i : i + 1]]), loc="left")
