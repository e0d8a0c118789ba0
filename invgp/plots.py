"""Figures of a posterior: sections along a line, maps, and the fit to the data.

Every function takes the Dataset that `invgp run` writes, in memory or opened from its netCDF file, and
returns a matplotlib `Figure` sized for the page of a journal.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["data_fit", "maps", "plot", "section"]

# Okabe and Ito (2008), without the yellow, which vanishes on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_GREY = "0.35"
_FORMATS = (".pdf", ".png", ".svg")
_COLUMN, _PAGE = 3.5, 7.2  # inches, the widths of a column and of a page of two columns
_LONG_LINE = 5000.0  # m, from where a line is drawn in km
_TWO_SIGMA = 1.96  # standard deviations from the mean to the edge of a central 95% interval
_POINT: dict[str, Any] = {"markersize": 1.8, "markeredgewidth": 0.0, "elinewidth": 0.4}
_PRIOR: dict[str, Any] = {"linewidth": 0.7, "linestyle": (0, (5, 3))}
_STYLE: dict[Any, Any] = {
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8.0,
    "figure.constrained_layout.h_pad": 0.06,  # inches
    "figure.constrained_layout.w_pad": 0.06,
    "font.family": "sans-serif",
    "font.size": 8.0,
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


class _Curve(NamedTuple):
    """One label along the dimension of a variable."""

    column: int
    label: str  # "" for a variable with no dimension but `site`
    colour: Any


def section(ds: xr.Dataset) -> Figure:
    """Draw every latent along the one coordinate of the survey.

    One panel a latent: the posterior mean and its central 95% interval for each label along the latent's
    dimension, and the prior mean dashed. A latent with the attribute ``positive = "down"`` is drawn
    downwards. The interval lies between the 0.025 and 0.975 quantiles, or within 1.96 standard deviations of
    the mean if the Dataset lacks them.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with one coordinate.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If ``ds`` is not a posterior of invgp, or its sites have more than one coordinate.
    """
    (coordinate,) = _coordinates(ds, 1, "A section")
    latents = _names(ds, "latents")
    columns = min(len(latents), 2)
    rows = -(-len(latents) // columns)
    with rc_context(_STYLE):
        figure = Figure((_COLUMN if columns == 1 else _PAGE, 2.9 * rows + 0.3), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
        for ax, name in zip(axes, latents, strict=False):
            _draw_latent(ax, ds, name, coordinate)
        for ax in axes[len(latents) :]:
            ax.remove()
        _letter(axes[: len(latents)])
        handles: list[Any] = [
            Line2D([], [], color=_GREY, label="posterior mean"),
            Patch(color=_GREY, alpha=0.25, linewidth=0.0, label="95% credible interval"),
            Line2D([], [], color=_GREY, label="prior mean", **_PRIOR),
            _site_handle(),
        ]
        _legend(figure, handles)
    return figure


def maps(ds: xr.Dataset) -> Figure:
    """Draw the posterior mean and standard deviation of every latent over the two coordinates of the survey.

    One row a latent and label. The colours are interpolated between neighbouring sites, which are dotted;
    nothing is drawn between sites much further apart than the others.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with two coordinates.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If ``ds`` is not a posterior of invgp, or its sites do not have two coordinates.
    """
    across, up = _coordinates(ds, 2, "A map")
    panels = [(name, curve) for name in _names(ds, "latents") for curve in _curves(ds, name)]
    x, y, labels = _horizontal(ds, [across, up])
    ratio = float(np.ptp(y) / np.ptp(x)) if np.ptp(x) > 0.0 else 1.0
    height = float(np.clip(2.45 * ratio, 1.0, 4.0)) + 0.35
    with rc_context(_STYLE):
        figure = Figure((_PAGE, height * len(panels) + 0.3), layout="constrained")
        axes = figure.subplots(len(panels), 2, squeeze=False, sharex=True, sharey=True)
        for row, (name, curve) in zip(axes, panels, strict=True):
            down = _points_down(ds[name])
            for ax, variable, colours in zip(
                row, (name, f"{name}_std"), ("viridis_r" if down else "viridis", "cividis"), strict=True
            ):
                artist = _draw_map(ax, x, y, _values(ds, variable, curve), colours)
                bar = figure.colorbar(artist, cax=ax.inset_axes((1.03, 0.0, 0.045, 1.0)))
                bar.set_label(_label(ds[name], "" if variable == name else "standard deviation", width=32))
                bar.ax.yaxis.set_inverted(down and variable == name)
                bar.outline.set_linewidth(0.4)
                ax.set_aspect(_aspect(ds, up, y))
            row[0].set_ylabel(labels[1])
        for ax in axes[-1]:
            ax.set_xlabel(labels[0])
        rows = [", ".join(filter(None, (name.replace("_", " "), curve.label))) for name, curve in panels]
        titles = [f"{row}: {what}" for row in rows for what in ("mean", "standard deviation")]
        _letter(axes.ravel(), titles)
    return figure


def data_fit(ds: xr.Dataset) -> Figure:
    """Draw the data against what the posterior predicts, and the residuals in units of the noise.

    Along a line, the observations stand over the predicted mean and its 95% interval. For sites with two
    coordinates, observed stands against predicted. Missing observations are not drawn.

    Parameters
    ----------
    ds : Dataset
        A posterior.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If ``ds`` is not a posterior of invgp.
    """
    coordinates = _names(ds, "coordinates")
    observations = _names(ds, "observations")
    with rc_context(_STYLE):
        width = _COLUMN + 0.5 if len(observations) == 1 else _PAGE / 2 * len(observations)
        figure = Figure((width, 4.2), layout="constrained")
        axes = figure.subplots(2, len(observations), squeeze=False, sharex="col", height_ratios=(3, 1))
        for (above, below), name in zip(axes.T, observations, strict=True):
            if len(coordinates) == 1:
                _draw_fit_along(above, below, ds, name, coordinates[0])
            else:
                _draw_cross_plot(above, below, ds, name)
            _draw_noise_level(below)
        _letter(axes[0])
        figure.align_ylabels()
        sample = axes[0, 0].errorbar([], [], yerr=[], fmt="o", color=_GREY, **_POINT)
        sample.set_label("observed ± noise std")
        handles: list[Any] = [sample]
        if len(coordinates) == 1:
            handles += [
                Line2D([], [], color=_GREY, label="predicted"),
                Patch(color=_GREY, alpha=0.25, linewidth=0.0, label="95% credible interval"),
            ]
        else:
            handles.append(Line2D([], [], color=_GREY, linewidth=0.7, label="observed = predicted"))
        _legend(figure, handles)
    return figure


def plot(ds: xr.Dataset, path: str | Path) -> tuple[Path, Path]:
    """Write the section or the maps of a posterior to ``path``, and the fit to its data beside it.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with one or two coordinates.
    path : str or Path
        File to write, in the format of its suffix: .pdf, .png or .svg. The fit goes to
        ``<stem>_fit<suffix>``.

    Returns
    -------
    tuple of Path
        The two files written.

    Raises
    ------
    ValueError
        If ``ds`` is not a posterior of invgp, its sites have more than two coordinates, or the format is
        unknown.
    """
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"The suffix of the figure must be one of {', '.join(_FORMATS)}, but it is '{path.suffix}'.")
    fit_path = path.with_name(f"{path.stem}_fit{path.suffix}")
    figures = {
        path: section(ds) if len(_names(ds, "coordinates")) == 1 else maps(ds),
        fit_path: data_fit(ds),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower())
    with rc_context(_STYLE):
        for target, figure in figures.items():
            figure.savefig(target, metadata=metadata)
    return path, fit_path


# ---- reading the Dataset ----


def _names(ds: xr.Dataset, kind: str) -> list[str]:
    names = str(ds.attrs.get(f"invgp_{kind}", "")).split()
    if not names:
        raise ValueError(
            f"The dataset is not an invgp posterior: its attribute 'invgp_{kind}' is missing or empty. "
            "Open a file that `invgp run` wrote."
        )
    needed = {
        "coordinates": ("",),
        "latents": ("", "_std", "_prior"),
        "observations": ("_observed", "_noise_std", "_predicted", "_predicted_std", "_residual"),
    }[kind]
    missing = [f"{name}{suffix}" for name in names for suffix in needed if f"{name}{suffix}" not in ds]
    if missing:
        raise ValueError(f"The dataset is not a whole invgp posterior: it lacks {', '.join(missing)}.")
    return names


def _coordinates(ds: xr.Dataset, count: int, what: str) -> list[str]:
    names = _names(ds, "coordinates")
    if len(names) != count:
        raise ValueError(
            f"{what} needs sites with {count} coordinate{'s' * (count > 1)}, but these have {len(names)}: "
            f"{', '.join(names)}."
        )
    return names


def _curves(ds: xr.Dataset, variable: str) -> list[_Curve]:
    array = ds[variable]
    dimension = next((str(d) for d in array.dims if d != "site"), None)
    if dimension is None:
        return [_Curve(0, "", _COLOURS[0])]
    labels = ds.get(f"{dimension}_label", array[dimension]).values.tolist()
    colours: Any = _COLOURS
    if len(labels) > len(_COLOURS):
        colours = colormaps["viridis"](np.linspace(0.0, 0.9, len(labels)))
    texts = [label if isinstance(label, str) else f"{dimension} {label}" for label in labels]
    return [_Curve(i, text, colours[i]) for i, text in enumerate(texts)]


def _values(ds: xr.Dataset, variable: str, curve: _Curve) -> Array:
    """Values (N,) at the sites."""
    array = ds[variable].transpose("site", ...)
    values = np.asarray(array.values, dtype=np.float64)
    return values if values.ndim == 1 else values[:, curve.column]


def _band(ds: xr.Dataset, name: str, curve: _Curve) -> tuple[Array, Array]:
    """Lower and upper edge (N,) of the central 95% interval."""
    if f"{name}_quantile" in ds:
        levels = np.asarray(ds["quantile"].values, dtype=np.float64)
        edges = [np.flatnonzero(np.isclose(levels, level)) for level in (0.025, 0.975)]
        if all(edge.size for edge in edges):
            tables = (ds.isel(quantile=int(edge[0])) for edge in edges)
            lower, upper = (_values(table, f"{name}_quantile", curve) for table in tables)
            return lower, upper
    return _interval(_values(ds, name, curve), _values(ds, f"{name}_std", curve))


def _interval(mean: Array, std: Array) -> tuple[Array, Array]:
    return mean - _TWO_SIGMA * std, mean + _TWO_SIGMA * std


def _points_down(array: xr.DataArray) -> bool:
    return bool(array.attrs.get("positive") == "down")


# ---- words ----


def _pretty_unit(unit: str) -> str:
    """Typeset a unit: 'm s-1' becomes 'm s⁻¹'."""
    raised = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    words = {"degrees_north": "°N", "degrees_east": "°E", "degree": "°", "degrees": "°"}
    words |= {"degC": "°C", "ohm": "Ω", "percent": "%"}

    def typeset(token: str) -> str:
        parts = re.fullmatch(r"([^\W\d]+)(?:\^|\*\*)?([-+]?\d+)?", token)
        if parts is None:
            return token
        return words.get(parts[1], parts[1]) + (parts[2] or "").translate(raised)

    return " ".join(typeset(token) for token in unit.split())


def _name(array: xr.DataArray) -> str:
    name = str(array.attrs.get("long_name", str(array.name).removesuffix("_observed").replace("_", " ")))
    return name.removeprefix("observed ")


def _label(array: xr.DataArray, text: str = "", unit: str = "", width: int = 44) -> str:
    """Label of an axis: the text, or else the name of the array, and the unit, or else that of the array."""
    text = text or _name(array)
    unit = _pretty_unit(unit or str(array.attrs.get("units", "")))
    if unit not in ("", "1"):
        text += f" ({unit})".replace(" ", "\xa0").replace("\xa0", " ", 1)  # a unit is never broken over two lines
    return "\n".join(textwrap.wrap(text[:1].upper() + text[1:], width)).replace("\xa0", " ")


def _horizontal(ds: xr.Dataset, names: list[str]) -> tuple[Array, Array, list[str]]:
    """Coordinates (N,) of the first name and the last, in km where the survey is long, and their labels."""
    arrays = [np.asarray(ds[name].values, dtype=np.float64) for name in names]
    metres = all(ds[name].attrs.get("units") in ("m", "metre", "meter", "metres", "meters") for name in names)
    if metres and max(float(np.ptp(array)) for array in arrays) > _LONG_LINE:
        return arrays[0] / 1e3, arrays[-1] / 1e3, [_label(ds[name], unit="km") for name in names]
    return arrays[0], arrays[-1], [_label(ds[name]) for name in names]


def _aspect(ds: xr.Dataset, up: str, y: Array) -> float:
    """Height over width of a unit of the map; a degree of longitude is shorter than one of latitude."""
    if ds[up].attrs.get("units") in ("degrees_north", "degree_north", "degrees_N", "degree_N"):
        return float(1.0 / np.cos(np.deg2rad(np.mean(y))))
    return 1.0


# ---- drawing ----


def _draw_latent(ax: Axes, ds: xr.Dataset, name: str, coordinate: str) -> None:
    x, _, (x_label,) = _horizontal(ds, [coordinate])
    order = np.argsort(x, kind="stable")
    curves = _curves(ds, name)
    for curve in curves:
        prior = _values(ds, f"{name}_prior", curve)
        _draw_band(ax, x, _values(ds, name, curve), _band(ds, name, curve), curve.colour)
        ax.plot(x[order], prior[order], color=curve.colour, marker="_" if x.size == 1 else "", **_PRIOR)
    ax.set_xlabel(x_label)
    ax.set_ylabel(_label(ds[name]))
    _finish_panel(ax, x)
    if _points_down(ds[name]):
        _turn_down(ax)
    _name_curves(ax, curves, [float(_values(ds, name, c)[order[-1]]) for c in curves])


def _draw_band(ax: Axes, x: Array, mean: Array, edges: tuple[Array, Array], colour: Any) -> None:
    order = np.argsort(x, kind="stable")
    x, mean, lower, upper = (values[order] for values in (x, mean, *edges))
    if x.size == 1:
        ax.vlines(x, lower, upper, color=colour, alpha=0.4, linewidth=3.0)
    else:
        ax.fill_between(x, lower, upper, color=colour, alpha=0.22, linewidth=0.0)
    ax.plot(x, mean, color=colour, marker="o" if x.size == 1 else "", markersize=3.0)


def _draw_fit_along(above: Axes, below: Axes, ds: xr.Dataset, name: str, coordinate: str) -> None:
    x, _, (x_label,) = _horizontal(ds, [coordinate])
    curves = _curves(ds, f"{name}_observed")
    for curve in curves:
        observed, noise = _values(ds, f"{name}_observed", curve), _values(ds, f"{name}_noise_std", curve)
        predicted = _values(ds, f"{name}_predicted", curve)
        edges = _interval(predicted, _values(ds, f"{name}_predicted_std", curve))
        _draw_band(above, x, predicted, edges, curve.colour)
        _draw_points(above, x, observed, noise, curve)
        _draw_residuals(below, x, _values(ds, f"{name}_residual", curve) / noise, curve)
    above.set_ylabel(_label(ds[f"{name}_observed"]))
    below.set_xlabel(x_label)
    _finish_panel(above, x, margin=0.01)
    if _points_down(ds[f"{name}_observed"]):
        _turn_down(above)
    last = int(np.argmax(x))
    _name_curves(above, curves, [float(_values(ds, f"{name}_predicted", curve)[last]) for curve in curves])


def _draw_cross_plot(above: Axes, below: Axes, ds: xr.Dataset, name: str) -> None:
    observations = ds[f"{name}_observed"]
    curves = _curves(ds, f"{name}_observed")
    for curve in curves:
        observed, noise = _values(ds, f"{name}_observed", curve), _values(ds, f"{name}_noise_std", curve)
        predicted = _values(ds, f"{name}_predicted", curve)
        _draw_points(above, predicted, observed, noise, curve)
        _draw_residuals(below, predicted, _values(ds, f"{name}_residual", curve) / noise, curve)
    left, right = above.get_xlim()
    above.set(xlim=(left, right), ylim=above.get_ylim())  # the line must not stretch the axes
    above.plot([left, right], [left, right], color=_GREY, linewidth=0.7, zorder=0.5)
    above.set_ylabel(_label(observations, f"observed {_name(observations)}"))
    below.set_xlabel(_label(observations, f"predicted {_name(observations)}"))
    above.spines[["top", "right"]].set_visible(False)
    if curves[0].label:
        above.legend(frameon=False, loc="upper left", handletextpad=0.1)


def _draw_points(ax: Axes, x: Array, observed: Array, noise: Array, curve: _Curve) -> None:
    seen = np.isfinite(observed)
    label = curve.label or None
    ax.errorbar(x[seen], observed[seen], yerr=noise[seen], fmt="o", color=curve.colour, label=label, **_POINT)


def _draw_residuals(ax: Axes, x: Array, normalised: Array, curve: _Curve) -> None:
    seen = np.isfinite(normalised)
    ax.plot(x[seen], normalised[seen], "o", color=curve.colour, markersize=1.8, markeredgewidth=0.0)


def _draw_noise_level(ax: Axes) -> None:
    """Frame the residuals: 95% of them belong in the grey strip."""
    ax.axhspan(-_TWO_SIGMA, _TWO_SIGMA, color="0.92", linewidth=0.0, zorder=0)
    ax.axhline(0.0, color=_GREY, linewidth=0.6, zorder=0.5)
    largest = max((float(np.max(np.abs(line.get_ydata()), initial=0.0)) for line in ax.lines), default=0.0)
    limit = max(3.0, 1.1 * largest)
    ax.set_ylim(-limit, limit)
    ax.set_ylabel("Residual /\nnoise std")
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.spines[["top", "right"]].set_visible(False)


def _draw_map(ax: Axes, x: Array, y: Array, values: Array, colours: str) -> ScalarMappable:
    seen = np.isfinite(values)
    triangles = _triangulate(x[seen], y[seen])
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.ticklabel_format(useOffset=False, style="plain")
    ax.margins(0.04)
    if triangles is None:
        return ax.scatter(x[seen], y[seen], c=values[seen], cmap=colours, s=14.0, linewidths=0.0)
    ax.plot(x, y, "o", color="black", markersize=0.9, markeredgewidth=0.0)
    # A vector format would hold thousands of triangles with hairlines between them.
    return ax.tripcolor(triangles, values[seen], cmap=colours, shading="gouraud", rasterized=True)


def _triangulate(x: Array, y: Array) -> Triangulation | None:
    """Triangles between neighbouring sites, or None if the sites span no area."""
    if x.size < 4 or np.linalg.matrix_rank(np.column_stack([x - x.mean(), y - y.mean()]), tol=1e-9) < 2:
        return None
    triangulation = Triangulation(x, y)
    corners = np.stack([x, y], axis=-1)[triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    triangulation.set_mask(longest > 5.0 * np.median(longest))
    return triangulation


def _finish_panel(ax: Axes, x: Array, margin: float = 0.0) -> None:
    """Trim a panel along a line to the line, and mark its sites at the top."""
    if np.ptp(x) > 0.0:
        ax.set_xlim(float(x.min()) - margin * np.ptp(x), float(x.max()) + margin * np.ptp(x))
    ax.plot(
        x,
        np.ones_like(x),
        linestyle="",
        marker=2,  # a tick upwards
        markersize=3.0,
        markeredgewidth=0.4,
        color="black",
        transform=ax.get_xaxis_transform(),
        clip_on=False,
    )
    ax.spines["right"].set_visible(False)


def _turn_down(ax: Axes) -> None:
    low, high = ax.get_ylim()
    # The surface belongs in the picture, unless all that matters lies far below it.
    ax.set_ylim(high, 0.0 if 0.0 <= ax.dataLim.y0 < ax.dataLim.height else low)


def _name_curves(ax: Axes, curves: list[_Curve], ends: list[float]) -> None:
    """Write the label of each curve at its right end, or add a colour bar when they are too many."""
    if not curves[0].label:
        return
    if len(curves) > len(_COLOURS):
        palette = ListedColormap([curve.colour for curve in curves])
        scale = ScalarMappable(Normalize(-0.5, len(curves) - 0.5), palette)
        bar = ax.figure.colorbar(scale, ax=ax, pad=0.02, aspect=30)
        bar.ax.yaxis.set_inverted(ax.yaxis_inverted())
        ticks = np.unique(np.linspace(0, len(curves) - 1, 6).round().astype(int))
        bar.set_ticks(ticks.tolist(), labels=[curves[i].label for i in ticks])
        return
    low, high = ax.get_ylim()
    heights = _spread([(end - low) / (high - low) for end in ends], gap=0.055)
    for curve, height in zip(curves, heights, strict=True):
        ax.annotate(
            curve.label,
            (1.0, height),
            xycoords="axes fraction",
            xytext=(3.0, 0.0),
            textcoords="offset points",
            color=curve.colour,
            fontsize=7.5,
            va="center",
            annotation_clip=False,
        )


def _spread(heights: list[float], gap: float) -> list[float]:
    """Move heights in [0, 1] apart until neighbours stand at least `gap` from each other."""
    order = np.argsort(heights)
    placed = np.clip(np.asarray(heights)[order], 0.0, 1.0)
    for i in range(1, placed.size):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    ceiling = 1.0
    for i in reversed(range(placed.size)):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    result = np.empty_like(placed)
    result[order] = placed
    return [float(height) for height in result]


def _site_handle() -> Line2D:
    return Line2D([], [], color="black", marker=2, markersize=4, markeredgewidth=0.5, linestyle="", label="site")


def _legend(figure: Figure, handles: list[Any]) -> None:
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=len(handles),
        frameon=False,
        columnspacing=1.5,
        handlelength=1.6,
    )


def _letter(axes: Any, titles: list[str] | None = None) -> None:
    """Letter the panels of a figure that has several."""
    for i, ax in enumerate(axes):
        letter = f"({chr(ord('a') + i)})" if 1 < len(axes) <= 26 else ""
        ax.set_title(" ".join(filter(None, (letter, titles[i] if titles else ""))), loc="left")
