"""`invgp compare`: compare a posterior file with Markov chains for the same problem."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from invgp import netcdf
from invgp.cli import INTERRUPTED
from invgp.cli.comparison_table import facts, tell
from invgp.cli.console import json_option, print_json, print_line, print_note
from invgp.cli.ledgers import holds_runs, ledger_of
from invgp.cli.options import LARGEST_SEED, FilePath, data_option, scheduler_option, workers_option
from invgp.cli.outputs import check_posterior_path, check_writable, remove_if_empty
from invgp.cli.posterior_problem import found_config, same_problem
from invgp.cli.sampling_progress import Tally, progress
from invgp.errors import ConfigError, RunsFailedError
from invgp.formatting import count_noun

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem


@click.command(
    epilog="Examples: invgp compare posterior.nc; invgp compare posterior.nc --draws 5000 -o reference.nc; "
    "invgp compare results/line.nc --config survey.toml --workers 4"
)
@click.argument("posterior", type=FilePath())
@click.option("--config", type=FilePath(), help="Configuration of the posterior.  [default: found by its text]")
@data_option
@click.option("--chains", type=click.IntRange(min=2), default=4, show_default=True, help="Number of chains.")
@click.option("--draws", type=click.IntRange(min=4), default=2000, show_default=True, help="Number of draws per chain.")
@click.option(
    "--burn-in",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="Number of discarded first iterations.",
)
@click.option("--thin", type=click.IntRange(min=1), default=1, show_default=True, help="Number of iterations per draw.")
@click.option("--seed", type=click.IntRange(min=0, max=LARGEST_SEED), default=0, show_default=True, help="Random seed.")
@click.option(
    "--emulator",
    is_flag=True,
    help="Use an emulator, and the simulator only where the emulator is not accurate enough.",
)
@click.option("--ledger", type=FilePath(), help="Ledger of the runs.  [default: that of POSTERIOR]")
@workers_option
@scheduler_option
@click.option("-o", "--output", type=FilePath(), help="netCDF file for the draws and the comparison.")
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: next to POSTERIOR]")
@json_option
def command(
    posterior: Path,
    config: Path | None,
    data: Path | None,
    emulator: bool,
    ledger: Path | None,
    workers: int | None,
    scheduler: str | None,
    output: Path | None,
    plot: Path | None,
    **settings: int,
) -> None:
    """Compare POSTERIOR, a file of `invgp run`, with elliptical slice sampling of the same problem.

    The chains need many simulator runs. Chains and runs are saved next to POSTERIOR. After Ctrl-C, or with more draws,
    the same command continues from there.
    """
    dataset = netcdf.read(posterior)
    config = config or found_config(posterior, dataset)
    problem = same_problem(dataset, config, data)
    plot = plot or posterior.with_name(f"{posterior.stem}_comparison.png")
    check_outputs(output, plot, posterior, problem, config)
    if emulator:
        check_emulator(problem)
    ledger = ledger or ledger_of(problem, posterior)
    started = time.perf_counter()
    checkpoint = chains_of(posterior, emulator=emulator)
    comparison, made = compared(problem, dataset, checkpoint, ledger, workers, scheduler, settings, emulator=emulator)
    if output is not None:
        netcdf.write(comparison, output)
    draw(dataset, comparison, plot)
    seconds = time.perf_counter() - started
    tell(comparison, made, seconds)
    for path in filter(None, (output, plot)):
        print_line(path)
    print_json(facts(comparison) | {"runs_now": made, "seconds": seconds, "comparison": output, "figure": plot})


def check_outputs(output: Path | None, plot: Path, posterior: Path, problem: Problem, config: Path) -> None:
    """Whether the results can be written, looked at before the simulator is paid for."""
    from invgp.plots import check_format  # noqa: PLC0415 - help is given without waiting for matplotlib

    if output is not None:
        check_posterior_path(output, "--output", problem, config)
        if output.absolute() == posterior.absolute():
            raise ConfigError(f"--output: must be a file of its own, was {str(output)!r}, which is the posterior")
    check_format(plot, "--plot")
    check_writable(plot, "--plot")
    check_writable(chains_of(posterior, emulator=False), "POSTERIOR")


def chains_of(posterior: Path, *, emulator: bool) -> Path:
    """The file that keeps the draws."""
    return posterior.with_suffix(".emulated_chains.npz" if emulator else ".chains.npz")


def check_emulator(problem: Problem) -> None:
    """Whether there can be an emulator."""
    from invgp.emulation.run_schedule import can_emulate  # noqa: PLC0415 - it waits for SciPy

    if not can_emulate(problem):
        raise ConfigError(
            "--emulator: inference.runs_per_site must allow more runs for an emulator of this survey, "
            f"was {problem.inference.runs_per_site}"
        )


def compared(
    problem: Problem,
    posterior: xr.Dataset,
    checkpoint: Path,
    ledger: Path | None,
    workers: int | None,
    scheduler: str | None,
    settings: dict[str, int],
    *,
    emulator: bool,
) -> tuple[xr.Dataset, int]:
    """The posterior beside draws, and the runs made now; if interrupted, all is kept, and the command ends."""
    # Here, not above: a mistake is told, and help given, without waiting for SciPy.
    try:
        from invgp.validation.compare import compare  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"`invgp compare` needs {error.name}, which is not installed: pip install arviz-stats"
        ) from error
    from invgp.execution.pools import open_pool  # noqa: PLC0415
    from invgp.execution.run_directories import make_run_directory  # noqa: PLC0415
    from invgp.inference.invert import open_recorder  # noqa: PLC0415
    from invgp.validation.reference_chains import DirectSimulator, emulated_reference, reference  # noqa: PLC0415

    runs = checkpoint.with_suffix("").with_suffix(".runs")
    try:
        with (
            open_pool(problem.inference, workers=workers, scheduler=scheduler) as pool,
            make_run_directory(runs) as directory,
            open_recorder(problem, ledger) as recorder,
            progress() as tally,
        ):
            run = DirectSimulator.of(problem, directory, pool, tally, recorder)
            find = emulated_reference if emulator else reference
            try:
                chains = find(problem, run, checkpoint=checkpoint, report=tally.told, **settings)
            except RunsFailedError as failure:
                raise RunsFailedError(run.simulator.describe_failures(str(failure))) from failure
    except KeyboardInterrupt:
        print_note(f"interrupted {kept(tally, checkpoint, ledger)}")
        raise SystemExit(INTERRUPTED) from None
    finally:
        remove_if_empty(runs)
    comparison = compare(problem, posterior, chains)
    made = settings | {"draws": chains.draws.shape[1]}
    comparison.attrs |= {f"invgp_reference_{name}": value for name, value in made.items()}
    return comparison, tally.runs


def kept(tally: Tally, checkpoint: Path, ledger: Path | None) -> str:
    """What there is, and how to go on."""
    spent = count_noun(tally.runs, "run")
    if not checkpoint.exists():
        held = ledger is not None and holds_runs(ledger)
        what = f"the runs are kept in {ledger}, and the same command goes on from there" if held else "nothing was kept"
        return f"after {spent}, before the chains had started; {what}"
    return f"after {spent}; the chains are kept in {checkpoint}, and the same command goes on from there"


def draw(posterior: xr.Dataset, comparison: xr.Dataset, path: Path) -> None:
    """The figure."""
    from invgp import plots  # noqa: PLC0415

    plots.save_figure(plots.plot_comparison(posterior, comparison), path)
