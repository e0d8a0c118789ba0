"""`invgp crossvalidate`: predict data that are left out, without simulator runs."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import LARGEST_SEED, FilePath, default_of
from invgp.cli.text_tables import print_summary


@click.command(
    epilog="Examples: invgp crossvalidate survey.toml; invgp crossvalidate posterior.nc --by block --blocks 8; "
    "invgp crossvalidate joint.nc --by source"
)
@click.argument("posterior", type=FilePath())
@click.option(
    "--by",
    type=click.Choice(["site", "block", "source"]),
    **default_of(api.crossvalidate, "by"),
    help="What is left out at a time: a site, a block of neighbouring sites, or a source.",
)
@click.option(
    "--blocks", type=click.IntRange(min=2), **default_of(api.crossvalidate, "blocks"), help="Number of blocks."
)
@click.option("--config", type=FilePath(), help="Configuration of POSTERIOR.  [default: found by its text]")
@click.option(
    "--seed", type=click.IntRange(min=0, max=LARGEST_SEED), **default_of(api.crossvalidate, "seed"), help="Random seed."
)
@click.option("-o", "--output", type=FilePath(), help="netCDF file.  [default: POSTERIOR.crossvalidation.nc]")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: POSTERIOR_crossvalidation.png]")
@json_option
def command(
    posterior: Path, by: str, blocks: int, config: Path | None, seed: int, output: Path | None, plot: Path | None
) -> None:
    """Predict data of POSTERIOR from the other data, and compare them.

    POSTERIOR is a file of `invgp run`, or its configuration. The simulator is not run.
    """
    posterior, config = api.find_posterior(posterior, config)
    output = output or posterior.with_suffix(".crossvalidation.nc")
    plot = plot or posterior.with_name(f"{posterior.stem}_crossvalidation.png")
    found = api.crossvalidate(posterior, by=by, blocks=blocks, config=config, seed=seed, output=output, plot=plot)
    from invgp.answers.cross_validation import coverage_of, cross_validation_rows  # noqa: PLC0415 - help does not wait

    attributes = found.attrs
    print_summary(found)
    for path in (output, plot):
        print_line(path)
    print_json(
        {
            "crossvalidation": output,
            "figure": plot,
            "observations": cross_validation_rows(found),
            "log_score": attributes["invgp_log_score"],
            "coverage": coverage_of(found),
            "groups": attributes["invgp_groups"],
            "groups_refitted": attributes["invgp_groups_refitted"],
            "runs": 0,
        }
    )
