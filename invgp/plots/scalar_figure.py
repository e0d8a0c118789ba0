"""Figure of the scalars of a posterior: the density of each, with its prior."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scipy.stats import gaussian_kde

from invgp.bounded_links import link_from_attributes
from invgp.errors import PlotError
from invgp.links import LINKS, Link
from invgp.plots.axis_labels import quantity_name, unit_label
from invgp.plots.figure_options import FigureOptions, as_names
from invgp.plots.plot_data import Curve, Floats, read_curves, read_interval, read_names, read_values, select_latents
from invgp.plots.style import COLOURS, STYLE, add_legend, arrange_panels, letter_panels, note_convergence

_LINE = 26  # characters per line of a label
_PRIOR_COLOUR = "#666666"
_POINTS = 400  # of a curve
_REACH = 4.0  # standard deviations of the process that a curve covers
FEWEST_DRAWS = 10  # for a density
_VISIBLE = 0.01  # of the largest density, from which a density is shown
_WIDEST = 2.0  # posterior widths of the prior that are shown on each side


def plot_scalars(
    posterior: xr.Dataset,
    *,
    latents: str | Sequence[str] = (),
    labels: str | int | Sequence[str | int] = (),
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draw the posterior density of each scalar, with its prior, its mean and its 95% interval.

    Parameters
    ----------
    posterior : Dataset
        A posterior, or a map with draws.
    latents : str or sequence of str
        Scalars to draw; by default all.
    labels : str, int, or sequence of them
        Labels to draw, such as layers; by default all.
    size : tuple of float
        Width and height in inches.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        The dataset has no scalars or too few draws, or the size is too small.

    Examples
    --------
    >>> figure = invgp.plots.plot_scalars(posterior)  # doctest: +SKIP
    """
    return scalar_figure(posterior, FigureOptions(latents=as_names(latents), labels=as_names(labels), size=size))


def scalar_figure(ds: xr.Dataset, options: FigureOptions) -> Figure:
    """Draw the scalars; see `plot_scalars`."""
    names = [name for name in read_names(ds, "scalars") if not options.latents or name in options.latents]
    if not names:
        raise PlotError("The posterior has no scalars to draw: it needs latents with domain = 'scalar'.")
    if any(f"{name}_sample" not in ds for name in names) or ds.sizes.get("realization", 0) < FEWEST_DRAWS:
        raise PlotError(f"The densities of scalars need at least {FEWEST_DRAWS} draws.")
    ds = select_latents(ds, names, options.labels)
    panels = [(name, curve) for name in names for curve in read_curves(ds, name)]
    layout = arrange_panels(len(panels), options.size, most=3)
    with rc_context(STYLE):
        figure = Figure(layout.size, layout="constrained")
        axes, spare = np.split(figure.subplots(layout.rows, layout.columns, squeeze=False).ravel(), [len(panels)])
        for empty in spare:
            empty.remove()
        for ax, (name, curve) in zip(axes, panels, strict=True):
            _draw_panel(ax, ds, name, curve)
        if len(panels) > 1:
            letter_panels(axes)
        handles = [
            Patch(color=COLOURS[0], alpha=0.5, linewidth=0.0, label="posterior, shaded over the 95% interval"),
            Line2D([], [], color=COLOURS[0], linestyle="--", label="mean"),
            Line2D([], [], color=_PRIOR_COLOUR, label="prior"),
        ]
        add_legend(figure, handles)
        note_convergence(figure, ds)
    return figure


def _draw_panel(ax: Axes, ds: xr.Dataset, name: str, curve: Curve) -> None:
    """Draw the densities of one number."""
    x, density = posterior_density(ds, name, curve)
    low, high = (float(end[0]) for end in read_interval(ds, name, curve))
    ax.plot(x, density, color=COLOURS[0])
    ax.fill_between(x, density, where=(x >= low) & (x <= high), color=COLOURS[0], alpha=0.5, linewidth=0.0)
    ax.axvline(float(read_values(ds, name, curve)[0]), color=COLOURS[0], linestyle="--", linewidth=1.0)
    prior = prior_density(ds, name, curve)
    if prior is not None:
        ax.plot(*prior, color=_PRIOR_COLOUR)
    ax.set_xlim(*_limits(x, density, prior))
    ax.set_ylim(bottom=0.0)
    ax.set_yticks([])
    words = ", ".join(filter(None, (quantity_name(ds[name]), curve.label)))
    unit = unit_label(ds[name])
    ax.set(xlabel="\n".join(wrap(f"{words}{f' ({unit})' if unit else ''}", _LINE)), ylabel="Density")
    ax.spines[["top", "right"]].set_visible(False)


