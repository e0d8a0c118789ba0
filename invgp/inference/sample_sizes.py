"""Samples per site of each stage, and sites per mini-batch."""

from __future__ import annotations

from typing import NamedTuple

from invgp.core.coupled.site_estimators import min_fit_samples
from invgp.emulation.run_schedule import can_emulate
from invgp.errors import ConfigError
from invgp.problem import Problem

CONVERGED_ROUGHLY, CONVERGED = 0.3, 0.05  # movement of a site's posterior at convergence, in standard deviations
SPARE = 2.0  # samples per estimated coefficient, for runs of the simulator
EMULATED, FEWEST_EMULATED = 256, 64  # most and fewest samples per site on an emulator
SITES_TO_SPARE = 1000  # most sites with the full number of samples; errors of more sites average out
NUMBERS_AT_ONCE = 5 * 10**7  # samples or outputs of a mini-batch: 400 MB


class StagePlan(NamedTuple):
    """Estimator of a stage, its number of samples per site, and its tolerance as in `Stage`."""

    kind: str
    samples: int
    tolerance: float


def plan_stages(problem: Problem) -> list[StagePlan]:
    """Return the stages for runs of the simulator, in order."""
    Q, estimator, given = problem.latent_count, problem.inference.estimator, problem.inference.samples
    few = max(round(1.5 * SPARE * (Q + 1)), 8)
    many = given or max(round(SPARE * (Q + 1) * (Q + 2) / 2), 24)
    if problem.noise.kind != "gaussian" or estimator == "score":
        plan = [StagePlan("log density", many, CONVERGED)]
    elif estimator == "linearisation":
        plan = [StagePlan("linear", given or few, CONVERGED)]
    else:
        plan = [StagePlan("linear", min(few, many), CONVERGED_ROUGHLY), StagePlan("hermite", many, CONVERGED)]
    return [p._replace(samples=_enough(problem, p.kind, p.samples)) for p in plan]


def plan_emulator_stages(problem: Problem) -> list[StagePlan]:
    """Return the stages for an emulator, in order."""
    samples = max(min(EMULATED, EMULATED * SITES_TO_SPARE // problem.survey.size), FEWEST_EMULATED)
    return [p._replace(samples=_enough(problem, p.kind, samples)) for p in plan_stages(problem)]


def _enough(problem: Problem, kind: str, samples: int) -> int:
    return max(samples, min_fit_samples(problem.latent_count, quadratic=kind != "linear"))


def sites_at_once(problem: Problem, samples: int) -> int:
    """Return the number of sites in a mini-batch: `inference.batch`, or as many as fit into memory."""
    width = max(problem.latent_count, problem.noise_std.shape[1])
    return problem.inference.batch or max(NUMBERS_AT_ONCE // (samples * width), 1)


def refuse_to_learn_noise(problem: Problem) -> None:
    """Raise `ConfigError` if noise is to be learnt and there are too many sites to process them together."""
    if problem.grid is not None or not problem.noise.learn:
        return
    plan = plan_stages(problem)  # the simulator may have to replace an emulator
    if problem.inference.emulator and can_emulate(problem):
        plan += plan_emulator_stages(problem)
    size, sites = sites_at_once(problem, max(p.samples for p in plan)), problem.survey.size
    if size < sites:
        raise ConfigError(
            f"noise.learn: must be left out for {sites:,} sites, which are processed in mini-batches of {size:,}, "
            "as many as fit in memory, was given"
        )
