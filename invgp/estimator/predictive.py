"""Predictive distribution of observations at new inputs, under a fitted posterior."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from invgp.core import prediction, quadrature
from invgp.core.backend import Array, Backend, array_namespace, backend_of, to_numpy
from invgp.core.bound import BoundState
from invgp.estimator.arguments import Floats
from invgp.likelihoods import Likelihood

NUMBERS_PER_SAMPLE = 8  # upper bound per latent and output: values, squares and arrays of importance sampling
MIN_SAMPLES = 1024  # smallest number of sample points if there are several latents


class PredictiveDistribution(NamedTuple):
    """Distribution of new observations: a likelihood at new sites, averaged over its latents.

    Attributes
    ----------
    likelihood : Likelihood
        Of the observations at the new sites.
    nodes : invgp.core.prediction.Nodes
        Points and weights for expectations over the latents.
    """

    likelihood: Likelihood
    nodes: prediction.Nodes

    @staticmethod
    def of(likelihood: Likelihood, bound_state: BoundState, samples: int, seed: int) -> PredictiveDistribution:
        """Choose nodes for the latents of a fitted model: at least `samples` points if there are several latents."""
        return PredictiveDistribution(
            likelihood,
            prediction.expectation_nodes(bound_state, max(samples, MIN_SAMPLES), np.random.default_rng(seed)),
        )

    @property
    def numbers(self) -> int:
        """Largest number of floats per site that a prediction holds in memory."""
        samples = int(self.nodes.points.shape[0])
        return NUMBERS_PER_SAMPLE * samples * (self.likelihood.latents + self.likelihood.outputs)

    def moments(self, bound_state: BoundState, x: Array, rows: slice) -> tuple[Floats, Floats]:
        """Compute mean and variance (B, P) of observations at inputs x (B, D), the given rows of all new inputs."""
        likelihood = at_sites(self.likelihood, rows)
        if hasattr(likelihood, "predictive_moments"):
            mean, variance = prediction.closed_form_output_moments(bound_state, x, likelihood.predictive_moments)
            return to_numpy(mean), to_numpy(variance)

        def moments(f: Array) -> tuple[Array, Array]:
            found: tuple[Array, Array] | None = likelihood.moments(f)
            if found is None:
                raise ValueError(
                    "this likelihood has no moments: pass a `moments` function to BlackBox to predict with it"
                )
            return found

        mean, variance = prediction.output_moments(bound_state, x, moments, self.nodes)
        return to_numpy(mean), to_numpy(variance)

    def class_probabilities(self, bound_state: BoundState, x: Array, rows: slice) -> Floats:
        """Compute the probabilities (B, C) of the classes at inputs x (B, D), the given rows of all new inputs."""
        likelihood = at_sites(self.likelihood, rows)

        def moments(f: Array) -> tuple[Array, Array]:
            probabilities = likelihood.class_probabilities(f)
            return probabilities, probabilities * (1.0 - probabilities)

        return to_numpy(prediction.output_moments(bound_state, x, moments, self.nodes)[0])

    def log_density(self, bound_state: BoundState, x: Array, y: Floats, rows: slice) -> Floats:
        """Compute the log predictive density (B,) of the given rows of y at inputs x; NaN where all of y is missing."""
        likelihood, some = at_sites(self.likelihood, rows), y[rows]
        there, expected = backend_of(x).asarray(some), None
        if hasattr(likelihood, "predictive_log_density"):
            expected = partial(likelihood.predictive_log_density, there)
        elif getattr(likelihood, "separable", False) and likelihood.latents > 1:
            expected = partial(_sum_over_outputs, likelihood, there)
        density = partial(likelihood.log_density, there)
        found = to_numpy(prediction.log_predictive_density(bound_state, x, density, self.nodes, expected))
        nothing = np.isnan(some).any(1) if getattr(likelihood, "whole_rows", False) else np.isnan(some).all(1)
        return np.where(nothing, np.nan, found)


def at_sites(likelihood: Any, rows: slice) -> Any:
    """Restrict a likelihood to some sites, if it holds numbers per site."""
    return likelihood.at_sites(rows) if hasattr(likelihood, "at_sites") else likelihood


def check_sites(likelihood: Likelihood, count: int, backend: Backend) -> None:
    """Raise `ValueError` if the likelihood holds numbers per site for a different number of sites."""
    if not hasattr(likelihood, "at_sites"):
        return
    y = backend.asarray(np.full((count, likelihood.outputs), np.nan))
    try:
        with np.errstate(all="ignore"):  # latents of 0 may be outside the domain of the likelihood
            likelihood.log_density(y, backend.asarray(np.zeros((1, count, likelihood.latents))))
    except ValueError as error:
        raise ValueError(
            f"likelihood must have numbers for each of the {count} sites of X; to predict at sites other than those of "
            f"the fit, pass their likelihood as `likelihood=` ({error})"
        ) from error


def _sum_over_outputs(likelihood: Likelihood, y: Array, mean: Array, variance: Array) -> Array:
    """Compute log E[p(y_n | f_n)] (N,) as a sum over outputs, each of which depends on one latent."""
    xp, backend = array_namespace(mean), backend_of(mean)
    total = xp.zeros_like(mean[:, 0])
    for p in range(likelihood.outputs):
        here = xp.arange(likelihood.outputs, device=mean.device) == p
        alone = xp.where(here, y, xp.full_like(y, xp.nan))

        def log_density(f: Array, alone: Array = alone, here: Array = here) -> Array:
            return likelihood.log_density(alone, xp.where(here, f, mean))

        one = (moment[:, p : p + 1] for moment in (mean, xp.sqrt(variance)))
        total = total + backend.asarray(quadrature.log_expectation(log_density, *one))
    return total
