"""What is told of a quantity at each point by itself: a latent, or something derived from latents."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import xarray as xr

from invgp.errors import ArgumentError
from invgp.formatting import suggest
from invgp.links import LINKS, normal_draws
from invgp.maps.belief import Belief, Field, Projections
from invgp.maps.expressions import Derived, Ingredient, Values
from invgp.problem import Floats
from invgp.units import conversion, is_unit


class Summary(NamedTuple):
    """Of B points and the L labels of a quantity.

    Attributes
    ----------
    mean, std : (B, L).
    quantiles : (K, B, L).
    exceedance : (T, B, L), probabilities of being above thresholds.
    information : (B, L), for a latent.
    """

    mean: Floats
    std: Floats
    quantiles: Floats
    exceedance: Floats
    information: Floats | None = None


class Quantity(Protocol):
    """A latent or a derived quantity."""

    @property
    def name(self) -> str:
        """Of its variables."""

    @property
    def processes(self) -> list[int]:
        """That it depends on."""

    @property
    def thresholds(self) -> tuple[float, ...]:
        """In its unit."""

    def summary(self, belief: Belief, at: Projections, levels: Floats) -> Summary:
        """What is told of it at some points."""

    def values(self, f: Floats) -> Floats:
        """Physical values (R, B, L) of draws (R, B, Q) of all processes."""


@dataclass(frozen=True)
class LatentQuantity:
    """A latent of the posterior."""

    field: Field
    thresholds: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """Of the latent."""
        return self.field.name

    @property
    def processes(self) -> list[int]:
        """Its own."""
        return self.field.processes

    def summary(self, belief: Belief, at: Projections, levels: Floats) -> Summary:
        """As `invgp run` tells of the sites."""
        link, size = self.field.link, self.field.size
        if link.elementwise:
            # Labels do not mix, and one process at a time costs the fewest operations.
            parts = [belief.moments(at, [j]) for j in self.processes]
            mean = np.concatenate([m for m, _ in parts], axis=-1)
            covariance = np.stack([c[:, 0, 0] for _, c in parts], axis=-1)[..., None] * np.eye(size)
        else:
            mean, covariance = belief.moments(at, self.processes)
        centre, std = link.moments(mean, covariance)
        return Summary(
            centre,
            std,
            link.quantiles(mean, covariance, levels),
            _stacked([link.exceedance(mean, covariance, t) for t in self.thresholds], centre),
            1.0 - self.field.variance_ratio(covariance, std),
        )

    def values(self, f: Floats) -> Floats:
        """Through the link."""
        return self.field.link(f[..., self.processes])


@dataclass(frozen=True)
class DerivedQuantity:
    """An expression of latents: in closed form where it is linear in Gaussian processes, else from draws."""

    derived: Derived
    fields: tuple[Field, ...]
    thresholds: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """That the person gave it."""
        return self.derived.name

    @property
    def processes(self) -> list[int]:
        """Those of its latents."""
        return [j for field in self.fields for j in field.processes]

    def summary(self, belief: Belief, at: Projections, levels: Floats) -> Summary:
        """Mean, spread, quantiles and probabilities."""
        mean, covariance = belief.moments(at, self.processes)
        if self.derived.linear:
            return self._in_closed_form(mean, covariance, levels)
        return self._from_draws(mean, covariance, levels)

    def values(self, f: Floats) -> Floats:
        """Through links and expression."""
        return self._of(f[..., self.processes])

    def _in_closed_form(self, mean: Floats, covariance: Floats, levels: Floats) -> Summary:
        g = mean.shape[-1]
        offset, *columns = self._of(np.concatenate([np.zeros((1, g)), np.eye(g)]))
        weights = np.stack([column - offset for column in columns], axis=-1)
        centre, spread = mean @ weights.T + offset, weights @ covariance @ weights.T
        normal = LINKS["identity"]
        above = [normal.exceedance(centre, spread, t) for t in self.thresholds]
        return Summary(
            *normal.moments(centre, spread), normal.quantiles(centre, spread, levels), _stacked(above, centre)
        )

    def _from_draws(self, mean: Floats, covariance: Floats, levels: Floats) -> Summary:
        parts = []
        for f in normal_draws(mean, covariance):
            values = self._of(f)
            with np.errstate(invalid="ignore"):
                centre = np.mean(values, axis=1)
                above = [np.where(np.isnan(centre), np.nan, np.mean(values > t, axis=1)) for t in self.thresholds]
                spread = np.std(values, axis=1), np.quantile(values, levels, axis=1)
            parts.append((centre, *spread, _stacked(above, centre)))
        means, stds, quantiles, exceedance = zip(*parts, strict=True)
        return Summary(
            np.concatenate(means),
            np.concatenate(stds),
            np.concatenate(quantiles, axis=1),
            np.concatenate(exceedance, axis=1),
        )

    def _of(self, f: Floats) -> Floats:
        """Values (..., L) of its processes (..., g)."""
        values: dict[str, Floats] = {}
        start = 0
        for field in self.fields:
            values[field.name] = field.link(f[..., start : start + field.size])
            start += field.size
        return self._shaped(values, f.shape[:-1])

    def _shaped(self, values: Values, points: tuple[int, ...]) -> Floats:
        with np.errstate(all="ignore"):  # the map says where it is no number
            found = np.asarray(self.derived.of(values), dtype=np.float64)
        return found if self.derived.dimension else found.reshape(*points, 1)


class Threshold(NamedTuple):
    """Of a quantity, in its unit."""

    name: str
    value: float


def threshold(text: str, units: dict[str, str]) -> Threshold:
    """Parse `velocity > 2500 m/s`; without a unit, the number is in the quantity's own."""
    parts = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*>\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*", text)
    if parts is None:
        raise ArgumentError(
            f"exceed: must be 'name > number unit', was {text!r}; it holds for all labels of the name, and the "
            "probability of being below is 1 minus that of being above"
        )
    name, unit = parts[1], parts[3]
    if name not in units:
        raise ArgumentError(f"exceed: must name a latent or a derived quantity, was {name!r}{suggest(name, [*units])}")
    try:
        number = float(parts[2])
    except ValueError:
        raise ArgumentError(f"exceed: must have a number, was {parts[2]!r}") from None
    how = conversion(unit or units[name], units[name]) if not unit or is_unit(unit) else None
    if how is None:
        raise ArgumentError(f"exceed: must be in a unit that converts to {units[name]!r}, was {unit!r}")
    value = number * how.factor + how.offset
    if not math.isfinite(value):
        raise ArgumentError(f"exceed: must have a finite number, was {parts[2]!r}")
    return Threshold(name, value)


def ingredients(posterior: xr.Dataset, fields: Sequence[Field]) -> list[Ingredient]:
    """The latents as expressions see them."""
    found = []
    for field in fields:
        array = posterior[field.name]
        dimension = next((str(d) for d in array.dims if d != "site"), None)
        labels = None
        if dimension is not None:
            labels = tuple(posterior.get(f"{dimension}_label", array[dimension]).values.tolist())
        linear = field.link.name == "identity"
        found.append(Ingredient(field.name, array.attrs["units"], dimension, labels, linear))
    return found


def _stacked(parts: list[Floats], like: Floats) -> Floats:
    return np.stack(parts) if parts else np.empty((0, *like.shape))
