"""`invgp run`: from a config to a posterior file."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import click

from invgp import netcdf
from invgp.cli.options import config_argument, data_option, workers_option
from invgp.cli.progress import progress
from invgp.config import load
from invgp.errors import ConfigError
from invgp.inference.invert import InterruptedInversion, invert


@click.command(
    epilog="Examples: invgp run survey.toml; invgp run survey.toml -o result.nc --workers 4 --seed 7; "
    "invgp run survey.toml --data other_line.csv -o other_line.nc"
)
@config_argument
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The posterior file.  [default: config]"
)
@data_option
@workers_option
@click.option("--seed", type=click.IntRange(min=0), help="Of all random numbers.  [default: config]")
@click.option("--device", type=click.Choice(["cpu", "cuda", "auto"]), help="Where arrays live.  [default: config]")
def command(
    config: Path, output: Path | None, data: Path | None, workers: int | None, seed: int | None, device: str | None
) -> None:
    """Invert the survey that CONFIG describes and write the posterior as CF netCDF.

    Ctrl-C stops it; the best posterior so far is written beside the output.
    """
    problem = load(config, data=data)
    output = output or problem.output.file
    if output.suffix != ".nc":
        raise ConfigError(f"output.file: must end in .nc, was {str(output)!r}")
    run_directory = output.with_suffix(".runs")
    started = time.perf_counter()
    try:
        with progress() as monitor:
            posterior = invert(
                problem, workers=workers, seed=seed, device=device, run_directory=run_directory, monitor=monitor
            )
    except InterruptedInversion as interruption:
        if interruption.posterior is None:
            click.echo("invgp: interrupted before the first evaluation of the bound; nothing was kept", err=True)
        else:
            kept = netcdf.write(interruption.posterior, output.with_suffix(".interrupted.nc"))
            click.echo(f"invgp: interrupted; the best posterior so far was kept in {kept}", err=True)
        raise
    finally:
        with suppress(OSError):  # it stays if it holds the directory of a failed run
            run_directory.rmdir()
    netcdf.write(posterior, output)
    seconds = time.perf_counter() - started
    runs, failed = posterior.attrs["invgp_runs"], posterior.attrs["invgp_runs_failed"]
    click.echo(
        f"{output}: {posterior.attrs['invgp_status']}; ELBO {float(posterior['elbo'][-1]):.2f} nats, "
        f"{runs:,} runs, {failed:,} failed, {seconds:.1f} s"
    )
