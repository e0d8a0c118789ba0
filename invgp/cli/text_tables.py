"""Tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from invgp.cli.console import print_line, print_warning, prints_text

if TYPE_CHECKING:
    import xarray as xr

FILE_WIDTH = 120  # columns, where the table goes to a file


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text below headings, unless the output is JSON or quiet; the first column is a name."""
    if not prints_text():
        return
    from rich.box import SIMPLE  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else FILE_WIDTH, highlight=False).print(table)


def print_summary(answer: xr.Dataset) -> None:
    """Print a result of a command that answers a question."""
    from invgp.answers.summaries import summarise  # noqa: PLC0415 - help does not wait for xarray

    summary = summarise(answer)
    for sentence in summary.warnings:
        print_warning(sentence)
    for table in summary.tables:
        print_table(*table)
    for sentence in summary.sentences:
        print_line(sentence)
