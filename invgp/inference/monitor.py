"""What an inversion tells the person who waits for it."""

from __future__ import annotations

from typing import Protocol


class Monitor(Protocol):
    """Told of each step as it happens. An implementation must return quickly."""

    def begin(self, runs_per_evaluation: int, max_evaluations: int) -> None:
        """The inversion starts."""

    def ran(self, succeeded: int, failed: int) -> None:
        """That many more runs have come back."""

    def evaluated(self, evaluation: int, elbo: float, *, accepted: bool) -> None:
        """The bound has been evaluated (for the evaluation-th time) at a posterior that was kept, or was not."""


class Silent:
    """Says nothing."""

    def begin(self, runs_per_evaluation: int, max_evaluations: int) -> None:
        """Nothing."""

    def ran(self, succeeded: int, failed: int) -> None:
        """Nothing."""

    def evaluated(self, evaluation: int, elbo: float, *, accepted: bool) -> None:
        """Nothing."""
