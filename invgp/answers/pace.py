"""Reports of long computations, which the command line displays with --verbose."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from invgp.formatting import format_duration

T = TypeVar("T")
LOGGER = logging.getLogger("invgp.answers")


def report_each(items: Sequence[T], name: str) -> Iterator[T]:
    """Yield items, and report how many are done and, from the pace so far, how long the others take.

    Parameters
    ----------
    items : sequence
    name : str
        What they are, in the plural.
    """
    start = time.perf_counter()
    for done, item in enumerate(items):
        left = (time.perf_counter() - start) / done * (len(items) - done) if done else None
        LOGGER.info(
            "%s: %d of %d done%s",
            name,
            done,
            len(items),
            "" if left is None else f", about {format_duration(left)} left",
        )
        yield item
