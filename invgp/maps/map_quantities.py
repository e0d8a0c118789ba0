"""Quantities of a map, latents or expressions of latents, and their summaries at each point."""

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
from invgp.maps.expressions import DerivedExpression, ExpressionLatent, Values
from invgp.maps.posterior_field import LatentField, PosteriorField, Projections
from invgp.problem import Floats
from invgp.units import conversion, is_unit


class PointSummary(NamedTuple):
    """Summary of the posterior of a quantity with L labels at B points.

    Attributes
    ----------
    mean, std : array, shape (B, L)
    quantiles : array, shape (K, B, L)
    exceedance : array, shape (T, B, L)
        Probabilities that thresholds are exceeded.
    information : array, shape (B, L), or None
        None for a derived quantity.
    """

    mean: Floats
    std: Floats
    quantiles: Floats
    exceedance: Floats
    information: Floats | None = None


class MapQuantity(Protocol):
    """A latent or a derived quantity."""

    @property
    def name(self) -> str:
        """Name of its variables."""

    @property
    def processes(self) -> list[int]:
        """Indices of the processes that it depends on."""

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds, in its unit."""

    def summary(self, field: PosteriorField, at: Projections, levels: Floats) -> PointSummary:
        """Return its summary at points with these projections; `levels` are the probabilities of the quantiles."""

    def values(self, f: Floats) -> Floats:
        """Return physical values (R, B, L) for draws (R, B, Q) of all processes."""


@dataclass(frozen=True)
class LatentQuantity:
    """A latent of the posterior."""

    field: LatentField
    thresholds: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """Name of the latent."""
        return self.field.name

    @property
    def processes(self) -> list[int]:
        """Indices of its processes."""
        return self.field.processes

    def summary(self, field: PosteriorField, at: Projections, levels: Floats) -> PointSummary:
        """Return its summary at points, as `invgp run` computes it at the sites."""
        link, size = self.field.link, self.field.size
        if field.draws is not None:
            f = field.process_draws(at, self.processes)
            summary = _summarise_draws(link(f), levels, self.thresholds)
            if link.elementwise:
                ratio = f.var(axis=0) / self.field.std**2
            else:
                ratio = (summary.std / self.field.prior_moments()[1]) ** 2
            return summary._replace(information=1.0 - ratio)
        if link.elementwise:
            # Labels do not mix, and one process at a time costs the fewest operations.
            parts = [field.moments(at, [j]) for j in self.processes]
            mean = np.concatenate([m for m, _ in parts], axis=-1)
            covariance = np.stack([c[:, 0, 0] for _, c in parts], axis=-1)[..., None] * np.eye(size)
        else:
            mean, covariance = field.moments(at, self.processes)
        centre, std = link.moments(mean, covariance)
        return PointSummary(
            centre,
            std,
            link.quantiles(mean, covariance, levels),
            _stack([link.exceedance(mean, covariance, t) for t in self.thresholds], centre),
            1.0 - self.field.variance_ratio(covariance, std),
        )

    def values(self, f: Floats) -> Floats:
        """Return physical values (R, B, L) for draws (R, B, Q) of all processes."""
        return self.field.link(f[..., self.processes])


@dataclass(frozen=True)
class DerivedQuantity:
    """An expression of latents.

    Its summary has a closed form if it is linear in Gaussian processes, and is estimated from draws otherwise.
    """

    expression: DerivedExpression
    fields: tuple[LatentField, ...]
    thresholds: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """Name that the user gave."""
        return self.expression.name

    @property
    def processes(self) -> list[int]:
        """Indices of the processes of its latents."""
        return [j for latent in self.fields for j in latent.processes]

    def summary(self, field: PosteriorField, at: Projections, levels: Floats) -> PointSummary:
        """Return its summary at points with these projections."""
        if field.draws is not None:
            f = field.process_draws(at, self.processes)
            return _summarise_draws(self._evaluate(f), levels, self.thresholds)
        mean, covariance = field.moments(at, self.processes)
        if self.expression.linear:
            return self._closed_form_summary(mean, covariance, levels)
        return self._sampled_summary(mean, covariance, levels)

    def values(self, f: Floats) -> Floats:
        """Return values (R, B, L) for draws (R, B, Q) of all processes."""
        return self._evaluate(f[..., self.processes])

    def _closed_form_summary(self, mean: Floats, covariance: Floats, levels: Floats) -> PointSummary:
        g = mean.shape[-1]
        offset, *columns = self._evaluate(np.concatenate([np.zeros((1, g)), np.eye(g)]))
        weights = np.stack([column - offset for column in columns], axis=-1)
        centre, spread = mean @ weights.T + offset, weights @ covariance @ weights.T
        normal = LINKS["identity"]
        above = [normal.exceedance(centre, spread, t) for t in self.thresholds]
        return PointSummary(
            *normal.moments(centre, spread), normal.quantiles(centre, spread, levels), _stack(above, centre)
        )

    def _sampled_summary(self, mean: Floats, covariance: Floats, levels: Floats) -> PointSummary:
        parts = []
        for f in normal_draws(mean, covariance):
            values = self._evaluate(f)
            with np.errstate(invalid="ignore"):
                centre = np.mean(values, axis=1)
                above = [np.where(np.isnan(centre), np.nan, np.mean(values > t, axis=1)) for t in self.thresholds]
                spread = np.std(values, axis=1), np.quantile(values, levels, axis=1)
            parts.append((centre, *spread, _stack(above, centre)))
        means, stds, quantiles, exceedance = zip(*parts, strict=True)
        return PointSummary(
            np.concatenate(means),
            np.concatenate(stds),
            np.concatenate(quantiles, axis=1),
            np.concatenate(exceedance, axis=1),
        )

    def _evaluate(self, f: Floats) -> Floats:
        """Return its values (..., L) for values (..., g) of its processes."""
        values: dict[str, Floats] = {}
        start = 0
        for field in self.fields:
            values[field.name] = field.link(f[..., start : start + field.size])
            start += field.size
        return self._evaluate_expression(values, f.shape[:-1])

    def _evaluate_expression(self, values: Values, points: tuple[int, ...]) -> Floats:
        with np.errstate(all="ignore"):  # undefined values become NaN in the map
            found = np.asarray(self.expression.evaluate(values), dtype=np.float64)
        return found if self.expression.dimension else found.reshape(*points, 1)


class Threshold(NamedTuple):
    """A threshold of a quantity, in its unit."""

    name: str
    value: float


def parse_threshold(text: str, units: dict[str, str]) -> Threshold:
    """Parse a threshold such as ``velocity > 2500 m/s``.

    Parameters
    ----------
    text : str
        Without a unit, the number is in the unit of the quantity.
    units : dict of str to str
        Unit of each quantity.

    Returns
    -------
    Threshold

    Raises
    ------
    ConfigError
        The text cannot be parsed, or the quantity or the unit is unknown.
    """
    parts = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*>\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*", text)
    if parts is None:
        raise ArgumentError(
            f"exceed: must be 'name > number unit', was {text!r}; it applies to all labels, and the "
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


def expression_latents(posterior: xr.Dataset, fields: Sequence[LatentField]) -> list[ExpressionLatent]:
    """Return the latents of a posterior as expressions use them."""
    found = []
    for field in fields:
        array = posterior[field.name]
        dimension = next((str(d) for d in array.dims if d != "site"), None)
        labels = None
        if dimension is not None:
            labels = tuple(posterior.get(f"{dimension}_label", array[dimension]).values.tolist())
        linear = field.link.name == "identity"
        found.append(ExpressionLatent(field.name, array.attrs["units"], dimension, labels, linear))
    return found


def _stack(parts: list[Floats], like: Floats) -> Floats:
    return np.stack(parts) if parts else np.empty((0, *like.shape))


def _summarise_draws(values: Floats, levels: Floats, thresholds: Sequence[float]) -> PointSummary:
    """Return the summary of draws (R, B, L) of a quantity."""
    with np.errstate(invalid="ignore"):
        centre = values.mean(axis=0)
        above = [np.where(np.isnan(centre), np.nan, np.mean(values > t, axis=0)) for t in thresholds]
        quantiles = np.quantile(values, levels, axis=0) if len(levels) else np.empty((0, *centre.shape))
        return PointSummary(centre, values.std(axis=0, ddof=1), quantiles, _stack(above, centre))
