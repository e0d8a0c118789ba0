"""What separates the observations from the simulator's outputs, as a likelihood and as random numbers."""

from __future__ import annotations

import numpy as np

from invgp.core.backend import Place
from invgp.likelihoods import Gaussian
from invgp.likelihoods.protocol import Likelihood
from invgp.problem import Floats, Problem


def noise_likelihood(problem: Problem, where: Place) -> Likelihood:
    """p(y_n | outputs of the simulator at site n), for outputs (S, N, P) in the place of the latents."""
    # Where nothing was observed the noise may be unknown, and plays no part.
    std = np.where(np.isnan(problem.survey.Y), 1.0, problem.noise_std)
    return Gaussian(where.asarray(std), learn=False)


def noise_draw(problem: Problem, rng: np.random.Generator) -> Floats:
    """Noise (N, P) for one survey; NaN where the problem has no observation."""
    return np.where(
        np.isnan(problem.survey.Y), np.nan, problem.noise_std * rng.standard_normal(problem.noise_std.shape)
    )
