"""Draws from a posterior density of a few hyperparameters, by adaptive importance sampling.

The density is usually the evidence of a Gaussian approximation times the prior of the hyperparameters.

References
----------
Rue, Martino and Chopin (2009), for the exploration of this density around its maximum; Cornuet, Marin, Mira and Robert
(2012), for the weights of proposals from several distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, ndtri
from scipy.stats import chi2, qmc

Floats = NDArray[np.float64]
Cost = Callable[[Floats], float]  # hyperparameters (H,) -> negative log density; infinite where it is not defined


@dataclass(frozen=True)
class ProposalOptions:
    """Tuning of the importance sampling.

    Parameters
    ----------
    proposals : int
        Proposals of each round, and thus evaluations of the density, preferably a power of 2.
    rounds : int
        Rounds. After the first one, proposals have the mean and the covariance of the weighted proposals so far.
    degrees : float
        Degrees of freedom of the Student-t distribution of the proposals.
    difference : float
        Step of the finite differences of the curvature.
    farthest : float
        Largest difference of a hyperparameter from the start.
    """

    proposals: int = 256
    rounds: int = 3
    degrees: float = 5.0
    difference: float = 0.05
    farthest: float = np.inf


class HyperparameterNodes(NamedTuple):
    """Draws from the density.

    Attributes
    ----------
    theta : array, shape (count, H)
        Draws with equal weights, neighbours next to each other; a value can occur repeatedly.
    log_evidence : float
        Logarithm of the integral of the density.
    effective : float
        Effective number of the proposals of the last round.
    """

    theta: Floats
    log_evidence: float
    effective: float


class _StudentT(NamedTuple):
    """A multivariate Student-t distribution with covariance factor (H, H), x = centre + t @ factor."""

    centre: Floats
    factor: Floats
    degrees: float

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        points = qmc.Sobol(len(self.centre) + 1, rng=rng).random_base2(math.ceil(math.log2(count)))[:count]
        points = np.clip(points, 1e-9, 1.0 - 1e-9)
        wide = np.sqrt(self.degrees / chi2.ppf(points[:, :1], self.degrees))
        return np.asarray(self.centre + (ndtri(points[:, 1:]) * wide) @ self.factor)

    def log_density(self, theta: Floats) -> Floats:
        H, degrees = len(self.centre), self.degrees
        scaled = np.linalg.solve(self.factor.T, (theta - self.centre).T).T
        constant = gammaln(0.5 * (degrees + H)) - gammaln(0.5 * degrees) - 0.5 * H * np.log(degrees * np.pi)
        constant -= np.linalg.slogdet(self.factor)[1]
        return np.asarray(constant - 0.5 * (degrees + H) * np.log1p(np.sum(scaled**2, axis=1) / degrees))


def draw_hyperparameters(
    cost: Cost,
    start: Floats,
    spreads: Floats,
    count: int,
    rng: np.random.Generator,
    options: ProposalOptions | None = None,
) -> HyperparameterNodes:
    """Draw hyperparameters.

    Parameters
    ----------
    cost : callable
        Negative logarithm of the density.
    start : array, shape (H,)
        Point near the maximum of the density.
    spreads : array, shape (H,)
        Prior standard deviations: upper limits of the standard deviations of the first proposals.
    count : int
        Number of draws.
    rng : numpy.random.Generator
    options : ProposalOptions, optional

    Returns
    -------
    HyperparameterNodes
    """
    options = options or ProposalOptions()
    values, vectors = np.linalg.eigh(curvature(cost, start, options.difference))
    values = np.maximum(values, np.max(spreads) ** -2.0)
    proposal = _StudentT(start, vectors.T / np.sqrt(values)[:, None], options.degrees)
    parts: list[_StudentT] = []
    theta, costs = np.empty((0, len(start))), np.empty(0)
    for _ in range(options.rounds):
        new = proposal.sample(options.proposals, rng)
        near = np.abs(new - start).max(axis=1) <= options.farthest
        found = np.asarray([cost(one) if use else np.inf for one, use in zip(new, near, strict=True)])
        parts.append(proposal)
        theta, costs = np.concatenate([theta, new]), np.concatenate([costs, found])
        # Proposals of all rounds are weighted by the mixture of their distributions.
        mixture = logsumexp([part.log_density(theta) for part in parts], axis=0) - np.log(len(parts))
        weights = np.where(np.isfinite(costs), -costs - mixture, -np.inf)
        shares = np.exp(weights - logsumexp(weights))
        mean = shares @ theta
        covariance = (shares[:, None] * (theta - mean)).T @ (theta - mean)
        covariance += 1e-3 * np.diag(np.minimum(1.0 / values.min(), spreads**2))
        proposal = _StudentT(mean, np.linalg.cholesky(covariance).T, options.degrees)
    effective = float(1.0 / np.sum(shares**2))
    order = nested_order(np.linalg.solve(proposal.factor.T, (theta - mean).T).T, shares)
    places = (rng.random() + np.arange(count)) / count
    chosen = np.minimum(np.searchsorted(np.cumsum(shares[order]), places), len(theta) - 1)
    total = float(logsumexp(weights) - np.log(len(weights)))
    return HyperparameterNodes(theta[order[chosen]], total, effective)


def nested_order(points: Floats, shares: Floats) -> NDArray[np.intp]:
    """Return an order of points (n, H) with weights (n,) in which consecutive points are neighbours.

    The points are divided into halves of equal weight, perpendicular to their longest extent, and so on. Systematic
    resampling in this order takes points from everywhere.

    Parameters
    ----------
    points : array, shape (n, H)
    shares : array, shape (n,)
        Weight of each point.

    Returns
    -------
    array of int, shape (n,)
    """

    def divide(numbers: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        total = shares[numbers].sum()
        if len(numbers) < 3 or total <= 0.0:
            return [numbers]
        own, weights = points[numbers], shares[numbers] / total
        spread = weights @ (own - weights @ own) ** 2
        ordered = np.argsort(own[:, int(np.argmax(spread))], kind="stable")
        middle = int(np.searchsorted(np.cumsum(weights[ordered]), 0.5)) + 1
        middle = min(max(middle, 1), len(numbers) - 1)
        return divide(numbers[ordered[:middle]]) + divide(numbers[ordered[middle:]])

    return np.concatenate(divide(np.arange(len(points))))


def curvature(cost: Cost, theta: Floats, step: float) -> Floats:
    """Compute the matrix (H, H) of second derivatives at theta (H,) by central differences; 0 where not finite.

    Parameters
    ----------
    cost : callable
        Function of hyperparameters (H,).
    theta : array, shape (H,)
        Hyperparameters at which it is computed.
    step : float
        Step of the finite differences.

    Returns
    -------
    array, shape (H, H)
    """
    steps = step * np.eye(len(theta))
    with np.errstate(invalid="ignore"):
        found = [
            [cost(theta + a + b) - cost(theta + a - b) - cost(theta - a + b) + cost(theta - a - b) for b in steps]
            for a in steps
        ]
    matrix = np.asarray(found) / (4.0 * step**2)
    return np.where(np.isfinite(matrix), matrix, 0.0)