def posterior_density(ds: xr.Dataset, name: str, curve: Curve) -> tuple[Floats, Floats]:
    """Return points and the posterior density at them, estimated from the draws.

    It ends at the bounds of the scalar. That of a positive one is estimated for its logarithm.
    """
    values = np.asarray(ds[f"{name}_sample"].values, dtype=np.float64)
    draws = values if values.ndim == 1 else values[:, curve.column]
    link = _ColumnLink.read(ds, name, curve)
    bounded = "link_lower" in ds[name].attrs
    f = draws if bounded else link.inverse(draws)
    spread = max(float(f.std()), 1e-12 * float(np.abs(f).max()), 1e-300)
    low, high = -np.inf, np.inf
    if bounded:
        low, high = (float(np.atleast_1d(ds[name].attrs[key])[curve.column]) for key in ("link_lower", "link_upper"))
    z = np.linspace(max(f.min() - spread, low), min(f.max() + spread, high), _POINTS)
    constant = np.ptp(f) <= 1e-12 * np.abs(f).max()
    if constant:
        return z, np.exp(-0.5 * ((z - f[0]) / spread) ** 2)
    estimate = gaussian_kde(f)
    height = estimate(z)
    for bound in (bound for bound in (low, high) if np.isfinite(bound)):
        height += estimate(2.0 * bound - z)  # the mass beyond a bound is reflected
    return (z, height) if bounded else link.transform(z, height)


def prior_density(ds: xr.Dataset, name: str, curve: Curve) -> tuple[Floats, Floats] | None:
    """Return points and the density of the prior at them; None if the dataset does not have it, as a map."""
    about = ds[name].attrs
    if "process_mean" not in about or about.get("link") == "increasing":
        return None
    mean, std = (float(np.atleast_1d(about[key])[curve.column]) for key in ("process_mean", "process_std"))
    z = np.linspace(-_REACH, _REACH, _POINTS)
    link = _ColumnLink.read(ds, name, curve)
    return link.transform(mean + std * z, np.exp(-0.5 * z**2) / (std * np.sqrt(2.0 * np.pi)))


class _ColumnLink(NamedTuple):
    """The link of one of several labels."""

    link: Link
    column: int
    size: int

    @staticmethod
    def read(ds: xr.Dataset, name: str, curve: Curve) -> _ColumnLink:
        """Return the link of a label; the identity if it depends on other labels or is unknown."""
        about = ds[name].attrs
        size = np.atleast_1d(about.get("process_mean", 0.0)).size
        if "link" not in about or about["link"] == "increasing" or curve.column >= size:
            return _ColumnLink(LINKS["identity"], 0, 1)
        return _ColumnLink(link_from_attributes(about, size), curve.column, size)

    def inverse(self, values: Floats) -> Floats:
        """Return the process for values (n,)."""
        return np.asarray(self.link.inverse(np.repeat(values[:, None], self.size, axis=1))[:, self.column])

    def transform(self, f: Floats, density: Floats) -> tuple[Floats, Floats]:
        """Return values and their density from values (n,) of the process and its density."""
        x = self.link(np.repeat(f[:, None], self.size, axis=1))[:, self.column]
        slope = np.gradient(x, f)
        inner = slice(1, -1)  # the slope at the ends is one-sided
        resolved = slope[inner] > 1e-9 * slope.max()  # at a bound, rounding makes neighbours equal
        return x[inner][resolved], (density[inner] / slope[inner])[resolved]


def _limits(x: Floats, density: Floats, prior: tuple[Floats, Floats] | None) -> tuple[float, float]:
    """Return the range of the axis: the posterior, and as much of the prior as leaves the posterior visible."""
    seen = x[density > _VISIBLE * density.max()]
    low, high = float(seen[0]), float(seen[-1])
    if prior is not None:
        own = prior[0][prior[1] > _VISIBLE * prior[1].max()]
        room = _WIDEST * (high - low)
        low, high = max(min(low, own[0]), low - room), min(max(high, own[-1]), high + room)
    margin = 0.03 * (high - low)
    return low - margin, high + margin
