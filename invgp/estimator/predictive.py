"""What would be observed at new inputs, and how probable an observation there is, under a fitted posterior."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from invgp.core import prediction, quadrature
from invgp.core.backend import Array, Backend, array_namespace, backend_of, to_numpy
from invgp.core.bound import BoundState
from invgp.estimator.arguments import Floats
from invgp.likelihoods import Likelihood

NUMBERS_A_SAMPLE = 8  # at the most, for each latent and output: values, squares, and what importance sampling keeps
SAMPLES = 1024  # at least, of several latents


class Observing(NamedTuple):
    """A likelihood at new sites, with nodes for expectations over its latents."""

    likelihood: Likelihood
    nodes: prediction.Nodes

    @staticmethod
    def of(likelihood: Likelihood, bound_state: BoundState, samples: int, seed: int) -> Observing:
        """At least so many samples where there are several latents."""
        return Observing(likelihood, prediction.nodes(bound_state, max(samples, SAMPLES), np.random.default_rng(seed)))

    @property
    def numbers(self) -> int:
        """Held for each site, at the most, while its observations are predicted."""
        samples = int(self.nodes.points.shape[0])
        return NUMBERS_A_SAMPLE * samples * (self.likelihood.latents + self.likelihood.outputs)

    def moments(self, bound_state: BoundState, x: Array, rows: slice) -> tuple[Floats, Floats]:
        """Mean and variance (B, P) of observations at inputs x, which are some rows of all."""
        likelihood = at_sites(self.likelihood, rows)
        if hasattr(likelihood, "predictive_moments"):
            mean, variance = prediction.known_moments(bound_state, x, likelihood.predictive_moments)
            return to_numpy(mean), to_numpy(variance)

        def moments(f: Array) -> tuple[Array, Array]:
            found: tuple[Array, Array] | None = likelihood.moments(f)
            if found is None:
                raise ValueError(
                    "this likelihood has no moments: give BlackBox a `moments` function to predict with it"
                )
            return found

        mean, variance = prediction.output_moments(bound_state, x, moments, self.nodes)
        return to_numpy(mean), to_numpy(variance)

    def log_density(self, bound_state: BoundState, x: Array, y: Floats, rows: slice) -> Floats:
        """Log predictive density (B,) of some rows of y at inputs x; NaN where nothing was observed."""
        likelihood, some = at_sites(self.likelihood, rows), y[rows]
        there, expected = backend_of(x).asarray(some), None
        if hasattr(likelihood, "predictive_log_density"):
            expected = partial(likelihood.predictive_log_density, there)
        elif getattr(likelihood, "separable", False) and likelihood.latents > 1:
            expected = partial(_one_by_one, likelihood, there)
        density = partial(likelihood.log_density, there)
        found = to_numpy(prediction.log_predictive_density(bound_state, x, density, self.nodes, expected))
        nothing = np.isnan(some).any(1) if getattr(likelihood, "whole_rows", False) else np.isnan(some).all(1)
        return np.where(nothing, np.nan, found)


def at_sites(likelihood: Any, rows: slice) -> Any:
    """The likelihood of some sites; most are the same everywhere."""
    return likelihood.at_sites(rows) if hasattr(likelihood, "at_sites") else likelihood


def check_sites(likelihood: Likelihood, count: int, backend: Backend) -> None:
    """Raise if the likelihood holds numbers for each site, but of another number of sites."""
    if not hasattr(likelihood, "at_sites"):
        return
    y = backend.asarray(np.full((count, likelihood.outputs), np.nan))
    try:
        with np.errstate(all="ignore"):  # latents of 0 may mean nothing to it
            likelihood.log_density(y, backend.asarray(np.zeros((1, count, likelihood.latents))))
    except ValueError as error:
        raise ValueError(
            f"likelihood must hold numbers for each of the {count} sites of X; to predict at other sites than those of "
            f"the fit, give `likelihood=` with theirs ({error})"
        ) from error


def _one_by_one(likelihood: Likelihood, y: Array, mean: Array, variance: Array) -> Array:
    """Log E[p(y_n | f_n)] (N,), as the sum over outputs that have a latent each."""
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
