"""Standard streams whose errors do not stop a command: closed ones are opened, and failed writes are recorded."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
