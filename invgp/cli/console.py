"""Output of the commands: text for people, one JSON object for programs; the options --json, --quiet and --verbose."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import click

from invgp.errors import ArgumentError, ConfigError, PlotError, replace_arguments


@dataclass
class Console:
    """What a command prints, and the warnings that it has printed.

    Parameters
    ----------
    json : bool
        Whether standard output is one JSON object with the result. Everything else goes to standard error.
    quiet : bool
        Whether only warnings, errors and the JSON object are printed.
    """

    json: bool = False
    quiet: bool = False
    warnings: list[str] = field(default_factory=list)


def current_console() -> Console:
    """Return the console of the current command."""
    context = click.get_current_context(silent=True)
    return Console() if context is None else context.ensure_object(Console)


def print_line(text: object) -> None:
    """Print a line of the result, unless the output is JSON or quiet."""
    if prints_text():
        click.echo(text)


def prints_text() -> bool:
    """Return whether the result is printed as text."""
    return not (current_console().json or current_console().quiet)


def print_note(text: str) -> None:
    """Print a note to standard error, unless the output is quiet."""
    if not current_console().quiet:
        click.echo(f"invgp: {text}", err=True)


def print_warning(text: str) -> None:
    """Print a warning to standard error, and keep it for the JSON object."""
    current_console().warnings.append(text)
    click.echo(f"invgp: warning: {text}", err=True)


def print_json(result: dict[str, Any]) -> None:
    """Print the result as JSON, if the user asked for it."""
    if current_console().json:
        write_json(result | {"warnings": current_console().warnings})


def write_json(result: dict[str, Any]) -> None:
    """Write one JSON object to standard output; a number that is not finite becomes null."""
    click.echo(json.dumps(_plain(result), indent=2))


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON has."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _set(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def store(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
        setattr(context.ensure_object(Console), name, value)

    return store


class _Handler(logging.Handler):
    """Print records like other messages of the command line."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            print_warning(self.format(record))
        else:
            click.echo(f"invgp: {self.format(record)}", err=True)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Write the log of the library to standard error: warnings always, the rest with --verbose."""
    logger, handler = logging.getLogger("invgp"), _Handler()
    logger.addHandler(handler)
    level = logger.level
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _log_more(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value and not context.resilient_parsing:
        logging.getLogger("invgp").setLevel(logging.INFO)


# Eager, so that they apply to messages about the other options.
json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set("json"),
    help="Print the result as a JSON object.",
)
_quiet = click.Option(
    ["-q", "--quiet"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set("quiet"),
    help="Print only warnings and errors.",
)
_verbose = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_log_more,
    help="Also print log messages of the adapters.",
)


def add_common_options(command: click.Command) -> click.Command:
    """Add the options of all commands to a command and its subcommands, and format its examples."""
    title, _, examples = (command.epilog or "").partition(": ")
    if title == "Examples":
        command.epilog = "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples.split("; "))])
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            add_common_options(inner)
    elif _quiet not in command.params:
        _name_options_in_errors(command)
        command.params += [_quiet, _verbose]
    return command


def _name_options_in_errors(command: click.Command) -> None:
    """Let the messages of the command name its options instead of the arguments of the library."""
    callback = command.callback
    if callback is None:
        return
    names = {str(parameter.name): _option_name(parameter) for parameter in command.params}

    @wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return callback(*arguments, **options)
        except PlotError as error:
            raise PlotError(replace_arguments(str(error), names)) from error
        except ConfigError as error:
            # In a configuration, 'output' is a table.
            known = names if isinstance(error, ArgumentError) else {k: v for k, v in names.items() if k != "output"}
            raise type(error)([replace_arguments(sentence, known) for sentence in error.sentences]) from error

    command.callback = run


def _option_name(parameter: click.Parameter) -> str:
    """Return the longest name of an option, or the name of an argument in capitals."""
    if isinstance(parameter, click.Argument):
        return (parameter.metavar or str(parameter.name).upper()).strip("[]")
    return max(parameter.opts, key=len)
