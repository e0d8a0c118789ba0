"""Pools of workers: a loop in this process, threads, processes or a Dask cluster."""

from .base import Loop, Pool, WorkerDeath
from .factory import open_pool

__all__ = ["Loop", "Pool", "WorkerDeath", "open_pool"]
