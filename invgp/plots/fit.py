"""Figure of the data fit: observations, predictions and residuals."""

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

from invgp.plots.axis_labels import (
    axis_label,
    quantity_name,
    read_positions,
    set_log_ticks,
    set_value_ticks,
    tick_power,
)
from invgp.plots.figure_options import FigureOptions
from invgp.plots.plot_data import (
    TWO_SIGMA,
    Curve,
    Floats,
    increases_downwards,
    label_dimension,
    read_curves,
    read_interval,
    read_names,
    read_site_coordinates,
    read_values,
)
from invgp.plots.sections import LinePanels, band_handles, draw_band, finish_panel
from invgp.plots.style import (
    CHARACTERS,
    COLUMN,
    GREY,
    PAGE,
    STYLE,
    NotebookFigure,
    add_legend,
    letter_panels,
    note_convergence,
    size_error,
)
from invgp.posterior.contents import sites_of_observation
from invgp.units import conversion

_NARROWEST, _LOWEST = 1.5, 2.0  # inches, of a legible panel
_DECADES = 30.0  # ratio of the highest to the lowest positive observation from which the axis is logarithmic
_POINT: dict[str, Any] = {"markersize": 1.8, "markeredgewidth": 0.0}
_PREDICTED: dict[str, Any] = {"fmt": "s", "elinewidth": 2.4, "alpha": 0.35, "markersize": 3.2, "markeredgewidth": 0.0}
_BAR_LABEL = "predicted mean, 95% interval"
_ERROR_BAR: dict[str, Any] = {"fmt": "o", "elinewidth": 0.4, **_POINT}


def plot_fit(posterior: xr.Dataset, *, size: tuple[float, float] | None = None) -> Figure:
    """Draw observations and predictions, and the residuals in standard deviations of the noise.

    Along a line, the upper panel shows the observations over the predicted mean and its 95% interval. For sites with
    two or more coordinates, it shows observed against predicted values. Missing observations are not drawn. Two-way
    times increase downwards. Positive observations over more than a factor of thirty have a logarithmic axis. Direct
    data of field models, as of boreholes, have panels of their own, with bars for the predicted 95% intervals.

    Parameters
    ----------
    posterior : Dataset
        A posterior.
    size : tuple of float
        Width and height in inches.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior, or the size is too small.

    Examples
    --------
    >>> figure = invgp.plots.plot_fit(posterior)
    """
    return fit_figure(posterior, FigureOptions(size=size))


def fit_figure(ds: xr.Dataset, options: FigureOptions) -> Figure:
    """Draw observations, predictions and residuals; see `plot_fit`."""
    on_line = len(read_site_coordinates(ds)) == 1
    observations, direct = read_names(ds, "observations"), read_direct_data(ds)
    count = len(observations) + len(direct)
    with rc_context(STYLE):
        width = COLUMN + 0.5 if count == 1 else PAGE / 2 * count
        size = options.size or (width, 4.2)
        if size[0] / count < _NARROWEST or size[1] < _LOWEST:
            raise size_error(size, f"{count} fits" if count > 1 else "the fit")
        figure = NotebookFigure(size, layout="constrained")
        axes = figure.subplots(2, count, squeeze=False, sharex="col", height_ratios=(3, 1))
        draw = _draw_along_line if on_line else _draw_cross_plot
        for k, (upper, lower) in enumerate(axes.T):
            if k < len(observations):
                name = observations[k]
                draw(upper, lower, ds.isel(site=sites_of_observation(ds, name)), name)
            else:
                _draw_direct(upper, lower, ds, *direct[k - len(observations)])
            _frame_residuals(lower)
            lower.set_xlabel(_wrap_label(lower.get_xlabel(), size[0] / count - 0.7))
            upper.set_ylabel(_wrap_label(upper.get_ylabel(), 0.55 * size[1]))
        letter_panels(axes[0])
        figure.align_ylabels()
        sample = axes[0, 0].errorbar([], [], yerr=[], color=GREY, label="observed ± noise std", **_ERROR_BAR)
        diagonal = Line2D([], [], color=GREY, linewidth=0.7, label="observed = predicted")
        handles = [sample, *(band_handles("predicted mean") if on_line else [diagonal])]
        if direct:
            handles.append(axes[0, 0].errorbar([], [], yerr=[], color=GREY, label=_BAR_LABEL, **_PREDICTED))
        add_legend(figure, handles)
        note_convergence(figure, ds)
    return figure


