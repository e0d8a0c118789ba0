"""The figure of convergence: the bound and the simulator runs, iteration by iteration."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from invgp.errors import PlotError
from invgp.plots.labels import MINUS
from invgp.plots.look import Look
from invgp.plots.style import COLOURS, PAGE, STYLE, arrange, letter_panels


def convergence(ds: xr.Dataset, look: Look | None = None) -> Figure:
    """Draw the evidence lower bound after each step that was kept, its last half, and the runs spent until then.

    Parameters
    ----------
    ds : Dataset
        A posterior.
    look : Look
        The size of the figure.

    Returns
    -------
    Figure

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp.
    """
    if "elbo" not in ds or "runs" not in ds:
        raise PlotError("The dataset is not a whole invgp posterior: it lacks elbo or runs.")
    iteration, bound, runs = (np.asarray(ds[name].values, dtype=np.float64) for name in ("iteration", "elbo", "runs"))
    half = len(iteration) // 2
    sheet = arrange(3, (PAGE, 2.4) if look is None or look.size is None else look.size, most=3)
    with rc_context(STYLE):
        figure = Figure(sheet.size, layout="constrained")
        axes, spare = np.split(figure.subplots(sheet.rows, sheet.columns, squeeze=False).ravel(), [3])
        for ax in spare:
            ax.remove()
        label = "Bound (nats)" if sheet.rows > 1 else "Evidence lower bound (nats)"
        _draw(axes[0], iteration, bound, label)
        _draw(axes[1], iteration[half:], bound[half:], label)
        _draw(axes[2], iteration, runs, "Simulator runs")
        axes[2].set_ylim(bottom=0.0)
        letter_panels(axes, ["every step", "its last half", "cost"])
    return figure


def _draw(ax: Axes, iteration: np.ndarray, values: np.ndarray, label: str) -> None:
    ax.plot(iteration, values, "-o", color=COLOURS[0], markersize=2.4, linewidth=0.9)
    ax.set(xlabel="Iteration", ylabel=label)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    digits = max(0, 1 - int(np.floor(np.log10(np.ptp(values))))) if np.ptp(values) > 0.0 else 1
    decimals = digits if np.ptp(values) < 10.0 else 0
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.{decimals}f}".replace("-", MINUS)))
    ax.spines[["top", "right"]].set_visible(False)
