"""Simulated surveys of site and field models: truths from the prior of a problem, and data with noise."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from invgp.core.backend import Backend
from invgp.core.geometry import inducing_factor
from invgp.errors import ConfigError, RunsFailedError
from invgp.execution.simulator import Simulator, TooManyFailures
from invgp.inference.invert import open_recorders
from invgp.latent_model.learnt_parameters import with_kernel
from invgp.latent_model.noise_density import draw_noise
from invgp.latent_model.prior_field import field_of
from invgp.problem import Floats, Latent, Problem

MOST_ATTEMPTS = 100  # most truths drawn for one survey until the simulator runs and gives all outputs


class SimulatedSurvey(NamedTuple):
    """A simulated survey.

    Attributes
    ----------
    truth : array, shape (N, Q), or (G, Q) on the grid of a field model
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
    problem: Problem,
    truths: np.random.Generator,
    noise: np.random.Generator,
    directory: Path,
    ledger: Path | None = None,
) -> SimulatedSurvey:
    """Draw a truth at which the simulator runs and gives every observed output, and its data.

    Parameters
    ----------
    problem : Problem
    truths, noise : numpy.random.Generator
        Random streams of the truth and of the noise.
    directory : Path
        Parent of the run directories.
    ledger : Path, optional
        Ledger of the runs.

    Returns
    -------
    SimulatedSurvey

    Raises
    ------
    RunsFailedError
        The simulator fails at all truths that are drawn.
    """
    with open_recorders(problem, ledger) as recorders:
        first, *others = recorders or ("",)
        of_others = {name: recorders[name] for name in others}
        simulator = Simulator(problem, directory, recorder=recorders.get(first), source_recorders=of_others)
        for redrawn in range(MOST_ATTEMPTS):
            drawn = with_drawn_hyperparameters(problem, truths)
            f = draw_prior(drawn, truths)
            try:
                outputs = _run(simulator, f, f"truth{redrawn + 1}")
            except TooManyFailures:
                continue
            if np.isfinite(outputs[np.isfinite(problem.survey.Y)]).all():
                truth = f if problem.grid is None else f[: problem.grid.size]
                return SimulatedSurvey(problem.to_physical(truth), outputs + draw_noise(drawn, noise), redrawn)
    raise RunsFailedError(
        simulator.describe_failures(f"none of {MOST_ATTEMPTS} truths drawn from the prior could be simulated")
    )


def _run(simulator: Simulator, f: Floats, label: str) -> Floats:
    """Run the simulator at one truth, and return the outputs (N, P), NaN where a run failed."""
    if simulator.problem.grid is None:
        batch = simulator.run(f[None], label)
        return np.where(batch.valid[0, :, None], batch.outputs[0], np.nan)
    outputs, valid, _ = simulator.run_fields(f[None], label)
    return np.where(valid[0], outputs[0], np.nan)


def draw_prior(problem: Problem, rng: np.random.Generator) -> Floats:
    """Draw one sample of the latent processes from the prior: (N, Q) at the sites, or at `Problem.nodes`.

    Parameters
    ----------
    problem : Problem
    rng : numpy.random.Generator

    Returns
    -------
    array, shape (N, Q)
    """
    if problem.grid is not None:
        field = field_of(problem, Backend(np, "cpu"))
        w = rng.standard_normal((1, sum(basis.size for basis in field.bases)))
        return np.asarray((field.latents(w) + field.draw_omitted(rng, 1))[0])
    X, (_, std) = problem.survey.locations, problem.prior_moments()
    normals = rng.standard_normal((problem.latent_count, problem.survey.size))
    draw = np.empty((problem.survey.size, problem.latent_count))
    for latent in problem.latents:
        factors: dict[int, Floats] = {}  # labels with the same kernel share the factor
        for j, own in enumerate(latent.kernels, start=problem.latent_slices[latent.name].start):
            kernel = problem.survey.kernel_at_sites(own)
            try:
                factor = factors[id(own)] if id(own) in factors else np.tril(inducing_factor([kernel], X[None])[0])
            except np.linalg.LinAlgError as error:
                raise ConfigError(f"latents.{latent.name}: the kernel cannot be factorised: {error}") from error
            factors[id(own)] = factor
            draw[:, j] = problem.prior_mean[:, j] + std[j] * (factor @ normals[j])
    return draw


def with_drawn_hyperparameters(problem: Problem, rng: np.random.Generator) -> Problem:
    """Return the problem with learnt hyperparameters drawn from their priors; without a prior they stay.

    Parameters
    ----------
    problem : Problem
    rng : numpy.random.Generator

    Returns
    -------
    Problem
    """
    std = dict(problem.noise.std)
    for scale in problem.noise.scales:
        if scale.degrees is None:
            factor = float(_draw_factors(scale.factor, 1, rng)[0])
        else:
            factor = math.sqrt(scale.degrees / rng.chisquare(scale.degrees))
        std |= {name: factor * std[name] for name in scale.observations}
    latents = tuple(_with_drawn_kernel(latent, rng) for latent in problem.latents)
    return replace(problem, latents=latents, noise=replace(problem.noise, std=std))


def _with_drawn_kernel(latent: Latent, rng: np.random.Generator) -> Latent:
    parameters = latent.kernel.parameters
    for name, factor in latent.learn.items():
        ties = latent.learnt_parameters(name)
        parameters = parameters + ties @ np.log(_draw_factors(factor, ties.shape[1], rng))
    kernel = latent.kernel.with_parameters(parameters)
    _, std = latent.link.prior_to_process(latent.mean, latent.std)
    return with_kernel(latent, kernel, std**2 * float(kernel.variance))


def _draw_factors(factor: float, count: int, rng: np.random.Generator) -> Floats:
    """Draw log-normal factors (count,) with median 1 and geometric standard deviation `factor`; 1 if infinite."""
    normals = rng.standard_normal(count)
    return np.exp(np.log(factor) * normals) if np.isfinite(factor) else np.ones(count)
