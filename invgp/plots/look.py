"""What a user may choose of a figure: the quantities it shows, their limits, and from where an area is hatched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.errors import PlotError
from invgp.plots.labels import axis_label
from invgp.plots.reading import Curve, Floats, points_down, read_values

HATCH = "////"
POORLY_INFORMED = 0.2  # the share of the prior's variance that the data must take away


@dataclass(frozen=True)
class Look:
    """How a figure of a posterior looks.

    Attributes
    ----------
    show : names of `QUANTITIES`; none for those that suit the figure.
    limits : lowest and highest value of the colours, or of the axis, by variable: ``depth``, ``depth_std``,
        ``depth_difference`` or ``depth_information``; in the unit of the latent.
    hatch_below : information below which an area is hatched as poorly informed; 0 hatches nothing.
    latents, labels : those to draw; none stands for all.
    size : width and height in inches; None for those that suit the figure.
    """

    show: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    hatch_below: float = POORLY_INFORMED
    latents: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    size: tuple[float, float] | None = None

    def limits_of(self, latent: str, quantity: str) -> tuple[float, float] | None:
        """The limits that were set for a quantity of a latent."""
        return self.limits.get(latent + quantity_of(quantity).suffix)


class Quantity(NamedTuple):
    """Something to show of a latent."""

    suffix: str  # of its name
    words: str
    colours: str


QUANTITIES = {
    "mean": Quantity("", "mean", "viridis"),
    "std": Quantity("_std", "standard deviation", "cividis"),
    "difference": Quantity("_difference", "prior minus posterior mean", "RdBu_r"),
    "information": Quantity("_information", "information", "viridis"),
    "few-runs": Quantity("_few_runs_std", "spread from few runs", "cividis"),
}
OF_PRIOR = "prior standard deviations"  # the unit of what few runs leave open


def quantity_of(name: str) -> Quantity:
    """What to show under this name: one of `QUANTITIES`, or a draw, which looks like the mean: ``draw 3``."""
    unbroken = name.replace(" ", "\N{NO-BREAK SPACE}")  # a title goes to the next line before it, not within
    return QUANTITIES.get(name) or Quantity("", unbroken, QUANTITIES["mean"].colours)


def is_field(quantity: str) -> bool:
    """Whether a quantity is a value of the latent itself, its mean or a draw."""
    return quantity_of(quantity).suffix == ""


def read_quantity(ds: xr.Dataset, latent: str, quantity: str, curve: Curve) -> Floats:
    """Values (N,) of a quantity of a latent at the sites."""
    if quantity == "difference":
        _need(ds, f"{latent}_prior")
        return read_values(ds, f"{latent}_prior", curve) - read_values(ds, latent, curve)
    if quantity.startswith("draw "):
        return read_values(ds.isel(realization=int(quantity.removeprefix("draw ")) - 1), f"{latent}_sample", curve)
    variable = latent + quantity_of(quantity).suffix
    _need(ds, variable)
    return read_values(ds, variable, curve)


def quantity_label(ds: xr.Dataset, latent: str, quantity: str, width: int = 44, power: int = 0) -> str:
    """Label of an axis or a colour bar that counts in a power of ten."""
    if quantity == "information":
        return "Information"
    text = "" if is_field(quantity) else quantity_of(quantity).words
    return axis_label(ds[latent], text, unit=OF_PRIOR if quantity == "few-runs" else "", width=width, power=power)


def colours_of(ds: xr.Dataset, latent: str, quantity: str) -> str:
    """Name of the colours of a quantity: what lies deep is dark."""
    name = quantity_of(quantity).colours
    return f"{name}_r" if is_field(quantity) and points_down(ds[latent]) else name


def value_range(values: Floats, quantity: str) -> tuple[float, float]:
    """Lowest and highest of values (N,). Information runs from 0 to 1, what few runs leave open from 0."""
    seen = values[np.isfinite(values)]
    if quantity == "information" or not seen.size:
        return 0.0, 1.0
    if quantity == "few-runs":
        return 0.0, float(seen.max()) or 1.0
    if quantity == "difference":
        largest = float(np.abs(seen).max())
        return -largest, largest
    return float(seen.min()), float(seen.max())


def poorly_informed(ds: xr.Dataset, latent: str, curve: Curve, look: Look) -> Floats | None:
    """What is missing (N,) to the information that an area needs not to be hatched; None where that is not known.

    Positive where the area is hatched.
    """
    if f"{latent}_information" not in ds or look.hatch_below <= 0.0:
        return None
    return look.hatch_below - read_values(ds, f"{latent}_information", curve)


def hatch_words(look: Look) -> str:
    """What a hatched area is."""
    return f"information below {look.hatch_below:g}"


def _need(ds: xr.Dataset, variable: str) -> None:
    if variable not in ds:
        raise PlotError(f"The dataset is not a whole invgp posterior: it lacks {variable}.")
