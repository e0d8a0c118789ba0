"""Reference chains of a problem: draws from its exact posterior, with the simulator itself as the target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from invgp.problem import Problem
from invgp.sampling.exact_target import Chains
from invgp.sampling.simulated_field import SimulatedField
from invgp.sampling.simulated_sites import SimulatedSites
from invgp.sampling.tempered_chains import Limits, TemperedOptions, sample_chains
from invgp.sampling.tolerant_simulator import TolerantSimulator

LARGEST_R_HAT, FEWEST_EFFECTIVE = 1.01, 400  # Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021)
RUNS_PER_SITE = 30_000  # default limit; for a field model, in all
FEWEST_CHAINS, MOST_CHAINS = 64, 256  # default number of chains
NUMBERS_AT_ONCE = 60_000  # variables of all chains together, by which the default is limited


def reference(
    problem: Problem,
    simulator: TolerantSimulator,
    *,
    runs: int | None = None,
    chains: int | None = None,
    effective: int = 1000,
    seed: int = 0,
    report: Callable[[float, int], None] | None = None,
) -> Chains:
    """Sample the posterior of a problem on its simulator.

    Parameters
    ----------
    problem : Problem
        A site model or a field model. Learnt hyperparameters are fixed at their values in the problem.
    simulator : TolerantSimulator
    runs : int, optional
        Largest number of simulator runs; by default that of `default_runs`.
    chains : int, optional
        Number of chains, a multiple of 4; by default that of `default_chains`.
    effective : int
        Effective sample size of each latent value at which the chains end.
    seed : int
        Random seed.
    report : callable, optional
        See `invgp.sampling.tempered_chains.sample_chains`.

    Raises
    ------
    RunsSpent
        The limit of runs was reached before there were draws from the posterior.
    RunsFailedError
        All runs failed at some site.
    """
    target = SimulatedSites(problem, simulator) if problem.grid is None else SimulatedField(problem, simulator)
    limits = Limits(default_runs(problem) if runs is None else runs, LARGEST_R_HAT, effective)
    count = default_chains(target.blocks * target.size) if chains is None else chains
    return sample_chains(target, count, np.random.default_rng(seed), limits, report=report)


def default_runs(problem: Problem) -> int:
    """Return the default limit of runs: as many per site with observations, or for a field model."""
    if problem.grid is not None:
        return RUNS_PER_SITE
    return RUNS_PER_SITE * max(int(np.isfinite(problem.survey.Y).any(axis=1).sum()), 1)


def default_chains(variables: int) -> int:
    """Return the default number of chains for a number of variables, a multiple of the number of populations."""
    populations = TemperedOptions().populations
    most = NUMBERS_AT_ONCE // variables // populations * populations
    return int(np.clip(most, FEWEST_CHAINS, MOST_CHAINS))
