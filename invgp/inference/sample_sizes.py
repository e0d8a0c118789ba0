"""How many samples of a site the estimators take, and how many sites that leaves room for at once."""

from __future__ import annotations

from typing import NamedTuple

from invgp.core.coupled.site_estimators import min_fit_samples
from invgp.emulation.run_schedule import can_emulate
from invgp.errors import ConfigError
from invgp.problem import Problem

CONVERGED_ROUGHLY, CONVERGED = 0.3, 0.05  # standard deviations that a step still moves any site's posterior
SPARE = 2.0  # samples for each number that is estimated from runs that cost something
EMULATED, FEWEST_EMULATED = 256, 64  # of an emulator, a site: they cost next to nothing, unless sites are many
SITES_TO_SPARE = 1000  # that may have all of them: the errors of more sites average out
NUMBERS_AT_ONCE = 5 * 10**7  # of samples or outputs: 400 MB


class StagePlan(NamedTuple):
    """An estimator, the samples of a site that it takes, and when it has converged, as `Stage` has it."""

    kind: str
    samples: int
    tolerance: float


def plan_stages(problem: Problem) -> list[StagePlan]:
    """The estimators, one after the other, for runs that cost something."""
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
    """The same for an emulator."""
    samples = max(min(EMULATED, EMULATED * SITES_TO_SPARE // problem.survey.size), FEWEST_EMULATED)
    return [p._replace(samples=_enough(problem, p.kind, samples)) for p in plan_stages(problem)]


def _enough(problem: Problem, kind: str, samples: int) -> int:
    return max(samples, min_fit_samples(problem.latent_count, quadratic=kind != "linear"))


def sites_at_once(problem: Problem, samples: int) -> int:
    """Sites in a mini-batch: as the config says, or as many as fit in memory with all their samples."""
    width = max(problem.latent_count, problem.noise_std.shape[1])
    return problem.inference.batch or max(NUMBERS_AT_ONCE // (samples * width), 1)


def refuse_to_learn_noise(problem: Problem) -> None:
    """Raise `ConfigError` if noise is to be learnt and sites are too many to be looked at together."""
    if problem.grid is not None or problem.inference.posterior != "coupled gaussian" or not problem.noise.learn:
        return
    plan = plan_stages(problem)  # of the simulator, which may have to take over from an emulator
    if problem.inference.emulator and can_emulate(problem):
        plan += plan_emulator_stages(problem)
    size, sites = sites_at_once(problem, max(p.samples for p in plan)), problem.survey.size
    if size < sites:
        raise ConfigError(
            f"noise.learn: must be left out for {sites:,} sites, which are looked at in mini-batches of {size:,}, "
            "as many as fit in memory, was given"
        )