def read_direct_data(ds: xr.Dataset) -> list[tuple[str, str]]:
    """Return source and name of each direct datum of a field model; those of site models are observations at sites."""
    found = []
    for source in str(ds.attrs.get("invgp_direct_sources", "")).split():
        for variable in ds.data_vars:
            name = str(variable).removesuffix("_observed")
            if f"{source}_place" in ds[variable].dims and name != variable:
                found.append((source, name))
    return found


def _draw_direct(upper: Axes, lower: Axes, ds: xr.Dataset, source: str, name: str) -> None:
    """Draw direct data of a source of a field model over their places, and the predictions beside them."""
    own = ds.drop_dims("site").rename({f"{source}_place": "site"})
    positions = [str(v) for v in own.data_vars if str(v).startswith(f"{source}_") and own[v].dims == ("site",)]
    positions = [v for v in positions if not v.endswith(("_observed", "_std", "_predicted", "_residual"))]
    x, label = np.arange(1.0, own.sizes["site"] + 1.0), f"Place in {source}"
    if len(positions) == 1:
        ((x, label),) = read_positions(own, positions)
    for curve in read_curves(own, f"{name}_observed"):
        mean, spread = (read_values(own, f"{name}_{of}", curve) for of in ("predicted", "predicted_std"))
        upper.errorbar(x, mean, TWO_SIGMA * spread, color=curve.colour, **_PREDICTED)
        _draw_data(upper, lower, own, name, curve, x)
    upper.margins(x=0.3 if own.sizes["site"] == 1 else 0.05)
    power = tick_power(upper.get_ylim())
    set_value_ticks(upper.yaxis, power, most=5)
    upper.set_ylabel(axis_label(own[f"{name}_observed"], quantity_name(own[f"{name}_observed"]), power=power))
    upper.spines[["top", "right"]].set_visible(False)
    if own.sizes["site"] == 1:
        lower.set_xticks(x)
    else:
        lower.xaxis.set_major_locator(MaxNLocator(4, integer=len(positions) != 1))
    lower.set_xlabel(label)


def _wrap_label(label: str, inches: float) -> str:
    """Break a label into lines of this length; its unit is not broken."""
    text, bracket, unit = label.replace("\n", " ").partition("(")
    whole = text + (bracket + unit).replace(" ", "\xa0")
    lines = textwrap.wrap(whole, max(10, int(CHARACTERS * inches)), break_long_words=False)
    return "\n".join(lines).replace("\xa0", " ")


def _draw_along_line(upper: Axes, lower: Axes, ds: xr.Dataset, name: str) -> None:
    ((x, x_label),) = read_positions(ds, read_site_coordinates(ds))
    curves = read_curves(ds, f"{name}_observed")
    means = [read_values(ds, f"{name}_predicted", curve) for curve in curves]
    for curve, mean in zip(curves, means, strict=True):
        draw_band(upper, x, mean, read_interval(ds, f"{name}_predicted", curve), curve.colour)
        _draw_data(upper, lower, ds, name, curve, x)
    lower.set_xlabel(x_label)
    last = int(np.argmax(x))
    logarithmic = _use_log_axis(ds, name)
    finish_panel(
        upper,
        LinePanels(x, x_label, x),
        ds[f"{name}_observed"],
        curves,
        [float(mean[last]) for mean in means],
        limits=_observed_limits(ds, name) if logarithmic else None,
        margin=0.01,
        downwards=_is_two_way_time(ds, name),
        logarithmic=logarithmic,
    )


