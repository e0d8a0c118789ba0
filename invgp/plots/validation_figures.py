"""Figures of validation: calibration on simulated surveys, comparison with reference chains, evidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from invgp.errors import PlotError
from invgp.formatting import shorten
from invgp.plots.axis_labels import axis_label, quantity_name, read_positions, site_title
from invgp.plots.plot_data import (
    Curve,
    Floats,
    increases_downwards,
    point_dimension,
    read_curves,
    read_interval,
    read_names,
    read_values,
    with_nodes_as_sites,
)
from invgp.plots.sections import LinePanels, finish_panel
from invgp.plots.style import COLOURS, COLUMN, GREY, PAGE, STYLE, NotebookFigure, add_legend, letter_panels
from invgp.validation.coverage import INTERVALS, bin_count, count_band, interval_coverage, rank_counts

_COLUMNS = 4  # of histograms; a panel of coverage is two columns wide
_CHANCE = "0.88"
_INSIDE, _OUTSIDE = COLOURS[0], COLOURS[1]
_CALIBRATION_SUFFIXES = ("_pit", "_rank", "_coverage")
_PROBABILITIES = np.linspace(0.01, 0.99, 50)
_POINT = 2.2
_FILL = 0.22
_LINE = 0.8  # points
_BAR = 9.0  # points
_WIDE = 6  # labels in a panel, from which it is as wide as a page
_DASHES = (0, (4, 2))


def plot_calibration(calibration: xr.Dataset) -> Figure:
    """Draw the coverage of central intervals, and the ranks of the truths among posterior draws.

    One panel per latent shows the percentage of truths inside the central interval of each probability, with one curve
    per label, and the band of chance variations (the widest of the labels). Below, one histogram per label shows the
    ranks at one site per survey, and the binomial band of uniform ranks. Bins outside the band have another colour.

    Parameters
    ----------
    calibration : Dataset
        A calibration, as `invgp calibrate` writes it.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset is not an invgp calibration.
    """
    ds = calibration
    latents = _read_calibrated_latents(ds)
    processes = [(name, curve) for name in latents for curve in read_curves(ds, f"{name}_error_ratio")]
    with rc_context(STYLE):
        figure, above, below = _calibration_panels(len(latents), len(processes))
        for ax, name in zip(above, latents, strict=True):
            _draw_coverage(ax, ds, name)
        for ax, (name, curve) in zip(below, processes, strict=True):
            _draw_ranks(ax, ds, name, curve)
        _share_limits(below)
        titles = [*latents, *(process_name(name, curve) for name, curve in processes)]
        letter_panels(np.asarray([*above, *below]), titles)
        add_legend(figure, _calibration_handles())
    return figure


def process_name(latent: str, curve: Curve) -> str:
    """Return the name of one process of a latent: ``depth, layer 2``."""
    return f"{latent}, {curve.label}" if curve.label else latent


def _read_calibrated_latents(ds: xr.Dataset) -> list[str]:
    latents = str(ds.attrs.get("invgp_latents", "")).split()
    if not latents or any(f"{name}{suffix}" not in ds for name in latents for suffix in _CALIBRATION_SUFFIXES):
        raise PlotError("The dataset is not an invgp calibration. Open a file that `invgp calibrate` wrote.")
    return latents


def _calibration_panels(latents: int, processes: int) -> tuple[Figure, list[Axes], list[Axes]]:
    """Return a figure, the panels for the coverage of each latent, and the panels for the ranks of each process."""
    if processes == 1:
        figure = NotebookFigure((PAGE, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        return figure, [left], [right]
    wide = _COLUMNS // 2
    per_row = wide if processes <= wide else _COLUMNS
    rows_above, rows_below = math.ceil(latents / wide), math.ceil(processes / per_row)
    heights = [2.6] * rows_above + [1.6] * rows_below
    figure = NotebookFigure((PAGE, sum(heights) + 0.4), layout="constrained")
    grid = figure.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
    above = [figure.add_subplot(grid[i // wide, wide * (i % wide) : wide * (i % wide + 1)]) for i in range(latents)]
    span = _COLUMNS // per_row
    below = []
    for i in range(processes):
        row, column = rows_above + i // per_row, span * (i % per_row)
        below.append(figure.add_subplot(grid[row, column : column + span]))
    return figure, above, below


def _draw_coverage(ax: Axes, ds: xr.Dataset, name: str) -> None:
    """Draw curves of coverage over the band of chance variations, in per cent."""
    curves = read_curves(ds, f"{name}_error_ratio")
    pit = np.asarray(ds[f"{name}_pit"].transpose("survey", point_dimension(ds), ...).values, dtype=np.float64)
    pit = pit.reshape(*pit.shape[:2], -1)
    found = [interval_coverage(pit, float(p), int(ds.attrs["invgp_bands"])) for p in _PROBABILITIES]
    lower, upper = np.asarray([(one.lower.min(), one.upper.max()) for one in found]).T
    percent = 100.0 * _PROBABILITIES
    ax.fill_between(percent, 100.0 * lower, 100.0 * upper, color=_CHANCE, linewidth=0.0, zorder=0)
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
    """Draw a histogram of the ranks at the selected site of each survey over the band of uniform ranks."""
    ranks = selected_ranks(ds, name)[:, curve.column]
    bins = bin_count(ranks.size)
    counts = rank_counts(ranks, bins)
    lower, upper = count_band(ranks.size, bins)
    edges = np.linspace(0.0, 100.0, bins + 1)
    ax.axhspan(lower, upper, color=_CHANCE, linewidth=0.0, zorder=0)
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


def selected_ranks(ds: xr.Dataset, latent: str) -> Any:
    """Return the ranks (K, L) of a latent at the selected site or node of each of K surveys."""
    point = point_dimension(ds)
    selected = ds[f"rank_{point}"].values - 1
    if point not in ds[f"{latent}_rank"].dims:  # a scalar
        return ds[f"{latent}_rank"].transpose("survey", ...).values.reshape(len(selected), -1)
    ranks = ds[f"{latent}_rank"].transpose("survey", point, ...).values
    return ranks[np.arange(len(selected)), selected].reshape(len(selected), -1)


def _share_limits(panels: list[Axes]) -> None:
    top = max(ax.get_ylim()[1] for ax in panels)
    for ax in panels:
        ax.set_ylim(0.0, top)
        first = ax.get_subplotspec()
        ax.yaxis.label.set_visible(first is None or first.is_first_col() or len(panels) == 1)


def _calibration_handles() -> list[Any]:
    return [
        Line2D([], [], color=GREY, linewidth=0.7, label="calibrated"),
        Patch(color=_CHANCE, linewidth=0.0, label="chance variation"),
        Patch(color=_INSIDE, alpha=0.8, linewidth=0.0, label="ranks"),
        Patch(color=_OUTSIDE, alpha=0.8, linewidth=0.0, label="ranks outside chance variation"),
    ]


def plot_comparison(posterior: xr.Dataset, reference: xr.Dataset) -> Figure:
    """Draw a posterior and its reference chains.

    Along a line of sites or nodes, one panel per latent shows the mean and the 95% interval of the reference (filled)
    and of the posterior (lines). At a single site, the intervals of each label are side by side. Panels below show the
    error of the mean and the ratio of the standard deviations. With two or more coordinates, one row per latent shows
    posterior against reference means and standard deviations.

    Parameters
    ----------
    posterior : Dataset
        A posterior.
    reference : Dataset
        Its comparison, as `invgp compare` writes it.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The reference does not belong to this posterior.
    """
    latents = read_names(posterior, "fields") or read_names(posterior, "scalars")
    missing = [name for name in latents if f"{name}_reference" not in reference]
    if missing:
        raise PlotError(f"The dataset is not an invgp comparison of this posterior: it lacks {missing[0]}_reference.")
    point = point_dimension(posterior)
    posterior, reference = with_nodes_as_sites(posterior), with_nodes_as_sites(reference)
    on_line = len(read_names(posterior, "coordinates")) == 1
    with rc_context(STYLE):
        if posterior.sizes["site"] == 1 or not read_names(posterior, "fields"):
            return _compare_at_one_site(posterior, reference, latents)
        if on_line:
            return _compare_along_line(posterior, reference, latents)
        return _compare_in_cross_plots(posterior, reference, latents, point)


def _compare_along_line(posterior: xr.Dataset, reference: xr.Dataset, latents: list[str]) -> Figure:
    """Draw one column per latent: the fields, errors of the mean, and ratios of standard deviations."""
    ((x, x_label),) = read_positions(posterior, read_names(posterior, "coordinates"))
    columns = min(len(latents), 2)
    blocks = math.ceil(len(latents) / columns)
    figure = NotebookFigure((PAGE, 4.9 * blocks + 0.3), layout="constrained")
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
    add_legend(figure, _comparison_handles())
    return figure


def _draw_fields(ax: Axes, posterior: xr.Dataset, reference: xr.Dataset, name: str, x: Floats) -> None:
    order = np.argsort(x, kind="stable")
    curves = read_curves(posterior, name)
    ends = []
    for curve in curves:
        lower, upper = (edge[order] for edge in read_interval(reference, f"{name}_reference", curve))
        mean = read_values(reference, f"{name}_reference", curve)[order]
        ax.fill_between(x[order], lower, upper, facecolor=to_rgba(curve.colour, _FILL), linewidth=0.0)
        ax.plot(x[order], mean, color=to_rgba(curve.colour, 0.6), linewidth=2.2)
        for edge in read_interval(posterior, name, curve):
            ax.plot(x[order], edge[order], color=curve.colour, linewidth=_LINE, linestyle=_DASHES)
        ax.plot(x[order], read_values(posterior, name, curve)[order], color="black", linewidth=0.7)
        ends.append(float(mean[-1]))
    finish_panel(ax, LinePanels(x, "", x), posterior[name], curves, ends)


def _draw_errors(middle: Axes, below: Axes, reference: xr.Dataset, name: str, x: Floats) -> None:
    """Draw errors of the mean and ratios of standard deviations, ± 2 Monte Carlo errors of the reference."""
    order = np.argsort(x, kind="stable")
    for curve in read_curves(reference, f"{name}_error"):
        for ax, values, around in zip((middle, below), *_relative_errors(reference, name, curve), strict=True):
            lower, upper = (values - around)[order], (values + around)[order]
            ax.fill_between(x[order], lower, upper, facecolor=to_rgba(curve.colour, _FILL), linewidth=0.0)
            ax.plot(x[order], values[order], color=curve.colour, linewidth=_LINE)
    _frame_errors(middle, below)


def _compare_in_cross_plots(posterior: xr.Dataset, reference: xr.Dataset, latents: list[str], point: str) -> Figure:
    """Draw one row per latent: means against means, standard deviations against standard deviations."""
    figure = NotebookFigure((PAGE, 3.0 * len(latents) + 0.2), layout="constrained")
    axes = figure.subplots(len(latents), 2, squeeze=False)
    for (left, right), name in zip(axes, latents, strict=True):
        curves = read_curves(posterior, name)
        for curve in curves:
            _draw_cross_plot(left, posterior, reference, (name, f"{name}_reference", "_mcse"), curve)
            _draw_cross_plot(right, posterior, reference, (f"{name}_std", f"{name}_reference_std", "_mcse"), curve)
        for ax, what in ((left, "mean"), (right, "standard deviation")):
            _frame_cross_plot(ax)
            quantity = f"{what} of {quantity_name(posterior[name])}"
            ax.set_xlabel(axis_label(posterior[name], f"reference {quantity}"))
            ax.set_ylabel(axis_label(posterior[name], f"posterior {quantity}"))
        if curves[0].label:
            left.legend(frameon=False, loc="upper left", handletextpad=0.1)
    letter_panels(axes.ravel())
    bar = axes[0, 0].errorbar([], [], xerr=[], fmt="o", color=GREY, markersize=_POINT, elinewidth=0.4)
    bar.set_label(f"{point} ± 2 Monte Carlo errors of the reference")
    add_legend(figure, [bar, Line2D([], [], color=GREY, linewidth=0.7, label="posterior = reference")])
    return figure


def _draw_cross_plot(
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


def _frame_cross_plot(ax: Axes) -> None:
    both = (*ax.get_xlim(), *ax.get_ylim())
    ends = (min(both), max(both))
    ax.set(xlim=ends, ylim=ends)  # so that the diagonal goes from corner to corner
    ax.plot(ends, ends, color=GREY, linewidth=0.7, zorder=0.5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    ax.spines[["top", "right"]].set_visible(False)


def _compare_at_one_site(posterior: xr.Dataset, reference: xr.Dataset, latents: list[str]) -> Figure:
    """Draw one column per latent: the intervals of each label, the error of the mean, and the ratio of std."""
    most = max(len(read_curves(posterior, name)) for name in latents)
    columns = 1 if most > _WIDE else min(len(latents), 2)
    blocks = -(-len(latents) // columns)
    figure = NotebookFigure(
        (COLUMN if columns == 1 and most <= _WIDE else PAGE, 4.9 * blocks + 0.5), layout="constrained"
    )
    grid = figure.subplots(3 * blocks, columns, squeeze=False, sharex="col", height_ratios=(3, 1, 1) * blocks)
    for i in range(blocks * columns):
        panels = grid[3 * (i // columns) : 3 * (i // columns) + 3, i % columns]
        if i < len(latents):
            _draw_intervals(panels, posterior, reference, latents[i])
        else:
            for ax in panels:
                ax.remove()
    letter_panels(np.asarray([grid[3 * (i // columns), i % columns] for i in range(len(latents))]))
    figure.align_ylabels()
    figure.supxlabel(site_title(posterior, 0), fontsize=STYLE["axes.labelsize"])
    add_legend(figure, _comparison_handles())
    return figure


def _draw_intervals(panels: np.ndarray, posterior: xr.Dataset, reference: xr.Dataset, name: str) -> None:
    above, middle, below = panels
    curves = read_curves(posterior, name)
    for i, curve in enumerate(curves):
        x = np.asarray([float(i)])
        other = f"{name}_reference"
        above.vlines(x, *read_interval(reference, other, curve), color=to_rgba(curve.colour, _FILL), linewidth=_BAR)
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
        above.vlines(x, lower, upper, color=curve.colour, linewidth=_LINE, linestyle=[_DASHES])
        for edge in (lower, upper):
            above.plot(x, edge, "_", color=curve.colour, markersize=_BAR, markeredgewidth=_LINE)
        above.plot(
            x, read_values(posterior, name, curve), "_", color="black", markersize=1.4 * _BAR, markeredgewidth=0.8
        )
        for ax, value, uncertainty in zip((middle, below), *_relative_errors(reference, name, curve), strict=True):
            ax.errorbar(
                x, value, uncertainty, fmt="o", color=curve.colour, markersize=2.5, elinewidth=_LINE, capsize=2.0
            )
    above.set_ylabel(axis_label(posterior[name]))
    above.spines[["top", "right"]].set_visible(False)
    if increases_downwards(posterior[name]):
        above.invert_yaxis()
    _frame_errors(middle, below)
    below.set_xlim(-0.6, len(curves) - 0.4)
    below.set_xticks(range(len(curves)), labels=[curve.label for curve in curves])
    below.tick_params(axis="x", length=0.0, rotation=0 if len(curves) <= _WIDE else 90)


def _relative_errors(
    reference: xr.Dataset, name: str, curve: Curve
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return the error of the mean and the ratio of standard deviations, and twice their Monte Carlo errors."""
    std = read_values(reference, f"{name}_reference_std", curve)
    error, ratio = (read_values(reference, f"{name}_{what}", curve) for what in ("error", "ratio"))
    uncertainty = 2.0 * read_values(reference, f"{name}_reference_mcse", curve) / std
    ratio_uncertainty = 2.0 * ratio * read_values(reference, f"{name}_reference_std_mcse", curve) / std
    return (error, ratio), (uncertainty, ratio_uncertainty)


