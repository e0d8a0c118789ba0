"""Errors and bound after each pass over the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

COLOURS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class Curve(NamedTuple):
    """Errors on the test set and the negative bound per site, in nats, after each pass."""

    rmse: list[float]
    nlpd: list[float]
    loss: list[float]

    @staticmethod
    def mean(curves: Sequence[Curve]) -> Curve:
        """Average over data sets."""
        return Curve(*(np.mean(parts, axis=0).tolist() for parts in zip(*curves, strict=True)))


def draw(path: Path, curve: Curve, beside: Mapping[str, tuple[float, float]], unit: str) -> None:
    """Draw RMSE, NLPD and the loss; `beside` has the final values by method, ours first; the others are lines."""
    drawn, panels = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    passes = np.arange(1, len(curve.loss) + 1)
    for i, (ax, values, label) in enumerate(zip(panels, curve[:2], (f"RMSE / {unit}", "NLPD"), strict=True)):
        (ours, _), *others = beside.items()
        lines = ax.plot(passes, values, "o-", color="#0072B2", label=ours)
        for (way, errors), colour in zip(others, COLOURS, strict=False):
            lines.append(ax.axhline(errors[i], color=colour, linestyle="--", label=way))
        twin = ax.twinx()
        lines += twin.plot(passes, curve.loss, "s:", color="0.4", label="negative bound (right axis)")
        ax.set(xlabel="passes over the data; the posterior settles in the last", ylabel=label, xticks=passes)
        twin.set_ylabel("negative bound a site / nat", color="0.4")
    drawn.legend(handles=lines, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=150)
    plt.close(drawn)
