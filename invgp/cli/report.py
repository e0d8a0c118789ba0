"""`invgp report`: a self-contained HTML report of a posterior."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import FilePath


@click.command(
    epilog="Examples: invgp report posterior.nc; invgp report posterior.nc -o line.html; "
    "invgp report posterior.nc --with posterior.influence.nc --with posterior.design.nc"
)
@click.argument("posterior", type=FilePath())
@click.option("-o", "--output", type=FilePath(), help="HTML file.  [default: next to POSTERIOR]")
@click.option("--ledger", type=FilePath(), help="Ledger of the runs.  [default: that next to POSTERIOR, if any]")
@click.option(
    "--with",
    "answers",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="Result of another command about POSTERIOR, which gets a section with a table and a figure; can be repeated.",
)
@json_option
def command(posterior: Path, output: Path | None, ledger: Path | None, answers: tuple[Path, ...]) -> None:
    """Write a self-contained HTML report of POSTERIOR, a file of `invgp run`.

    The report contains a description of the inversion, the fields, the data fit, the diagnostics, the runs, and the
    commands that reproduce it. It opens in any browser without a network connection, and it can be printed. Results of
    `invgp prior`, `revise`, `difference`, `weigh`, `crossvalidate`, `influence` and `design` are added with --with.
    """
    page = api.report(posterior, output, ledger=ledger, answers=answers)
    print_line(page)
    print_json({"report": page})