def _draw_cross_plot(upper: Axes, lower: Axes, ds: xr.Dataset, name: str) -> None:
    observations = ds[f"{name}_observed"]
    curves = read_curves(ds, f"{name}_observed")
    for curve in curves:
        _draw_data(upper, lower, ds, name, curve, read_values(ds, f"{name}_predicted", curve))
    logarithmic = _use_log_axis(ds, name)
    if logarithmic:
        ends = _observed_limits(ds, name)
        upper.set(xscale="log", yscale="log")
    else:
        both = (*upper.get_xlim(), *upper.get_ylim())
        ends = (min(both), max(both))
    upper.set(xlim=ends, ylim=ends)  # so that the diagonal goes from corner to corner
    upper.plot(ends, ends, color=GREY, linewidth=0.7, zorder=0.5)
    power = tick_power((float(np.sqrt(ends[0] * ends[1])),) if logarithmic else ends)
    upper.set_ylabel(axis_label(observations, f"observed {quantity_name(observations)}", power=power))
    lower.set_xlabel(axis_label(observations, f"predicted {quantity_name(observations)}", power=power))
    for axis in (upper.yaxis, lower.xaxis):
        (set_log_ticks if logarithmic else set_value_ticks)(axis, power, most=5)
    upper.spines[["top", "right"]].set_visible(False)
    if curves[0].label:
        upper.legend(frameon=False, loc="upper left", handletextpad=0.1)


def _draw_data(upper: Axes, lower: Axes, ds: xr.Dataset, name: str, curve: Curve, x: Floats) -> None:
    """Draw observations with their noise, and normalised residuals below, at abscissae (N,)."""
    observed, noise = read_values(ds, f"{name}_observed", curve), read_values(ds, f"{name}_noise_std", curve)
    present = np.isfinite(observed)
    upper.errorbar(x[present], observed[present], noise[present], color=curve.colour, label=curve.label, **_ERROR_BAR)
    normalised = read_values(ds, f"{name}_residual", curve) / noise
    present = np.isfinite(normalised)
    lower.plot(x[present], normalised[present], "o", color=curve.colour, **_POINT)


def _use_log_axis(ds: xr.Dataset, name: str) -> bool:
    """Return whether observations and predictions are positive and extend over more than a factor of thirty."""
    observed, predicted = ds[f"{name}_observed"].values, ds[f"{name}_predicted"].values
    if not np.isfinite(observed).any():
        return False
    low, high = float(np.nanmin(observed)), float(np.nanmax(observed))
    return min(low, float(np.nanmin(predicted))) > 0.0 and high > _DECADES * low


def _observed_limits(ds: xr.Dataset, name: str) -> tuple[float, float]:
    """Return the ends of a logarithmic axis of observations and predictions."""
    values = np.concatenate([ds[f"{name}_{of}"].values.ravel() for of in ("observed", "predicted")])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = (high / low) ** 0.07
    return low / margin, high * margin


def _is_two_way_time(ds: xr.Dataset, name: str) -> bool:
    """Return whether an observation is a two-way time, which increases downwards.

    It is a time with "two-way" in its name, or whose labels are those of a latent that increases downwards.
    """
    observed = ds[f"{name}_observed"]
    if conversion(str(observed.attrs.get("units", "1")), "s") is None:
        return False
    if "two-way" in quantity_name(observed).lower().replace(" ", "-"):
        return True
    dimension = label_dimension(observed)
    depths = [ds[latent] for latent in read_names(ds, "latents") if increases_downwards(ds[latent])]
    return dimension is not None and any(label_dimension(depth) == dimension for depth in depths)


def _frame_residuals(ax: Axes) -> None:
    """Draw a grey band that should contain 95% of the residuals, and set the limits and ticks."""
    ax.axhspan(-TWO_SIGMA, TWO_SIGMA, color="0.92", linewidth=0.0, zorder=0)
    ax.axhline(0.0, color=GREY, linewidth=0.6, zorder=0.5)
    largest = max(float(np.max(np.abs(line.get_ydata()), initial=0.0)) for line in ax.lines)
    limit = max(3.0, 1.1 * largest)
    ax.set_ylim(-limit, limit)
    ax.set_ylabel("Residual /\nnoise std")
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.spines[["top", "right"]].set_visible(False)
