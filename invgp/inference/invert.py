"""From a problem to its posterior."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from invgp.core.backend import DeviceError, select_backend
from invgp.emulation.run_schedule import can_emulate
from invgp.errors import ConfigError, DeviceMissingError, RunsFailedError
from invgp.execution.monitor import Monitor, Silent
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import remove_all_runs
from invgp.execution.simulator import Simulator, own_directory
from invgp.inference.coupled import CoupledInversion
from invgp.inference.emulated import EmulatedInversion
from invgp.inference.factorised import FactorisedInversion
from invgp.inference.field import FieldInversion
from invgp.inference.inversion import Inversion, SearchResult
from invgp.inference.sample_sizes import refuse_to_learn_noise
from invgp.ledger import Ledger, Recorder
from invgp.posterior import to_dataset
from invgp.problem import Problem, fewest_samples
from invgp.progress import progress as displayed


class InterruptedInversion(KeyboardInterrupt):
    """The person stopped the inversion.

    Attributes
    ----------
    posterior : the best posterior so far, as `invert` would return it; None if there was none yet.
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
) -> xr.Dataset:
    """Infer the posterior over the problem's latents.

    Parameters
    ----------
    workers, seed, device : instead of the problem's own settings. The same seed gives the same posterior, to the
        bit, whatever the number of workers.
    scheduler : address of a Dask scheduler, or its file, whose workers make the runs, instead of the problem's own
        back end.
    run_directory : where simulators run and the directories of failed runs are kept; by default a temporary one,
        which keeps nothing.
    progress : whether to show how far it is: live on a terminal and in a notebook, by lines elsewhere.
    monitor : told of each step, instead.
    ledger : a file, made if it is not there, that keeps every run and answers those that it knows; None for none. An
        inversion that was stopped goes on where it was if it is started again with the same ledger.

    Returns
    -------
    xarray.Dataset
        Posterior mean, spread, quantiles and draws of each latent, the data and their fit, the bound.

    Raises
    ------
    RunsFailedError
        More runs failed than `inference.max_failed_share` allows.
    DeviceMissingError
        The device is not on this machine.
    InterruptedInversion
        Ctrl-C; it carries the best posterior so far.
    ConfigError
        The problem cannot be inverted as its settings say, or there is no such Dask scheduler.
    LedgerError
        The ledger cannot be written: a full disk, or another process that keeps it locked.
    """
    settings = problem.inference
    seed = settings.seed if seed is None else seed
    _check(problem, seed)
    try:
        backend = select_backend(device or settings.device)
    except DeviceError as error:
        raise DeviceMissingError(str(error)) from error
    kind = inversion_of(problem)
    with (
        threadpool_limits(kind.threads(problem)),
        open_pool(settings, workers=workers, scheduler=scheduler) as pool,
        TemporaryDirectory(prefix="invgp-") as scratch,
        own_directory(run_directory or scratch) as directory,
        recorded(problem, ledger) as recorder,
        displayed() if progress and monitor is None else nullcontext(Silent()) as display,
    ):
        try:
            simulator = Simulator(
                problem,
                directory,
                pool,
                monitor or display,
                settings.max_runs,
                recorder,
                temporary=run_directory is None,
            )
            inversion = kind(problem, backend, simulator, seed)
        except np.linalg.LinAlgError as error:
            raise ConfigError(f"latents: the kernels give a covariance that cannot be factorised: {error}") from error
        try:
            found = inversion.run()
        except KeyboardInterrupt as error:
            if not inversion.simulator.failed:
                remove_all_runs(directory)  # of runs that were cut short: they tell nothing
            stopped = SearchResult("interrupted before it converged", converged=False)
            raise InterruptedInversion(_posterior(inversion, stopped)) from error
        except RunsFailedError as error:
            stopped = SearchResult("stopped because too many runs failed", converged=False)
            error.posterior = _posterior(inversion, stopped)
            raise
        result = _posterior(inversion, found)
    if result is None:
        raise RunsFailedError(inversion.simulator.failures("no posterior could be found"))
    return result


def inversion_of(problem: Problem) -> type[Inversion]:
    """How the posterior of a problem is found."""
    if problem.grid is not None:
        return FieldInversion
    if problem.inference.posterior == "full gaussian":
        return FactorisedInversion
    return EmulatedInversion if problem.inference.emulator and can_emulate(problem) else CoupledInversion


def _posterior(inversion: Inversion, result: SearchResult) -> xr.Dataset | None:
    """The best posterior so far as a dataset, or None if there is none."""
    found = inversion.solution(result)
    if found is None:
        return None
    simulator = inversion.simulator
    return to_dataset(*found).assign_attrs(
        invgp_runs_from_ledger=simulator.answered, invgp_runs_at_once=round(simulator.concurrency.reached, 2)
    )


@contextmanager
def recorded(problem: Problem, path: str | Path | None) -> Iterator[Recorder | None]:
    """The ledger of the simulator's runs, if there is to be one."""
    if path is None:
        yield None
        return
    with Ledger(path) as ledger:
        yield ledger.of(problem.forward, retries=problem.inference.retries)


def _check(problem: Problem, seed: int) -> None:
    """What a config is checked for already, for a problem built in code."""
    samples = problem.inference.samples
    least = fewest_samples(problem.inference, problem.latent_count)
    if samples is not None and samples < least:
        raise ConfigError(f"inference.samples: must be at least {least}, was {samples}")
    if seed < 0:
        raise ConfigError(f"seed: must be at least 0, was {seed}")
    refuse_to_learn_noise(problem)
