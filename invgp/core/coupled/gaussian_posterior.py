"""Gaussian posterior with its prior and its marginals, and distances between two posteriors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from invgp.core.backend import Array, array_namespace, to_numpy
from invgp.core.coupled.coupled_gaussian import CoupledGaussian, Marginals, SiteFactors
from invgp.core.coupled.hyperparameters import Hyperparameters
from invgp.core.coupled.prior import Prior


@dataclass(frozen=True)
class GaussianPosterior:
    """Posterior with all quantities that are derived from it.

    Attributes
    ----------
    sites : SiteFactors
        Site factors of all N sites.
    hyper : Hyperparameters
        Hyperparameters of the prior and the noise.
    prior : Prior
        Prior for these hyperparameters.
    q : CoupledGaussian
        Distribution of the whitened inducing variables.
    marginals : Marginals
        Posterior at each site.
    factor : Array, shape (N, Q, Q)
        Lower triangular F with F F^T = Sigma_n, the marginal covariance of site n.
    """

    sites: SiteFactors
    hyper: Hyperparameters
    prior: Prior
    q: CoupledGaussian
    marginals: Marginals
    factor: Array


def movement(old: GaussianPosterior, new: GaussianPosterior, share: float = 1.0) -> float:
    """Compute the largest change of the posterior over the sites: the larger of the changes of mean and spread.

    Parameters
    ----------
    old, new : GaussianPosterior
        Two posteriors for the same sites.
    share : float
        Share of the sites whose changes count: those that change least.

    Returns
    -------
    float
        Maximum of `mean_movement`, in standard deviations, and `spread_movement`.
    """
    if share == 1.0:
        changes = mean_movement(old.factor, old.marginals, new.marginals), spread_movement(old.marginals, new.marginals)
        return max(changes)
    squares = (
        _squared_mean_changes(old.factor, old.marginals, new.marginals),
        _squared_spread_changes(old.marginals, new.marginals),
    )
    return math.sqrt(max(float(np.quantile(to_numpy(part), share, method="higher")) for part in squares))


def mean_movement(factor: Array, old: Marginals, new: Marginals) -> float:
    """Compute the largest change of the mean over the sites, in standard deviations (root mean square over latents).

    Parameters
    ----------
    factor : Array, shape (B, Q, Q)
        Factor F with F F^T equal to the covariance of `old`.
    old, new : Marginals
        Posterior at B sites, before and after.
    """
    return math.sqrt(float(array_namespace(factor).max(_squared_mean_changes(factor, old, new))))


def _squared_mean_changes(factor: Array, old: Marginals, new: Marginals) -> Array:
    """Compute the squared change (B,) of the mean at each site."""
    xp = array_namespace(factor)
    change = xp.linalg.solve(factor, (new.mean - old.mean)[..., None])[..., 0]
    return xp.mean(xp.square(change), axis=1)


def spread_movement(old: Marginals, new: Marginals) -> float:
    """Compute the largest change of the log standard deviation over the sites (root mean square over latents).

    Parameters
    ----------
    old, new : Marginals
        Marginals of two posteriors at the same sites.

    Returns
    -------
    float
    """
    return math.sqrt(float(array_namespace(old.mean).max(_squared_spread_changes(old, new))))


def _squared_spread_changes(old: Marginals, new: Marginals) -> Array:
    """Compute the squared change (B,) of the log standard deviation at each site."""
    xp = array_namespace(old.mean)
    ratio = xp.linalg.diagonal(new.covariance) / xp.linalg.diagonal(old.covariance)
    return xp.mean(xp.square(0.5 * xp.log(ratio)), axis=1)