def _frame_errors(middle: Axes, below: Axes) -> None:
    """Set limits, ticks and labels of the errors of the mean and the ratios of standard deviations."""
    for ax, exact, least, label in (
        (middle, 0.0, 0.5, "Error of mean /\nreference std"),
        (below, 1.0, 0.25, "Std /\nreference std"),
    ):
        ax.axhline(exact, color=GREY, linewidth=0.6, zorder=0.5)
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, exact - least), max(high, exact + least))
        ax.set_ylabel(label)
        ax.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.spines[["top", "right"]].set_visible(False)


def _comparison_handles() -> list[Artist]:
    """Return the handles of the legend."""
    return [
        Line2D([], [], color="black", linewidth=0.7, label="posterior mean"),
        Line2D([], [], color=GREY, linewidth=_LINE, linestyle=_DASHES, label="posterior 95% interval"),
        Line2D([], [], color=to_rgba(GREY, 0.6), linewidth=2.2, label="reference mean"),
        Patch(facecolor=to_rgba(GREY, _FILL), label="reference 95% interval"),
    ]


LONGEST_NAME = 20  # characters of a model in the figure of the evidence
GRADES = {1.0: "mention", 3.0: "positive", 5.0: "strong"}  # Kass and Raftery (1995), in nats


def plot_evidence(weighed: xr.Dataset) -> Figure:
    """Draw the log Bayes factor of each model relative to the best one, with its standard error.

    Parameters
    ----------
    weighed : Dataset
        From `invgp.weigh`.

    Returns
    -------
    Figure
    """
    factors = weighed["log_bayes_factor"].values
    order = np.argsort(factors)
    names = [shorten(str(name), LONGEST_NAME) for name in weighed["model_label"].values[order]]
    with rc_context(STYLE):
        figure = Figure((COLUMN, 1.15 + 0.3 * len(names)), layout="constrained")
        ax = figure.subplots()
        for limit in GRADES:
            ax.axvline(-limit, color=GREY, linewidth=0.5, linestyle=(0, (1, 2)))
        error = weighed["log_bayes_factor_error"].values[order]
        ax.errorbar(factors[order], range(len(names)), xerr=error, fmt="o", color=COLOURS[0], markersize=4, capsize=2)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(-0.6, len(names) - 0.4)
        ax.set_xlim(min(float(np.nanmin(factors - weighed["log_bayes_factor_error"].values)), -5.0) * 1.08, 0.5)
        ax.set_xlabel("Log Bayes factor relative\nto the best model (nats)")
        ax.set_title("dotted: positive, strong and\nvery strong evidence begin", loc="left", fontsize=6.5, color=GREY)
    return figure
