"""Base class of likelihoods whose mean depends on the latent, with one positive parameter, such as a dispersion."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import (
    check_latents,
    check_shapes,
    check_values,
    format_call,
    mask_missing,
    replace_fields,
    set_fields,
)
from invgp.likelihoods._per_output import PerOutput, log_per_output


@dataclass(frozen=True, eq=False, init=False, repr=False)
class PositiveShape(ABC):
    """A likelihood with P = Q, a mean that depends on the latent, and a positive parameter s per output.

    The logarithm of s is the parameter that is learnt.
    """

    separable: ClassVar[bool] = True
    shape_name: ClassVar[str]
    log_shape: PerOutput

    def _set_shape(self, value: Array, outputs: int | None, *, learn: bool) -> None:
        set_fields(self, log_shape=log_per_output(self.shape_name, value, outputs, learn=learn))

    def __repr__(self) -> str:
        return format_call(self, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name; None for a default."""
        values, learn = self._shape(), self.log_shape.learn
        outputs = self.outputs if values.ndim == 0 and self.outputs > 1 else None
        return {self.shape_name: values, "outputs": outputs, "learn": None if learn or values.ndim == 2 else False}

    @property
    def outputs(self) -> int:
        """Number of outputs, P."""
        return self.log_shape.outputs

    @property
    def latents(self) -> int:
        """Number of latents, Q = P."""
        return self.outputs

    @property
    def parameters(self) -> Array:
        """Logarithm of the positive parameter, (K,): K = 1 if shared, P if one for each output, 0 if known."""
        return self.log_shape.parameters

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with another logarithm of the positive parameter, (K,)."""
        return replace_fields(self, log_shape=self.log_shape.with_parameters(parameters))

    def at_sites(self, rows: slice | Array) -> Self:
        """Return the likelihood of some sites, given by a slice or by row numbers."""
        return replace_fields(self, log_shape=self.log_shape.at_sites(rows))

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for y (N, P) and f (S, N, P)."""
        xp = array_namespace(y, f)
        check_shapes(y, f, outputs=self.outputs, latents=self.outputs)
        return xp.sum(mask_missing(y, self._terms(self._fill(y), f, self._shape_like(f))), axis=-1)

    def parameter_gradient(self, y: Array, f: Array) -> Array:
        """Compute the derivative of `log_density` with respect to each parameter, (S, N, K)."""
        check_shapes(y, f, outputs=self.outputs, latents=self.outputs)
        return self.log_shape.gradient(mask_missing(y, self._shape_gradient(self._fill(y), f, self._shape_like(f))))

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute mean and variance of y given f, (S, N, P) each."""
        check_latents(f, self.outputs)
        return self._moments(f, self._shape_like(f))

    def check(self, y: NDArray[Any]) -> None:
        """Raise `ValueError` unless all values of y can be observed."""
        check_values(self, y, self._is_possible(y), self.must)

    must: ClassVar[str]

    def _shape(self) -> Array:
        return array_namespace(self.log_shape.values).exp(self.log_shape.values)

    def _shape_like(self, f: Array) -> Array:
        return array_namespace(f).exp(self.log_shape.convert_like(f))

    def _fill(self, y: Array) -> Array:
        """Replace missing values by one that can be observed."""
        xp = array_namespace(y)
        return xp.where(xp.isnan(y), xp.full_like(y, self.possible), y)

    possible: ClassVar[float]

    @abstractmethod
    def _is_possible(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether values can be observed."""

    @abstractmethod
    def _terms(self, y: Array, f: Array, s: Array) -> Array:
        """Log density of each output."""

    @abstractmethod
    def _shape_gradient(self, y: Array, f: Array, s: Array) -> Array:
        """Derivative of `_terms` with respect to log s."""

    @abstractmethod
    def _moments(self, f: Array, s: Array) -> tuple[Array, Array]:
        """Mean and variance."""
