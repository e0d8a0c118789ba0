"""`invgp weigh`: the evidence of alternative models of the same data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import FilePath
from invgp.cli.text_tables import print_summary

if TYPE_CHECKING:
    import xarray as xr


@click.command(
    epilog="Examples: invgp weigh smooth.nc rough.nc; invgp weigh two_layers.nc three_layers.nc --plot odds.png"
)
@click.argument("posteriors", type=FilePath(), nargs=-1, required=True)
@click.option(
    "--config",
    type=FilePath(),
    multiple=True,
    help="Configuration of a posterior, once for each in the same order.  [default: found by its text]",
)
@click.option(
    "--name", "names", multiple=True, help="Name of a model, once for each in the same order.  [default: the files]"
)
@click.option("-o", "--output", type=FilePath(), help="netCDF file, also for `invgp report`.  [default: none]")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: none]")
@json_option
def command(
    posteriors: tuple[Path, ...],
    config: tuple[Path, ...],
    names: tuple[str, ...],
    output: Path | None,
    plot: Path | None,
) -> None:
    """Compare the evidence of POSTERIORS, alternative models of the same data, without simulator runs."""
    found = api.weigh(*posteriors, config=config, names=names, output=output, plot=plot)
    from invgp.answers.evidence import evidence_rows  # noqa: PLC0415 - help does not wait for xarray
    from invgp.posterior.attributes import convergence_warning  # noqa: PLC0415

    doubtful = {path.name: text for path in posteriors if (text := convergence_warning(_open(path)))}
    print_summary(found)
    for name, text in doubtful.items():
        print_line(f"{name}: {text} Its evidence, and all probabilities in the table, are doubtful.")
    for path in filter(None, (output, plot)):
        print_line(path)
    print_json({"models": evidence_rows(found), "evidence": output, "figure": plot, "not_converged": list(doubtful)})


def _open(path: Path) -> xr.Dataset:
    """Read a posterior, which may be given by its configuration."""
    return api.open_posterior(api.find_posterior(path)[0])
