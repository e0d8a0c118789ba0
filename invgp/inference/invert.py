"""Computation of the posterior of a problem."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from invgp.core.backend import DeviceError, select_backend
from invgp.emulation.run_schedule import can_emulate
from invgp.errors import ConfigError, DeviceMissingError, RunsFailedError
from invgp.execution.monitor import Monitor, SilentMonitor
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory, remove_run_directories
from invgp.execution.simulator import Simulator
from invgp.inference.coupled import CoupledInversion
from invgp.inference.emulated import EmulatedInversion
from invgp.inference.factorised import FactorisedInversion
from invgp.inference.field import FieldInversion
from invgp.inference.inversion import Inversion, SearchResult
from invgp.inference.sample_sizes import refuse_to_learn_noise
from invgp.inference.sampled import SampledInversion
from invgp.ledger import Ledger, Recorder
from invgp.posterior import to_dataset
from invgp.problem import Problem, fewest_samples
from invgp.progress import show_progress


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
    kind = inversion_of(problem)
    with (
        threadpool_limits(kind.threads(problem)),
        open_pool(settings, workers=workers, scheduler=scheduler) as pool,
        _temporary_directory() as scratch,
        make_run_directory(run_directory or scratch) as directory,
        open_recorder(problem, ledger) as recorder,
        show_progress() if progress and monitor is None else nullcontext(SilentMonitor()) as display,
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
                remove_run_directories(directory)  # directories of interrupted runs contain nothing useful
            stopped = SearchResult("interrupted before it converged", converged=False)
            raise InterruptedInversion(_posterior(inversion, stopped)) from error
        except RunsFailedError as error:
            stopped = SearchResult("stopped because too many runs failed", converged=False)
            error.posterior = _posterior(inversion, stopped)
            raise
        result = _posterior(inversion, found)
    if result is None:
        raise RunsFailedError(inversion.simulator.describe_failures("no posterior could be found"))
    return result


def inversion_of(problem: Problem) -> type[Inversion]:
    """Return the type of inversion for a problem."""
    if problem.grid is not None:
        return FieldInversion
    if problem.inference.posterior == "full gaussian":
        return FactorisedInversion
    if not (problem.inference.emulator and can_emulate(problem)):
        return CoupledInversion
    return SampledInversion if problem.inference.posterior == "sampled" else EmulatedInversion


def _posterior(inversion: Inversion, result: SearchResult) -> xr.Dataset | None:
    """Return the best posterior so far as a dataset; None if there is none."""
    found = inversion.solution(result)
    if found is None:
        return None
    simulator = inversion.simulator
    return to_dataset(*found).assign_attrs(
        invgp_runs_from_ledger=simulator.reused, invgp_runs_at_once=round(simulator.concurrency.average, 2)
    )


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """Make a directory that is removed at the end, however deep the trees are that programs have left in it."""
    directory = Path(mkdtemp(prefix="invgp-"))
    try:
        yield directory
    finally:
        remove_run_directories(directory)


@contextmanager
def open_recorder(problem: Problem, path: str | Path | None) -> Iterator[Recorder | None]:
    """Open the ledger for the runs of a problem; None without a path."""
    if path is None:
        yield None
        return
    with Ledger(path) as ledger:
        yield ledger.open_recorder(problem.forward, retries=problem.inference.retries)


def _check(problem: Problem, seed: int) -> None:
    """Check a problem that was built in Python for mistakes that a configuration cannot have."""
    samples = problem.inference.samples
    least = fewest_samples(problem.inference, problem.latent_count)
    if samples is not None and samples < least:
        raise ConfigError(f"inference.samples: must be at least {least}, was {samples}")
    if seed < 0:
        raise ConfigError(f"seed: must be at least 0, was {seed}")
    if problem.grid is None and problem.inference.posterior == "sampled" and not problem.inference.emulator:
        raise ConfigError("inference.emulator: must be true with inference.posterior = 'sampled', was false")
    refuse_to_learn_noise(problem)
