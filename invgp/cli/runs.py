"""`invgp runs`: list, show, repeat or export the runs in a ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from invgp.api.output_paths import check_writable
from invgp.cli.check import as_dictionary as by_quantity
from invgp.cli.check import print_quantities
from invgp.cli.console import current_console, json_option, print_json, print_line, print_note
from invgp.cli.options import FilePath, scheduler_option, source_option, workers_option
from invgp.config import load
from invgp.errors import ConfigError, RunsFailedError
from invgp.formatting import count_noun, format_duration
from invgp.operating_system import remove_if_empty
from invgp.progress import show_progress

if TYPE_CHECKING:
    from invgp.ledger import Ledger, RecordedModel, RecordedRun

WIDTH = 80  # of a message in a list
SHOWN = 12  # digits of a model's digest
LARGEST_NUMBER = 2**63 - 1  # of a row, in SQLite

ledger_argument = click.argument("ledger", type=FilePath(directory=True))


def open_ledger(path: Path, *, read_only: bool = True) -> Ledger:
    """Open a ledger."""
    from invgp.ledger import Ledger  # noqa: PLC0415 - help is given without waiting for the adapters

    return Ledger(path, read_only=read_only)


@click.group(
    epilog="Examples: invgp runs list posterior.ledger.sqlite --failed; invgp runs show posterior.ledger.sqlite 17"
)
def command() -> None:
    """List, show, repeat or export the runs in a ledger, the file in which `invgp run` records every run."""


@command.command(
    name="list",
    epilog="Examples: invgp runs list posterior.ledger.sqlite --failed; invgp runs list posterior.ledger.sqlite --json",
)
@ledger_argument
@click.option("--failed", is_flag=True, help="List failed runs only.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with complete messages.")
def list_runs(ledger: Path, *, failed: bool, as_json: bool) -> None:
    """List the runs in LEDGER, one per line."""
    with open_ledger(ledger) as book:
        runs = book.runs(failed=failed)
        if as_json:
            print_array(runs)
        else:
            print_list(runs)


@command.command(epilog="Examples: invgp runs show posterior.ledger.sqlite 17")
@ledger_argument
@click.argument("run", type=click.IntRange(min=1, max=LARGEST_NUMBER))
@json_option
def show(ledger: Path, run: int) -> None:
    """Show one run of LEDGER. RUN is its number, the first column of `invgp runs list`."""
    with open_ledger(ledger) as book:
        found = next(book.runs(run=run), None)
    if found is None:
        raise ConfigError(f"RUN: must be the number of a run in {str(ledger)!r}, was {run}")
    for name, value in (as_dictionary(found) | {"seconds": f"{found.seconds:.4g}"}).items():
        if value != "":
            print_line(f"{name}: {escape_control_characters(str(value))}")
    print_quantities("in", found.model.inputs, found.inputs)
    if not np.isnan(found.outputs).any():
        print_quantities("out", found.model.outputs, found.outputs)
    numbers = {"inputs": by_quantity(found.model.inputs, found.inputs)}
    print_json(as_dictionary(found) | numbers | {"outputs": by_quantity(found.model.outputs, found.outputs)})


@command.command(epilog="Examples: invgp runs rerun posterior.ledger.sqlite --failed --config survey.toml --workers 4")
@ledger_argument
@click.option("--failed", is_flag=True, required=True, help="Repeat failed runs.")
@click.option("--config", type=FilePath(), required=True, help="Configuration of the simulator.")
@source_option
@workers_option
@scheduler_option
@json_option
def rerun(
    ledger: Path, config: Path, source: str | None, workers: int | None, scheduler: str | None, *, failed: bool
) -> None:
    """Repeat failed runs with the simulator of a configuration and record the results in LEDGER.

    Use it if the reason for the failures no longer exists, for example a licence server that was down or a timeout that
    was too short. `invgp run` then uses the new results.
    """
    # Imported here, so that help and error messages do not wait for the import of SciPy.
    from invgp.adapters.protocol import RunContext  # noqa: PLC0415
    from invgp.execution.evaluate import evaluate  # noqa: PLC0415
    from invgp.execution.pools import open_pool  # noqa: PLC0415
    from invgp.execution.run_directories import make_run_directory  # noqa: PLC0415

    problem = load(config).source(source)
    with open_ledger(ledger) as book:  # a file that is not there must not be made
        runs = list(book.runs(failed=failed))
    ours = [run for run in runs if run.model.digest == problem.forward.digest]
    if len(ours) < len(runs):
        others = len(runs) - len(ours)
        print_note(f"note: left out, as of another simulator, template or setting: {count_noun(others, 'failed run')}")
    if not ours:
        print_line("no failed run to make again")
        print_json({"runs": 0, "failed": 0})
        return
    kept = ledger.with_name(ledger.name.removesuffix(".sqlite").removesuffix(".ledger") + ".runs")
    settings = problem.inference
    with (
        open_pool(settings, workers=workers, scheduler=scheduler) as pool,
        open_ledger(ledger, read_only=False) as book,
        make_run_directory(kept) as directory,
        show_progress(quiet=current_console().quiet) as tally,
    ):
        tally.start(len(ours), len(ours))
        tally.start_batch("runs that failed", len(ours))
        outcome = evaluate(
            problem.forward,
            np.stack([run.inputs for run in ours]),
            RunContext([f"run-{run.run}" for run in ours], directory),
            pool=pool,
            retries=settings.retries,
            recorder=book.open_recorder(problem.forward, retries=settings.retries, answer_failed=False),
            monitor=tally,
        )
    remove_if_empty(kept)
    bad = np.flatnonzero(~outcome.ok)
    print_line(f"{count_noun(len(ours), 'run')} repeated: {len(ours) - len(bad):,} succeeded, {len(bad):,} failed")
    if bad.size:
        raise RunsFailedError(
            f"{len(bad):,} of {count_noun(len(ours), 'run')} failed again; the first: {outcome.messages[bad[0]]}"
        )
    print_json({"runs": len(ours), "failed": 0})


@command.command(
    epilog="Examples: invgp runs export posterior.ledger.sqlite -o runs.csv; "
    "invgp runs export posterior.ledger.sqlite -o runs.nc"
)
@ledger_argument
@click.option("-o", "--output", type=FilePath(), required=True, help="CSV (.csv) or netCDF (.nc) file.")
@click.option("--model", default="", help="First characters of the digest of the model, if there are several.")
@json_option
def export(ledger: Path, output: Path, model: str) -> None:
    """Write the runs of LEDGER, with their inputs and outputs, as CSV or netCDF."""
    from invgp.ledger.run_tables import write_runs  # noqa: PLC0415 - it waits for xarray

    if output.suffix not in (".csv", ".nc"):
        raise ConfigError(f"--output: must end in .csv or .nc, was {str(output)!r}")
    check_writable(output, "--output")
    with open_ledger(ledger) as book:
        chosen = choose_model(book.models(), model, ledger)
        count = write_runs(chosen, book.runs(model=chosen), output)
    print_line(f"{output}: {count_noun(count, 'run')} of {chosen.name!r}")
    print_json({"file": output, "runs": count, "simulator": chosen.name})


def print_array(runs: Iterator[RecordedRun]) -> None:
    """Print the runs as a JSON array, one object per line."""
    before = "["
    for run in runs:
        click.echo(before + json.dumps(as_dictionary(run)), nl=False)
        before = ",\n "
    click.echo("[]" if before == "[" else "]")


def print_list(runs: Iterator[RecordedRun]) -> None:
    """Print one line per run, and the number of runs by status."""
    counts: Counter[str] = Counter()
    click.echo(f"{'run':>8}  {'model':{SHOWN}}  {'status':20}  {'attempts':>8}  {'time':>8}  what it was for")
    for run in runs:
        counts[run.status.value] += 1
        click.echo(format_run(run))
    click.echo(", ".join(f"{count:,} {status}" for status, count in counts.items()) or "no runs")


def choose_model(models: list[RecordedModel], start: str, ledger: Path) -> RecordedModel:
    """Return the model whose digest has this start; raise `ArgumentError` unless there is exactly one."""
    if not models:
        raise ConfigError(f"the ledger {str(ledger)!r} holds no run")
    found = [model for model in models if model.digest.startswith(start)]
    if len(found) != 1:
        listed = ", ".join(f"{m.digest[:SHOWN]} ({m.name})" for m in models)
        raise ConfigError(f"--model: must be the start of one of {listed}, was {start!r}")
    return found[0]


def as_dictionary(run: RecordedRun) -> dict[str, str | int | float]:
    """Return the fields of a run and its model for JSON, without inputs and outputs."""
    from invgp.ledger.run_tables import describe_run  # noqa: PLC0415

    return {**describe_run(run), "simulator": run.model.name, "model": run.model.digest}


def format_run(run: RecordedRun) -> str:
    """Return the line of a run in the list."""
    from invgp.ledger.rows import without_removed_directory  # noqa: PLC0415 - as above

    words = escape_control_characters(without_removed_directory(run.message) or run.label)
    words = words if len(words) <= WIDTH else words[: WIDTH - 1] + "…"
    return (
        f"{run.run:8}  {run.model.digest[:SHOWN]}  {run.status.value:20}  {run.attempts:8}  "
        f"{format_duration(run.seconds):>8}  {words}"
    )


def escape_control_characters(text: str) -> str:
    """Escape the control characters of a text from a ledger, which may have been written by others."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
