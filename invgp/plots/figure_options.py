"""Options of a figure: the quantities that it shows, limits, hatching, selection and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.errors import PlotError
from invgp.plots.axis_labels import axis_label
from invgp.plots.plot_data import Curve, Floats, increases_downwards, read_values, require_variable

MIN_INFORMATION = 0.2  # fraction of the prior variance that the data must remove, or the area is hatched


class FigureQuantity(NamedTuple):
    """A quantity of a latent that a figure can show."""

    suffix: str  # after the name of the latent
    title: str
    colour_map: str


QUANTITIES = {
    "mean": FigureQuantity("", "mean", "viridis"),
    "std": FigureQuantity("_std", "standard deviation", "cividis"),
    "difference": FigureQuantity("_difference", "posterior minus prior mean", "RdBu_r"),
    "information": FigureQuantity("_information", "information", "viridis"),
    "few-runs": FigureQuantity("_few_runs_std", "standard deviation from few runs", "cividis"),
}
PRIOR_STD_UNIT = "prior standard deviations"  # unit of the quantity "few-runs"


@dataclass(frozen=True)
class FigureOptions:
    """Options of the figures of a posterior.

    Parameters
    ----------
    show : tuple of str
        Keys of `QUANTITIES`; empty for the default of the figure.
    limits : mapping of str to tuple of float
        Lowest and highest value of the colours or the axis, by variable: ``depth``, ``depth_std``,
        ``depth_difference``, ``depth_information`` or ``depth_few_runs_std``, in the unit of the latent.
    hatch_below : float
        Areas with less information are hatched; 0 for no hatching.
    latents, labels : tuple of str
        Latents and labels to draw; empty for all.
    size : tuple of float, or None
        Width and height in inches; None for the default of the figure.

    Raises
    ------
    PlotError
        A quantity of `show` does not exist.
    """

    show: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    hatch_below: float = MIN_INFORMATION
    latents: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    size: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in self.show:
            if name not in QUANTITIES and not name.startswith("draw "):
                raise PlotError(f"show: must be one of {', '.join(QUANTITIES)}, was {name!r}")

    def limits_for(self, latent: str, quantity: str) -> tuple[float, float] | None:
        """Return the limits of a quantity of a latent; None if they are not set.

        Parameters
        ----------
        latent : str
            Name of the latent.
        quantity : str
            Name of the quantity, for example ``"std"``.

        Returns
        -------
        tuple of float or None
            Smallest and largest value, in the unit of the quantity.
        """
        return self.limits.get(latent + find_quantity(quantity).suffix)


def as_names(names: str | float | Sequence[object]) -> tuple[str, ...]:
    """Return one name or number, or a sequence of them, as a tuple of text."""
    return (str(names),) if isinstance(names, str | int | float) else tuple(str(name) for name in names)


def find_quantity(name: str) -> FigureQuantity:
    """Return a quantity by its name: one of `QUANTITIES`, or a draw such as ``draw 3``, in the colours of the mean."""
    unbroken = name.replace(" ", "\N{NO-BREAK SPACE}")  # a line break in a title comes before it, not within
    return QUANTITIES.get(name) or FigureQuantity("", unbroken, QUANTITIES["mean"].colour_map)


def is_latent_value(quantity: str) -> bool:
    """Return whether a quantity is a value of the latent itself: its mean or a draw."""
    return find_quantity(quantity).suffix == ""


def read_quantity(ds: xr.Dataset, latent: str, quantity: str, curve: Curve) -> Floats:
    """Return the values (N,) of a quantity of a latent at the sites."""
    if quantity == "difference":
        require_variable(ds, f"{latent}_prior")
        return read_values(ds, latent, curve) - read_values(ds, f"{latent}_prior", curve)
    if quantity.startswith("draw "):
        return read_values(ds.isel(realization=int(quantity.removeprefix("draw ")) - 1), f"{latent}_sample", curve)
    variable = latent + find_quantity(quantity).suffix
    require_variable(ds, variable)
    return read_values(ds, variable, curve)


def quantity_label(ds: xr.Dataset, latent: str, quantity: str, width: int = 44, power: int = 0) -> str:
    """Return the label of an axis or a colour bar in units of a power of ten."""
    if quantity == "information":
        return "Information"
    text = "" if is_latent_value(quantity) else find_quantity(quantity).title
    unit = PRIOR_STD_UNIT if quantity == "few-runs" else ""
    return axis_label(ds[latent], text, unit=unit, width=width, power=power)


def quantity_colour_map(ds: xr.Dataset, latent: str, quantity: str) -> str:
    """Return the name of the colour map of a quantity; deep is dark."""
    name = find_quantity(quantity).colour_map
    return f"{name}_r" if is_latent_value(quantity) and increases_downwards(ds[latent]) else name


def value_range(values: Floats, quantity: str) -> tuple[float, float]:
    """Return the ends of a scale for values (N,): information is from 0 to 1, "few-runs" from 0."""
    finite = values[np.isfinite(values)]
    if quantity == "information" or not finite.size:
        return 0.0, 1.0
    if quantity == "few-runs":
        return 0.0, float(finite.max()) or 1.0
    if quantity == "difference":
        largest = float(np.abs(finite).max())
        return -largest, largest
    return float(finite.min()), float(finite.max())


def missing_information(ds: xr.Dataset, latent: str, curve: Curve, options: FigureOptions) -> Floats | None:
    """Return the threshold of hatching minus the information (N,), positive in areas to hatch; None if unknown."""
    if f"{latent}_information" not in ds or options.hatch_below <= 0.0:
        return None
    return options.hatch_below - read_values(ds, f"{latent}_information", curve)


def hatch_label(options: FigureOptions) -> str:
    """Return the text of a legend for hatched areas."""
    return f"information below {options.hatch_below:g}"
