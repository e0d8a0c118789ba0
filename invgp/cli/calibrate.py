"""`invgp calibrate`: invert simulated surveys and count how often the intervals contain the truth."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invgp import netcdf
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
from invgp.cli.options import LARGEST_SEED, FilePath, config_argument, data_option, refuse_field
from invgp.cli.outputs import check_posterior_path, check_writable
from invgp.cli.progress import SECONDS_BETWEEN_LINES
from invgp.config import load
from invgp.errors import ConfigError
from invgp.formatting import count_noun, format_duration

if TYPE_CHECKING:
    import xarray as xr

    from invgp.coverage import Coverage
    from invgp.problem import Problem

NOT_CALIBRATED = 5
BELOW, ABOVE = "▼", "▲"
PAPER = 120  # columns, where the table goes to a file


@click.command(
    epilog="Examples: invgp calibrate survey.toml; invgp calibrate survey.toml --surveys 500 --workers 4; "
    "invgp calibrate survey.toml --data short_line.csv --check"
)
@config_argument
@click.option(
    "--surveys", type=click.IntRange(min=1), default=200, show_default=True, help="Number of simulated surveys."
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
    refuse_field(problem, "calibrate")
    output, plot = _paths(problem, config, output, plot)
    refuse_fewer(surveys, output)
    seed = problem.inference.seed if seed is None else seed
    result, whole = calibrated(problem, surveys, output.with_suffix(".surveys"), seed=seed, workers=workers)
    partial = output.with_suffix(".interrupted.nc"), plot.with_suffix(f".interrupted{plot.suffix}")
    if not whole:
        output, plot = partial
    write(result, output, plot)
    if whole:
        for path in partial:
            path.unlink(missing_ok=True)
    outside = tell(result)
    for path in (output, plot):
        print_line(path)
    print_json(facts(result) | {"outside": outside, "whole": whole, "calibration": output, "figure": plot})
    if not whole:
        raise SystemExit(INTERRUPTED)
    if check and outside:
        raise SystemExit(NOT_CALIBRATED)


def _paths(problem: Problem, config: Path, output: Path | None, plot: Path | None) -> tuple[Path, Path]:
    """Where the results go, looked at before the simulator is paid for."""
    from invgp.plots import check_format  # noqa: PLC0415 - help is given without waiting for matplotlib

    default = problem.output.file.with_name(f"{problem.output.file.stem}_calibration.nc")
    output = output or default
    check_posterior_path(output, "--output", problem, config)
    plot = plot or output.with_suffix(".png")
    check_format(plot, "--plot")
    check_writable(plot, "--plot")
    return output, plot


def refuse_fewer(surveys: int, output: Path) -> None:
    """Raise `ConfigError` if a calibration would take the place of one that rests on more surveys."""
    if not output.exists():
        return
    try:
        with netcdf.open_posterior(output) as earlier:
            there = int(earlier.attrs.get("invgp_surveys", 0))
    except ConfigError:  # no file of ours
        return
    if there > surveys:
        raise ConfigError(
            f"--surveys: must be at least {there}, was {surveys}: {str(output)!r} is a calibration with {there} "
            "surveys; for fewer, name another --output, or remove that file"
        )


def calibrated(
    problem: Problem, surveys: int, folder: Path, *, seed: int, workers: int | None
) -> tuple[xr.Dataset, bool]:
    """The calibration, and whether it is whole; if interrupted, that of the surveys that were finished."""
    from invgp.validation.calibrate import InterruptedCalibration, calibrate, identity  # noqa: PLC0415

    finished = read_finished(folder, identity(problem, seed))
    already = sum(number <= surveys for number in finished)
    if already < len(finished):
        print_note(f"note: {len(finished):,} surveys are kept in {folder}; the first {surveys:,} are told of")
    try:
        with progress(surveys, already) as advance:

            def keep(number: int, trial: xr.Dataset) -> None:
                netcdf.write(trial, folder / f"survey{number:05d}.nc")
                advance()

            return calibrate(problem, surveys, seed=seed, workers=workers, finished=finished, keep=keep), True
    except InterruptedCalibration as interruption:
        result = interruption.result
        done = 0 if result is None else result.sizes["survey"]
        print_note(f"interrupted after {done:,} of {surveys:,} surveys")
        if result is None:
            raise SystemExit(INTERRUPTED) from None
        print_note(f"they are kept in {folder}; the same command goes on from there")
        return result, False


def read_finished(folder: Path, identity: str) -> dict[int, xr.Dataset]:
    """Surveys that an earlier call finished, by number; those of another calibration are an error."""
    kept = {path.stem.removeprefix("survey"): path for path in folder.glob("survey*.nc")}
    finished = {int(number): netcdf.read(path) for number, path in kept.items() if number.isdecimal()}
    if any(trial.attrs.get("invgp_calibration") != identity for trial in finished.values()):
        raise ConfigError(
            f"--output: must not be that of another calibration, but {str(folder)!r} keeps surveys of another config, "
            "survey file, simulator, seed or version of invgp; remove that folder, or name another output"
        )
    return finished


@contextmanager
def progress(surveys: int, already: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, a line now and then elsewhere; call what it gives for each survey that is finished."""
    if current_console().quiet:
        yield lambda: None
        return
    if sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
        from rich.progress import Progress  # noqa: PLC0415

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("[bold cyan]simulated surveys[/]", total=surveys, completed=already)
            yield lambda: bar.advance(task)
        return
    started = time.perf_counter()
    done, last = already, -SECONDS_BETWEEN_LINES

    def advance() -> None:
        nonlocal done, last
        done += 1
        seconds = time.perf_counter() - started
        if seconds - last > SECONDS_BETWEEN_LINES:
            last = seconds
            left = format_duration((surveys - done) * seconds / (done - already))
            click.echo(f"survey {done:,} of {surveys:,} | about {left} left", err=True)

    yield advance


