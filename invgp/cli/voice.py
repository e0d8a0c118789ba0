"""How a command speaks: text for people, a JSON object for machines; less of it, or more."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click


@dataclass
class Voice:
    """What the person asked for, and the warnings that they were given.

    Parameters
    ----------
    json : standard output is one JSON object, the result; all else is on standard error.
    quiet : only warnings, errors and what was asked for by `json`.
    """

    json: bool = False
    quiet: bool = False
    warnings: list[str] = field(default_factory=list)


def voice() -> Voice:
    """That of the command under way."""
    context = click.get_current_context(silent=True)
    return Voice() if context is None else context.ensure_object(Voice)


def say(text: object) -> None:
    """A line of the result, for a person."""
    if speaks():
        click.echo(text)


def speaks() -> bool:
    """Whether the result is told in words."""
    return not (voice().json or voice().quiet)


def note(text: str) -> None:
    """What is good to know."""
    if not voice().quiet:
        click.echo(f"invgp: {text}", err=True)


def warn(text: str) -> None:
    """What should not be overlooked."""
    voice().warnings.append(text)
    click.echo(f"invgp: warning: {text}", err=True)


def give(result: dict[str, Any]) -> None:
    """The result, for a machine that asked for it."""
    if voice().json:
        tell_machine(result | {"warnings": voice().warnings})


def tell_machine(result: dict[str, Any]) -> None:
    """One JSON object on standard output; a number that is not finite is null, since JSON has none."""
    click.echo(json.dumps(_plain(result), indent=2))


def _plain(value: Any) -> Any:
    """The value in what JSON knows."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _setting(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def keep(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
        setattr(context.ensure_object(Voice), name, value)

    return keep


@contextmanager
def logged() -> Iterator[None]:
    """What the library logs is told as the command line tells things: warnings always, the rest if asked for."""
    logger, handler = logging.getLogger("invgp"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("invgp: %(message)s"))
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


# Eager, so that they hold for what is said of the other options.
json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_setting("json"),
    help="The result as a JSON object on standard output.",
)
_quiet = click.Option(
    ["-q", "--quiet"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_setting("quiet"),
    help="Only warnings and errors.",
)
_verbose = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_log_more,
    help="Also what the simulators' adapters have to say.",
)


def with_voice(command: click.Command) -> click.Command:
    """The command, and those within it, with the options that all have and its examples a line each."""
    title, _, examples = (command.epilog or "").partition(": ")
    if title == "Examples":
        command.epilog = "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples.split("; "))])
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_voice(inner)
    elif _quiet not in command.params:
        command.params += [_quiet, _verbose]
    return command
