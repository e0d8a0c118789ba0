"""Computation of the posterior of a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from invgp.core.backend import Backend, DeviceError, select_backend
from invgp.emulation.run_schedule import most_runs
from invgp.errors import ArgumentError, ConfigError, DeviceMissingError, RunsFailedError
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory, remove_run_directories
from invgp.execution.simulator import Simulator
from invgp.inference.coarse_field import search_two_fidelities
from invgp.inference.field import prepare_field, search_field
from invgp.inference.field_solution import field_solution
from invgp.inference.gaussian import search_gaussian
from invgp.inference.known_runs import search_known_runs
from invgp.inference.runner import BudgetSpent, Runner
from invgp.inference.sample_sizes import refuse_to_learn_noise
from invgp.inference.sampled import search_sampled
from invgp.inference.search_state import SearchResult
from invgp.inference.site_model import prepare_site_model
from invgp.inference.site_solution import sampled_solution, site_solution
from invgp.ledger import Ledger, Recorder
from invgp.posterior import Solution, to_dataset
from invgp.problem import Problem, fewest_samples
from invgp.progress import Monitor, SilentMonitor, show_progress

COARSE = "coarse model of "  # of names of sources, for the recorders of their coarse models
WORTH_THREADS = 500  # sites below which one BLAS thread is faster than several


class InterruptedInversion(KeyboardInterrupt):
    """The user interrupted the inversion.

    Attributes
    ----------
    posterior : xarray.Dataset or None
        Best posterior so far, as from `invert`; None if there is none yet.
    """

    def __init__(self, posterior: xr.Dataset | None) -> None:
        super().__init__("the inversion was interrupted")
        self.posterior = posterior


def invert(
    problem: Problem,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    run_directory: str | Path | None = None,
    progress: bool = False,
    monitor: Monitor | None = None,
    ledger: str | Path | None = None,
    new_runs: bool = True,
) -> xr.Dataset:
    """Infer the posterior over the problem's latents.

    Parameters
    ----------
    problem : Problem
    workers : int, optional
        Number of parallel workers; by default `inference.workers`. The posterior does not depend on it.
    scheduler : str, optional
        Address or file of a Dask scheduler, whose workers make the runs; by default as in the problem.
    seed : int, optional
        Random seed; by default `inference.seed`. The same seed gives a bit-identical posterior.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"auto"``; by default `inference.device`.
    run_directory : str or Path, optional
        Directory of the runs, in which failed runs are kept; by default a temporary directory, which is removed.
    progress : bool
        Whether to display the progress: live in a terminal and in a notebook, as lines elsewhere.
    monitor : Monitor, optional
        Receives each step, instead of the display.
    ledger : str or Path, optional
        File that records all runs and replaces runs that it contains; created if it does not exist. An inversion that
        was stopped continues if it is started again with the same ledger.
    new_runs : bool
        Whether the simulator may be run. Otherwise the posterior is that of the runs in the ledger, for example of a
        problem with more sources.

    Returns
    -------
    xarray.Dataset
        Posterior mean, standard deviation, quantiles and samples of each latent, the data and their fit, the bound.

    Raises
    ------
    RunsFailedError
        More runs failed than `inference.max_failed_share` allows.
    DeviceMissingError
        The device is not available.
    InterruptedInversion
        Ctrl-C; it contains the best posterior so far.
    ConfigError
        The problem cannot be inverted with its settings, or there is no such Dask scheduler.
    PriorConflictError
        The data are far outside what the simulator computes under the prior.
    LedgerError
        The ledger cannot be written, because the disk is full or another process has locked it.
    """
    settings = problem.inference
    seed = settings.seed if seed is None else seed
    _check(problem, seed)
    try:
        backend = select_backend(device or settings.device)
    except DeviceError as error:
        raise DeviceMissingError(str(error)) from error
    strategy = strategy_of(problem)
    if not new_runs:
        if ledger is None:
            raise ArgumentError("ledger: must be given with new_runs = False, was None")
        strategy = strategy._replace(search=search_known_runs)
    with (
        threadpool_limits(blas_threads(problem)),
        open_pool(settings, workers=workers, scheduler=scheduler) as pool,
        _temporary_directory() as scratch,
        make_run_directory(run_directory or scratch) as directory,
        open_recorders(problem, ledger) as recorders,
        show_progress() if progress and monitor is None else nullcontext(SilentMonitor()) as display,
    ):
        simulator = Simulator(
            problem,
            directory,
            pool,
            monitor or display,
            most_runs(problem) if new_runs else 0,
            **_split_recorders(problem, recorders),
            temporary=run_directory is None,
        )
        runner = Runner(simulator, coarse_simulator(simulator, recorders, new_runs=new_runs))
        model, state = prepare_search(strategy, problem, backend, runner, seed)
        try:
            state = search_within_budget(strategy.search, model, runner, state)
        except KeyboardInterrupt as error:
            if not simulator.failed:
                remove_run_directories(directory)  # directories of interrupted runs contain nothing useful
            stopped = SearchResult("interrupted before it converged", converged=False)
            state = replace(runner.latest, result=stopped)
            raise InterruptedInversion(_to_dataset(strategy.solution(model, runner, state), runner)) from error
        except RunsFailedError as error:
            stopped = SearchResult("stopped because too many runs failed", converged=False)
            state = replace(runner.latest, result=stopped)
            error.posterior = _to_dataset(strategy.solution(model, runner, state), runner)
            raise
        result = _to_dataset(strategy.solution(model, runner, state), runner)
    if result is None:
        raise RunsFailedError(simulator.describe_failures("no posterior could be found"))
    return result


def coarse_simulator(
    simulator: Simulator, recorders: Mapping[str, Recorder], *, new_runs: bool = True
) -> Simulator | None:
    """Return the coarse model of a problem as a simulator with its own budget; None if there is none.

    Parameters
    ----------
    simulator : Simulator
        The fine model, whose workers and directory it shares.
    recorders : mapping of str to Recorder
        As `open_recorders` yields them.
    new_runs : bool
        Whether it may be run.
    """
    coarse = simulator.problem.with_coarse_model
    if coarse is None:
        return None
    return Simulator(
        coarse,
        simulator.directory,
        simulator.pool,
        simulator.monitor,
        most_runs(coarse) if new_runs else 0,
        **_split_recorders(coarse, recorders, COARSE),
        concurrency=simulator.concurrency,
        temporary=simulator.temporary,
        prefix="coarse-",
    )


def _split_recorders(problem: Problem, recorders: Mapping[str, Recorder], prefix: str = "") -> dict[str, Any]:
    """Return the arguments of a `Simulator`: the ledger of its first simulator and those of the others, by source."""
    first, *others = [part.name for part in problem.parts if not part.direct]
    of_others = {name: recorders[prefix + name] for name in others if prefix + name in recorders}
    return {"recorder": recorders.get(prefix + first), "source_recorders": of_others}


class Strategy(NamedTuple):
    """A way to find the posterior of a problem, as three functions.

    Attributes
    ----------
    prepare : callable
        Returns what is constant during the search, and the first state, of (problem, backend, runner, seed).
    search : callable
        Returns the last state, of (constant parts, runner, first state).
    solution : callable
        Returns the problem with learnt hyperparameters and the posterior, of (constant parts, runner, state); None if
        there is no posterior yet.
    """

    prepare: Callable[[Problem, Backend, Runner, int], tuple[Any, Any]]
    search: Callable[[Any, Runner, Any], Any]
    solution: Callable[[Any, Runner, Any], tuple[Problem, Solution] | None]


def strategy_of(problem: Problem) -> Strategy:
    """Return the strategy for a problem.

    Parameters
    ----------
    problem : Problem
        The problem.

    Returns
    -------
    Strategy
    """
    if problem.grid is not None:
        search = search_field if problem.coarse is None else search_two_fidelities
        return Strategy(prepare_field, search, field_solution)
    if problem.inference.posterior == "sampled":
        return Strategy(prepare_site_model, search_sampled, sampled_solution)
    return Strategy(prepare_site_model, search_gaussian, site_solution)


def blas_threads(problem: Problem) -> int | None:
    """Return the number of BLAS threads for a problem; None for the default.

    Threads would slow down the many small factorisations of a field model, and those of few sites.
    """
    return 1 if problem.grid is not None or problem.survey.size < WORTH_THREADS else None


def prepare_search(
    strategy: Strategy, problem: Problem, backend: Backend, runner: Runner, seed: int
) -> tuple[Any, Any]:
    """Return what is constant during a search, and its first state, which the runner keeps.

    Raises
    ------
    ConfigError
        The prior covariance cannot be factorised.
    """
    try:
        model, state = strategy.prepare(problem, backend, runner, seed)
    except np.linalg.LinAlgError as error:
        raise ConfigError(f"latents: the kernels give a covariance that cannot be factorised: {error}") from error
    runner.keep(state)
    return model, state


def search_within_budget(search: Callable[[Any, Runner, Any], Any], model: Any, runner: Runner, state: Any) -> Any:
    """Search from a state, and return the last one, also if the budget ends the search.

    Raises
    ------
    ConfigError
        The budget is too small for a first posterior.
    RunsFailedError
        The outputs are so large or so different that no posterior can be computed.
    """
    try:
        return search(model, runner, state)
    except np.linalg.LinAlgError as error:
        raise RunsFailedError(
            f"no posterior can be computed from the outputs of the runs ({error}): check the units and the output "
            "files of the simulator"
        ) from error
    except BudgetSpent as spent:
        if not runner.trace:
            needed, budget = runner.simulator.runs + spent.runs, runner.simulator.budget
            raise ConfigError(
                f"inference.max_runs: must be at least {needed:,} for a first posterior, was {budget:,}"
            ) from None
        return replace(runner.latest, result=runner.out_of_runs)


def _to_dataset(found: tuple[Problem, Solution] | None, runner: Runner) -> xr.Dataset | None:
    """Return a posterior as a dataset; None if there is none."""
    if found is None:
        return None
    simulator = runner.simulator
    return to_dataset(*found).assign_attrs(
        invgp_runs_from_ledger=simulator.reused,
        invgp_runs_at_once=round(simulator.concurrency.average, 2),
        **({"invgp_failure_causes": simulator.failed_runs.causes} if simulator.failed else {}),
        **_runs_by_source(simulator),
        **_coarse_attributes(runner.coarse),
    )


def _coarse_attributes(coarse: Simulator | None) -> dict[str, Any]:
    """Return the runs of the coarse model; nothing without one."""
    if coarse is None:
        return {}
    return {
        "invgp_coarse_simulator": coarse.problem.forward.name,
        "invgp_coarse_simulator_digest": coarse.problem.forward.digest,
        "invgp_coarse_runs": coarse.runs,
        "invgp_coarse_runs_failed": coarse.failed,
        "invgp_coarse_runs_from_ledger": coarse.reused,
    }


def _runs_by_source(simulator: Simulator) -> dict[str, list[int]]:
    """Return the runs and the failed runs of each source, in the order of ``invgp_sources``; nothing for one source."""
    problem = simulator.problem
    if not problem.sources:
        return {}
    names = [part.name for part in problem.parts]
    return {
        "invgp_source_runs": [simulator.source_runs[name] for name in names],
        "invgp_source_runs_failed": [simulator.source_failed[name] for name in names],
    }


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """Make a directory that is removed at the end, however deep the trees are that programs have left in it."""
    directory = Path(mkdtemp(prefix="invgp-"))
    try:
        yield directory
    finally:
        remove_run_directories(directory)


@contextmanager
def open_recorders(problem: Problem, path: str | Path | None) -> Iterator[dict[str, Recorder]]:
    """Open the ledger for the runs of each simulator of a problem, by source; an empty dictionary without a path.

    Parameters
    ----------
    problem : Problem
        The problem.
    path : str, Path or None
        File of the ledger; None for none.

    Yields
    ------
    dict of str to Recorder
    """
    if path is None:
        yield {}
        return
    with Ledger(path) as ledger:
        coarse = problem.with_coarse_model
        models = [("", problem), *([] if coarse is None else [(COARSE, coarse)])]
        yield {
            prefix + part.name: ledger.open_recorder(part.problem.forward, retries=problem.inference.retries)
            for prefix, whole in models
            for part in whole.parts
            if not part.direct
        }


def _check(problem: Problem, seed: int) -> None:
    """Check a problem that was built in Python for mistakes that a configuration cannot have."""
    samples = problem.inference.samples
    least = fewest_samples(problem.inference, problem.latent_count)
    if samples is not None and samples < least:
        raise ConfigError(f"inference.samples: must be at least {least}, was {samples}")
    if seed < 0:
        raise ConfigError(f"seed: must be at least 0, was {seed}")
    learnt = [f"latents.{latent.name}.learn" for latent in problem.latents if latent.learn]
    learnt += ["noise.learn"] if problem.noise.learn else []
    learnt += ["noise.scale_degrees"] if problem.noise.scale_degrees else []
    if learnt and problem.inference.posterior == "full gaussian":
        raise ConfigError(f"{learnt[0]}: must be left out with inference.posterior = 'full gaussian', was given")
    refuse_to_learn_noise(problem)
