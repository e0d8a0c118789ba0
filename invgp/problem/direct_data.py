"""Data that need no simulator: values of expressions of the latents, and the factors of an earlier posterior."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from invgp.adapters.protocol import Evaluations, Quantity, RunContext, Status
from invgp.adapters.quantities import check_batch, digest_of
from invgp.problem.expressions import DerivedExpression, ExpressionLatent, parse_quantity
from invgp.problem.prior_and_noise import Latent
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
        """Evaluate the expressions for rows (B, I) of latents.

        Parameters
        ----------
        values : array, shape (B, I), in the units of the inputs
        context : RunContext

        Returns
        -------
        Evaluations
        """
        values = check_batch(self.inputs, values, context)
        outputs = self.compute(values)
        defined = np.asarray(np.isfinite(outputs).all(axis=1))
        return Evaluations(
            np.where(defined[:, None], outputs, np.nan),
            tuple(Status.OK if ok else Status.NAN for ok in defined),
            tuple("" if ok else f"run {label}: not defined" for ok, label in zip(defined, context.labels, strict=True)),
        )

    def compute(self, values: Floats) -> Floats:
        """Return the outputs (B, P) for rows (B, I) of latents; NaN where an expression is not defined.

        Parameters
        ----------
        values : array, shape (B, I), in the units of the inputs

        Returns
        -------
        array, shape (B, P), in the units of the outputs
        """
        ends = np.cumsum([quantity.size for quantity in self.inputs])[:-1]
        parts = np.split(values, ends, axis=1)
        by_name = {quantity.name: part for quantity, part in zip(self.inputs, parts, strict=True)}
        found = [expression.evaluate(by_name) for expression in self.expressions]
        pairs = zip(found, self.outputs, strict=True)
        return np.concatenate([one.reshape(len(values), quantity.size) for one, quantity in pairs], axis=1)


SITE_COLUMN = "prior_site"  # covariate with the number of a site of the earlier posterior, from 0


@dataclass(frozen=True)
class EarlierSites:
    """The data of an earlier posterior of a site model, as linear functions of the latents before their links.

    It is a `ForwardModel`, like `DirectModel`. Its data have noise of standard deviation 1.

    Parameters
    ----------
    name : str
        Name of the source.
    latents : tuple of Latent
        Latents of the earlier posterior, in their units.
    weights : array, shape (N, K, K)
        Weights of the K arguments of the links at each of its sites, for each of K values; 0 for a missing value.
    outputs : tuple of Quantity
        The values.
    file : str
        File of the earlier posterior; empty for a dataset.
    doubts : tuple of str
        Sentences on the accuracy of the Gaussian factors.
    """

    name: str
    latents: tuple[Latent, ...]
    weights: Floats
    outputs: tuple[Quantity, ...]
    file: str = ""
    doubts: tuple[str, ...] = ()
    rows_per_task: int = 4096
    linear: bool = True

    @property
    def inputs(self) -> tuple[Quantity, ...]:
        """The latents, and the number of the site."""
        return (*(Quantity(one.name, one.unit, one.labels) for one in self.latents), Quantity(SITE_COLUMN, "1"))

    @property
    def digest(self) -> str:
        """Digest of the weights and units."""
        quantities = [repr(quantity) for quantity in (*self.inputs, *self.outputs)]
        return digest_of(["earlier posterior", *quantities, hashlib.sha256(self.weights.tobytes()).hexdigest()])

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Evaluate the linear functions for rows (B, I) of latents.

        Parameters
        ----------
        values : array, shape (B, I), in the units of the inputs
        context : RunContext

        Returns
        -------
        Evaluations
        """
        values = check_batch(self.inputs, values, context)
        return Evaluations(self.compute(values), (Status.OK,) * len(values), ("",) * len(values))

    def compute(self, values: Floats) -> Floats:
        """Return the outputs (B, K) for rows (B, I) of latents.

        Parameters
        ----------
        values : array, shape (B, I), in the units of the inputs

        Returns
        -------
        array, shape (B, K)
        """
        parts = np.split(values, np.cumsum([latent.size for latent in self.latents]), axis=1)
        arguments = [latent.link.inverse(part) for latent, part in zip(self.latents, parts, strict=False)]
        weights = self.weights[values[:, -1].astype(np.intp)]
        return np.asarray((weights @ np.concatenate(arguments, axis=1)[..., None])[..., 0])


@dataclass(frozen=True)
class EarlierField:
    """An earlier posterior of a field model: a Gaussian of its whitened processes at inducing points.

    Parameters
    ----------
    name : str
        Name of the source.
    inducing : array, shape (Q, M, D)
        Inducing points of each process, in the order and units of the coordinates of the grid.
    mean : array, shape (Q, M)
        Mean of the processes minus their prior mean, whitened by the Cholesky factor of their prior covariance.
    root : array, shape (Q M, Q M)
        T; the covariance of the whitened processes is T^T T.
    file : str
        File of the earlier posterior; empty for a dataset.
    doubts : tuple of str
        Sentences on the accuracy of the Gaussian.
    """

    name: str
    inducing: Floats
    mean: Floats
    root: Floats
    file: str = ""
    doubts: tuple[str, ...] = ()
    inputs: tuple[Quantity, ...] = ()
    outputs: tuple[Quantity, ...] = ()
    rows_per_task: int = 1

    @property
    def digest(self) -> str:
        """Digest of the Gaussian."""
        arrays = (self.inducing, self.mean, self.root)
        return digest_of(["earlier field", *(hashlib.sha256(a.tobytes()).hexdigest() for a in arrays)])

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:  # noqa: ARG002 - as the protocol
        """Return no outputs: the Gaussian is not a function of rows of latents.

        Parameters
        ----------
        values : array, shape (B, I), in the units of the inputs
        context : RunContext

        Returns
        -------
        Evaluations
        """
        return Evaluations(np.empty((len(values), 0)), (Status.OK,) * len(values), ("",) * len(values))
