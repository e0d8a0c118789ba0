"""`invgp calibrate`: the coverage of posterior intervals on simulated surveys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invgp import api
from invgp.api.output_paths import check_posterior_path
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
from invgp.cli.options import LARGEST_SEED, FilePath, config_argument, data_option, default_of
from invgp.config import load
from invgp.formatting import count_noun

if TYPE_CHECKING:
    import xarray as xr

    from invgp.validation.coverage import Coverage

NOT_CALIBRATED = 5
BELOW, ABOVE = "▼", "▲"
FILE_WIDTH = 120  # columns, where the table goes to a file


@click.command(
    epilog="Examples: invgp calibrate survey.toml; invgp calibrate survey.toml --surveys 500 --workers 4; "
    "invgp calibrate survey.toml --data short_line.csv --check"
)
@config_argument
@click.option(
    "--surveys", type=click.IntRange(min=1), **default_of(api.calibrate, "surveys"), help="Number of simulated surveys."
)
@click.option("-o", "--output", type=FilePath(), help="netCDF file.  [default: <output.file>_calibration.nc]")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: next to the output]")
@data_option
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of surveys that are inverted in parallel.  [default: config]"
)
@click.option("--seed", type=click.IntRange(min=0, max=LARGEST_SEED), help="Random seed.  [default: config]")
@click.option("--check", is_flag=True, help="Exit with code 5 if a coverage is outside its band.")
@json_option
def command(
    config: Path,
    surveys: int,
    output: Path | None,
    plot: Path | None,
    data: Path | None,
    workers: int | None,
    seed: int | None,
    check: bool,
) -> None:
    """Simulate surveys from the prior of CONFIG, invert them, and count how often the intervals contain the truth.

    Each finished survey is saved next to the output. After Ctrl-C, or with a larger --surveys, the same command
    continues from there.
    """
    problem = load(config, data=data)
    output = output or problem.output.file.with_name(f"{problem.output.file.stem}_calibration.nc")
    plot = plot or output.with_suffix(".png")
    check_posterior_path(output, "output", problem, config)
    from invgp.validation.calibration import InterruptedCalibration  # noqa: PLC0415 - help does not wait for SciPy

    complete, progress = True, not current_console().quiet
    try:
        result = api.calibrate(
            problem, surveys, output=output, plot=plot, workers=workers, seed=seed, progress=progress
        )
    except InterruptedCalibration as interruption:
        partial, complete = interruption.result, False
        done = 0 if partial is None else partial.sizes["survey"]
        print_note(f"interrupted after {done:,} of {surveys:,} surveys")
        if partial is None:
            raise SystemExit(INTERRUPTED) from None
        print_note(f"they are kept in {output.with_suffix('.surveys')}; the same command continues from there")
        result, output, plot = partial, api.interrupted_path(output), api.interrupted_path(plot)
    outside = print_table(result)
    for path in (output, plot):
        print_line(path)
    print_json(as_dictionary(result) | {"outside": outside, "whole": complete, "calibration": output, "figure": plot})
    if not complete:
        raise SystemExit(INTERRUPTED)
    if check and outside:
        raise SystemExit(NOT_CALIBRATED)


def print_table(result: xr.Dataset) -> int:
    """Print the coverages with an explanation; return the number of coverages outside their bands."""
    from rich.box import SIMPLE  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from invgp.plots.plot_data import read_curves  # noqa: PLC0415
    from invgp.plots.validation_figures import process_name  # noqa: PLC0415
    from invgp.validation.coverage import coverage_of  # noqa: PLC0415

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("truths inside, %", no_wrap=True)
    for interval in result["interval"].values:
        table.add_column(f"{interval:.0%}", justify="right", no_wrap=True)
    for heading in ("|error|", "rms"):
        table.add_column(heading, justify="right", no_wrap=True)
    outside = 0
    for latent in str(result.attrs["invgp_latents"]).split():
        found = coverage_of(result, latent)
        absolute, ratio = (
            result[f"{latent}_{suffix}"].values.reshape(-1) for suffix in ("absolute_score", "error_ratio")
        )
        outside += int((found.below | found.above).sum())
        for curve in read_curves(result, f"{latent}_error_ratio"):
            numbers = f"{absolute[curve.column]:.2f}", f"{ratio[curve.column]:.2f}"
            table.add_row(process_name(latent, curve), *format_cells(found, curve.column), *numbers)
    found = coverage_of(result)
    outside += int((found.below | found.above).sum())
    table.add_section()
    table.add_row("all", *format_cells(found, 0), "", "")
    if prints_text():
        Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
    print_line(explain_table(result, outside))
    print_warnings(result)
    return outside


def as_dictionary(result: xr.Dataset) -> dict[str, Any]:
    """Return the coverages for JSON, arrays (interval, label)."""
    from invgp.validation.coverage import coverage_of  # noqa: PLC0415

    found = {name: coverage_of(result, name) for name in str(result.attrs["invgp_latents"]).split()}
    return {
        "surveys": result.attrs["invgp_surveys"],
        "surveys_failed": result.attrs["invgp_surveys_failed"],
        "surveys_not_converged": result.attrs["invgp_surveys_not_converged"],
        "seed": result.attrs["invgp_seed"],
        "intervals": result["interval"].values,
        "latents": {
            name: {
                "inside": coverage.share,
                "standard_error": coverage.standard_error,
                "below": coverage.below,
                "above": coverage.above,
                "absolute_score": result[f"{name}_absolute_score"].values,
                "error_ratio": result[f"{name}_error_ratio"].values,
            }
            for name, coverage in found.items()
        },
    }


def format_cells(found: Coverage, column: int) -> list[str]:
    """Return one cell per interval: the coverage, its standard error, and a mark if it is outside its band."""
    share, error, below, above = (
        values.reshape(len(found.share), -1)[:, column]
        for values in (found.share, found.standard_error, found.below, found.above)
    )
    marks = [BELOW if low else ABOVE if high else "" for low, high in zip(below, above, strict=True)]
    return [f"{mark} {100 * s:.1f} ± {100 * e:.1f}" for s, e, mark in zip(share, error, marks, strict=True)]


def explain_table(result: xr.Dataset, outside: int) -> str:
    """Return the notes below the table."""
    attributes = result.attrs
    redrawn = attributes["invgp_truths_redrawn"]
    lines = [
        f"{count_noun(attributes['invgp_surveys'], 'simulated survey')} of {count_noun(result.sizes['site'], 'site')}"
        + (f" and {count_noun(result.sizes['node'], 'node')}, " if "node" in result.dims else ", ")
        + f"seed {attributes['invgp_seed']}; ± is one standard error, across surveys.",
        "|error|: mean absolute error in posterior standard deviations, which should be 0.80; "
        "rms: root mean square error divided by the reported one, which should be 1.",
        f"{outside} of {attributes['invgp_bands']} coverages lie outside their bands ({BELOW} overconfident, "
        f"{ABOVE} too wide); {attributes['invgp_bands_confidence']:.0%} of calibrated posteriors have none outside.",
    ]
    if redrawn:
        lines.append(f"{redrawn:,} truths were drawn again, because the simulator failed at one of their sites.")
    return "\n".join(lines)


def print_warnings(result: xr.Dataset) -> None:
    """Warn of surveys that failed or did not converge."""
    failed, not_converged = result.attrs["invgp_surveys_failed"], result.attrs["invgp_surveys_not_converged"]
    if failed:
        first = result.attrs["invgp_first_failure"]
        print_warning(f"{failed:,} surveys could not be inverted and are omitted; {first}")
    if not_converged:
        print_warning(f"{not_converged:,} of the inversions did not converge")
