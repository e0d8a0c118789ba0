"""The figure of a calibration: coverage of intervals of every probability, and histograms of ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from invgp.coverage import INTERVALS, bin_count, count_band, interval_coverage, rank_counts
from invgp.errors import PlotError
from invgp.plots.reading import Curve, read_curves
from invgp.plots.style import COLOURS, GREY, PAGE, STYLE, add_legend, letter_panels

_COLUMNS = 4  # of histograms; a panel of coverage is two wide
_BAND = "0.88"
_INSIDE, _OUTSIDE = COLOURS[0], COLOURS[1]
_NEEDED = ("_pit", "_rank", "_coverage")
_PROBABILITIES = np.linspace(0.01, 0.99, 50)


def calibration(ds: xr.Dataset) -> Figure:
    """Draw how often central intervals hold the truth, and how the truths rank among posterior draws.

    One panel a latent: the share of truths inside intervals of every probability, a curve for each label, over the
    band that chance explains (the widest of the labels'). Below, a histogram for each label of the ranks at one site
    a survey, over the binomial band of a uniform one; bins outside of it have another colour.

    Parameters
    ----------
    ds : Dataset
        A calibration, as `invgp calibrate` writes it.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a calibration of invgp.
    """
    latents = _read_latents(ds)
    processes = [(name, curve) for name in latents for curve in read_curves(ds, f"{name}_error_ratio")]
    with rc_context(STYLE):
        figure, above, below = _panels(len(latents), len(processes))
        for ax, name in zip(above, latents, strict=True):
            _draw_coverage(ax, ds, name)
        for ax, (name, curve) in zip(below, processes, strict=True):
            _draw_ranks(ax, ds, name, curve)
        _share_height(below)
        titles = [*latents, *(process_name(name, curve) for name, curve in processes)]
        letter_panels(np.asarray([*above, *below]), titles)
        add_legend(figure, _handles())
    return figure


def process_name(latent: str, curve: Curve) -> str:
    """Name of one process of a latent: ``depth, layer 2``."""
    return f"{latent}, {curve.label}" if curve.label else latent


def _read_latents(ds: xr.Dataset) -> list[str]:
    latents = str(ds.attrs.get("invgp_latents", "")).split()
    if not latents or any(f"{name}{suffix}" not in ds for name in latents for suffix in _NEEDED):
        raise PlotError("The dataset is not an invgp calibration. Open a file that `invgp calibrate` wrote.")
    return latents


def _panels(latents: int, processes: int) -> tuple[Figure, list[Axes], list[Axes]]:
    """A figure, panels for the coverage of each latent, and panels for the ranks of each process."""
    if processes == 1:
        figure = Figure((PAGE, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        return figure, [left], [right]
    wide = _COLUMNS // 2
    per_row = wide if processes <= wide else _COLUMNS
    rows_above, rows_below = math.ceil(latents / wide), math.ceil(processes / per_row)
    heights = [2.6] * rows_above + [1.6] * rows_below
    figure = Figure((PAGE, sum(heights) + 0.4), layout="constrained")
    grid = figure.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
    above = [figure.add_subplot(grid[i // wide, wide * (i % wide) : wide * (i % wide + 1)]) for i in range(latents)]
    span = _COLUMNS // per_row
    below = []
    for i in range(processes):
        row, column = rows_above + i // per_row, span * (i % per_row)
        below.append(figure.add_subplot(grid[row, column : column + span]))
    return figure, above, below


def _draw_coverage(ax: Axes, ds: xr.Dataset, name: str) -> None:
    """Curves of coverage over the band of chance, in per cent."""
    curves = read_curves(ds, f"{name}_error_ratio")
    pit = np.asarray(ds[f"{name}_pit"].transpose("survey", "site", ...).values, dtype=np.float64)
    pit = pit.reshape(*pit.shape[:2], -1)
    found = [interval_coverage(pit, float(p), int(ds.attrs["invgp_bands"])) for p in _PROBABILITIES]
    lower, upper = np.asarray([(one.lower.min(), one.upper.max()) for one in found]).T
    percent = 100.0 * _PROBABILITIES
    ax.fill_between(percent, 100.0 * lower, 100.0 * upper, color=_BAND, linewidth=0.0, zorder=0)
    ax.plot([0.0, 100.0], [0.0, 100.0], color=GREY, linewidth=0.7, zorder=1)
    shares = np.asarray([one.share for one in found])
    marked = np.asarray([interval_coverage(pit, p).share for p in INTERVALS])
    for curve in curves:
        ax.plot(percent, 100.0 * shares[:, curve.column], color=curve.colour, label=curve.label)
        ax.plot(100.0 * np.asarray(INTERVALS), 100.0 * marked[:, curve.column], "o", color=curve.colour, markersize=3.0)
    ax.set(xlim=(0.0, 100.0), ylim=(0.0, 100.0), xticks=range(0, 101, 20), yticks=range(0, 101, 20))
    ax.set(xlabel="Probability of the interval (%)", ylabel="Truths inside (%)")
    ax.spines[["top", "right"]].set_visible(False)
    if curves[0].label:
        ax.legend(frameon=False, loc="upper left", ncols=math.ceil(len(curves) / 7))


def _draw_ranks(ax: Axes, ds: xr.Dataset, name: str, curve: Curve) -> None:
    """Histogram of the ranks at the site that was picked of each survey, over the band of uniform ones."""
    ranks = picked_ranks(ds, name)[:, curve.column]
    bins = bin_count(ranks.size)
    counts = rank_counts(ranks, bins)
    lower, upper = count_band(ranks.size, bins)
    edges = np.linspace(0.0, 100.0, bins + 1)
    ax.axhspan(lower, upper, color=_BAND, linewidth=0.0, zorder=0)
    ax.axhline(ranks.size / bins, color=GREY, linewidth=0.7, zorder=1)
    outside = (counts < lower) | (counts > upper)
    colours = np.where(outside, _OUTSIDE, _INSIDE).tolist()
    bars: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.4, "alpha": 0.8, "zorder": 0.5}
    ax.bar(edges[:-1], counts, 100.0 / bins, color=colours, **bars)
    ax.set(xlim=(0.0, 100.0), xticks=(0, 50, 100))
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("Rank of the truth (%)")
    ax.set_ylabel("Surveys")


def picked_ranks(ds: xr.Dataset, latent: str) -> Any:
    """Ranks (K, L) of a latent at the one site that was picked of each survey."""
    sites = ds["rank_site"].values - 1
    ranks = ds[f"{latent}_rank"].transpose("survey", "site", ...).values
    return ranks[np.arange(len(sites)), sites].reshape(len(sites), -1)


def _share_height(panels: list[Axes]) -> None:
    top = max(ax.get_ylim()[1] for ax in panels)
    for ax in panels:
        ax.set_ylim(0.0, top)
        first = ax.get_subplotspec()
        ax.yaxis.label.set_visible(first is None or first.is_first_col() or len(panels) == 1)


def _handles() -> list[Any]:
    return [
        Line2D([], [], color=GREY, linewidth=0.7, label="calibrated"),
        Patch(color=_BAND, linewidth=0.0, label="by chance"),
        Patch(color=_INSIDE, alpha=0.8, linewidth=0.0, label="ranks"),
        Patch(color=_OUTSIDE, alpha=0.8, linewidth=0.0, label="ranks beyond chance"),
    ]
