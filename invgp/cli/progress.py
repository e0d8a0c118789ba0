"""Progress display of a command, unless `--quiet` is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from invgp.cli.console import current_console
from invgp.progress import ProgressState
from invgp.progress import show_progress as show_on_terminal


@contextmanager
def show_progress() -> Iterator[ProgressState]:
    """Show the progress on standard error; nothing with `--quiet`."""
    if current_console().quiet:
        yield ProgressState()
        return
    with show_on_terminal() as state:
        yield state
