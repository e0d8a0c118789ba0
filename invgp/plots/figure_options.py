"""Options of a figure: the quantities that it shows, limits, hatching, selection and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib import colormaps

from invgp.errors import PlotError
from invgp.formatting import append_unit
from invgp.plots.axis_labels import axis_label, unit_label
from invgp.plots.known_values import KnownValues
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
    "prior": FigureQuantity("_prior", "prior mean", "viridis"),
    "quantiles": FigureQuantity("_quantile", "quantile", "viridis"),
    "exceedance": FigureQuantity("_exceedance", "probability of exceedance", "cividis"),
}
SUMMARY = ("mean", "std", "difference", "information")  # what `show = all` shows
_NUMBERED = {"quantile": "quantiles", "exceedance": "exceedance"}  # one panel per quantile or threshold: "quantile 2"
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
    colour_map : str
        Matplotlib colour map of latents on maps; empty for the default.
    line : tuple of float, or None
        Ends of a profile A-A' on a map: its two coordinates at A, then at A'; None for no profile.
    known : sequence of KnownValues
        Known values of the latents, such as of boreholes, that are drawn over means.

    Raises
    ------
    PlotError
        A quantity of `show` or the colour map does not exist.
    """

    show: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    hatch_below: float = MIN_INFORMATION
    latents: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    size: tuple[float, float] | None = None
    colour_map: str = ""
    line: tuple[float, float, float, float] | None = None
    known: tuple[KnownValues, ...] = ()

    def known_values(self, latent: str, label: str, quantity: str) -> list[KnownValues]:
        """Return the known values to draw over a quantity of a latent and label; none unless it is a mean.

        Parameters
        ----------
        latent, label : str
            Name of the latent, and text of its label.
        quantity : str
            Name of the quantity.

        Returns
        -------
        list of KnownValues
        """
        return [one for one in self.known if quantity == "mean" and (one.latent, one.label) == (latent, label)]

    def __post_init__(self) -> None:
        for name in self.show:
            if name not in QUANTITIES and name.partition(" ")[0] not in ("draw", *_NUMBERED):
                raise PlotError(f"show: must be one of {', '.join(QUANTITIES)}, was {name!r}")
        if self.colour_map and self.colour_map not in colormaps:
            raise PlotError(f"colour_map: must be a colour map of matplotlib, such as magma, was {self.colour_map!r}")

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
        mean = self.limits.get(latent) if is_latent_value(quantity) else None
        return self.limits.get(latent + find_quantity(quantity).suffix, mean)


def as_names(names: str | float | Sequence[object]) -> tuple[str, ...]:
    """Return one name or number, or a sequence of them, as a tuple of text."""
    return (str(names),) if isinstance(names, str | int | float) else tuple(str(name) for name in names)


def find_quantity(name: str) -> FigureQuantity:
    """Return a quantity by its name: one of `QUANTITIES`, one of its parts, or a draw, in the colours of the mean.

    Parts are ``quantile 2`` and ``exceedance 1``; a draw is ``draw 3``.
    """
    kind = name.partition(" ")[0]
    unbroken = name.replace(" ", "\N{NO-BREAK SPACE}")  # a line break in a title comes before it, not within
    found = QUANTITIES.get(name) or QUANTITIES.get(_NUMBERED.get(kind, ""))
    return found or FigureQuantity("", unbroken, QUANTITIES["mean"].colour_map)


def is_latent_value(quantity: str) -> bool:
    """Return whether a quantity is a value of the latent itself: its mean, its prior mean, a quantile or a draw."""
    return find_quantity(quantity).suffix in ("", "_prior", "_quantile")


def is_probability(quantity: str) -> bool:
    """Return whether a quantity is between 0 and 1 and has no unit."""
    return quantity == "information" or quantity.startswith("exceedance")


def expand_quantities(ds: xr.Dataset, names: Sequence[str], show: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the latents and the quantities of the panels, with one quantity per quantile and threshold.

    Parameters
    ----------
    ds : Dataset
        A posterior or a map.
    names : sequence of str
        Latents.
    show : sequence of str
        Keys of `QUANTITIES`.

    Returns
    -------
    latents : list of str
        Those of them that have all quantities.
    quantities : tuple of str

    Raises
    ------
    PlotError
        No latent has a quantity, or their numbers of thresholds differ.
    """
    found: list[str] = []
    for quantity in show:
        if quantity == "exceedance":
            names = [name for name in names if f"{name}_exceedance" in ds]
            counts = {ds.sizes[f"{name}_threshold"] for name in names}
            if not counts:
                raise PlotError("show: exceedance needs a map with thresholds, which `invgp predict --exceed` writes")
            if len(counts) > 1:
                raise PlotError("show: exceedance needs latents with the same number of thresholds; select one")
            found += [f"exceedance {k + 1}" for k in range(counts.pop())]
        elif quantity == "quantiles":
            names = [name for name in names if f"{name}_quantile" in ds]
            found += [f"quantile {k + 1}" for k in range(ds.sizes.get("quantile", 0))]
        else:
            found.append(quantity)
    return list(names), tuple(found)


def quantity_title(ds: xr.Dataset, latent: str, quantity: str) -> str:
    """Return the title of a panel; it contains the threshold of a probability, or the probability of a quantile."""
    kind, _, number = quantity.partition(" ")
    if kind == "exceedance":
        threshold = float(ds[f"{latent}_threshold"].values[int(number) - 1])
        return f"probability of more than {append_unit(f'{threshold:g}', unit_label(ds[latent]) or '1')}"
    if kind == "quantile":
        return f"{100.0 * float(ds['quantile'].values[int(number) - 1]):g}% quantile"
    return find_quantity(quantity).title


def read_quantity(ds: xr.Dataset, latent: str, quantity: str, curve: Curve) -> Floats:
    """Return the values (N,) of a quantity of a latent at the sites."""
    if quantity == "difference":
        require_variable(ds, f"{latent}_prior")
        return read_values(ds, latent, curve) - read_values(ds, f"{latent}_prior", curve)
    kind, _, number = quantity.partition(" ")
    along = {"draw": "realization", "quantile": "quantile", "exceedance": f"{latent}_threshold"}.get(kind)
    variable = f"{latent}_sample" if kind == "draw" else latent + find_quantity(quantity).suffix
    require_variable(ds, variable)
    return read_values(ds if along is None else ds.isel({along: int(number) - 1}), variable, curve)


def quantity_label(ds: xr.Dataset, latent: str, quantity: str, width: int = 44, power: int = 0) -> str:
    """Return the label of an axis or a colour bar in units of a power of ten."""
    if is_probability(quantity):
        return "Information" if quantity == "information" else "Probability"
    text = "" if is_latent_value(quantity) else find_quantity(quantity).title
    unit = PRIOR_STD_UNIT if quantity == "few-runs" else ""
    return axis_label(ds[latent], text, unit=unit, width=width, power=power)


def quantity_colour_map(ds: xr.Dataset, latent: str, quantity: str, options: FigureOptions) -> str:
    """Return the name of the colour map of a quantity; deep is dark, unless the user has chosen one."""
    if options.colour_map and is_latent_value(quantity):
        return options.colour_map
    name = find_quantity(quantity).colour_map
    return f"{name}_r" if is_latent_value(quantity) and increases_downwards(ds[latent]) else name


def value_range(values: Floats, quantity: str) -> tuple[float, float]:
    """Return the ends of a scale for values (N,): probabilities are from 0 to 1, "few-runs" from 0."""
    finite = values[np.isfinite(values)]
    if is_probability(quantity) or not finite.size:
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
