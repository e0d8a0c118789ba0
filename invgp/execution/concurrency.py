"""The average number of simultaneous runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Concurrency:
    """Measures how many runs were made at the same time.

    Rows that a model evaluates in one call, for example with a vectorised function, count as consecutive runs.

    Attributes
    ----------
    busy : float
        Sum of the durations of all runs, in s.
    elapsed : float
        Time during which at least one run was made, in s.
    """

    busy: float = 0.0
    elapsed: float = 0.0

    @property
    def average(self) -> float:
        """Average number of simultaneous runs; 0 if there were no runs."""
        return self.busy / self.elapsed if self.elapsed else 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add the duration of the block to `elapsed`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.elapsed += time.perf_counter() - start
