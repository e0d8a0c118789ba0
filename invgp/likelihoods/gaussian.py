"""Gaussian noise with a known standard deviation for each observation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace

from invgp.core.backend import Array


@dataclass(frozen=True)
class Gaussian:
    """Independent Gaussian noise.

    Parameters
    ----------
    observed : y, (N, P); NaN where there is no observation.
    std : standard deviation of the noise, (N, P), in the unit of the observation.
    """

    observed: Array
    std: Array

    def log_density(self, outputs: Array) -> Array:
        """Log p(y_n | outputs), (S, N), for outputs (S, N, P). A missing observation adds nothing."""
        xp = array_namespace(outputs, self.observed, self.std)
        residual = (self.observed - outputs) / self.std
        terms = -0.5 * xp.square(residual) - xp.log(self.std) - 0.5 * math.log(2.0 * math.pi)
        return xp.sum(xp.where(xp.isnan(self.observed), xp.zeros_like(terms), terms), axis=-1)
