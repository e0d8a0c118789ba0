"""Style shared by all figures: colours, fonts, sizes, arrangement of panels, legend and panel letters."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from invgp.errors import PlotError
from invgp.posterior.attributes import convergence_warning

# Okabe and Ito (2008), without the yellow, which is hardly visible on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY = "0.35"
HATCH = "////"
COLUMN, PAGE = 3.5, 7.2  # inches: widths of one column and of a page with two columns
PAGE_HEIGHT = 9.2  # inches
INCH = 2.54  # cm
_NOTEBOOK_DPI = 110.0
CHARACTERS = 16.0  # per inch of 8 point text
_LEGEND_COLUMN = 1.4  # inches
_MARGINS, _LEGEND, _SMALLEST = (0.95, 0.45), 0.3, (0.75, 0.45)  # inches: labels of a panel, legend, smallest panel
STYLE: dict[Any, Any] = {
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8.0,
    "figure.constrained_layout.h_pad": 0.06,  # inches
    "figure.constrained_layout.w_pad": 0.06,
    "font.family": "sans-serif",
    "font.size": 8.0,
    "hatch.linewidth": 0.35,  # thin, so that the colours below stay visible
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # text stays text, as journals require
    "savefig.dpi": 300.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "invgp",  # the same posterior gives the same file
    "xtick.direction": "out",
    "xtick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 7.5,
    "ytick.major.width": 0.6,
}
# Line styles of modes; the last is that of all others. Dashed lines are priors.
MODE_STYLES: tuple[Any, ...] = ("-", (0, (7, 1.5, 1.5, 1.5)), (0, (1, 1)), (0, (3, 1.2, 1, 1.2, 1, 1.2)))


class NotebookFigure(Figure):
    """A figure that a notebook displays also if `matplotlib.pyplot` was never imported."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=_NOTEBOOK_DPI)
        return buffer.getvalue()


def choose_colours(count: int) -> Sequence[Any]:
    """Return distinct colours for `count` curves: the palette, or a gradient if there are more curves than colours."""
    return COLOURS[:count] if count <= len(COLOURS) else list(colormaps["viridis"](np.linspace(0.0, 0.9, count)))


def add_legend(target: Figure | Axes, handles: list[Any]) -> None:
    """Put a legend at the top of a figure, in one row if it fits, or above Axes that a user gave."""
    if isinstance(target, Axes):
        target.legend(
            handles=handles,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.02),
            ncols=min(len(handles), 3),
            frameon=False,
            fontsize="small",
            columnspacing=1.5,
            handlelength=1.6,
        )
        return
    figure = target
    rows = math.ceil(len(handles) / max(1, int(figure.get_figwidth() / _LEGEND_COLUMN)))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=math.ceil(len(handles) / rows),  # rows of equal length
        frameon=False,
        columnspacing=1.5,
        handlelength=1.6,
    )


def note_convergence(figure: Figure, ds: xr.Dataset) -> None:
    """Write below a figure without a common horizontal label that the posterior has not converged, if so."""
    words = textwrap.wrap(convergence_warning(ds), int(0.8 * CHARACTERS * figure.get_figwidth()))  # bold text is wide
    if words:
        figure.supxlabel("\n".join(words), fontsize=8.0, fontweight="bold")


class PanelLayout(NamedTuple):
    """Rows and columns of panels, and the size of their figure in inches."""

    rows: int
    columns: int
    size: tuple[float, float]

    @property
    def characters(self) -> int:
        """Number of characters of a label that is as long as a panel is high."""
        return max(12, int(CHARACTERS * (self.size[1] / self.rows - _MARGINS[1])))


def arrange_panels(count: int, size: tuple[float, float] | None, *, most: int = 2) -> PanelLayout:
    """Arrange panels on a page, or on a figure of a given size so that the panels are as large as possible.

    Parameters
    ----------
    count : int
        Number of panels.
    size : tuple of float, or None
        Width and height of the figure in inches; None for the width of a page or a column.
    most : int
        Maximum number of columns.

    Returns
    -------
    PanelLayout

    Raises
    ------
    PlotError
        The panels would be too small to be legible.
    """
    if size is None:
        columns = min(count, most)
        rows = math.ceil(count / columns)
        return PanelLayout(rows, columns, (COLUMN if columns == 1 else PAGE, 2.9 * rows + 0.3))
    layouts = [PanelLayout(math.ceil(count / columns), columns, size) for columns in range(1, min(count, most) + 1)]
    best = max(layouts, key=_relative_panel_size)
    if _relative_panel_size(best) < 1.0:
        raise size_error(size, f"{count} panels" if count > 1 else "a panel")
    return best


