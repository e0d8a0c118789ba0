"""Simulated surveys: truths from the prior of a problem, and data with noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from invgp.core.backend import cholesky
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.errors import ConfigError, RunsFailedError
from invgp.execution.simulator import Simulator, TooManyFailures
from invgp.latent_model.noise_density import draw_noise
from invgp.problem import Floats, Latent, Problem

MOST_ATTEMPTS = 100  # most truths drawn for one survey until the simulator runs at all sites


class SimulatedSurvey(NamedTuple):
    """A simulated survey.

    Attributes
    ----------
    truth : array, shape (N, Q)
        Physical values of the latents.
    data : array, shape (N, P)
        Data with noise; NaN where the problem has no observation.
    redrawn : int
        Number of truths that were rejected because the simulator failed.
    """

    truth: Floats
    data: Floats
    redrawn: int


def draw_survey(
    problem: Problem, truths: np.random.Generator, noise: np.random.Generator, directory: Path
) -> SimulatedSurvey:
    """Draw a truth at which the simulator runs at every site, and its data.

    Raises
    ------
    RunsFailedError
        The simulator fails at all truths that are drawn.
    """
    simulator = Simulator(problem, directory)
    for redrawn in range(MOST_ATTEMPTS):
        drawn = with_drawn_hyperparameters(problem, truths)
        f = draw_prior(drawn, truths)
        try:
            batch = simulator.run(f[None], f"truth{redrawn + 1}")
        except TooManyFailures:
            continue
        if batch.complete(np.isfinite(problem.survey.Y)).all():
            return SimulatedSurvey(problem.to_physical(f), batch.outputs[0] + draw_noise(drawn, noise), redrawn)
    raise RunsFailedError(
        simulator.describe_failures(f"none of {MOST_ATTEMPTS} truths drawn from the prior could be simulated")
    )


def draw_prior(problem: Problem, rng: np.random.Generator) -> Floats:
    """Draw one sample (N, Q) of the latent processes from the prior, joint over the sites."""
    X, (mean, std) = problem.survey.X, problem.prior_moments()
    normals = rng.standard_normal((problem.latent_count, problem.survey.size))
    draw = np.empty((problem.survey.size, problem.latent_count))
    for latent in problem.latents:
        kernel = Kernel(CORRELATIONS[latent.kernel], 1.0, latent.length_scale)
        try:
            factor = np.tril(cholesky(kernel(X, X)))
        except np.linalg.LinAlgError as error:
            raise ConfigError(f"latents.{latent.name}: the kernel cannot be factorised: {error}") from error
        columns = problem.latent_slices[latent.name]
        draw[:, columns] = mean[columns] + std[columns] * (factor @ normals[columns].T)
    return draw


def with_drawn_hyperparameters(problem: Problem, rng: np.random.Generator) -> Problem:
    """Return the problem with learnt hyperparameters drawn from their log-normal priors; without a prior they stay."""
    scaled = {name: float(_draw_factors(factor, 1, rng)[0]) for name, factor in problem.noise.learn.items()}
    std = {name: scaled.get(name, 1.0) * values for name, values in problem.noise.std.items()}
    latents = tuple(_with_drawn_kernel(latent, rng) for latent in problem.latents)
    return replace(problem, latents=latents, noise=replace(problem.noise, std=std))


def _with_drawn_kernel(latent: Latent, rng: np.random.Generator) -> Latent:
    if "length_scale" in latent.learn:
        scale = latent.length_scale * _draw_factors(latent.learn["length_scale"], latent.length_scale.size, rng)
        latent = replace(latent, length_scale=scale)
    if "std" not in latent.learn:
        return latent
    mean, std = latent.link.prior_to_process(latent.mean, latent.std)
    mean, std = latent.link.process_to_prior(mean, std * _draw_factors(latent.learn["std"], 1, rng))
    return replace(latent, mean=mean, std=std)


def _draw_factors(factor: float, count: int, rng: np.random.Generator) -> Floats:
    """Draw log-normal factors (count,) with median 1 and geometric standard deviation `factor`; 1 if infinite."""
    normals = rng.standard_normal(count)
    return np.exp(np.log(factor) * normals) if np.isfinite(factor) else np.ones(count)
