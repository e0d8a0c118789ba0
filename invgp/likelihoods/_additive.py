"""Base classes of the likelihoods with additive noise, y = location(f) + scale e."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import (
    check_latents,
    check_shapes,
    fill_missing,
    format_call,
    mask_missing,
    replace_fields,
)
from invgp.likelihoods._per_output import PerOutput

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class AdditiveNoise(ABC):
    """y = location(f) + scale e, with independent e of a standard density g.

    Then log p(y | f) = log g(r) - log scale with r = (y - location) / scale, summed over the outputs, and its
    derivative with respect to log scale is -r g'(r) / g(r) - 1.
    """

    separable: ClassVar[bool] = True
    scale_name: ClassVar[str] = "scale"
    log_scale: PerOutput

    def __repr__(self) -> str:
        return format_call(self, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name; None for a default."""
        values = self.log_scale.values
        shown: dict[str, Any] = {self.scale_name: self.scale}
        shown["outputs"] = self.outputs if values.ndim == 0 and self.outputs > 1 else None
        shown["learn"] = None if self.log_scale.learn or values.ndim == 2 else False
        return shown

    @property
    def outputs(self) -> int:
        """Number of outputs, P."""
        return self.log_scale.outputs

    @property
    def latents(self) -> int:
        """Number of latents, Q; equal to P unless a subclass has another `location`."""
        return self.outputs

    @property
    def scale(self) -> Array:
        """Scale of the noise in the unit of y, shape (), (P,) or (N, P)."""
        return array_namespace(self.log_scale.values).exp(self.log_scale.values)

    @property
    def parameters(self) -> Array:
        """Logarithm of the scale, (K,): K = 1 if shared, P if one for each output, 0 if known."""
        return self.log_scale.parameters

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with another logarithm of the scale, (K,)."""
        return replace_fields(self, log_scale=self.log_scale.with_parameters(parameters))

    def at_sites(self, rows: slice | Array) -> Self:
        """Return the likelihood of some sites, given by a slice or by row numbers."""
        return replace_fields(self, log_scale=self.log_scale.at_sites(rows))

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for y (N, P) and f (S, N, Q)."""
        xp = array_namespace(y, f)
        terms = self._standard_log_density(self._residual(y, f)) - self.log_scale.convert_like(f)
        return xp.sum(mask_missing(y, terms), axis=-1)

    def parameter_gradient(self, y: Array, f: Array) -> Array:
        """Compute the derivative of `log_density` with respect to each logarithm of a scale, (S, N, K)."""
        return self.log_scale.gradient(mask_missing(y, self._standard_slope(self._residual(y, f)) - 1.0))

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute mean and variance of y given f, (S, N, P) each."""
        xp = array_namespace(f)
        check_latents(f, self.latents)
        location = self.location(f)
        variance = self._standard_variance() * xp.exp(2.0 * self.log_scale.convert_like(f))
        return location, variance + xp.zeros_like(location)

    def location(self, f: Array) -> Array:
        """Compute the location of y, (S, N, P), for f (S, N, Q); the identity by default."""
        return f

    def _residual(self, y: Array, f: Array) -> Array:
        xp = array_namespace(y, f)
        check_shapes(y, f, outputs=self.outputs, latents=self.latents)
        return (fill_missing(y) - self.location(f)) * xp.exp(-self.log_scale.convert_like(f))

    @abstractmethod
    def _standard_log_density(self, r: Array) -> Array:
        """Log g(r)."""

    @abstractmethod
    def _standard_slope(self, r: Array) -> Array:
        """-r g'(r) / g(r)."""

    @abstractmethod
    def _standard_variance(self) -> float:
        """Variance under g."""


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GaussianNoise(AdditiveNoise):
    """y = location(f) + std e with standard normal e."""

    scale_name: ClassVar[str] = "std"

    @property
    def std(self) -> Array:
        """Standard deviation of the noise, in the unit of y: (), (P,) or (N, P)."""
        return self.scale

    def _standard_log_density(self, r: Array) -> Array:
        return -0.5 * r * r - HALF_LOG_TWO_PI

    def _standard_slope(self, r: Array) -> Array:
        return r * r

    def _standard_variance(self) -> float:
        return 1.0
