"""Trace one small `invgp run`: python tests/benchmarks/trace_run.py [--stack] [--files].

The run inverts the example project of `invgp init` in this process. A file counts if one of its functions is called;
what runs while a module is imported does not count. The depth is the number of frames of invgp on the stack.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

import invgp
from invgp.scaffolds import read_template, write_project

ROOTS = (
    str(Path(invgp.__file__).parent),
    *(str(Path(invgp.__file__).parents[1] / name) for name in ("adapters", "forward_models")),
)


# Frames that Python 3.12 no longer makes, so that every version counts the same.
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>"}


class Trace:
    """The files whose functions were called, and the deepest stack."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.stack: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Record a call; the signature is that of `sys.setprofile`."""
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(ROOTS):
            return
        stack = own_frames(frame)
        if stack is None:
            return
        self.files[file] = self.files.get(file, 0) + 1
        if len(stack) > len(self.stack):
            self.stack = [describe(one) for one in stack]


def own_frames(frame: FrameType | None) -> list[FrameType] | None:
    """List the frames of the repository from the first to the last call; None while one of its modules is imported."""
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(ROOTS):
            if frame.f_code.co_name == "<module>":
                return None
            if frame.f_code.co_name not in COMPREHENSIONS:
                found.append(frame)
        frame = frame.f_back
    return found[::-1]


def describe(frame: FrameType) -> str:
    """Return the file, the line and the function of a frame."""
    return f"{relative(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_qualname}"


def relative(file: str) -> str:
    """Return the path of a file relative to the repository."""
    return str(Path(file).relative_to(Path(ROOTS[0]).parent))


def run() -> Trace:
    """Trace `invgp run survey.toml` in a temporary directory."""
    from invgp.cli import main  # noqa: PLC0415

    trace, home, arguments = Trace(), Path.cwd(), sys.argv
    with tempfile.TemporaryDirectory() as directory:
        write_project(read_template("python"), Path(directory))
        os.chdir(directory)
        sys.argv = ["invgp", "run", "survey.toml", "--quiet"]
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            with contextlib.suppress(SystemExit):
                main()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            sys.argv = arguments
            os.chdir(home)
    return trace


def main() -> None:
    """Print the two totals, and more if asked for."""
    parser = argparse.ArgumentParser(description="Count the files and the stack depth of one small `invgp run`.")
    parser.add_argument("--files", action="store_true", help="list the files with the number of calls")
    parser.add_argument("--stack", action="store_true", help="print the deepest stack")
    options = parser.parse_args()
    trace = run()
    if options.files:
        for file, calls in sorted(trace.files.items()):
            print(f"{calls:8,}  {relative(file)}")
    if options.stack:
        print("\n".join(trace.stack))
    print(f"files: {len(trace.files)}")
    print(f"greatest stack depth: {len(trace.stack)}")


if __name__ == "__main__":
    main()
