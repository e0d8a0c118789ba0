"""Sections: the latents along the one coordinate of a survey."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from invgp.maps.nodes import as_map
from invgp.plots.between import between_sites
from invgp.plots.grids import as_sites
from invgp.plots.lines import band_handles, draw_band, finish_panel, hatch_band
from invgp.plots.look import (
    HATCH,
    Look,
    hatch_words,
    poorly_informed,
    quantity_label,
    quantity_of,
    read_quantity,
    value_range,
)
from invgp.plots.positions import read_positions, read_survey_positions
from invgp.plots.reading import (
    Floats,
    choose,
    read_curves,
    read_interval,
    read_names,
    read_one_coordinate,
    read_survey,
    read_values,
)
from invgp.plots.style import GREY, STYLE, add_legend, arrange, letter_panels
from invgp.plots.ticks import power_of

_PRIOR: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (5, 3))}


def section(ds: xr.Dataset, look: Look | None = None) -> Figure:
    """Draw every latent along the one coordinate of the survey.

    One panel a latent: the posterior mean and its central 95% interval for each label along the latent's
    dimension, hatched where the data say little, and the prior mean dashed. Between the sites the posterior is told
    too, where the file can tell it in a moment; else lines lead from site to site. A latent with the attribute
    ``positive = "down"`` is drawn downwards. The interval lies between the 0.025 and 0.975 quantiles, or within 1.96
    standard deviations of the mean if the Dataset lacks them.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with one coordinate, or on a grid along one.
    look : Look
        Quantities to show, the mean alone by default; limits; from where to hatch.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or its sites have more than one coordinate.
    """
    look = look or Look()
    coordinate = read_one_coordinate(as_map(ds))
    ds = choose(as_map(between_sites(ds)), look.latents, look.labels)
    survey, ds = read_survey(ds, coordinate), as_sites(ds)
    ((x, x_label),) = read_positions(ds, coordinate)
    sites = read_survey_positions(ds, survey, coordinate)[0] if survey is not None else None
    mark = sites is not None or "invgp_map" not in ds.attrs
    panels = [(name, quantity) for name in read_names(ds, "latents") for quantity in look.show or ("mean",)]
    sheet = arrange(len(panels), look.size)
    with rc_context(STYLE):
        figure = Figure(sheet.size, layout="constrained")
        axes = figure.subplots(sheet.rows, sheet.columns, squeeze=False, sharex=True).ravel()
        axes, spare = axes[: len(panels)], axes[len(panels) :]
        hatched = False
        how: dict[str, Any] = {"mark": mark, "sites": sites, "width": sheet.characters}
        for ax, (name, quantity) in zip(axes, panels, strict=True):
            if quantity == "mean":
                hatched |= _draw_latent(ax, ds, name, x, look, how)
            else:
                _draw_quantity(ax, ds, name, quantity, x, look, how)
        for ax in spare:
            ax.remove()
        for ax in axes[-sheet.columns :]:
            ax.set_xlabel(x_label)
            ax.tick_params(labelbottom=True)
        titles = [f"{name.replace('_', ' ')}: {quantity_of(quantity).words}" for name, quantity in panels]
        letter_panels(axes, titles if look.show else ())
        add_legend(figure, _handles(ds, [quantity for _, quantity in panels], look, hatched=hatched, mark=mark))
    return figure


def _draw_latent(ax: Axes, ds: xr.Dataset, name: str, x: Floats, look: Look, how: dict[str, Any]) -> bool:
    """Draw means and intervals, finished in a certain way; tell whether any of it is hatched."""
    order = np.argsort(x, kind="stable")
    curves = read_curves(ds, name)
    means = [read_values(ds, name, curve) for curve in curves]
    hatched = False
    for curve, mean in zip(curves, means, strict=True):
        edges = read_interval(ds, name, curve)
        draw_band(ax, x, mean, edges, curve.colour)
        lacking = poorly_informed(ds, name, curve, look)
        hatched |= lacking is not None and hatch_band(ax, x, edges, lacking > 0.0, curve.colour)
        if f"{name}_prior" in ds:
            prior = read_values(ds, f"{name}_prior", curve)
            ax.plot(x[order], prior[order], color=curve.colour, marker="_" if x.size == 1 else "", **_PRIOR)
    ends = [float(mean[order[-1]]) for mean in means]
    finish_panel(ax, x, ds[name], curves, ends=ends, limits=look.limits_of(name, "mean"), **how)
    return hatched


def _draw_quantity(
    ax: Axes, ds: xr.Dataset, name: str, quantity: str, x: Floats, look: Look, how: dict[str, Any]
) -> None:
    """Draw a line for each label of the latent."""
    order = np.argsort(x, kind="stable")
    curves = read_curves(ds, name)
    values = [read_quantity(ds, name, quantity, curve) for curve in curves]
    for curve, line in zip(curves, values, strict=True):
        ax.plot(x[order], line[order], color=curve.colour, marker="o" if x.size == 1 else "", markersize=3.0)
    limits = look.limits_of(name, quantity)
    if quantity == "difference":
        ax.axhline(0.0, color=GREY, linewidth=0.6, zorder=0.5)
    elif limits is None:  # both begin at nothing
        limits = (
            0.0,
            1.0 if quantity == "information" else 1.05 * max(value_range(v, quantity)[1] for v in values),
        )
    plain = ds[name].drop_attrs()  # a spread is not drawn downwards
    finish_panel(ax, x, plain, curves, ends=[float(v[order[-1]]) for v in values], limits=limits, **how)
    ax.set_ylabel(quantity_label(ds, name, quantity, how["width"], power_of(ax.get_ylim())))


def _handles(ds: xr.Dataset, shown: list[str], look: Look, *, hatched: bool, mark: bool) -> list[Any]:
    handles: list[Any] = []
    if "mean" in shown:
        handles += band_handles("posterior mean")
        if any(f"{name}_prior" in ds for name in read_names(ds, "latents")):
            handles.append(Line2D([], [], color=GREY, label="prior mean", **_PRIOR))
    if hatched:
        handles.append(Patch(facecolor="none", edgecolor=GREY, hatch=HATCH, linewidth=0.0, label=hatch_words(look)))
    if mark:
        style: dict[str, Any] = {"marker": 2, "markersize": 4, "markeredgewidth": 0.5, "linestyle": ""}
        handles.append(Line2D([], [], color="black", label="site", **style))
    return handles
