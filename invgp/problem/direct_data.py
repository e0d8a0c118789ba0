"""Direct data: measured values of the latents, or of expressions of them, which need no simulator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from invgp.adapters.protocol import Evaluations, Quantity, RunContext, Status
from invgp.adapters.quantities import check_batch, digest_of
from invgp.problem.expressions import DerivedExpression, ExpressionLatent, parse_quantity
from invgp.problem.survey import Floats


@dataclass(frozen=True)
class DirectModel:
    """The forward model of direct data: it evaluates expressions of the latents. See `ForwardModel`.

    Parameters
    ----------
    name : str
        Name of the source.
    latents : tuple of ExpressionLatent
        The latents in the expressions, in their units.
    outputs : tuple of Quantity
        The values, in their units.
    texts : tuple of str
        The expression of each output, such as ``"depth[2] - depth[1]"``.
    """

    name: str
    latents: tuple[ExpressionLatent, ...]
    outputs: tuple[Quantity, ...]
    texts: tuple[str, ...]
    rows_per_task: int = 4096

    @cached_property
    def expressions(self) -> tuple[DerivedExpression, ...]:
        """The expressions of the outputs."""
        pairs = zip(self.outputs, self.texts, strict=True)
        return tuple(parse_quantity(q.name, text, q.unit, self.latents, self.name) for q, text in pairs)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "expressions"}  # functions

    @property
    def inputs(self) -> tuple[Quantity, ...]:
        """The latents in the expressions."""
        return tuple(Quantity(latent.name, latent.unit, latent.labels) for latent in self.latents)

    @property
    def digest(self) -> str:
        """Digest of the expressions and units."""
        quantities = [repr(quantity) for quantity in (*self.inputs, *self.outputs)]
        return digest_of(["direct", *quantities, *self.texts])

    @property
    def linear(self) -> bool:
        """Whether all values are linear functions of the Gaussian processes."""
        return all(expression.linear for expression in self.expressions)

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Evaluate the expressions for rows (B, I) of latents."""
        values = check_batch(self.inputs, values, context)
        outputs = self.compute(values)
        defined = np.asarray(np.isfinite(outputs).all(axis=1))
        return Evaluations(
            np.where(defined[:, None], outputs, np.nan),
            tuple(Status.OK if ok else Status.NAN for ok in defined),
            tuple("" if ok else f"run {label}: not defined" for ok, label in zip(defined, context.labels, strict=True)),
        )

    def compute(self, values: Floats) -> Floats:
        """Return the outputs (B, P) for rows (B, I) of latents; NaN where an expression is not defined."""
        ends = np.cumsum([quantity.size for quantity in self.inputs])[:-1]
        parts = np.split(values, ends, axis=1)
        by_name = {quantity.name: part for quantity, part in zip(self.inputs, parts, strict=True)}
        found = [expression.evaluate(by_name) for expression in self.expressions]
        pairs = zip(found, self.outputs, strict=True)
        return np.concatenate([one.reshape(len(values), quantity.size) for one, quantity in pairs], axis=1)
