"""A polynomial for each site, fitted to the runs nearest to its own.

What is rough somewhere spoils a polynomial that has to hold everywhere, but not one that is fitted elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.emulation.hermite_basis import Basis
from invgp.emulation.neighbours import Neighbours
from invgp.emulation.ridge import Ridge, members
from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats

RUNS_PER_FEATURE = 2.5  # those far away weigh little
LEAST_WEIGHT = 1e-4
FARTHEST = 1.5  # times the distance to the farthest run that was used


@dataclass(frozen=True)
class LocalPolynomials:
    """A fitted polynomial a site.

    Parameters
    ----------
    centres : (N, I), of the inputs of each site's runs.
    scales : (N, I), distance from there to the farthest run that was used, in the direction of each input.
    coefficients : (N, F, P).
    """

    basis: Basis
    centres: Floats
    scales: Floats
    coefficients: Floats

    @property
    def name(self) -> str:
        """In words."""
        return f"local {self.basis.name}"

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Outputs (B, P) at inputs (B, I) of the sites (B,)."""
        y = np.empty((len(x), self.coefficients.shape[-1]))
        standardised = self._standardised(x, sites)
        for rows in members(sites):
            y[rows] = self.basis(standardised[rows]).T @ self.coefficients[sites[rows[0]]]
        return y

    def outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Which inputs lie much farther away than the runs that were used, (B,)."""
        return np.asarray(np.linalg.norm(self._standardised(x, sites), axis=-1) > FARTHEST)

    def _standardised(self, x: Floats, sites: Integers) -> Floats:
        return (x - self.centres[sites]) / self.scales[sites]


def fit_local(
    basis: Basis, y: Floats, runs: Runs, folds: Integers, neighbours: Neighbours
) -> tuple[LocalPolynomials, Floats]:
    """Fit the basis at each site.

    Parameters
    ----------
    y : (R, P), finite at the runs that are `neighbours`.
    folds : (R,), runs with the same number are left out together.

    Returns
    -------
    The polynomials, and their errors (R, P) at runs that were left out; NaN where `y` is.
    """
    near, distances = neighbours.nearest(neighbours.centres, int(np.ceil(RUNS_PER_FEATURE * len(basis))))
    reach = distances[:, -1:] * (1.0 + 1e-9) + 1e-12
    roots = np.sqrt(np.maximum((1.0 - (distances / reach) ** 3) ** 3, LEAST_WEIGHT))
    scales = reach * neighbours.scale
    coefficients = np.empty((len(near), len(basis), y.shape[1]))
    left_out = np.full(y.shape, np.nan)
    for site in np.unique(neighbours.like):
        chosen = near[site]
        features = basis((neighbours.x[chosen] - neighbours.centres[site]) / scales[site])
        fit = Ridge.fit(features, y[chosen], roots[site])
        coefficients[neighbours.like == site] = fit.coefficients
        own = runs.sites[chosen] == site
        left_out[chosen[own]] = (fit.left_out(folds[chosen], own) / roots[site][:, None])[own]
    surface = LocalPolynomials(basis, neighbours.centres, scales, coefficients)
    return surface, np.where(np.isfinite(left_out), left_out, y - surface(neighbours.x, runs.sites))
