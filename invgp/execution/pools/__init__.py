"""Pools of workers: a loop in this process, threads, processes or a Dask cluster."""

from .factory import open_pool
from .pool import Loop, Pool, WorkerDeath

__all__ = ["Loop", "Pool", "WorkerDeath", "open_pool"]
