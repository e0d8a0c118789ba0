"""Expected log densities of the sites under a posterior, from samples, in batches that fit the memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace
from invgp.core.estimators import SiteTerms, expectation, features_needed, score
from invgp.core.memory import BATCH_BUDGET, BATCH_SITES
from invgp.core.point_sets import Points

# samples f (S, B, Q), first site, last site + 1 -> log densities (S, B), and their derivatives (S, B, P) or None
LogDensity = Callable[[Array, int, int], tuple[Array, Array | None]]
# mean (B, Q), variance (B, Q), first site, last site + 1 -> expected log densities (B,), their derivatives with respect
# to mean and (twice) variance (B, Q), and to the parameters (B, P); an attribute `expected` of a LogDensity
ExpectedLogDensity = Callable[[Array, Array, int, int], tuple[Array, Array, Array, Array]]


class NotFiniteError(Exception):
    """A log density that must be finite is not."""


class Expected(NamedTuple):
    """Expected log densities of B sites and their derivatives, for each of K components; as in `SiteTerms`.

    Attributes
    ----------
    value : array, shape (K, B)
        Expected log densities.
    gradient, curvature : array, shape (K, B, Q)
        Derivatives with respect to the means, and twice those with respect to the variances.
    likelihood : array, shape (K, P), or None
        Derivatives with respect to the P parameters of the likelihood, summed over the sites.
    """

    value: Array
    gradient: Array
    curvature: Array
    likelihood: Array | None

    def of_component(self, k: int) -> SiteTerms:
        """Return the site terms of one component."""
        return SiteTerms(self.value[k, ...], self.gradient[k, ...], self.curvature[k, ...])


class Samples(NamedTuple):
    """Some sites of a batch, as a slice, with their points and the samples (S, B, Q) of each component."""

    rows: slice
    points: Points
    latents: list[Array]


def sample_batches(points: Points, sites: int) -> Iterator[slice]:
    """Yield ranges of sites whose samples fit the memory budget."""
    S, Q = points.base.shape
    fitting = BATCH_BUDGET // (8 * S * (2 * features_needed(Q, S) + 6))
    step = max(1, min(fitting, BATCH_SITES))
    for start in range(0, sites, step):
        yield slice(start, min(start + step, sites))


def iterate_samples(points: Points, mean: Array, scale: Array) -> Iterator[Samples]:
    """Yield samples from marginals with mean and scale (K, B, Q), in batches that fit the memory budget."""
    for rows in sample_batches(points, mean.shape[1]):
        here = points.at(rows.start, rows.stop)
        latents = [here.samples(mean[k, rows, :], scale[k, rows, :]) for k in range(mean.shape[0])]
        yield Samples(rows, here, latents)


def estimate_expectations(
    log_density: LogDensity, points: Points, mean: Array, scale: Array, start: int, *, strict: bool = False
) -> Expected:
    """Estimate expected log densities under the marginals of B sites.

    Parameters
    ----------
    log_density : LogDensity
        Log density of the observations at samples of the latents.
    points : Points
        Standard normal points of these sites.
    mean, scale : array, shape (K, B, Q)
        Means and standard deviations of the marginals.
    start : int
        Index of the first of these sites.
    strict : bool
        Whether a log density that is not finite raises `NotFiniteError`; otherwise its sample is ignored.

    Returns
    -------
    Expected

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), Theorem 1 and eq. (30).
    """
    closed_form = getattr(log_density, "expected", None)
    if closed_form is not None:
        return closed_form_expectations(closed_form, mean, scale, start, strict=strict)
    parts = []
    for rows, here, latents in iterate_samples(points, mean, scale):
        found = [log_density(f, start + rows.start, start + rows.stop) for f in latents]
        complete = all(all_finite(densities) for densities, _ in found)
        if strict and not complete:
            raise NotFiniteError
        parts.append(estimate_terms(here, scale[:, rows, :], found, complete=complete))
    return parts[0] if len(parts) == 1 else _concatenate(parts)


def closed_form_expectations(
    closed_form: ExpectedLogDensity, mean: Array, scale: Array, start: int, *, strict: bool
) -> Expected:
    """Compute expected log densities in closed form; arguments as in `estimate_expectations`."""
    xp = array_namespace(mean)
    found = [
        closed_form(mean[k, ...], xp.square(scale[k, ...]), start, start + mean.shape[1]) for k in range(mean.shape[0])
    ]
    if strict and not all(all_finite(value) for value, *_ in found):
        raise NotFiniteError
    value, gradient, curvature, parameters = (xp.stack(part) for part in zip(*found, strict=True))
    return Expected(value, gradient, curvature, xp.sum(parameters, axis=1) if parameters.shape[-1] else None)


def estimate_terms(
    points: Points, scale: Array, found: Sequence[tuple[Array, Array | None]], *, complete: bool
) -> Expected:
    """Estimate the site terms from log densities, and their derivatives, at the samples of each component.

    Samples whose log density is not finite are ignored; `complete` states that there are none.
    """
    xp = array_namespace(scale)
    terms, likelihood = [], []
    for k, (densities, derivatives) in enumerate(found):
        valid = None if complete else xp.isfinite(densities)
        terms.append(score(points, scale[k, ...], densities, valid))
        if derivatives is not None:
            likelihood.append(xp.sum(expectation(points, derivatives, valid), axis=0))
    value, gradient, curvature = (xp.stack(part) for part in zip(*terms, strict=True))
    return Expected(value, gradient, curvature, xp.stack(likelihood) if likelihood else None)


def _concatenate(parts: Sequence[Expected]) -> Expected:
    xp = array_namespace(parts[0].value)
    value, gradient, curvature = (xp.concat([part[i] for part in parts], axis=1) for i in range(3))
    summed = [part.likelihood for part in parts if part.likelihood is not None]
    return Expected(value, gradient, curvature, sum(summed[1:], start=summed[0]) if summed else None)


def all_finite(log_density: Array) -> bool:
    """Whether all log densities are finite; this synchronises the device with the host."""
    xp = array_namespace(log_density)
    return bool(xp.all(xp.isfinite(log_density)))
