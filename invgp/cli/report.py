"""`invgp report`: an HTML report of a posterior file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from invgp.cli.console import json_option, print_json, print_line, print_warning
from invgp.cli.options import FilePath, refuse_calibration
from invgp.cli.outputs import check_writable
from invgp.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from invgp.reports.ledger import RunsKept


@click.command(epilog="Examples: invgp report posterior.nc; invgp report posterior.nc -o line.html")
@click.argument("posterior", type=FilePath())
@click.option("-o", "--output", type=FilePath(), help="HTML file.  [default: next to POSTERIOR]")
@click.option("--ledger", type=FilePath(), help="Ledger of the runs.  [default: that next to POSTERIOR, if any]")
@json_option
def command(posterior: Path, output: Path | None, ledger: Path | None) -> None:
    """Write a self-contained HTML report of POSTERIOR, a file of `invgp run`.

    The report contains a description of the inversion, the fields, the data fit, the diagnostics, the runs, and the
    commands that reproduce it. It opens in any browser without a network connection, and it can be printed.
    """
    output = output or posterior.with_suffix(".html")
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--output: must end in .html, was {str(output)!r}")
    check_writable(output, "--output")
    # Here, not above: a mistake is told, and help given, without waiting for xarray and matplotlib.
    from invgp import netcdf, reports  # noqa: PLC0415

    dataset = netcdf.read(posterior)
    refuse_calibration(dataset, posterior)
    if "site" not in dataset.dims or "invgp_config" not in dataset.attrs:
        raise ConfigError(f"POSTERIOR: must be a file that `invgp run` wrote, was {str(posterior)!r}")
    runs = read_runs(posterior, ledger, str(dataset.attrs.get("invgp_simulator_digest", "")))
    page = reports.write(dataset, output, posterior.name, runs)
    print_line(page)
    print_json({"report": page})


def read_runs(posterior: Path, ledger: Path | None, simulator_digest: str) -> RunsKept | None:
    """What the ledger says: that which is named must be one, that beside the posterior may be."""
    from invgp.reports.ledger import runs_kept  # noqa: PLC0415

    beside = posterior.with_suffix(".ledger.sqlite")
    if ledger is not None:
        return runs_kept(ledger, simulator_digest)
    try:
        return runs_kept(beside, simulator_digest) if beside.is_file() else None
    except (ConfigError, LedgerError) as error:
        print_warning(f"the ledger beside the posterior is left out: {error}")
        return None
