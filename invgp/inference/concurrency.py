"""How many runs there really were at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Concurrency:
    """Seconds that runs took, beside seconds that were spent waiting for them.

    Rows that a model takes in one go, such as those of a vectorised function, count as one run at a time.
    """

    busy: float = 0.0
    waited: float = 0.0

    @property
    def reached(self) -> float:
        """Runs at once, on average; 0 if there were none."""
        return self.busy / self.waited if self.waited else 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Runs are under way."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.waited += time.perf_counter() - started
