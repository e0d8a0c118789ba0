"""An earlier posterior as part of the prior: the Gaussian factors of its data, which need no simulator."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from invgp.adapters.protocol import Evaluations, Quantity, RunContext, Status
from invgp.adapters.quantities import check_batch, digest_of
from invgp.problem.prior_and_noise import Latent
from invgp.problem.survey import Floats

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
        """Evaluate the linear functions for rows (B, I) of latents."""
        values = check_batch(self.inputs, values, context)
        return Evaluations(self.compute(values), (Status.OK,) * len(values), ("",) * len(values))

    def compute(self, values: Floats) -> Floats:
        """Return the outputs (B, K) for rows (B, I) of latents."""
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
        """Return no outputs: the Gaussian is not a function of rows of latents."""
        return Evaluations(np.empty((len(values), 0)), (Status.OK,) * len(values), ("",) * len(values))
