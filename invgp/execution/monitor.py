"""What an inversion tells the person who waits for it."""

from __future__ import annotations

from typing import Protocol


class Monitor(Protocol):
    """Told of each step as it happens. An implementation must return quickly."""

    def begin(self, most_runs: int) -> None:
        """The inversion starts; it will make so many runs at the most."""

    def batch(self, purpose: str, runs: int) -> None:
        """A batch of runs starts, for a purpose such as ``"evaluation 3"``."""

    def ran(self, succeeded: int, failed: int, *, answered: int = 0) -> None:
        """That many more runs have come back; some of them were not made, but answered by the ledger."""

    def waiting(self, runs: int, maker: str) -> None:
        """So many runs are being made by another process, which has the same ledger; it is told again and again."""

    def evaluated(self, elbo: float, *, accepted: bool) -> None:
        """The bound has been evaluated at a posterior that was kept, or was not."""


class Silent:
    """Says nothing."""

    def begin(self, most_runs: int) -> None:
        """Nothing."""

    def batch(self, purpose: str, runs: int) -> None:
        """Nothing."""

    def ran(self, succeeded: int, failed: int, *, answered: int = 0) -> None:
        """Nothing."""

    def waiting(self, runs: int, maker: str) -> None:
        """Nothing."""

    def evaluated(self, elbo: float, *, accepted: bool) -> None:
        """Nothing."""
