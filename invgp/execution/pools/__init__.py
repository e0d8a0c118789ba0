"""Where the work of a batch is done: in this process, in threads, in processes, on a Dask cluster."""

from .base import Died, Loop, Pool
from .factory import open_pool

__all__ = ["Died", "Loop", "Pool", "open_pool"]
