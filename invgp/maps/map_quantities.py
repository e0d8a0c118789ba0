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
from invgp.maps.posterior_field import LocatedPosterior, draw_mixture
from invgp.maps.process_prior import LatentField
from invgp.problem import Floats
from invgp.problem.expressions import DerivedExpression, ExpressionLatent, Values
from invgp.units import conversion, is_unit


class PointSummary(NamedTuple):
    """Summary of the posterior of a quantity with L labels at B points.

    Attributes
    ----------
    mean, std : array, shape (B, L)
    quantiles : array, shape (K, B, L)
    exceedance : array, shape (T, B, L)
        Probabilities that thresholds are exceeded.
    information, prior_mean, prior_std : array, shape (B, L), or None
        Information gained, and prior of the quantity; None for a derived quantity.
    """

    mean: Floats
    std: Floats
    quantiles: Floats
    exceedance: Floats
    information: Floats | None = None
    prior_mean: Floats | None = None
    prior_std: Floats | None = None


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

    def summary(self, at: LocatedPosterior, levels: Floats) -> PointSummary:
        """Return its summary at points; `levels` are the probabilities of the quantiles.

        Parameters
        ----------
        at : LocatedPosterior
            Posterior at B points.
        levels : array
            Probabilities of the quantiles.

        Returns
        -------
        PointSummary
        """

    def values(self, f: Floats) -> Floats:
        """Return physical values (R, B, L) for draws (R, B, Q) of all processes.

        Parameters
        ----------
        f : array, shape (R, B, Q)
            Draws of all processes.

        Returns
        -------
        array, shape (R, B, L)
        """


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

    def summary(self, at: LocatedPosterior, levels: Floats) -> PointSummary:
        """Return its summary at points, as `invgp run` computes it at the sites."""
        if at.posterior.groups:
            return _join([self._summary_of_draws(part, levels) for part in at.split()])
        link, size = self.field.link, self.field.size
        if link.elementwise:
            # Labels do not mix, and one process at a time costs the fewest operations.
            parts = [at.moments([j]) for j in self.processes]
            mean = np.concatenate([m for m, _ in parts], axis=-1)
            covariance = np.stack([c[:, 0, 0] for _, c in parts], axis=-1)[..., None] * np.eye(size)
        else:
            mean, covariance = at.moments(self.processes)
        centre, std = link.moments(mean, covariance)
        summary = PointSummary(
            centre,
            std,
            link.quantiles(mean, covariance, levels),
            _stack([link.exceedance(mean, covariance, t) for t in self.thresholds], centre),
        )
        return self._with_prior(summary, np.diagonal(covariance, axis1=1, axis2=2), at)

    def _with_prior(self, summary: PointSummary, variance: Floats, at: LocatedPosterior) -> PointSummary:
        """Add the prior and the information gained; `variance` (B, L) is that of the processes."""
        prior_process, prior_variance = at.mean[:, self.processes], at.prior_variance(self.processes)
        ratio = self.field.variance_ratio(variance, summary.std, prior_process, prior_variance)
        prior_mean, prior_std = self.field.prior_moments(prior_process, prior_variance)
        return summary._replace(information=1.0 - ratio, prior_mean=prior_mean, prior_std=prior_std)

    def _summary_of_draws(self, at: LocatedPosterior, levels: Floats) -> PointSummary:
        """Return the summary of draws from the exact posterior.

        For an elementwise link, mean and standard deviation are those of the mixture, without the error of the draws
        given the inducing variables.
        """
        link = self.field.link
        if not link.elementwise:
            summary = _summarise_values(link(_stack_draws(at, self.processes)), levels, self.thresholds)
            return self._with_prior(summary, at.prior_variance(self.processes), at)
        parts = [self._summary_of_process(at, j, levels) for j in self.processes]
        summaries, variances = [summary[:4] for summary, _ in parts], [variance for _, variance in parts]
        summary = PointSummary(*(np.concatenate(part, axis=-1) for part in zip(*summaries, strict=True)))
        return self._with_prior(summary, np.stack(variances, axis=-1), at)

    def _summary_of_process(self, at: LocatedPosterior, process: int, levels: Floats) -> tuple[PointSummary, Floats]:
        """Return the summary (..., B, 1) of one label of a latent with an elementwise link, and its variance (B,)."""
        link = self.field.link
        mean, variance = at.mixture(process)
        centres, spreads = link.moments(mean[..., None], variance[..., None, None])
        values = link(draw_mixture(mean, variance, process))[..., None]
        summary = _summarise_values(values, levels, self.thresholds)
        moments = summary._replace(
            mean=centres.mean(axis=1), std=np.sqrt(_mixture_variance(centres[..., 0], spreads[..., 0] ** 2))[:, None]
        )
        return moments, _mixture_variance(mean, variance)

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

    def summary(self, at: LocatedPosterior, levels: Floats) -> PointSummary:
        """Return its summary at points."""
        if at.posterior.groups:
            parts = (self._evaluate(_stack_draws(part, self.processes)) for part in at.split())
            return _join([_summarise_values(values, levels, self.thresholds) for values in parts])
        mean, covariance = at.moments(self.processes)
        if self.expression.linear:
            return self._closed_form_summary(mean, covariance, levels)
        draws = normal_draws(mean, covariance)
        return _join([_summarise_values(self._evaluate(f), levels, self.thresholds) for f in draws])

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


def _join(parts: Sequence[PointSummary]) -> PointSummary:
    """Return the summary at the points of all parts."""
    means, stds, quantiles, exceedance, *prior = zip(*parts, strict=True)
    return PointSummary(
        np.concatenate(means),
        np.concatenate(stds),
        np.concatenate(quantiles, axis=1),
        np.concatenate(exceedance, axis=1),
        *(None if values[0] is None else np.concatenate(values) for values in prior),
    )


def _stack_draws(at: LocatedPosterior, processes: Sequence[int]) -> Floats:
    """Return draws (B, S, g) of g processes at each point from the exact posterior."""
    return np.stack([at.process_draws(j) for j in processes], axis=-1)


def _mixture_variance(mean: Floats, variance: Floats) -> Floats:
    """Return the variance (B,) of a mixture with means (B, R) and variances (B, R) or (B, 1)."""
    between = mean.var(axis=1, ddof=1) if mean.shape[1] > 1 else 0.0
    return np.asarray(variance.mean(axis=1) + between)


def _summarise_values(values: Floats, levels: Floats, thresholds: Sequence[float]) -> PointSummary:
    """Return the summary of S values (B, S, L) of a quantity at each point."""
    with np.errstate(invalid="ignore"):
        centre = values.mean(axis=1)
        above = [np.where(np.isnan(centre), np.nan, np.mean(values > t, axis=1)) for t in thresholds]
        quantiles = _quantiles(values, levels) if len(levels) else np.empty((0, *centre.shape))
        return PointSummary(centre, values.std(axis=1), quantiles, _stack(above, centre))


def _quantiles(values: Floats, levels: Floats) -> Floats:
    """Return quantiles (K, B, L) of values (B, S, L), as `numpy.quantile` but faster: whole rows are sorted."""
    ordered = np.sort(values.swapaxes(1, 2), axis=-1)
    place = levels * (ordered.shape[-1] - 1)
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, ordered.shape[-1] - 1)
    share = place - below
    found = np.moveaxis((1.0 - share) * ordered[..., below] + share * ordered[..., above], -1, 0)
    return np.where(np.isnan(ordered[..., -1]), np.nan, found)  # NaN sorts to the end
