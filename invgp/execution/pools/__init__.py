"""Pools of workers: a loop in this process, threads, processes or a Dask cluster."""

from __future__ import annotations

from invgp.errors import ConfigError
from invgp.execution.pools.pool import Loop, Pool, Threads, WorkerDeath
from invgp.problem import InferenceSettings

__all__ = ["Loop", "Pool", "WorkerDeath", "open_pool"]


def open_pool(settings: InferenceSettings, *, workers: int | None = None, scheduler: str | None = None) -> Pool:
    """Return the pool that makes the runs of a problem.

    Parameters
    ----------
    settings : InferenceSettings
    workers : int, optional
        Number of workers, instead of ``settings.workers``.
    scheduler : str, optional
        Address or file of a Dask scheduler, instead of ``settings.backend`` and ``settings.scheduler``.

    Returns
    -------
    Pool

    Raises
    ------
    ConfigError
        The settings are inconsistent, or there is no such scheduler.
    """
    # The modules are imported where they are needed, because they are slow to import.
    if scheduler is not None or settings.backend == "dask":
        from invgp.execution.pools.dask_cluster import Cluster  # noqa: PLC0415

        address = scheduler or settings.scheduler
        if address is None:
            raise ConfigError(
                "inference.scheduler: must be the address or file of a Dask scheduler with inference.backend = 'dask', "
                "was left out"
            )
        return Cluster(address, settings.worker_timeout)
    workers = settings.workers if workers is None else workers
    if workers < 1:
        raise ConfigError(f"workers: must be at least 1, was {workers}")
    if workers == 1:
        return Loop()
    if settings.backend == "threading":
        return Threads(workers)
    from invgp.execution.pools.worker_processes import Processes  # noqa: PLC0415

    return Processes(workers)
