"""A posterior and all that follows from it, and how far one is from another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.core.coupled.coupled_gaussian import Coupled, Marginals, SiteFactors
from invgp.core.coupled.hyperparameters import Hyperparameters
from invgp.core.coupled.prior import Prior


@dataclass(frozen=True)
class GaussianPosterior:
    """A posterior and all that follows from it.

    Attributes
    ----------
    sites, hyper : what is learnt.
    prior, q : that these make.
    marginals : at the sites.
    factor : lower triangular F with F F^T = Sigma_n, (N, Q, Q).
    """

    sites: SiteFactors
    hyper: Hyperparameters
    prior: Prior
    q: Coupled
    marginals: Marginals
    factor: Array


def movement(old: GaussianPosterior, new: GaussianPosterior) -> float:
    """How far the posterior of the site that moves most does: mean in standard deviations, or spread as a share.

    Root mean square over its latents.
    """
    return max(mean_movement(old.factor, old.marginals, new.marginals), spread_movement(old.marginals, new.marginals))


def mean_movement(factor: Array, old: Marginals, new: Marginals) -> float:
    """How far the mean of the site that moves most does, in units of a factor (B, Q, Q) of its covariance."""
    xp = array_namespace(factor)
    change = xp.linalg.solve(factor, (new.mean - old.mean)[..., None])[..., 0]
    return math.sqrt(float(xp.max(xp.mean(xp.square(change), axis=1))))


def spread_movement(old: Marginals, new: Marginals) -> float:
    """How much the spread of the site that changes most does, as a share."""
    xp = array_namespace(old.mean)
    ratio = xp.linalg.diagonal(new.covariance) / xp.linalg.diagonal(old.covariance)
    return math.sqrt(float(xp.max(xp.mean(xp.square(0.5 * xp.log(ratio)), axis=1))))
