"""Numbers that are read by user functions, or in a helper process, because a library may crash or never return.

A process keeps its idle helpers for the next file. A helper ends when its parent process ends.
"""

from __future__ import annotations

import inspect
import math
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..function_imports import import_function
from ..idle_processes import IdleProcesses
from ..protocol import Floats, Quantity
from ..quantities import digest_of, size_of
from .file_access import locate_file
from .reader import OneFile
from .text import count_error

_SECONDS_TO_START = 60.0
_REQUEST = struct.Struct("<dQ")  # time limit in s, and size of the request in bytes
_ANSWER = struct.Struct("<cQ")  # kind, and size of the answer in bytes
_READY, _NUMBERS, _INVALID, _UNREADABLE = b"r", b"n", b"v", b"o"
_MOST_AT_ONCE = 2**20  # bytes
# The helper searches for modules in the same places as this process.
_PROGRAM = """
import sys
sys.path[:] = sys.argv[1:]
from invgp.adapters.readers.isolation import serve
serve()
"""


def read_isolated(function: Callable[..., Floats], *arguments: Any, seconds: float) -> Floats:
    """Call a function in a helper process.

    Parameters
    ----------
    function : callable
        Function of a module, which returns an array.
    *arguments
        Arguments, which are pickled.
    seconds : float
        Time limit.

    Returns
    -------
    array, shape (K,)
        What the function returned, flat.

    Raises
    ------
    ValueError
        The function raised an error, crashed, or took too long.
    OSError
        The function raised an `OSError`, or the helper cannot be started.
    """
    helper = _helpers.take()
    try:
        kind, content = helper.call(pickle.dumps((function, arguments)), seconds)
    except TimeoutError:
        helper.end()
        raise ValueError(f"reading takes longer than {seconds:g} s; the file may be damaged") from None
    except (EOFError, BrokenPipeError):
        helper.end()
        raise ValueError("the library that reads it crashes; the file may be damaged") from None
    except BaseException:
        helper.end()
        raise
    _helpers.idle.append(helper)
    if kind == _NUMBERS:
        return np.frombuffer(content, "<f8").astype(np.float64)
    sentence = content.decode(errors="replace")
    raise OSError(sentence) if kind == _UNREADABLE else ValueError(sentence)


class _Helper:
    """A helper process, as seen by its parent."""

    def __init__(self) -> None:
        places = [entry for entry in sys.path if isinstance(entry, str)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # so that Ctrl-C does not reach it
        )
        self._is_ready = False

    def call(self, request: bytes, seconds: float) -> tuple[bytes, bytes]:
        """Send a request; return kind and content of the answer."""
        if not self._is_ready:
            self._receive(time.monotonic() + _SECONDS_TO_START)
            self._is_ready = True
        deadline = time.monotonic() + seconds
        pipe = self._process.stdin
        if pipe is None:
            raise EOFError
        waiting = memoryview(_REQUEST.pack(seconds, len(request)) + request)
        while waiting:
            waiting = waiting[pipe.write(waiting) :]
        return self._receive(deadline)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        with self._process:  # closes the pipes, and waits
            pass

    def _receive(self, deadline: float) -> tuple[bytes, bytes]:
        kind, size = _ANSWER.unpack(self._read(_ANSWER.size, deadline))
        return kind, self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        pipe = self._process.stdout
        if pipe is None:
            raise EOFError
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        content = b""
        while len(content) < size:
            if not poll.poll(1000 * max(deadline - time.monotonic(), 0.0)):
                raise TimeoutError
            part = pipe.read(min(size - len(content), _MOST_AT_ONCE))
            if not part:
                raise EOFError
            content += part
        return content


_helpers = IdleProcesses(_Helper)


def serve() -> None:
    """Answer requests on standard input until it is closed; called in a helper process."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # a library must not write between the answers
        os.dup2(null, stream)
    _send(answers, _READY, b"")
    while len(start := requests.read(_REQUEST.size)) == _REQUEST.size:
        seconds, size = _REQUEST.unpack(start)
        content = requests.read(size)
        if len(content) < size:
            return
        function, arguments = pickle.loads(content)  # noqa: S301 - from the parent
        signal.setitimer(signal.ITIMER_REAL, math.ceil(seconds) + 1)  # ends it, also if the parent has been killed
        answer = _answer(function, arguments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, *answer)


def _answer(function: Callable[..., Floats], arguments: tuple[Any, ...]) -> tuple[bytes, bytes]:
    try:
        return _NUMBERS, np.asarray(function(*arguments), dtype="<f8").tobytes()
    except OSError as error:
        return _UNREADABLE, str(error).encode(errors="replace")
    except ValueError as error:
        return _INVALID, str(error).encode(errors="replace")
    except Exception as error:  # of a library that reads a damaged file
        return _INVALID, f"{type(error).__name__}: {error}".encode(errors="replace")


def _send(answers: Any, kind: bytes, content: bytes) -> None:
    answers.write(_ANSWER.pack(kind, len(content)) + content)
    answers.flush()


@dataclass(frozen=True)
class PythonFile(OneFile):
    """Numbers that a Python function reads from a file.

    Parameters
    ----------
    path, outputs
        As in `OneFile`.
    function : str
        Name such as ``"package.module:function"``, imported again in each worker process. The function is called with
        the path of the file, and returns the numbers in the order of the outputs, or a dict by name of output.
    search_path : Path, optional
        Directory that is put at the start of ``sys.path`` for the import.
    """

    function: str = ""
    search_path: Path | None = field(default=None, repr=False)
    source: str = field(init=False)
    """Digest of the module of the function, if it can be read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", digest_of([_source(self._load())]))

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """Call the function."""
        path = locate_file(directory, self.path)
        try:
            result = self._load()(path)
            if isinstance(result, Mapping):
                result = np.concatenate([np.ravel(result[quantity.name]) for quantity in quantities])
            numbers = np.asarray(result, dtype=np.float64).reshape(-1)
        except (Exception, SystemExit) as error:
            raise ValueError(f"reader {self.function!r} raised {type(error).__name__}: {error}") from error
        if len(numbers) != size_of(quantities):
            raise count_error(size_of(quantities), len(numbers))
        return numbers

    def _load(self) -> Callable[..., Any]:
        return import_function(self.function, self.search_path)


def _source(function: Callable[..., Any]) -> bytes:
    file = getattr(inspect.getmodule(inspect.unwrap(function)), "__file__", None)
    return Path(file).read_bytes() if file is not None and Path(file).is_file() else b""