def make_panels(
    count: int, size: tuple[float, float] | None, ax: Axes | None, *, most: int = 2
) -> tuple[Figure, NDArray[Any], PanelLayout]:
    """Return a figure with panels that share their horizontal axis, or the Axes that a user gave.

    Parameters
    ----------
    count, size, most
        As in `arrange_panels`.
    ax : Axes or None
        Axes to draw into; None for a new figure.

    Returns
    -------
    figure : Figure
    axes : array of Axes, shape (count,)
    layout : PanelLayout

    Raises
    ------
    PlotError
        Axes are given for several panels, or the panels would be too small to be legible.
    """
    if ax is not None:
        check_single_panel(count)
        return root_figure(ax), np.asarray([ax], dtype=object), PanelLayout(1, 1, axes_size(ax))
    layout = arrange_panels(count, size, most=most)
    figure = NotebookFigure(layout.size, layout="constrained")
    axes, spare = np.split(figure.subplots(layout.rows, layout.columns, squeeze=False, sharex=True).ravel(), [count])
    for empty in spare:
        empty.remove()
    return figure, axes, layout


def mode_line_style(mode: int) -> Any:
    """Return the line style of a mode, by its number from 1; the last style is that of all other modes."""
    return MODE_STYLES[min(mode, len(MODE_STYLES)) - 1]


def check_single_panel(count: int) -> None:
    """Raise `PlotError` if the figure has several panels, which cannot be drawn into one Axes."""
    if count != 1:
        raise PlotError(
            f"ax: must be left out for a figure of {count} panels, or the panel must be selected with latents, labels "
            "and show"
        )


def root_figure(ax: Axes) -> Figure:
    """Return the figure of Axes, also if they are in a subfigure."""
    figure = ax.figure
    while not isinstance(figure, Figure):
        figure = figure.figure
    return figure


def axes_size(ax: Axes) -> tuple[float, float]:
    """Return the width and the height of Axes, with room for labels, in inches for labels of 8 points.

    Given Axes have the style of the user. With larger labels, they have room for as many characters as smaller Axes.
    """
    box = ax.get_window_extent().transformed(root_figure(ax).dpi_scale_trans.inverted())
    scale = STYLE["axes.labelsize"] / ax.yaxis.label.get_fontsize()
    return scale * (box.width + _MARGINS[0]), scale * (box.height + _MARGINS[1])


def figure_style(ax: Axes | None) -> AbstractContextManager[None]:
    """Return a context with the style of the figures; given Axes keep the style of the user."""
    return rc_context(STYLE) if ax is None else nullcontext()


def _relative_panel_size(layout: PanelLayout) -> float:
    """Return the size of a panel relative to the smallest legible one."""
    width = layout.size[0] / layout.columns - _MARGINS[0]
    height = (layout.size[1] - _LEGEND) / layout.rows - _MARGINS[1]
    return min(width / _SMALLEST[0], height / _SMALLEST[1])


def size_error(size: tuple[float, float], content: str) -> PlotError:
    """Return the error for a figure size that is too small for its content."""
    given = " x ".join(f"{INCH * length:g}" for length in size)
    return PlotError(
        f"size: must leave room for {content}, was {given} cm; make it larger, or draw less (`kinds`, `latents`, "
        "`layers`, `show`)"
    )


def letter_panels(axes: NDArray[Any], titles: Sequence[str] = ()) -> None:
    """Set the titles of panels, an array (n,) of Axes, with a letter for each if there are several."""
    lettered = 1 < len(axes) <= len(ascii_lowercase)
    for i, ax in enumerate(axes):
        words = [f"({ascii_lowercase[i]})"] if lettered else []
        ax.set_title(" ".join([*words, *titles[i : i + 1]]), loc="left")
