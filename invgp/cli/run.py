"""`invgp run`: from a config to a posterior file."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import xarray as xr

from invgp import netcdf
from invgp.cli import INTERRUPTED
from invgp.cli.options import config_argument, data_option, workers_option
from invgp.cli.outputs import check_posterior_path, remove_if_empty
from invgp.cli.progress import Tally, duration, progress
from invgp.config import load
from invgp.errors import RunsFailedError
from invgp.problem import Problem

if TYPE_CHECKING:
    from invgp.inference.invert import InterruptedInversion

LARGEST_SEED = 2**63 - 1  # it is an attribute of the posterior file


@click.command(
    epilog="Examples: invgp run survey.toml; invgp run survey.toml -o result.nc --workers 4 --seed 7; "
    "invgp run survey.toml --data other_line.csv -o other_line.nc"
)
@config_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The posterior file.  [default: config]")
@data_option
@workers_option
@click.option("--seed", type=click.IntRange(min=0, max=LARGEST_SEED), help="Of all random numbers.  [default: config]")
@click.option("--device", type=click.Choice(["cpu", "cuda", "auto"]), help="Where arrays live.  [default: config]")
def command(
    config: Path, output: Path | None, data: Path | None, workers: int | None, seed: int | None, device: str | None
) -> None:
    """Invert the survey that CONFIG describes and write the posterior as CF netCDF.

    Ctrl-C stops it; the best posterior so far is written beside the output.
    """
    problem = load(config, data=data)
    check_posterior_path(output or problem.output.file, "--output" if output else "output.file", problem, config)
    output = output or problem.output.file
    started = time.perf_counter()
    posterior = inverted(problem, output, workers=workers, seed=seed, device=device)
    netcdf.write(posterior, output)
    say(posterior, output, time.perf_counter() - started)


def inverted(
    problem: Problem, output: Path, *, workers: int | None, seed: int | None, device: str | None
) -> xr.Dataset:
    """The posterior; if interrupted, the best so far goes into a file beside `output`, and the command ends."""
    # Here, not above: a mistake is told, and help given, without waiting for SciPy.
    from invgp.inference.invert import InterruptedInversion, invert  # noqa: PLC0415

    runs = output.with_suffix(".runs")
    # Batch systems ask a job to end by SIGTERM, a closed terminal by SIGHUP: as Ctrl-C, they keep what there is.
    for asked_to_end in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(asked_to_end) is not signal.SIG_IGN:  # as under nohup
            signal.signal(asked_to_end, signal.default_int_handler)
    try:
        with progress() as tally:
            return invert(problem, workers=workers, seed=seed, device=device, run_directory=runs, monitor=tally)
    except InterruptedInversion as interruption:
        click.echo(f"invgp: interrupted {kept(interruption, tally, output)}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except RunsFailedError as failure:
        if failure.posterior is not None:
            path = netcdf.write(failure.posterior, output.with_suffix(".interrupted.nc"))
            click.echo(f"invgp: the best posterior so far was kept in {path}", err=True)
        raise
    finally:
        remove_if_empty(runs)


def kept(interruption: InterruptedInversion, tally: Tally, output: Path) -> str:
    """Write what there is, and say so."""
    if interruption.posterior is None:
        return f"after {tally.done:,} runs, before the first evaluation of the bound was done; nothing was kept"
    path = output.with_suffix(".interrupted.nc")
    netcdf.write(interruption.posterior, path)
    return f"after {tally.done:,} runs; the best posterior so far was kept in {path}"


def say(posterior: xr.Dataset, output: Path, seconds: float) -> None:
    """What came of it, on one line, and where to look at runs that failed."""
    runs, failed = posterior.attrs["invgp_runs"], posterior.attrs["invgp_runs_failed"]
    click.echo(
        f"{output}: {posterior.attrs['invgp_status']}; ELBO {float(posterior['elbo'][-1]):.2f} nats, "
        f"{runs:,} runs, {failed:,} failed, {duration(seconds)}"
    )
    if posterior.attrs["invgp_settled"] == "no":
        click.echo("invgp: warning: the posterior has not settled; do not trust its spreads yet", err=True)
    for sentence in filter(None, posterior.attrs["invgp_diagnostics"].splitlines()):
        click.echo(f"invgp: note: {sentence}", err=True)
    directory = output.with_suffix(".runs")
    if failed and directory.exists():
        click.echo(f"{directory}: the directories of failed runs")
