"""The command line: one module a command.

Exit codes: 0 done; 1 a fault of invgp's own, a file that cannot be written, or a limit of the machine; 2 a wrong
command, config or data file; 3 the simulator failed; 4 the device asked for is missing; 5 a posterior that
`invgp calibrate --check` finds wanting; 130 interrupted.
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

from invgp.cli.signals import signals_as_interrupts
from invgp.cli.streams import open_standard_streams
from invgp.cli.voice import Voice, logged, tell_machine, with_voice
from invgp.errors import ConfigError, InvgpError
from invgp.open_files import reserve_open_files

FAILED = 1
INTERRUPTED = 130

# Imported when called: `invgp --help` must not wait for xarray and SciPy.
COMMANDS = {
    "calibrate": "Invert simulated surveys and tell how often intervals hold the truth.",
    "check": "Validate a config, run its simulator once, and predict the cost.",
    "compare": "Compare a posterior with draws from the same problem by slice sampling.",
    "doctor": "Print device, libraries, BLAS and threads, and say what is missing.",
    "export": "Write a posterior or a map as CSV, GeoTIFF, ASEG-GDF2, VTK, ArviZ or PEST ensemble.",
    "init": "Write a project to start from, or a config for your survey file.",
    "plot": "Draw a posterior: sections or maps, data fit, correlations, draws, convergence.",
    "predict": "Map a posterior on a grid or at points, without the simulator.",
    "report": "Tell about a posterior on one HTML page that needs no network.",
    "run": "Invert a survey and write the posterior as netCDF; again, to go on where it was stopped.",
    "runs": "List, show, repeat or export the runs in a ledger.",
    "serve": "Offer a config's simulator to others, as an UM-Bridge server.",
}


class Commands(click.Group):
    """Finds each command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names, in order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command itself."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"invgp.cli.{cmd_name}").command
        return with_voice(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; a misspelt one gets a suggestion."""
        near = get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and near:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, without importing them, and options."""
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Start with:
  invgp init                 # a project that runs as it stands
  invgp check survey.toml    # is it right, and what will it cost?
  invgp run survey.toml      # posterior.nc
  invgp plot posterior.nc

Exit codes: 0 done, 1 a fault of invgp's own, a file that cannot be written or a limit of the machine,
2 wrong command, config or data, 3 simulator failed, 4 device missing, 5 not calibrated (calibrate --check),
130 interrupted.""",
)
@click.version_option(package_name="invgp", prog_name="invgp")
def app() -> None:
    """The fields below a survey, with their uncertainty, from any simulator."""


def main() -> None:
    """Run the command line; a person's mistake is a sentence and an exit code, never a traceback."""
    output = open_standard_streams()
    voice = Voice()
    with logged(), signals_as_interrupts():
        errors, code = outcome(voice)
    if errors and voice.json:  # a machine that asked for JSON gets it, too
        tell_machine({"errors": errors, "exit_code": code, "warnings": voice.warnings})
    sys.stdout.flush()
    # A reader such as `head` may stop before the end: that is no failure.
    if output is not None and output.failure is not None and not isinstance(output.failure, BrokenPipeError):
        click.echo(f"invgp: the standard output cannot be written: {output.failure.strerror}", err=True)
        code = code or FAILED
    if code:
        sys.exit(code)


def outcome(voice: Voice) -> tuple[Sequence[str], int]:
    """Run the command; give what went wrong, in sentences that were told, and the exit code."""
    try:
        reserve_open_files()
        app.main(prog_name="invgp", standalone_mode=False, obj=voice)
    except SystemExit as ending:
        return [], ending.code if isinstance(ending.code, int) else 0
    except (click.Abort, KeyboardInterrupt) as stop:
        if isinstance(stop.__cause__, EOFError):  # click takes it for an interrupt, but it is the end of some file
            raise stop.__cause__ from None
        return tell(["interrupted"], INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return [error.format_message()], error.exit_code
    except InvgpError as error:
        return tell(error.sentences if isinstance(error, ConfigError) else [str(error)], error.exit_code)
    except (OSError, MemoryError) as error:
        logging.getLogger("invgp").info("where it was stopped:", exc_info=True)
        return tell([f"stopped by the system: {reason(error)}"], FAILED)
    return [], 0


def tell(sentences: Sequence[str], code: int) -> tuple[Sequence[str], int]:
    """The sentences and the code, after they were told."""
    for sentence in sentences:
        click.echo(f"invgp: {sentence}", err=True)
    return sentences, code


def reason(error: OSError | MemoryError) -> str:
    """What the system said: its words, and the file if it named one."""
    if isinstance(error, MemoryError):
        return f"not enough memory ({error})" if str(error) else "not enough memory"
    words = error.strerror or str(error) or type(error).__name__
    return words if error.filename is None else f"{words}: {os.fsdecode(error.filename)!r}"
