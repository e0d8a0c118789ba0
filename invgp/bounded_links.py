"""Links to quantities with bounds: a standard normal process becomes uniform, or a truncated normal, by its quantiles.

The prior of the process is standard normal. Its distribution function, followed by the quantile function of the wanted
distribution, gives a quantity with exactly this prior. All bounds are open: values at a bound have probability zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from invgp.links import LINKS, Floats, Link, normal_exceedance, normal_quantiles, std_of

QUADRATURE_NODES = 100  # of the moments; their error is below 1e-6 of the distance of the bounds


class _Bounded:
    """What both links share: summaries of an increasing function of one Gaussian variable."""

    elementwise: bool = True

    def __call__(self, f: Floats) -> Floats:
        """Return the physical values of f."""
        raise NotImplementedError

    def inverse(self, values: Floats) -> Floats:
        """Return f for physical values; not finite at and beyond the bounds."""
        raise NotImplementedError

    def prior_to_process(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002 - a link has its own
        """Return the mean 0 and the standard deviation 1 of f, (L,) each."""
        return np.zeros_like(mean), np.ones_like(mean)

    def moments(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation of the physical values, by Gauss-Hermite quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
        weights = weights / weights.sum()
        std = std_of(covariance)
        first, second = np.zeros_like(std + mean), np.zeros_like(std + mean)
        origin = self(np.broadcast_to(mean, first.shape))
        for node, weight in zip(nodes, weights, strict=True):
            offset = self(mean + node * std) - origin
            first += weight * offset
            second += weight * offset**2
        return origin + first, np.sqrt(np.maximum(second - first**2, 0.0))

    def quantiles(self, mean: Floats, covariance: Floats, probabilities: Floats) -> Floats:
        """Return quantiles of the physical values."""
        return self(normal_quantiles(mean, covariance, probabilities))

    def exceedance(self, mean: Floats, covariance: Floats, threshold: float) -> Floats:
        """Return the probability that a threshold is exceeded; 1 below the lower bound, 0 above the upper one."""
        at = self.inverse(np.full(mean.shape[-1], threshold))
        known = np.isfinite(at)
        found = normal_exceedance(mean, covariance, np.where(known, at, 0.0))
        return np.where(known, found, np.where(self.below(threshold), 1.0, 0.0))

    def below(self, threshold: float) -> Floats:
        """Return whether a threshold is at or below the lower bound, (L,)."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Uniform(_Bounded):
    """The physical quantity has a uniform prior between two bounds.

    Parameters
    ----------
    lower, upper : array, shape (L,), in the unit of the quantity
    """

    lower: Floats
    upper: Floats
    name: str = "uniform"

    def __call__(self, f: Floats) -> Floats:
        """Return the physical values of f."""
        from scipy.special import ndtr  # noqa: PLC0415 - a configuration is checked without importing SciPy

        return np.asarray(self.lower * ndtr(-f) + self.upper * ndtr(f))

    def inverse(self, values: Floats) -> Floats:
        """Return f for physical values; not finite at and beyond the bounds."""
        from scipy.special import ndtri  # noqa: PLC0415

        below, above = ((part / (self.upper - self.lower)) for part in (values - self.lower, self.upper - values))
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(below <= above, ndtri(below), -ndtri(above)))

    def process_to_prior(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002 - as the protocol
        """Return the mean and standard deviation of the uniform distribution."""
        return 0.5 * (self.lower + self.upper), (self.upper - self.lower) / np.sqrt(12.0)

    def below(self, threshold: float) -> Floats:
        """Return whether a threshold is at or below the lower bound, (L,)."""
        return np.asarray(threshold <= self.lower)


@dataclass(frozen=True, eq=False)
class TruncatedNormal(_Bounded):
    """The physical quantity has a normal prior that is cut off at one or two bounds.

    Parameters
    ----------
    mean, std : array, shape (L,), in the unit of the quantity
        Of the normal distribution before it is cut off.
    lower, upper : array, shape (L,), in the unit of the quantity
        Bounds; infinite for none.
    """

    mean: Floats
    std: Floats
    lower: Floats
    upper: Floats
    name: str = "truncated normal"

    def __call__(self, f: Floats) -> Floats:
        """Return the physical values of f."""
        from scipy.special import log_ndtr, ndtri_exp  # noqa: PLC0415

        low, high, sign = self._orient_bounds()
        g = sign * f
        # Phi(low) + Phi(g) (Phi(high) - Phi(low)), as a sum of positive terms, accurate in the tail.
        share = np.logaddexp(log_ndtr(low) + log_ndtr(-g), log_ndtr(high) + log_ndtr(g))
        y = np.clip(ndtri_exp(np.minimum(share, 0.0)), low, high)
        return np.asarray(self.mean + self.std * sign * y)

    def inverse(self, values: Floats) -> Floats:
        """Return f for physical values; not finite at and beyond the bounds."""
        from scipy.special import log_ndtr, ndtri_exp  # noqa: PLC0415

        low, high, sign = self._orient_bounds()
        y = sign * (values - self.mean) / self.std
        inside = (y > low) & (y < high)
        with np.errstate(divide="ignore", invalid="ignore"):
            here = log_ndtr(y)
            below = here + np.log1p(-np.exp(log_ndtr(low) - here))
            above = log_ndtr(high) + np.log1p(-np.exp(here - log_ndtr(high)))
            total = np.logaddexp(below, above)
            g = np.where(below <= above, ndtri_exp(below - total), -ndtri_exp(above - total))
        return np.asarray(np.where(inside, sign * g, np.nan))

    def process_to_prior(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:  # noqa: ARG002 - as the protocol
        """Return the mean and standard deviation of the normal distribution before it is cut off."""
        return self.mean, self.std

    def below(self, threshold: float) -> Floats:
        """Return whether a threshold is at or below the lower bound, (L,)."""
        return np.asarray(threshold <= self.lower)

    def _orient_bounds(self) -> tuple[Floats, Floats, Floats]:
        """Return the bounds in standard deviations, reflected so that the lower tail is the relevant one, and signs."""
        low, high = (self.lower - self.mean) / self.std, (self.upper - self.mean) / self.std
        sign = np.where(np.abs(low) < np.abs(high), -1.0, 1.0)
        sign = np.where(low > 0.0, -1.0, np.where(high < 0.0, 1.0, sign))
        return np.where(sign > 0.0, low, -high), np.where(sign > 0.0, high, -low), sign


def link_attributes(link: Link) -> dict[str, Any]:
    """Return the attributes of a latent that define its link."""
    if isinstance(link, Uniform):
        return {"link": link.name, "link_lower": link.lower, "link_upper": link.upper}
    if isinstance(link, TruncatedNormal):
        moments = {"link_mean": link.mean, "link_std": link.std}
        return {"link": link.name, "link_lower": link.lower, "link_upper": link.upper, **moments}
    return {"link": link.name}


def link_from_attributes(attributes: Mapping[str, Any], size: int) -> Link:
    """Return the link of a latent with `size` labels that `link_attributes` described.

    Raises
    ------
    ValueError
        The attributes do not describe a link; the message states the first defect.
    """
    name = attributes.get("link")
    if name in LINKS:
        return LINKS[str(name)]
    bounds = ("link_lower", "link_upper")
    keys: dict[str, tuple[str, ...]] = {"uniform": bounds, "truncated normal": ("link_mean", "link_std", *bounds)}
    if name not in keys:
        known = ", ".join(repr(one) for one in (*LINKS, *keys))
        raise ValueError(f"the attribute 'link' must be {known}, was {name!r}")
    values = {}
    for key in keys[str(name)]:
        values[key] = np.atleast_1d(np.asarray(attributes.get(key, np.nan)))
        if values[key].dtype.kind not in "iuf" or values[key].shape != (size,) or np.isnan(values[key]).any():
            raise ValueError(f"the attribute {key!r} must be {size} numbers, was {attributes.get(key)!r}")
    values = {key: value.astype(np.float64) for key, value in values.items()}
    if not np.all(values["link_lower"] < values["link_upper"]):
        raise ValueError("the attribute 'link_lower' must be below 'link_upper'")
    if name == "uniform":
        return Uniform(values["link_lower"], values["link_upper"])
    if not np.all(values["link_std"] > 0.0):
        raise ValueError("the attribute 'link_std' must be positive")
    return TruncatedNormal(values["link_mean"], values["link_std"], values["link_lower"], values["link_upper"])
