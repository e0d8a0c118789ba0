"""Local polynomials: one for each site, fitted to the runs nearest to the runs of the site.

Where the simulator is rough, only the polynomials of the sites nearby are inaccurate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, backend_of
from invgp.emulation.hermite_basis import Basis
from invgp.emulation.neighbours import Neighbours
from invgp.emulation.polynomial import PullBack
from invgp.emulation.ridge import Ridge, group_positions
from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats

RUNS_PER_FEATURE = 2.5  # nearest runs per coefficient; distant runs have small weights
LEAST_WEIGHT = 1e-4  # smallest weight of a run that is used
FARTHEST = 1.5  # distance beyond which inputs are outside, relative to the farthest run that was used


@dataclass(frozen=True)
class LocalPolynomials:
    """One fitted polynomial per site.

    Parameters
    ----------
    basis : Basis
    centres : array, shape (N, I)
        Mean inputs of the newest runs of each site.
    scales : array, shape (N, I)
        Distance from the centre to the farthest run that was used, in the units of each input.
    coefficients : array, shape (N, F, P)
    """

    basis: Basis
    centres: Floats
    scales: Floats
    coefficients: Floats

    @property
    def name(self) -> str:
        """Name of the regression, for users."""
        return f"local {self.basis.name}"

    @property
    def width(self) -> int:
        """Numbers that one prediction takes."""
        return int(self.coefficients[0].size)

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Predict outputs (B, P) at inputs (B, I) of sites (B,)."""
        y = np.empty((len(x), self.coefficients.shape[-1]))
        standardised = self._standardise(x, sites)
        for rows in group_positions(sites):
            y[rows] = self.basis(standardised[rows]).T @ self.coefficients[sites[rows[0]]]
        return y

    def linearise(self, x: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict outputs (B, P), and return the function that multiplies cotangents by the derivatives."""
        xp, backend = array_namespace(x), backend_of(x)
        centres, scales, coefficients = (
            backend.asarray(part[sites]) for part in (self.centres, self.scales, self.coefficients)
        )
        features = self.basis((x - centres) / scales)
        by_row = xp.matrix_transpose(features)[:, None, :]

        def pull_back(cotangents: Array) -> Array:
            weights = xp.matrix_transpose((coefficients @ cotangents[..., None])[..., 0])
            return self.basis.pull_back(features, weights) / scales

        return (by_row @ coefficients)[:, 0, :], pull_back

    def is_outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Return a mask (B,) of the inputs that are much farther from the centre than the runs that were used."""
        return np.asarray(np.linalg.norm(self._standardise(x, sites), axis=-1) > FARTHEST)

    def _standardise(self, x: Floats, sites: Integers) -> Floats:
        return (x - self.centres[sites]) / self.scales[sites]


def fit_local(
    basis: Basis, y: Floats, runs: Runs, folds: Integers, neighbours: Neighbours
) -> tuple[LocalPolynomials, Floats]:
    """Fit one polynomial per site by weighted ridge regression.

    Parameters
    ----------
    basis : Basis
    y : array, shape (R, P)
        Outputs; finite at the runs among which `neighbours` searches.
    runs : Runs
    folds : array of int, shape (R,)
        Fold of each run.
    neighbours : Neighbours

    Returns
    -------
    surface : LocalPolynomials
    errors : array, shape (R, P)
        Cross-validation errors; NaN where `y` is NaN.
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
        left_out[chosen[own]] = (fit.left_out_errors(folds[chosen], own) / roots[site][:, None])[own]
    surface = LocalPolynomials(basis, neighbours.centres, scales, coefficients)
    return surface, np.where(np.isfinite(left_out), left_out, y - surface(neighbours.x, runs.sites))
