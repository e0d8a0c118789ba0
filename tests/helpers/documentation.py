"""Pages of the documentation, run as a reader would run them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from invgp import cli


class Block(NamedTuple):
    """A block of code: its language, its text."""

    language: str
    text: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """Of some languages, or all, in order."""
    found = re.findall(r"^ *```(\w+)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(*block) for block in found if not languages or block[0] in languages]


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a block of shell."""
    lines = block.text.replace("\\\n", "").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_page(page: Path, instead: Mapping[str, str] | None = None) -> str:
    """Run commands and Python in the present directory, one after the other, and return what they print.

    Parameters
    ----------
    instead : replacements for what would take long, or is run elsewhere; each must be used.
    """
    module = sys.modules[f"page_{page.stem}"] = ModuleType(f"page_{page.stem}")  # what it defines can be pickled
    printed, unused = io.StringIO(), dict(instead or {})
    for language, text in blocks(page, "sh", "bash", "python"):
        for long, short in (instead or {}).items():
            if long in text:
                unused.pop(long, None)
                text = text.replace(long, short)  # noqa: PLW2901
        with contextlib.redirect_stdout(printed):
            if language == "python":
                exec(compile(text, str(page), "exec", dont_inherit=True), module.__dict__)
            else:
                for words in commands(Block(language, text)):
                    run_command(words)
    assert not unused, unused
    return printed.getvalue()


def run_command(words: list[str]) -> None:
    """In this process, which need not start Python anew."""
    match words:
        case ["cd", directory]:
            os.chdir(directory)  # the caller goes back
        case ["invgp", *arguments]:
            handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
            try:
                cli.app.main(arguments, prog_name="invgp", standalone_mode=False)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        case _:
            raise AssertionError(f"cannot run {shlex.join(words)!r}")


def holds(printed: str, excerpt: str) -> bool:
    """Whether an excerpt was printed, where `...` stands for anything."""
    return re.search(".*".join(map(re.escape, excerpt.strip().split("..."))), printed, re.DOTALL) is not None
