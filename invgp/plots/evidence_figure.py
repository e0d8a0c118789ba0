"""Figure of the evidence of alternative models."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure

from invgp.plots.style import COLOURS, COLUMN, GREY, STYLE

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
    names = weighed["model_label"].values[order].tolist()
    with rc_context(STYLE):
        figure = Figure((COLUMN, 0.9 + 0.3 * len(names)), layout="constrained")
        ax = figure.subplots()
        for limit in GRADES:
            ax.axvline(-limit, color=GREY, linewidth=0.5, linestyle=(0, (1, 2)))
        error = weighed["log_bayes_factor_error"].values[order]
        ax.errorbar(factors[order], range(len(names)), xerr=error, fmt="o", color=COLOURS[0], markersize=4, capsize=2)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(-0.6, len(names) - 0.4)
        ax.set_xlim(min(float(np.nanmin(factors - weighed["log_bayes_factor_error"].values)), -5.0) * 1.08, 0.5)
        ax.set_xlabel("Log Bayes factor relative to the best model (nats)")
        ax.set_title("dotted: positive, strong and very strong evidence begin", loc="left", fontsize=6.5, color=GREY)
    return figure
