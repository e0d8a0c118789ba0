"""A free number of a likelihood, such as the logarithm of a noise scale: shared, one an output, or one a datum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.checks import check_integer
from invgp.likelihoods._arrays import as_floats, check_parameters, convert_like, no_gradient, replace_fields


@dataclass(frozen=True, eq=False)
class PerOutput:
    """Free numbers that broadcast against (S, N, P).

    Attributes
    ----------
    values : (), one shared by all outputs; (P,), one for each; or (N, P), a known one for each datum.
    outputs : P.
    learn : whether they are parameters; never for (N, P).
    """

    values: Array
    outputs: int
    learn: bool

    @property
    def parameters(self) -> Array:
        """(K,) with K = 1, P or 0."""
        xp = array_namespace(self.values)
        if not self.learn:
            return xp.zeros((0,), dtype=self.values.dtype, device=device_of(self.values))
        return xp.reshape(self.values, (-1,))

    def with_parameters(self, parameters: Array) -> PerOutput:
        """The same with other values; they need not be finite."""
        parameters = check_parameters(parameters, self.parameters.shape[0])
        if not self.learn:
            return self
        return replace_fields(self, values=array_namespace(parameters).reshape(parameters, self.values.shape))

    def at_sites(self, rows: slice | Array) -> PerOutput:
        """The numbers of some sites, by a slice or by their numbers."""
        if self.values.ndim < 2:
            return self
        xp = array_namespace(self.values)
        some = self.values[rows, :] if isinstance(rows, slice) else xp.take(self.values, rows, axis=0)
        return replace_fields(self, values=some)

    def convert_like(self, f: Array) -> Array:
        """The values where f lives; they broadcast against (S, N, P)."""
        if self.values.ndim == 2 and self.values.shape[0] != f.shape[1]:
            raise ValueError(f"the likelihood knows the noise of {self.values.shape[0]} sites, f has {f.shape[1]}")
        return convert_like(self.values, f)

    def gradient(self, terms: Array) -> Array:
        """(S, N, K), from the derivatives (S, N, P) of each output's log density with respect to its own number."""
        if not self.learn:
            return no_gradient(terms)
        return array_namespace(terms).sum(terms, axis=-1, keepdims=True) if self.values.ndim == 0 else terms


def per_output(name: str, values: Any, outputs: int | None, *, learn: bool) -> PerOutput:
    """Check the shape of `values`, and find P from it unless `outputs` says it."""
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
    """The same for positive `values`, kept as their logarithms."""
    scale = per_output(name, values, outputs, learn=learn)
    return replace_fields(scale, values=log_positive(name, scale.values))


def log_positive(name: str, values: Any) -> Array:
    """Logarithm of `values`, which must be positive."""
    values = as_floats(name, values)
    xp = array_namespace(values)
    if not bool(xp.all(values > 0)):
        raise ValueError(f"{name} must be positive, was {values}")
    return xp.log(values)
