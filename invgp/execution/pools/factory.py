"""From the settings of a problem to its pool."""

from __future__ import annotations

from invgp.errors import ConfigError
from invgp.execution.pools.base import Loop, Pool
from invgp.problem import InferenceSettings


def open_pool(settings: InferenceSettings, *, workers: int | None = None, scheduler: str | None = None) -> Pool:
    """Where the runs of a problem are made.

    Parameters
    ----------
    workers : instead of the settings' own.
    scheduler : of Dask, instead of the settings' own back end.
    """
    # Each where it is wanted: they are slow to import.
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
        from invgp.execution.pools.worker_threads import Threads  # noqa: PLC0415

        return Threads(workers)
    from invgp.execution.pools.worker_processes import Processes  # noqa: PLC0415

    return Processes(workers)
