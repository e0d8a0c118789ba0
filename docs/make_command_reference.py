"""Write docs/commands.md from the commands themselves: python docs/make_command_reference.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click

from invgp.cli import app

INTRODUCTION = """# Command reference
This page lists all commands with their arguments, options and examples, as `invgp COMMAND --help` prints them. All
commands also accept `--quiet`, `--verbose` and `--help`. [Command line](cli.md) describes project templates, JSON
output, exit codes and shell completion. `python docs/make_command_reference.py` generates this page from the code.
"""
SHARED = {"--help", "--quiet", "--verbose"}


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """All commands of a group, those of its groups included, in order."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        own = click.Context(command, info_name=name, parent=context)
        yield command, own
        if isinstance(command, click.Group):
            yield from commands(command, own)


def describe(command: click.Command, context: click.Context) -> list[str]:
    """The section of one command."""
    parts = [f"## {context.command_path}\n", cleandoc(command.help or "") + "\n"]
    parts.append(f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n")
    own = [p for p in command.get_params(context) if isinstance(p, click.Option) and not SHARED & {*p.opts}]
    if own:
        parts += ["| option | description |", "| --- | --- |", *(row(option, context) for option in own), ""]
    examples = (command.epilog or "").partition("Examples:\n")[2]
    parts.append(f"```text\n{cleandoc(examples)}\n```\n")
    return parts


def row(option: click.Option, context: click.Context) -> str:
    """Of the table; ranges that only keep nonsense out are left out."""
    names, text = option.get_help_record(context) or ("", "")
    choices = re.search(r" \[(.+)\]$", names)
    if choices:
        names, among = names[: choices.start()], f" One of {choices[1].replace('|', ', ')}."
        text = re.sub(r"(?= +\[)|$", among, text, count=1)
    names = names.replace(" RANGE", "").replace("|", "\\|")
    text = re.sub(r"(; )?[\d.<=]*x[<>=\d.]+", "", text).replace(" []", "")
    for character in "|*_<":
        text = text.replace(character, f"\\{character}")
    return f"| `{names}` | {re.sub(' +', ' ', text).strip()} |"


def page() -> str:
    """The whole page."""
    context = click.Context(app, info_name="invgp")
    return "\n".join(
        [INTRODUCTION, *(part for command, own in commands(app, context) for part in describe(command, own))]
    )


if __name__ == "__main__":
    Path(__file__).with_name("commands.md").write_text(page(), encoding="utf-8")
