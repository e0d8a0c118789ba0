"""Unconstrained numbers of a likelihood, such as the logarithm of a noise scale: shared, per output or per datum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.checks import check_integer
from invgp.likelihoods._arrays import as_floats, check_parameters, convert_like, no_gradient, replace_fields


@dataclass(frozen=True, eq=False)
class PerOutput:
    """Unconstrained numbers that broadcast against (S, N, P).

    Attributes
    ----------
    values : array, shape (), (P,) or (N, P)
        One number for all outputs, one per output, or a known one per datum.
    outputs : int
        Number of outputs, P.
    learn : bool
        Whether the values are parameters; always False for shape (N, P).
    """

    values: Array
    outputs: int
    learn: bool

    @property
    def parameters(self) -> Array:
        """Parameters, shape (K,) with K = 1, P or 0."""
        xp = array_namespace(self.values)
        if not self.learn:
            return xp.zeros((0,), dtype=self.values.dtype, device=device_of(self.values))
        return xp.reshape(self.values, (-1,))

    def with_parameters(self, parameters: Array) -> PerOutput:
        """Return a copy with other values, which need not be finite."""
        parameters = check_parameters(parameters, self.parameters.shape[0])
        if not self.learn:
            return self
        return replace_fields(self, values=array_namespace(parameters).reshape(parameters, self.values.shape))

    def at_sites(self, rows: slice | Array) -> PerOutput:
        """Return the values of some sites, given by a slice or by row numbers."""
        if self.values.ndim < 2:
            return self
        xp = array_namespace(self.values)
        some = self.values[rows, :] if isinstance(rows, slice) else xp.take(self.values, rows, axis=0)
        return replace_fields(self, values=some)

    def convert_like(self, f: Array) -> Array:
        """Convert the values to the library, device and type of f; they broadcast against (S, N, P)."""
        if self.values.ndim == 2 and self.values.shape[0] != f.shape[1]:
            raise ValueError(f"the likelihood has numbers for {self.values.shape[0]} sites, f has {f.shape[1]}")
        return convert_like(self.values, f)

    def gradient(self, terms: Array) -> Array:
        """Compute the gradient (S, N, K) from the derivative (S, N, P) of each output with respect to its number."""
        if not self.learn:
            return no_gradient(terms)
        return array_namespace(terms).sum(terms, axis=-1, keepdims=True) if self.values.ndim == 0 else terms


def per_output(name: str, values: Any, outputs: int | None, *, learn: bool) -> PerOutput:
    """Check the shape of `values`; P is `outputs` or follows from the shape."""
    values = as_floats(name, values)
    if outputs is not None:
        check_integer("outputs", outputs, 1)
    if values.ndim > 2 or 0 in values.shape:
        raise ValueError(f"{name} must be a number, (P,) or (N, P), was of shape {tuple(values.shape)}")
    known = values.shape[-1] if values.ndim else outputs or 1
    if outputs is not None and outputs != known:
        raise ValueError(f"{name} has {known} outputs, but outputs = {outputs}")
    return PerOutput(values, known, learn and values.ndim < 2)


def log_per_output(name: str, values: Any, outputs: int | None, *, learn: bool) -> PerOutput:
    """Check positive `values` like `per_output`, and store their logarithms."""
    scale = per_output(name, values, outputs, learn=learn)
    return replace_fields(scale, values=log_positive(name, scale.values))


def log_positive(name: str, values: Any) -> Array:
    """Compute the logarithm of `values`; raise `ValueError` unless they are positive."""
    values = as_floats(name, values)
    xp = array_namespace(values)
    if not bool(xp.all(values > 0)):
        raise ValueError(f"{name} must be positive, was {values}")
    return xp.log(values)
