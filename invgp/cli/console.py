"""The console of a command: text for people or one JSON object for programs, its options, signals and streams."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import click

from invgp.errors import ArgumentError, ConfigError, PlotError, replace_arguments
from invgp.operating_system import resend_lost_interrupts

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


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
    """Print records like other messages of the command line, and a warning that batch after batch repeats only once."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            message = self.format(record)
            if message not in self.printed:
                self.printed.add(message)
                print_warning(message)
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


# Batch systems ask a job to end by SIGTERM, a closed terminal by SIGHUP, a limit of processor time by SIGXCPU.
REQUESTS_TO_END = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Treat requests to end like Ctrl-C, so that every command saves its results; each counts once.

    A signal that the command was started to ignore, as by `nohup`, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # Python allows handlers in the main thread only
        yield
        return
    before = {number: signal.getsignal(number) for number in REQUESTS_TO_END}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        with resend_lost_interrupts():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    # A closed terminal and its shell both send SIGHUP: the second must not stop what keeps the results.
    signal.signal(number, _ignore)
    raise KeyboardInterrupt


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike SIG_IGN, programs that are started do not inherit it."""


INPUT, OUTPUT, ERROR = 0, 1, 2


class Descriptor(io.FileIO):
    """A standard stream whose writes never raise, so that a command finishes its files first.

    Attributes
    ----------
    failure : OSError or None
        The first error of a write. What is written after it is discarded.
    """

    failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as `io.FileIO` does, and wait where the stream does not block."""
        while self.failure is None:
            try:
                written = super().write(data)
            except OSError as error:
                self.failure = error
            else:
                if written is not None:
                    return written
                select.select([], [self], [])
        return memoryview(data).nbytes


def open_standard_streams() -> Descriptor | None:
    """Make `sys.stdout` and `sys.stderr` streams that encode any text and whose writes never raise.

    A stream that was closed leads to the null device. Without this the next file that is opened would take its
    descriptor, and what a library prints would go into that file.

    Returns
    -------
    Descriptor or None
        Of the standard output; None if something else takes its place, as in a notebook.
    """
    for number in (INPUT, OUTPUT, ERROR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == INPUT else os.O_WRONLY)  # it takes the lowest free number
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(INPUT, closefd=False)  # noqa: SIM115 - it stays open
    if sys.stderr is sys.__stderr__:
        sys.stderr, _ = _stream(sys.stderr, ERROR)
    if sys.stdout is not sys.__stdout__:
        return None
    sys.stdout, output = _stream(sys.stdout, OUTPUT)
    return output


def _stream(old: TextIO | None, number: int) -> tuple[TextIO, Descriptor]:
    if old is not None:
        old.flush()
    descriptor = Descriptor(number, "w", closefd=False)
    lines = number == ERROR or descriptor.isatty()
    encoding = "utf-8" if old is None else old.encoding
    text = io.TextIOWrapper(
        io.BufferedWriter(descriptor), encoding=encoding, errors="backslashreplace", line_buffering=lines
    )
    return text, descriptor
