"""The command line: one module per command.

Exit codes: 0 success; 1 internal error, a file that cannot be written, or a limit of the machine; 2 wrong command,
configuration or data file; 3 the simulator failed; 4 the device is not available; 5 a coverage is outside its band
(`invgp calibrate --check`); 6 the data are far outside the prior, as with a wrong unit; 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from invgp.cli.console import (
    Console,
    add_common_options,
    log_to_stderr,
    open_standard_streams,
    signals_as_interrupts,
    write_json,
)
from invgp.errors import InvgpError
from invgp.operating_system import reserve_open_files

FAILED = 1
INTERRUPTED = 130

# Imported when called: `invgp --help` must not wait for xarray and SciPy.
COMMANDS = {
    "calibrate": "Invert simulated surveys and count how often the intervals contain the truth.",
    "check": "Check a configuration, run its simulator and forecast the cost.",
    "compare": "Compare a posterior with Markov chains for the same problem.",
    "crossvalidate": "Predict data that are left out, without simulator runs.",
    "design": "Compute by how much candidate measurements would reduce the uncertainty.",
    "difference": "Compute the change from one posterior to another.",
    "doctor": "Print devices, libraries and threads, and what is missing.",
    "export": "Write a posterior or a map as CSV, GeoTIFF, GeoPackage, ASEG-GDF2, VTK, ArviZ or PEST ensemble.",
    "influence": "Compute which data constrain which field where, and which pull hardest.",
    "init": "Write an example project, or a configuration for your survey file.",
    "plot": "Plot a posterior: sections or maps, data fit, correlations, samples, convergence.",
    "predict": "Predict on a grid or at points, without the simulator.",
    "prior": "Draw from the prior and compare simulated with observed data.",
    "report": "Write a self-contained HTML report.",
    "revise": "Compute a posterior with another prior, noise or data, without simulator runs.",
    "run": "Invert a survey and write the posterior as netCDF; resumes if it was stopped.",
    "runs": "List, show, repeat or export the runs in a ledger.",
    "serve": "Serve the simulator of a configuration as an UM-Bridge server.",
    "weigh": "Compare the evidence of alternative models of the same data.",
}


class Commands(click.Group):
    """Import each command from the module of its name when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command with that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"invgp.cli.{cmd_name}").command
        return add_common_options(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; suggest one for a misspelt name."""
        near = get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and near:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return commands and options for the shell, without importing the commands."""
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Start with:
  invgp init                 # write a complete example project
  invgp check survey.toml    # check the configuration and forecast the cost
  invgp run survey.toml      # write posterior.nc
  invgp plot posterior.nc

Exit codes: 0 success, 1 internal error, file cannot be written or limit of the machine,
2 wrong command, configuration or data, 3 simulator failed, 4 device not available,
5 not calibrated (calibrate --check), 6 data far outside the prior, 130 interrupted.""",
)
@click.version_option(package_name="invgp", prog_name="invgp")
def app() -> None:
    """Infer subsurface fields with uncertainty from a survey and any simulator."""


def main() -> None:
    """Run the command line; a mistake of the user gives a sentence and an exit code, not a traceback."""
    output = open_standard_streams()
    console = Console()
    with log_to_stderr(), signals_as_interrupts():
        errors, code = run_command(console)
    if errors and console.json:
        write_json({"errors": errors, "exit_code": code, "warnings": console.warnings})
    sys.stdout.flush()
    # A reader such as `head` may stop before the end: that is no failure.
    if output is not None and output.failure is not None and not isinstance(output.failure, BrokenPipeError):
        click.echo(f"invgp: the standard output cannot be written: {output.failure.strerror}", err=True)
        code = code or FAILED
    if code:
        sys.exit(code)


def run_command(console: Console) -> tuple[Sequence[str], int]:
    """Run the command; return the error messages that were printed, and the exit code."""
    try:
        reserve_open_files()
        app.main(prog_name="invgp", standalone_mode=False, obj=console)
    except SystemExit as ending:
        return [], ending.code if isinstance(ending.code, int) else 0
    except (click.Abort, KeyboardInterrupt) as stop:
        if isinstance(stop.__cause__, EOFError):  # click takes it for an interrupt, but it is the end of some file
            raise stop.__cause__ from None
        return print_errors(["interrupted"], INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return [error.format_message()], error.exit_code
    except InvgpError as error:
        return print_errors(error.sentences, error.exit_code)
    except (OSError, MemoryError) as error:
        logging.getLogger("invgp").info("where it was stopped:", exc_info=True)
        return print_errors([f"stopped by the system: {system_message(error)}"], FAILED)
    return [], 0


def print_errors(sentences: Sequence[str], code: int) -> tuple[Sequence[str], int]:
    """Print the error messages; return them with the exit code."""
    for sentence in sentences:
        click.echo(f"invgp: {sentence}", err=True)
    return sentences, code


def system_message(error: OSError | MemoryError) -> str:
    """Return the message of an error of the system, with the file if there is one."""
    if isinstance(error, MemoryError):
        return f"not enough memory ({error})" if str(error) else "not enough memory"
    words = error.strerror or str(error) or type(error).__name__
    return words if error.filename is None else f"{words}: {os.fsdecode(error.filename)!r}"
