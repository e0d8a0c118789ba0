"""`invgp design`: by how much candidate measurements would reduce the uncertainty."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import LARGEST_SEED, FilePath, default_of
from invgp.cli.text_tables import print_summary


@click.command(
    epilog="Examples: invgp design posterior.nc --candidates places.csv; "
    "invgp design posterior.nc --candidates wells.csv --target 'depth[2] > 900 m' --region position=2000:3000:100"
)
@click.argument("posterior", type=FilePath())
@click.option(
    "--candidates",
    type=FilePath(),
    required=True,
    help="CSV or netCDF file of places: new sites, direct values (columns quantity and std), or better data at a site "
    "(columns site and noise_factor).",
)
@click.option(
    "--target",
    multiple=True,
    help="Expression of latents, or 'EXPRESSION > NUMBER UNIT'; can be repeated.  [default: each latent]",
)
@click.option("--region", help="Places of the target, as --grid of `invgp predict`.  [default: the sites or nodes]")
@click.option(
    "--best",
    type=click.IntRange(min=1),
    help="Number of candidates to choose.  [default: 3, or all if there are fewer]",
)
@click.option("--config", type=FilePath(), help="Configuration of POSTERIOR.  [default: found by its text]")
@click.option(
    "--seed", type=click.IntRange(min=0, max=LARGEST_SEED), **default_of(api.design, "seed"), help="Random seed."
)
@click.option("-o", "--output", type=FilePath(), help="netCDF file.  [default: POSTERIOR.design.nc]")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: POSTERIOR_design.png]")
@json_option
def command(
    posterior: Path,
    candidates: Path,
    target: tuple[str, ...],
    region: str | None,
    best: int | None,
    config: Path | None,
    seed: int,
    output: Path | None,
    plot: Path | None,
) -> None:
    """Compute by how much candidate measurements would reduce the uncertainty of POSTERIOR.

    POSTERIOR is a file of `invgp run`, or its configuration. The simulator is not run. The
    best candidates are chosen one after the other, each given those before.
    """
    posterior, config = api.find_posterior(posterior, config)
    output = output or posterior.with_suffix(".design.nc")
    plot = plot or posterior.with_name(f"{posterior.stem}_design.png")
    found = api.design(
        posterior,
        candidates,
        target=target,
        region=region,
        best=best,
        config=config,
        seed=seed,
        output=output,
        plot=plot,
    )
    from invgp.answers.design import best_rows  # noqa: PLC0415 - help does not wait for xarray

    print_summary(found)
    for path in (output, plot):
        print_line(path)
    print_json(
        {
            "design": output,
            "figure": plot,
            "candidates": found.sizes["candidate"],
            "not_covered": int((found["covered"].values == 0).sum()),
            "choices": best_rows(found),
            "runs": 0,
        }
    )
