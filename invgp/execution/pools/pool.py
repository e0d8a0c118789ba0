"""The protocol of pools, and the simplest one: a loop in this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")
R = TypeVar("R")

THREADS_PER_WORKER = 1
MOST_DEATHS = 2
"""Number of workers that may die with an item, after which the item is considered the cause."""


NEVER = Event()
"""An event that is not set."""


class WorkerDeath(NamedTuple):
    """The result of an item that kills its workers.

    Attributes
    ----------
    times : int
        Number of workers that died.
    """

    times: int


class Pool(Protocol):
    """Workers that process items; a context manager that ends them.

    Attributes
    ----------
    records_runs : bool
        Whether a worker can finish a run whose result is then lost, so that it must record the run itself.
    """

    records_runs: bool

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event = NEVER
    ) -> Generator[tuple[int, R | WorkerDeath], None, None]:
        """Yield the number of each item and the result of `work`, in the order in which the items finish.

        If a worker dies, another worker takes its item. If the generator is closed before its end, the programs whose
        run directory is below `directory` are killed.

        Parameters
        ----------
        work : callable
            Function of one item.
        items : sequence
        directory : Path
            Parent of the run directories.
        stop : threading.Event, optional
            When it is set, no further item is started; the results of the items that have started are still yielded.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Loop:
    """Processes one item after the other in this process, which is easy to debug."""

    records_runs = False

    def run(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        directory: Path,  # noqa: ARG002 - nothing runs in parallel
        stop: Event = NEVER,
    ) -> Generator[tuple[int, R | WorkerDeath], None, None]:
        """Yield the number and the result of each item, in order."""
        # As in a worker: the rounding errors of BLAS depend on the number of threads, and results must not depend on
        # the pool. The limit is set once for all items, because it takes longer than the start of a program.
        with threadpool_limits(THREADS_PER_WORKER):
            for number, item in enumerate(items):
                if stop.is_set():
                    return
                yield number, work(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""
