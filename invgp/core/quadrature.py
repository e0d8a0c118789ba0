"""Expectations of a density under one normal by adaptive quadrature in logarithms, also for narrow densities.

The widths of the panels grow with the distance from the peak of the integrand, up to hundreds of standard deviations.
At each site, the panel with the largest error (the difference between the panel and its halves) is halved until the
total error is small. The panels are on the host; densities are evaluated on the device of the data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, backend_of, to_numpy

Floats = NDArray[np.float64]
Integrand = Callable[[Floats], Floats]  # z (S, N) -> logarithm of the integrand (S, N)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
# In standard deviations: grid of the peak search, and edges of the panels on either side of the peak.
PEAK_SEARCH_GRID = np.sinh(np.linspace(-7.6, 7.6, 129))
PANEL_EDGES = np.asarray([0.0, *4.0 ** np.arange(-10.0, 6.0)])


@dataclass(frozen=True)
class QuadratureOptions:
    """Tuning of the adaptive quadrature.

    Attributes
    ----------
    max_refinements : int
        Halvings of panels per site.
    tolerance : float
        Relative error at which the refinement ends.
    warn_error : float
        Relative error above which there is a warning.
    peak_zooms : int
        Refinements of the search for the peak.
    """

    max_refinements: int = 80
    tolerance: float = 1e-7
    warn_error: float = 1e-3
    peak_zooms: int = 8


class _Panels(NamedTuple):
    """Panels from `low` to `high`, with the log integrals of the panel and of its halves; (J, N) each."""

    low: Floats
    high: Floats
    whole: Floats
    left: Floats
    right: Floats

    @property
    def total(self) -> Floats:
        """Logarithm of the sum over all halves, (N,)."""
        return log_sum(np.concatenate([self.left, self.right]))

    @property
    def log_error(self) -> Floats:
        """Logarithm of the difference between the halves and the panel, (J, N)."""
        halves = np.logaddexp(self.left, self.right)
        larger, smaller = np.maximum(halves, self.whole), np.minimum(halves, self.whole)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(larger > -np.inf, larger + np.log1p(-np.exp(smaller - larger)), -np.inf)


def log_expectation(
    log_density: Callable[[Array], Array],
    mean: Array,
    scale: Array,
    options: QuadratureOptions = QuadratureOptions(),
) -> Floats:
    """Compute log E[exp(log_density(f))] for normal f.

    Parameters
    ----------
    log_density : callable
        (S, N, 1) -> (S, N).
    mean, scale : array, shape (N, 1)
        Mean and standard deviation of f.
    options : QuadratureOptions

    Returns
    -------
    array, shape (N,)

    Warns
    -----
    UserWarning
        The relative error of a site is large.
    """
    backend, centre, width = backend_of(mean), to_numpy(mean)[:, 0], to_numpy(scale)[:, 0]

    def integrand(z: Floats) -> Floats:
        f = backend.asarray((centre + width * z)[..., None])
        found = np.asarray(to_numpy(log_density(f)), dtype=np.float64)
        # In the far tails a log density may be NaN; it counts as -inf there.
        return np.where(np.isnan(found), -np.inf, found) - 0.5 * z * z - 0.5 * math.log(2.0 * math.pi)

    panels = _panels_around(_peak(integrand, len(centre), options.peak_zooms), integrand)
    for _ in range(options.max_refinements):
        if np.all(_relative_error(panels) <= options.tolerance):
            break
        panels = _refine(panels, integrand)
    if np.any(_relative_error(panels) > options.warn_error):
        worst = np.max(_relative_error(panels))
        warnings.warn(f"a predictive density has a relative error of up to {worst:.1g}", stacklevel=2)
    return panels.total


def _peak(integrand: Integrand, sites: int, zooms: int) -> Floats:
    """Find the maximum of the integrand, (N,)."""
    z = np.repeat(PEAK_SEARCH_GRID[:, None], sites, axis=1)
    for _ in range(zooms):
        at, every = np.argmax(integrand(z), axis=0), np.arange(sites)
        low, high = z[np.maximum(at - 1, 0), every], z[np.minimum(at + 1, len(z) - 1), every]
        peak: Floats = z[at, every]
        z = low + (high - low) * np.linspace(0.0, 1.0, 17)[:, None]
    return peak


def _integrals(integrand: Integrand, low: Floats, high: Floats) -> Floats:
    """Compute the logarithms of the integrals over panels, (J, N), by Gauss-Legendre quadrature."""
    half = 0.5 * (high - low)
    z = 0.5 * (low + high) + half * NODES[:, None, None]
    found = integrand(z.reshape(-1, z.shape[-1])).reshape(z.shape)
    return log_sum(found + np.log(WEIGHTS)[:, None, None]) + np.log(half)


def _relative_error(panels: _Panels) -> Floats:
    total = panels.total
    relative: Floats = log_sum(panels.log_error) - np.where(total > -np.inf, total, 0.0)
    return np.exp(np.minimum(relative, 0.0))


def log_sum(logs: Floats) -> Floats:
    """Compute the logarithm of the sum of exponentials over the first axis."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0))


def _panels_around(peak: Floats, integrand: Integrand) -> _Panels:
    edges = peak + np.concatenate([-PANEL_EDGES[:0:-1], PANEL_EDGES])[:, None]
    low, high = edges[:-1], edges[1:]
    middle = 0.5 * (low + high)
    parts = ((low, high), (low, middle), (middle, high))
    return _Panels(low, high, *(_integrals(integrand, *part) for part in parts))


def _refine(panels: _Panels, integrand: Integrand) -> _Panels:
    """Replace the panel with the largest error of each site by its halves."""
    at, sites = np.argmax(panels.log_error, axis=0), np.arange(panels.low.shape[1])
    low, high, _, left, right = (part[at, sites] for part in panels)
    quarters = low + (high - low) * np.arange(5)[:, None] / 4.0
    found = _integrals(integrand, quarters[:-1], quarters[1:])
    first = (low, quarters[2], left, found[0], found[1])
    second = (quarters[2], high, right, found[2], found[3])
    refined = []
    for part, one, other in zip(panels, first, second, strict=True):
        changed = np.concatenate([part, other[None]])
        changed[at, sites] = one
        refined.append(changed)
    return _Panels(*refined)
