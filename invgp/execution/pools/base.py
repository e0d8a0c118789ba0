"""What every pool offers, and the one that is none: a loop in this process."""

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
CHANCES = 2
"""How often an item may lose its worker: once is bad luck, twice is the item."""


NEVER = Event()
"""An event that is not set."""


class Died(NamedTuple):
    """What became of an item that loses every worker that takes it.

    Attributes
    ----------
    times : how often it did.
    """

    times: int


class Pool(Protocol):
    """Workers that take items of work; a context that ends them.

    Attributes
    ----------
    separate : whether the workers may finish a run that the one who asks never hears of: they record it themselves.
    """

    separate: bool

    def run(
        self, work: Callable[[T], R], items: Sequence[T], directory: Path, stop: Event = NEVER
    ) -> Generator[tuple[int, R | Died], None, None]:
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
    """No workers: one item after the other in this process, easy to debug."""

    separate = False

    def run(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        directory: Path,  # noqa: ARG002 - nothing runs beside us
        stop: Event = NEVER,
    ) -> Generator[tuple[int, R | Died], None, None]:
        """Give each item's number and what became of it, in order."""
        # As in a worker: the number of threads decides how BLAS rounds, and results must not depend on the workers.
        # Once for all items: it takes longer than to start a program.
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
        """Nothing to end."""
