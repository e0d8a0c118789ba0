"""Links: functions from latent Gaussian processes f to physical quantities.

A link acts on the last axis, which has the L labels of a latent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 2**12  # for quantiles without a closed form; their error is about 0.01 standard deviations
SITES_AT_ONCE = 256
TINY = 1e-12  # added to the diagonal of correlations, which may be singular


class Link(Protocol):
    """A function from the scale of the Gaussian process to the physical scale."""

    @property
    def name(self) -> str:
        """Name in the configuration."""

    @property
    def elementwise(self) -> bool:
        """Whether each physical value is an increasing function of its own process only."""

    def __call__(self, f: Floats) -> Floats:
        """Return the physical values of f, (..., L)."""

    def inverse(self, values: Floats) -> Floats:
        """Return f for physical values, (..., L); not finite where there is none.

        Parameters
        ----------
        values : array, shape (..., L)
            Physical values of L labels.

        Returns
        -------
        array, shape (..., L)
        """

    def prior_to_process(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation (L,) of f for a prior as in the configuration.

        Parameters
        ----------
        mean, std : array, shape (L,)
            Prior of the physical quantity, in its unit.

        Returns
        -------
        mean, std : array, shape (L,)
            Moments of the process f.
        """

    def process_to_prior(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the prior mean and standard deviation (L,) in the configuration: the inverse of `prior_to_process`.

        Parameters
        ----------
        mean, std : array, shape (L,)
            Moments of the process f.

        Returns
        -------
        mean, std : array, shape (L,)
            Prior of the physical quantity, in its unit.
        """

    def moments(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Return the mean and std (..., L) of the physical values of f ~ N(mean, covariance (..., L, L)).

        Parameters
        ----------
        mean : array, shape (..., L)
            Mean of the process f.
        covariance : array, shape (..., L, L)
            Its covariance between labels.

        Returns
        -------
        mean, std : array, shape (..., L)
            In the unit of the quantity.
        """

    def quantiles(self, mean: Floats, covariance: Floats, probabilities: Floats) -> Floats:
        """Return quantiles (K, N, L) of the physical values of f ~ N(mean (N, L), covariance (N, L, L)).

        Parameters
        ----------
        mean : array, shape (N, L)
            Mean of the process f.
        covariance : array, shape (N, L, L)
            Its covariance between labels.
        probabilities : array, shape (K,)
            Between 0 and 1.

        Returns
        -------
        array, shape (K, N, L)
        """

    def exceedance(self, mean: Floats, covariance: Floats, threshold: float) -> Floats:
        """Return the probability (N, L) that the physical values exceed a threshold.

        Parameters
        ----------
        mean : array, shape (N, L)
            Mean of the process f.
        covariance : array, shape (N, L, L)
            Its covariance between labels.
        threshold : float
            In the unit of the quantity.

        Returns
        -------
        array, shape (N, L)
        """


def normal_draws(mean: Floats, covariance: Floats) -> Iterator[Floats]:
    """Draw f ~ N(mean, covariance) at one batch of sites after another, with the same Sobol points at all sites.

    Parameters
    ----------
    mean : array, shape (N, L)
    covariance : array, shape (N, L, L)

    Yields
    ------
    array, shape (B, S, L)
        Draws at B sites.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - a configuration is checked without importing SciPy
    from scipy.stats import qmc  # noqa: PLC0415

    labels = mean.shape[-1]
    normals = ndtri(qmc.Sobol(labels, rng=np.random.default_rng(0)).random(DRAWS))
    # The factor is that of the correlations, because variances in different units differ by orders of magnitude.
    std = std_of(covariance)
    scale = np.where(std > 0.0, std, 1.0)
    correlation = covariance / (scale[..., :, None] * scale[..., None, :])
    factors = std[..., :, None] * np.linalg.cholesky(correlation + TINY * np.eye(labels))
    for start in range(0, len(mean), SITES_AT_ONCE):
        here = slice(start, start + SITES_AT_ONCE)
        yield mean[here, None, :] + normals @ factors[here].swapaxes(-1, -2)


def normal_exceedance(mean: Floats, covariance: Floats, threshold: float | Floats) -> Floats:
    """Return the probability that f ~ N(mean, covariance) exceeds a threshold, or one for each label."""
    from scipy.special import ndtr  # noqa: PLC0415

    return np.asarray(ndtr((mean - threshold) / std_of(covariance)))


def normal_quantiles(mean: Floats, covariance: Floats, probabilities: Floats) -> Floats:
    """Return quantiles (K, N, L) of f ~ N(mean (N, L), covariance (N, L, L))."""
    scores = np.asarray([NormalDist().inv_cdf(p) for p in probabilities])
    return np.asarray(mean + std_of(covariance) * scores[:, None, None])


def std_of(covariance: Floats) -> Floats:
    """Return the standard deviations (..., L) of covariances (..., L, L)."""
    return np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))


@dataclass(frozen=True)
class Identity:
    """The physical quantity is the latent itself."""

    name: str = "identity"
    elementwise: bool = True

    def __call__(self, f: Floats) -> Floats:
        """Return the physical values of f."""
        return f

    def inverse(self, values: Floats) -> Floats:
        """Return f for physical values."""
        return values

    def prior_to_process(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of f."""
        return mean, std

    def process_to_prior(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the same mean and standard deviation."""
        return mean, std

    def moments(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of the physical values."""
        return mean, std_of(covariance)

    def quantiles(self, mean: Floats, covariance: Floats, probabilities: Floats) -> Floats:
        """Return quantiles of the physical values."""
        return normal_quantiles(mean, covariance, probabilities)

    def exceedance(self, mean: Floats, covariance: Floats, threshold: float) -> Floats:
        """Return the probability that a threshold is exceeded."""
        return normal_exceedance(mean, covariance, threshold)


@dataclass(frozen=True)
class Log:
    """The latent is the logarithm of the physical quantity, which is therefore positive and log-normal."""

    name: str = "log"
    elementwise: bool = True

    def __call__(self, f: Floats) -> Floats:
        """Return the physical values of f."""
        return np.asarray(np.exp(f))

    def inverse(self, values: Floats) -> Floats:
        """Return f for physical values."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(values))

    def prior_to_process(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of f for given moments of exp(f)."""
        variance = np.log1p((std / mean) ** 2)
        return np.log(mean) - 0.5 * variance, np.sqrt(variance)

    def process_to_prior(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of exp(f)."""
        physical = np.exp(mean + 0.5 * std**2)
        return physical, physical * np.sqrt(np.expm1(std**2))

    def moments(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of exp(f)."""
        return self.process_to_prior(mean, std_of(covariance))

    def quantiles(self, mean: Floats, covariance: Floats, probabilities: Floats) -> Floats:
        """Return quantiles of exp(f)."""
        return np.asarray(np.exp(normal_quantiles(mean, covariance, probabilities)))

    def exceedance(self, mean: Floats, covariance: Floats, threshold: float) -> Floats:
        """Return the probability that a threshold is exceeded; it is 1 for a threshold that is not positive."""
        return normal_exceedance(mean, covariance, math.log(threshold)) if threshold > 0.0 else np.ones_like(mean)


@dataclass(frozen=True)
class Increasing:
    """The physical quantity increases from label to label; the processes are the logarithms of its increments.

    For example, a depth is a sum of positive thicknesses. The mean in the configuration is that of the quantity, the
    standard deviation is that of each increment.
    """

    name: str = "increasing"
    elementwise: bool = False

    def __call__(self, f: Floats) -> Floats:
        """Return the physical values of f."""
        return np.asarray(np.cumsum(np.exp(f), axis=-1))

    def inverse(self, values: Floats) -> Floats:
        """Return f for physical values."""
        return Log().inverse(np.diff(values, axis=-1, prepend=0.0))

    def prior_to_process(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of f for a mean of the quantity and a std of its increments."""
        return Log().prior_to_process(np.diff(mean, prepend=0.0), std)

    def process_to_prior(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the mean of the quantity and the standard deviation of its increments."""
        increments, spread = Log().process_to_prior(mean, std)
        return np.cumsum(increments), spread

    def moments(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of the cumulative sums of exp(f)."""
        increments, _ = Log().moments(mean, covariance)
        shared = increments[..., :, None] * np.expm1(covariance) * increments[..., None, :]
        variances = np.diagonal(np.cumsum(np.cumsum(shared, axis=-1), axis=-2), axis1=-2, axis2=-1)
        return np.cumsum(increments, axis=-1), np.sqrt(variances)

    def quantiles(self, mean: Floats, covariance: Floats, probabilities: Floats) -> Floats:
        """Return quantiles of the cumulative sums of exp(f), estimated from draws."""
        parts = [np.quantile(self(f), probabilities, axis=1) for f in normal_draws(mean, covariance)]
        return np.concatenate(parts, axis=1)

    def exceedance(self, mean: Floats, covariance: Floats, threshold: float) -> Floats:
        """Return the probability that a threshold is exceeded, estimated from draws."""
        return np.concatenate([np.mean(self(f) > threshold, axis=1) for f in normal_draws(mean, covariance)])


LINKS: dict[str, Link] = {"identity": Identity(), "log": Log(), "increasing": Increasing()}
BOUNDED_LINKS = ("uniform", "truncated normal")  # see `invgp.bounded_links`