def write(result: xr.Dataset, output: Path, plot: Path) -> None:
    """The netCDF file and the figure."""
    from invgp.plots import plot_calibration, save_figure  # noqa: PLC0415

    netcdf.write(result, output)
    save_figure(plot_calibration(result), plot)


def tell(result: xr.Dataset) -> int:
    """The table and what it rests on; gives the number of coverages outside their bands."""
    from rich.box import SIMPLE  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from invgp.plots.plot_data import read_curves  # noqa: PLC0415
    from invgp.plots.validation_figures import process_name  # noqa: PLC0415
    from invgp.validation.calibration_summary import coverage_of  # noqa: PLC0415

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
            table.add_row(process_name(latent, curve), *cells(found, curve.column), *numbers)
    found = coverage_of(result)
    outside += int((found.below | found.above).sum())
    table.add_section()
    table.add_row("all", *cells(found, 0), "", "")
    if prints_text():
        Console(highlight=False, width=None if sys.stdout.isatty() else PAPER).print(table)
    print_line(explanation(result, outside))
    print_warnings(result)
    return outside


def facts(result: xr.Dataset) -> dict[str, Any]:
    """The same for a machine; arrays have the shape of the latent's labels, after the intervals'."""
    from invgp.validation.calibration_summary import coverage_of  # noqa: PLC0415

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


def cells(found: Coverage, column: int) -> list[str]:
    """One cell for each interval: the share of truths inside, its standard error, and a mark outside the band."""
    share, error, below, above = (
        values.reshape(len(found.share), -1)[:, column]
        for values in (found.share, found.standard_error, found.below, found.above)
    )
    marks = [BELOW if low else ABOVE if high else "" for low, high in zip(below, above, strict=True)]
    return [f"{mark} {100 * s:.1f} ± {100 * e:.1f}" for s, e, mark in zip(share, error, marks, strict=True)]


def explanation(result: xr.Dataset, outside: int) -> str:
    """What the table rests on, and what its marks say."""
    attributes = result.attrs
    redrawn = attributes["invgp_truths_redrawn"]
    lines = [
        f"{count_noun(attributes['invgp_surveys'], 'simulated survey')} of {count_noun(result.sizes['site'], 'site')}, "
        f"seed {attributes['invgp_seed']}; ± is one standard error, across surveys.",
        "|error|: mean absolute error in posterior standard deviations, 0.80 is right; "
        "rms: root mean square error over that reported, 1 is right.",
        f"{outside} of {attributes['invgp_bands']} coverages lie outside their bands ({BELOW} overconfident, "
        f"{ABOVE} too wide); {attributes['invgp_bands_confidence']:.0%} of calibrated posteriors have none outside.",
    ]
    if redrawn:
        lines.append(f"{redrawn:,} truths were drawn anew, because the simulator failed at some site of theirs.")
    return "\n".join(lines)


def print_warnings(result: xr.Dataset) -> None:
    """Say what the coverage leaves out, or should not rest on."""
    failed, not_converged = result.attrs["invgp_surveys_failed"], result.attrs["invgp_surveys_not_converged"]
    if failed:
        first = result.attrs["invgp_first_failure"]
        print_warning(f"{failed:,} surveys could not be inverted and are left out; {first}")
    if not_converged:
        print_warning(f"{not_converged:,} of the inversions did not converge")
