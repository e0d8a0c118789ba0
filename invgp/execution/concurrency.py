"""How many runs there really were at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Concurrency:
    """Seconds that runs took, all in all, beside seconds during which there were any.

    Rows that a model takes in one go, such as those of a vectorised function, count as one run at a time.
    """

    busy: float = 0.0
    elapsed: float = 0.0

    @property
    def reached(self) -> float:
        """Runs at once, on average; 0 if there were none."""
        return self.busy / self.elapsed if self.elapsed else 0.0

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Runs are under way."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.elapsed += time.perf_counter() - started
