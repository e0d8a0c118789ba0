"""`invgp compare`: a posterior compared with Markov chains for the same problem."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invgp import api
from invgp.cli import INTERRUPTED
from invgp.cli.console import (
    current_console,
    json_option,
    print_json,
    print_line,
    print_note,
    print_warning,
    prints_text,
)
from invgp.cli.options import LARGEST_SEED, FilePath, data_option, default_of, scheduler_option, workers_option
from invgp.errors import ConfigError
from invgp.formatting import count_noun, format_duration

if TYPE_CHECKING:
    import xarray as xr


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
        from invgp.validation.comparison import InterruptedComparison  # noqa: PLC0415
        from invgp.validation.reference_chains import ChainMonitor, show_chains  # noqa: PLC0415 - help does not wait
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"`invgp compare` needs {error.name}, which is not installed: pip install arviz-stats"
        ) from error
    posterior, options["config"] = api.find_posterior(posterior, options["config"])
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


FILE_WIDTH = 120  # columns, where the table goes to a file


def as_dictionary(comparison: xr.Dataset) -> dict[str, Any]:
    """Return the comparison for JSON."""
    from invgp.validation.comparison import chains_have_converged, comparison_rows, describe_convergence  # noqa: PLC0415

    attributes = comparison.attrs
    return {
        "latents": [row._asdict() for row in comparison_rows(comparison)],
        "converged": chains_have_converged(comparison),
        "verdict": describe_convergence(comparison),
        "runs": attributes["invgp_runs"],
        "reference_runs": attributes["invgp_reference_runs"],
        "reference_chains": attributes["invgp_reference_chains"],
        "reference_draws": attributes["invgp_reference_draws"],
        "interval": attributes.get("invgp_interval"),
    }


def print_comparison(comparison: xr.Dataset, runs: int, seconds: float) -> None:
    """Print the table, the numbers of runs and whether the chains have converged.

    Parameters
    ----------
    comparison : xarray.Dataset
    runs : int
        Runs of this call.
    seconds : float
        Duration of this call.
    """
    from rich.box import SIMPLE  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from invgp.validation.comparison import chains_have_converged, comparison_rows, describe_convergence  # noqa: PLC0415

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    attributes: dict[str, Any] = comparison.attrs
    interval = attributes.get("invgp_interval")
    share = [] if interval is None else [f"inside {interval:.0%}"]
    for heading in ("error of mean", "± sampler's", "ratio of spreads", "± sampler's", *share, "R-hat", "effective"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparison_rows(comparison):
        name = f"{row.latent}, {row.label}" if row.label else row.latent
        errors = f"{row.error:.3f}", f"{row.error_mcse:.3f}", f"{row.ratio:.3f}", f"{row.ratio_mcse:.3f}"
        inside = [f"{row.inside:.1%}"] if share else []
        table.add_row(name, *errors, *inside, f"{row.r_hat:.3f}", f"{row.ess:,.0f}")
    if prints_text():
        Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
    where = "nodes" if "node" in comparison.dims else "sites"
    print_line(
        f"Error of the posterior mean in standard deviations of the reference, root mean square over the {where}.\n"
        f"Posterior standard deviation divided by that of the reference, median over the {where}.\n"
        "Each with the Monte Carlo error of the reference."
        + (f" Share of the reference inside the posterior {interval:.0%} intervals.\n" if share else "\n")
        + f"Worst R-hat and effective sample size over the {where}."
    )
    print_line(
        f"Runs: posterior {attributes['invgp_runs']:,}; reference {attributes['invgp_reference_runs']:,} "
        f"({attributes['invgp_reference_chains']} chains of {attributes['invgp_reference_draws']:,} draws, "
        f"{count_noun(runs, 'run')} and {format_duration(seconds)} now)."
    )
    if "invgp_reference_fixed" in attributes:
        print_line(
            "The reference has the learnt hyperparameters fixed at their values in the posterior: a posterior that is "
            "averaged over them is wider."
        )
    if chains_have_converged(comparison):
        print_line(f"Reference: {describe_convergence(comparison)}.")
    else:
        print_warning(
            f"{describe_convergence(comparison)}; a larger --runs draws more; if R-hat stays large, increase --chains"
        )
