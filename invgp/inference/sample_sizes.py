"""Samples per site of each stage, and sites per mini-batch."""

from __future__ import annotations

from typing import NamedTuple

from invgp.core.coupled.site_estimators import min_fit_samples
from invgp.emulation.run_schedule import can_emulate
from invgp.errors import ConfigError
from invgp.inference.search_options import DEFAULTS, SearchOptions
from invgp.problem import Problem


class StagePlan(NamedTuple):
    """Estimator of a stage, its number of samples per site, and its tolerance as in `Stage`."""

    kind: str
    samples: int
    tolerance: float


def plan_stages(problem: Problem, options: SearchOptions | None = None) -> list[StagePlan]:
    """Return the stages for runs of the simulator, in order.

    Parameters
    ----------
    problem : Problem
        The problem.
    options : SearchOptions, optional
        Tuning of the search.

    Returns
    -------
    list of StagePlan
    """
    Q, estimator, given = problem.latent_count, problem.inference.estimator, problem.inference.samples
    options = options or DEFAULTS
    few = max(round(1.5 * options.samples_per_coefficient * (Q + 1)), 8)
    many = given or max(round(options.samples_per_coefficient * (Q + 1) * (Q + 2) / 2), 24)
    if not problem.noise.is_gaussian or estimator == "score":
        plan = [StagePlan("log density", many, options.converged)]
    elif estimator == "linearisation":
        plan = [StagePlan("linear", given or few, options.converged)]
    else:
        first = StagePlan("linear", min(few, many), options.roughly_converged)
        plan = [first, StagePlan("hermite", many, options.converged)]
    return [p._replace(samples=_has_enough_samples(problem, p.kind, p.samples)) for p in plan]


def plan_emulator_stages(problem: Problem, options: SearchOptions | None = None) -> list[StagePlan]:
    """Return the stages for an emulator, in order.

    Parameters
    ----------
    problem : Problem
        The problem.
    options : SearchOptions, optional
        Tuning of the search.

    Returns
    -------
    list of StagePlan
    """
    options, sites = options or DEFAULTS, problem.survey.size
    samples = min(options.most_emulated, options.most_emulated * options.fully_sampled // sites)
    samples = max(samples, options.fewest_emulated)
    return [p._replace(samples=_has_enough_samples(problem, p.kind, samples)) for p in plan_stages(problem, options)]


def _has_enough_samples(problem: Problem, kind: str, samples: int) -> int:
    return max(samples, min_fit_samples(problem.latent_count, quadratic=kind != "linear"))


def sites_at_once(problem: Problem, samples: int) -> int:
    """Return the number of sites in a mini-batch: `inference.batch`, or as many as fit into memory.

    Parameters
    ----------
    problem : Problem
        The problem.
    samples : int
        Number of samples per site, S.

    Returns
    -------
    int
    """
    width = max(problem.latent_count, problem.noise_std.shape[1])
    return problem.inference.batch or max(DEFAULTS.numbers_at_once // (samples * width), 1)


def refuse_to_learn_noise(problem: Problem) -> None:
    """Raise `ConfigError` if noise is to be learnt and there are too many sites to process them together.

    Parameters
    ----------
    problem : Problem
        The problem.
    """
    if problem.grid is not None or not problem.noise.scales:
        return
    plan = plan_stages(problem)  # the simulator may have to replace an emulator
    if problem.inference.emulator and can_emulate(problem):
        plan += plan_emulator_stages(problem)
    size, sites = sites_at_once(problem, max(p.samples for p in plan)), problem.survey.size
    if size < sites:
        key = "learn" if problem.noise.learn else "scale_degrees"
        raise ConfigError(
            f"noise.{key}: must be left out for {sites:,} sites, which are processed in mini-batches of {size:,}, "
            "as many as fit in memory, was given"
        )
