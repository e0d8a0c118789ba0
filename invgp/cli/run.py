"""`invgp run`: invert the survey of a configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import invgp
from invgp import netcdf
from invgp.api import ledger_path
from invgp.api.output_paths import check_posterior_path
from invgp.cli import INTERRUPTED
from invgp.cli.check import warn_about_missing_markers
from invgp.cli.console import current_console, json_option, print_json, print_line, print_note, print_warning
from invgp.cli.options import (
    LARGEST_SEED,
    FilePath,
    config_argument,
    data_option,
    new_runs_option,
    scheduler_option,
    without_option,
    workers_option,
)
from invgp.config import load
from invgp.errors import RunsFailedError
from invgp.formatting import convergence_advice, count_noun, format_duration
from invgp.operating_system import remove_if_empty
from invgp.progress import ProgressState, show_progress, show_status

if TYPE_CHECKING:
    import xarray as xr

    from invgp.core.kernels import Kernel
    from invgp.inference.invert import InterruptedInversion
    from invgp.problem import Problem


@click.command(
    epilog="Examples: invgp run survey.toml; invgp run survey.toml -o result.nc --workers 4 --seed 7; "
    "invgp run survey.toml --data other_line.csv -o other_line.nc"
)
@config_argument
@click.option("-o", "--output", type=FilePath(), help="Posterior file.  [default: config]")
@data_option
@without_option
@new_runs_option
@workers_option
@scheduler_option
@click.option("--seed", type=click.IntRange(min=0, max=LARGEST_SEED), help="Random seed.  [default: config]")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda", "auto"]), help="Device for array computations.  [default: config]"
)
@click.option("--ledger", type=FilePath(), help="Ledger of the runs.  [default: next to the output]")
@click.option(
    "--watch",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve a live page for a browser on this machine: progress, current maps, failures. 0 selects a free port.",
)
@json_option
def command(
    config: Path,
    output: Path | None,
    data: Path | None,
    without: tuple[str, ...],
    new_runs: bool,
    workers: int | None,
    scheduler: str | None,
    seed: int | None,
    device: str | None,
    ledger: Path | None,
    watch: int | None,
) -> None:
    """Invert the survey that CONFIG describes and write the posterior as CF netCDF.

    After Ctrl-C, the best posterior so far is written next to the output. However the inversion was stopped, the same
    command continues it with the runs in the ledger.
    """
    with show_status(f"reading {config}", quiet=current_console().quiet):
        problem = load(config, data=data)
    usual = problem.output.file
    if without:  # the posterior of all sources is another file, but the ledger is the same
        problem = problem.without(*without)
        ledger = ledger or ledger_path(problem, output or usual)
        output = output or usual.with_name(f"{usual.stem}_without_{'_'.join(without)}{usual.suffix}")
    check_posterior_path(output or usual, "output" if output else "output.file", problem, config)
    output = output or usual
    warn_about_missing_markers(problem)
    started = time.perf_counter()
    ledger = ledger or ledger_path(problem, output)
    from invgp.inference.invert import invert  # noqa: PLC0415 - mistakes are reported without waiting for SciPy

    with report_interruption(output, ledger) as tally, live_page(problem, tally, watch) as end_page:
        posterior = invert(
            problem,
            workers=workers,
            scheduler=scheduler,
            seed=seed,
            device=device,
            run_directory=output.with_suffix(".runs"),
            monitor=tally,
            ledger=ledger,
            new_runs=new_runs or not without or ledger is None,
        )
        if without:
            posterior.attrs["invgp_without"] = " ".join(without)
        netcdf.write(posterior, output)
        end_page(f"Finished: {posterior.attrs['invgp_status']}. The result is in {output}.")
    output.with_suffix(".interrupted.nc").unlink(missing_ok=True)  # of an earlier call
    seconds = time.perf_counter() - started
    print_result(posterior, output, seconds, tally.messages)
    print_json(as_dictionary(posterior, output, ledger) | {"seconds": seconds})


@contextmanager
def live_page(problem: Problem, tally: ProgressState, port: int | None) -> Iterator[Callable[[str], None]]:
    """Serve the live page of an inversion, if there is a port; yield a function that shows a sentence at the end."""
    if port is None:
        yield lambda _: None
        return
    from invgp.reports.live_page import serve_live_page  # noqa: PLC0415 - it needs Matplotlib and Jinja

    with serve_live_page(problem, tally, port, problem.title or "Inversion") as (page, address):
        print_note(f"live page at {address}")
        yield page.end


@contextmanager
def report_interruption(output: Path, ledger: Path | None) -> Iterator[ProgressState]:
    """Display the progress of an inversion; if it stops, write the best posterior so far beside `output`."""
    from invgp.inference.invert import InterruptedInversion  # noqa: PLC0415 - as above
    from invgp.ledger import Ledger  # noqa: PLC0415

    try:
        with show_progress(quiet=current_console().quiet) as tally:
            yield tally
    except InterruptedInversion as interruption:
        if ledger is not None:
            with Ledger(ledger, read_only=True) as runs:
                if runs.models():
                    print_note(f"the runs are kept in {ledger}; the same command continues from there")
        click.echo(f"invgp: interrupted {write_interrupted(interruption, tally, output)}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except RunsFailedError as failure:
        if failure.posterior is not None:
            path = netcdf.write(failure.posterior, output.with_suffix(".interrupted.nc"))
            print_note(f"the best posterior so far was kept in {path}")
        raise
    finally:
        remove_if_empty(output.with_suffix(".runs"))


def write_interrupted(interruption: InterruptedInversion, tally: ProgressState, output: Path) -> str:
    """Write the best posterior so far; return the message."""
    if interruption.posterior is None:
        runs = count_noun(tally.done, "run")
        return f"after {runs}, before the first evaluation of the bound was done; nothing was kept"
    path = output.with_suffix(".interrupted.nc")
    netcdf.write(interruption.posterior, path)
    return f"after {count_noun(tally.done, 'run')}; the best posterior so far was kept in {path}"


def print_result(posterior: xr.Dataset, output: Path, seconds: float, messages: Sequence[str] = ()) -> None:
    """Print the result on one line, warnings, notes, and why and where runs failed."""
    from invgp.posterior.contents import summarise_sources  # noqa: PLC0415 - help does not wait for xarray

    runs, failed = posterior.attrs["invgp_runs"], posterior.attrs["invgp_runs_failed"]
    answered = posterior.attrs["invgp_runs_from_ledger"]
    known = f" ({answered:,} from the ledger)" if answered else ""
    print_line(
        f"{output}: {posterior.attrs['invgp_status']}; ELBO {float(posterior['elbo'][-1]):.2f} nats, "
        f"{count_noun(runs, 'run')}{known}, {failed:,} failed, "
        f"{format_duration(seconds)}{describe_concurrency(posterior.attrs['invgp_runs_at_once'])}"
    )
    if "invgp_coarse_runs" in posterior.attrs:
        print_line(f"  {describe_coarse_runs(posterior)}")
    for source in summarise_sources(posterior):
        print_line(f"  {source.describe()}")
    if not invgp.has_converged(posterior):
        print_warning(f"the posterior has not converged; {convergence_advice(posterior)}")
    for sentence in notes(posterior):
        print_note(f"note: {sentence}")
    directory = output.with_suffix(".runs")
    if failed:
        example = f"; for example: {messages[-1]}" if messages else ""
        print_note(f"{failed / runs:.0%} of the runs failed: {posterior.attrs['invgp_failure_causes']}{example}")
    if failed and directory.exists():
        print_line(f"{directory}: the directories of failed runs")


def as_dictionary(posterior: xr.Dataset, output: Path, ledger: Path | None) -> dict[str, Any]:
    """Return the result for JSON."""
    from invgp.posterior.contents import summarise_sources  # noqa: PLC0415 - as above

    attributes = posterior.attrs
    return {
        "posterior": output,
        "ledger": ledger,
        "status": attributes["invgp_status"],
        "converged": invgp.has_converged(posterior),
        "elbo": float(posterior["elbo"][-1]),
        "runs": attributes["invgp_runs"],
        "runs_from_ledger": attributes["invgp_runs_from_ledger"],
        "runs_failed": attributes["invgp_runs_failed"],
        "failure_causes": attributes.get("invgp_failure_causes", ""),
        "coarse_runs": attributes.get("invgp_coarse_runs", 0),
        "coarse_runs_failed": attributes.get("invgp_coarse_runs_failed", 0),
        "sources": [source._asdict() for source in summarise_sources(posterior)],
        "notes": notes(posterior),
    }


def notes(posterior: xr.Dataset) -> list[str]:
    """Return the notes on the posterior, one sentence each."""
    return [*describe_learnt_priors(posterior), *filter(None, posterior.attrs["invgp_diagnostics"].splitlines())]


def describe_coarse_runs(posterior: xr.Dataset) -> str:
    """Return the numbers of runs of the coarse model."""
    runs, failed, known = (posterior.attrs[f"invgp_coarse_runs{of}"] for of in ("", "_failed", "_from_ledger"))
    reused = f" ({known:,} from the ledger)" if known else ""
    name = posterior.attrs["invgp_coarse_simulator"]
    return f"coarse model {name}: {count_noun(runs, 'run')}{reused}, {failed:,} failed"


def describe_concurrency(runs: float) -> str:
    """Return the mean number of concurrent runs as part of a sentence; empty if they took no time."""
    return f", {runs:.1f} runs at once" if runs >= 0.5 else ""


def describe_parameters(kernel: Kernel) -> str:
    """Return the parameters of a kernel, except for the variance, as the start of a list."""
    import numpy as np  # noqa: PLC0415

    values = np.exp(kernel.parameters)
    names = dict.fromkeys(name for name in kernel.parameter_names if name != "variance")
    shares = np.asarray(kernel.scale_mask)
    groups = {
        name.replace("length_scale", "length-scale"): np.asarray(kernel.parameter_names) == name for name in names
    }
    groups |= {"share": shares} if shares.sum() > 1 else {}
    texts = {name: ", ".join(f"{number:.3g}" for number in values[chosen]) for name, chosen in groups.items()}
    return "".join(f"{name} {text}, " for name, text in texts.items())


def describe_learnt_priors(posterior: xr.Dataset) -> list[str]:
    """Return one sentence per latent with a learnt prior."""
    import numpy as np  # noqa: PLC0415

    from invgp.posterior.gaussian_processes import kernel_from_attributes  # noqa: PLC0415

    sentences = []
    for name in posterior.attrs["invgp_latents"].split():
        attributes = posterior[name].attrs
        if "learnt" in attributes:
            kernel = kernel_from_attributes(attributes)
            spreads = ", ".join(f"{number:.3g}" for number in np.atleast_1d(attributes["process_std"]))
            sentences.append(
                f"the prior of {name} was learnt: {describe_parameters(kernel)}standard deviation {spreads}"
            )
    return sentences
