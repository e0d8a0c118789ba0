"""`invgp predict`: a posterior on a grid or at points."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from invgp.api import find_posterior
from invgp.api.output_paths import check_map_path, check_not_survey
from invgp.api.posterior_files import read_posterior
from invgp.cli.console import current_console, json_option, print_json, print_line, print_warning
from invgp.cli.options import MODE_HELP, FilePath, FiniteRange
from invgp.errors import ArgumentError
from invgp.formatting import count_noun

GIBIBYTE = 2**30


@click.command(
    epilog="Examples: invgp predict posterior.nc; invgp predict posterior.nc --grid 25 -o map.nc; "
    "invgp predict posterior.nc --grid easting=0:1000:10,northing=::20 --exceed 'velocity > 2500 m/s'; "
    "invgp predict posterior.nc --grid wells.csv --derive 'thickness = depth[2] - depth[1]' --draws 100"
)
@click.argument("posterior", type=FilePath())
@click.option(
    "--grid",
    help="A step; or NAME=START:STOP:STEP or NAME=VALUE for each coordinate, separated by commas, where an omitted "
    "start or stop is that of the sites; or a CSV or netCDF file of points or axes, or a mesh.  "
    "[default: 50 to 100 points per side]",
)
@click.option("-o", "--output", type=FilePath(), help="Map file.  [default: POSTERIOR.map.nc]")
@click.option("--latent", "latents", multiple=True, help="Latent to predict; can be repeated.  [default: all]")
@click.option("--derive", multiple=True, help="Derived quantity 'NAME = EXPRESSION'; can be repeated.")
@click.option("--exceed", multiple=True, help="Threshold 'NAME > NUMBER UNIT'; can be repeated.")
@click.option("--quantiles", help="Probabilities separated by commas, or 'none'.  [default: those of POSTERIOR]")
@click.option(
    "--draws",
    type=click.IntRange(min=0),
    default=0,
    help="Number of samples, joint over the map and the latents.  [default: 0]",
)
@click.option("--mode", type=click.IntRange(min=1), help=MODE_HELP)
@click.option("--seed", type=click.IntRange(min=0), help="Random seed of the samples.  [default: that of POSTERIOR]")
@click.option(
    "--memory",
    type=FiniteRange(min=0.01),
    default=0.5,
    help="Approximate size of temporary arrays in GiB; more is hardly faster.  [default: 0.5]",
)
@json_option
def command(
    posterior: Path,
    grid: str | None,
    output: Path | None,
    latents: tuple[str, ...],
    derive: tuple[str, ...],
    exceed: tuple[str, ...],
    quantiles: str | None,
    draws: int,
    mode: int | None,
    seed: int | None,
    memory: float,
) -> None:
    """Compute the posterior of POSTERIOR, a file of `invgp run`, on a grid or at points, without the simulator."""
    posterior, _ = find_posterior(posterior)
    dataset = read_posterior(posterior)
    output = output or posterior.with_suffix(".map.nc")
    check_map_path(output, posterior)
    check_not_survey(output, dataset)
    from invgp.maps.predict import format_points, plan_map, write  # noqa: PLC0415 - errors are reported without importing SciPy
    from invgp.posterior.contents import mode_probabilities  # noqa: PLC0415

    map_plan = plan_map(
        dataset,
        grid=grid,
        latents=latents,
        derive=derive,
        exceed=exceed,
        quantiles=_levels(quantiles),
        draws=draws,
        mode=mode,
        seed=seed,
        memory=int(memory * GIBIBYTE),
    )

    with click.progressbar(
        length=map_plan.grid.size,
        label="points",
        file=sys.stderr,
        hidden=current_console().quiet or not sys.stderr.isatty(),
    ) as bar:
        write(map_plan, output, bar.update)
    for name in sorted(map_plan.undefined):
        print_warning(
            f"{name} is not a number at some points: its expression is not defined for all that the posterior allows"
        )
    names = ", ".join(quantity.name for quantity in map_plan.quantities)
    drawn = f"; {count_noun(draws, 'draw')} ({map_plan.draw_methods.name})" if draws else ""
    of_mode = (
        "" if mode is None else f"; mode {mode}, with a probability of {mode_probabilities(dataset)[mode - 1]:.0%}"
    )
    print_line(f"{output}: {names} at {format_points(map_plan.grid)}{of_mode}{drawn}")
    print_json(
        {"map": output, "quantities": [quantity.name for quantity in map_plan.quantities], "points": map_plan.grid.size}
    )


def _levels(text: str | None) -> list[float] | None:
    if text is None or text.strip() == "none":
        return None if text is None else []
    try:
        return [float(part) for part in re.split(r"[,\s]+", text.strip())]
    except ValueError:
        raise ArgumentError(f"quantiles: must be numbers separated by commas, was {text!r}") from None
