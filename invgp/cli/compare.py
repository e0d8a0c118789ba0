"""`invgp compare`: a posterior compared with Markov chains for the same problem."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from invgp import api
from invgp.cli import INTERRUPTED
from invgp.cli.comparison_table import as_dictionary, print_comparison
from invgp.cli.console import current_console, json_option, print_json, print_line, print_note
from invgp.cli.options import LARGEST_SEED, FilePath, data_option, default_of, scheduler_option, workers_option
from invgp.errors import ConfigError
from invgp.formatting import count_noun


@click.command(
    epilog="Examples: invgp compare posterior.nc; invgp compare posterior.nc --effective 4000 -o reference.nc; "
    "invgp compare results/line.nc --config survey.toml --workers 4"
)
@click.argument("posterior", type=FilePath())
@click.option("--config", type=FilePath(), help="Configuration of the posterior.  [default: found by its text]")
@data_option
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    help="Largest number of simulator runs.  [default: 30,000 per site, or for a field model]",
)
@click.option(
    "--chains", type=click.IntRange(min=8), help="Number of chains, a multiple of 4.  [default: 64 to 256, by size]"
)
@click.option(
    "--effective",
    type=click.IntRange(min=1),
    **default_of(api.compare, "effective"),
    help="Effective sample size at which the chains end.",
)
@click.option(
    "--seed", type=click.IntRange(min=0, max=LARGEST_SEED), **default_of(api.compare, "seed"), help="Random seed."
)
@click.option("--ledger", type=FilePath(), help="Ledger of the runs.  [default: that of POSTERIOR]")
@workers_option
@scheduler_option
@click.option("-o", "--output", type=FilePath(), help="netCDF file for the draws and the comparison.")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: next to POSTERIOR]")
@json_option
def command(posterior: Path, output: Path | None, plot: Path | None, **options: Any) -> None:
    """Compare POSTERIOR, a file of `invgp run`, with Markov chains on the simulator of the same problem.

    The chains need many simulator runs. Unless the simulator is very fast, they are kept in the ledger of POSTERIOR.
    After Ctrl-C, or with more runs, the same command continues from there.
    """
    try:
        from invgp.validation.chain_progress import ChainMonitor, show_chains  # noqa: PLC0415 - help does not wait
        from invgp.validation.run_comparison import InterruptedComparison  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"`invgp compare` needs {error.name}, which is not installed: pip install arviz-stats"
        ) from error
    plot = plot or posterior.with_name(f"{posterior.stem}_comparison.png")
    started, monitor = time.perf_counter(), ChainMonitor()
    try:
        if current_console().quiet:
            comparison = api.compare(posterior, output=output, plot=plot, monitor=monitor, **options)
        else:
            with show_chains() as monitor:
                comparison = api.compare(posterior, output=output, plot=plot, monitor=monitor, **options)
    except InterruptedComparison as interruption:
        print_note(f"interrupted after {count_noun(monitor.runs, 'run')}{describe_interruption(interruption)}")
        raise SystemExit(INTERRUPTED) from None
    seconds = time.perf_counter() - started
    print_comparison(comparison, monitor.runs, seconds)
    for path in filter(None, (output, plot)):
        print_line(path)
    now = {"runs_now": monitor.runs, "seconds": seconds}
    print_json(as_dictionary(comparison) | now | {"comparison": output, "figure": plot})


def describe_interruption(interruption: Any) -> str:
    """Return what was kept, and how to continue."""
    ledger = interruption.ledger
    if ledger is None:
        return "; nothing was kept, since there is no ledger"
    return f"; the runs are kept in {ledger}, and the same command continues from there"
