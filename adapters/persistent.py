"""A simulator that is a persistent program: started once, and used for many rows.

The program reads one JSON object per line and answers each by one JSON object per line. A request is
``{"id": 7, "inputs": {"depth": [100.0, 250.0], "elevation": 31.5}}``. The answer is
``{"id": 7, "outputs": {"time": [0.1, 0.2]}}`` or ``{"id": 7, "error": "velocity must be positive"}``. A quantity
without labels is a number, one with labels a list. Numbers are written so that they read back exactly. JSON has no NaN:
none is ever sent, and ``null`` or ``NaN`` in an answer means that an output is missing.

The program and this process wait for each other in turns, and each wait wakes a process. A program that answers within
`QUICK` seconds therefore receives up to `MOST_AHEAD` requests before it has answered the first one. A slower program
receives one request at a time: the wait is short compared with the run, and such a program may have started another
one, which could read the requests that wait on its standard input.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .persistent_process import Key, LostError, PersistentProcess, keep_idle, take_idle
from .processes import make_environment
from .programs import digest_project_files, find_program, format_settings, read_program_files
from .protocol import Evaluations, Floats, Quantity, RunContext, Status
from .quantities import check_batch, check_quantities, digest_of, size_of, type_name
from .run_errors import RunError, check_inputs, check_outputs, check_settings, quote

MOST_AHEAD = 32  # requests
QUICK = 5e-4  # s: too short for a program to start another one
MOST_BYTES_AHEAD = 2**14  # less than any pipe accepts
_REQUEST_QUOTED = 500  # characters of a request that failed
_ANSWER_QUOTED = 200  # characters of an invalid answer
_SMALLEST_LIMIT = 2**20  # bytes of an answer with few numbers, or with a long error
_BYTES_PER_NUMBER = 64  # twice the length of any float
# An integer of thousands of digits is a valid number, but Python does not parse it.
_DECODER = json.JSONDecoder(parse_int=float)

_log = logging.getLogger(__name__)
_one_at_a_time: set[Key] = set()


@dataclass(frozen=True)
class PersistentModel:
    """A program that reads one request per line from standard input and answers each on standard output, in JSON.

    Each process that evaluates rows keeps one program running. It is started with the first row, in a temporary
    directory of its own, and ended with the process. A program that crashes, hangs, writes an invalid answer or a line
    that is too long is ended with all its children, and a new one is started for the next row. A row with an input
    that is not finite is not sent. No shell is involved.

    Parameters
    ----------
    command : tuple of str
        Program and arguments. A program with a path separator is relative to `search_path`; a bare name is searched on
        ``PATH``. An argument that names a file must be an absolute path.
    inputs, outputs : tuple of Quantity
    timeout : float
        Time limit for an answer in s, including the start of the program for its first answer. If the program has
        received several requests, each has this time.
    partial : bool
        Whether a run that lacks some of its outputs succeeds; these are NaN.
    threads : int
        Value of ``OMP_NUM_THREADS`` and similar variables.
    environment : mapping of str to str
        Additional environment variables. They take precedence over `threads`.
    search_path : Path, optional
        Directory to which the path of the program is relative; by default the current directory.
    name : str
        Name in messages and provenance; by default the file name of the program.

    Raises
    ------
    AdapterError
        The settings are invalid. The program and files named by absolute arguments are read here.
    """

    command: tuple[str, ...]
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]
    timeout: float = 60.0
    partial: bool = False
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    search_path: Path | None = None
    name: str = ""
    digest: str = field(init=False, repr=False)
    _program: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_quantities("inputs", self.inputs)
        check_quantities("outputs", self.outputs)
        folder = Path.cwd() if self.search_path is None else self.search_path.absolute()
        program = find_program("command", self.command, folder)
        check_settings(self.timeout, self.threads, self.environment)
        # The only assignments to a frozen instance: values that the settings determine.
        object.__setattr__(self, "name", self.name or program.name)
        object.__setattr__(self, "_program", str(program))
        object.__setattr__(self, "digest", self._compute_digest(folder))

    @property
    def rows_per_task(self) -> int:
        """Number of rows per task: enough that the submission of a task costs little."""
        return 64

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Send each row of `values`, shape (B, I), to the program, in order."""
        values = check_batch(self.inputs, values, context)
        outputs = np.full((len(values), size_of(self.outputs)), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        finite = np.isfinite(values).all(axis=1)
        conversation = self._start_conversation(values.tolist(), context.directory.absolute())
        with closing(conversation.run(np.flatnonzero(finite).tolist())) as answers:
            for i, answer in answers:
                if isinstance(answer, RunError):
                    status[i], messages[i] = answer.status, f"run {context.labels[i]}: {answer}"
                else:
                    outputs[i] = answer
        for i in np.flatnonzero(~np.isfinite(outputs).all(axis=1)).tolist():
            if status[i] is Status.OK:
                status[i], cause = self._explain_incomplete(values[i], outputs[i])
                messages[i] = f"run {context.labels[i]}: {cause}"
        return Evaluations(outputs, tuple(status), tuple(messages))

    def _explain_incomplete(self, values: Floats, outputs: Floats) -> tuple[Status, str]:
        """Return status and message of a row (I,) that was not sent, or of an answer (P,) that lacks some outputs."""
        try:
            check_inputs(self.inputs, values)
        except RunError as failure:
            return failure.status, str(failure)
        return check_outputs(self.outputs, outputs, partial=self.partial)

    def _read(self, line: bytes, number: int) -> list[float]:
        numbers = read_answer(line, number, self.outputs)
        if not all(map(math.isfinite, numbers)):
            check_outputs(self.outputs, np.asarray(numbers), partial=self.partial)
        return numbers

    def _start_conversation(self, values: list[list[float]], home: Path) -> Conversation:
        writer = RequestWriter(self.inputs)
        return Conversation(
            # The programs of a killed worker are found by their home, so there is one program for each home.
            key=(str(os.getpid()), self.digest, self._program, str(home)),
            start=lambda: PersistentProcess(
                [self._program, *self.command[1:]], make_environment(self.environment, self.threads), home
            ),
            write=lambda number, row: writer.write(number, values[row]),
            read=self._read,
            timeout=self.timeout,
            limit=longest_answer(self.outputs),
        )

    @property
    def former_digest(self) -> str:
        """The digest in ledgers of version 1, which contains absolute paths."""
        return self._compute_digest(None)

    def _compute_digest(self, folder: Path | None) -> str:
        # Without the timeout, which does not affect the outputs of a run.
        settings = (
            self.command,
            self.inputs,
            self.outputs,
            self.threads,
            sorted(self.environment.items()),
            self.partial,
        )
        return digest_of(
            [
                "persistent",
                format_settings(settings, folder),
                *read_program_files(self._program, self.command),
                *digest_project_files(self.command, self.environment, folder),
            ]
        )


class Request(NamedTuple):
    """A row that was sent to the program.

    Attributes
    ----------
    row : int
        Number of the row in the batch.
    number : int
        Number of the request, from 1, since the start of the program.
    line : bytes
    alone : bool
        Whether all earlier requests had been answered when it was sent.
    """

    row: int
    number: int
    line: bytes
    alone: bool


@dataclass
class Conversation:
    """The requests and answers of a batch.

    A request is lost if the program crashes, hangs or writes something else than its answer. Then the program is ended
    with all its children, and a new one is started. The oldest request without an answer is considered the cause. It
    is repeated once, alone and with the new program, if other requests were sent with it, or if the program had
    answered before and the request was not lost by a timeout. Thus the outcome of a row does not depend on the rows
    before it.

    Parameters
    ----------
    key : tuple of str
        Key by which programs are kept for the next batch.
    start : callable
        Starts a program, or raises `RunError`.
    write : callable
        Returns the line of a request, from its number and its row.
    read : callable
        Returns the outputs, from the line of an answer and the number of its request. It raises `RunError` for a failed
        run, and `LostError` for a line that is not an answer.
    timeout : float
        Time limit for an answer in s, after the previous answer.
    limit : int
        Largest length of an answer, in bytes.
    """

    key: Key
    start: Callable[[], PersistentProcess]
    write: Callable[[int, int], bytes]
    read: Callable[[bytes, int], list[float]]
    timeout: float
    limit: int
    _sent: deque[Request] = field(default_factory=deque)
    _busy_since: float = 0.0  # s: the program has had a request to answer since then

    def run(self, rows: Iterable[int]) -> Generator[tuple[int, list[float] | RunError], None, None]:
        """Yield each row, in order, with its outputs or with the cause of its failure."""
        waiting = deque(rows)
        program, suspect = take_idle(self.key) if waiting else None, -1
        try:
            while waiting or self._sent:
                try:
                    program = program or self.start()
                except RunError as failure:
                    yield waiting.popleft(), failure
                    continue
                try:
                    self._send(program, waiting)
                    answer = self._receive(program)
                except LostError as loss:
                    lost, in_company = self._sent[0], len(self._sent) > 1 or not self._sent[0].alone
                    errors = program.quote_standard_error()
                    program.end()
                    program = None
                    waiting.extendleft(request.row for request in reversed(self._sent))
                    if in_company or (lost.number > 1 and loss.status is not Status.TIMEOUT):
                        suspect = lost.row if in_company else -1
                        _log.info("a row is repeated with a new program, because the last program was lost: %s", loss)
                    else:
                        yield waiting.popleft(), _add_request(loss, errors, lost)
                    self._sent.clear()
                    continue
                done = self._sent.popleft().row
                if done == suspect:  # it succeeds alone: this program cannot handle several requests
                    _one_at_a_time.add(self.key)
                    program.ahead = 1
                yield done, answer
        finally:
            if program is not None:
                if self._sent:  # interrupted
                    program.end()
                else:
                    keep_idle(self.key, program)

    def _send(self, program: PersistentProcess, waiting: deque[int]) -> None:
        """Send as many rows as the program may have; none if it has more than half of them to answer."""
        if len(self._sent) > program.ahead // 2:
            return
        new: list[Request] = []
        size = 0
        # A program that has answered all requests may not have read all; it gets its next row all the same.
        while (
            waiting
            and len(self._sent) < program.ahead
            and size < MOST_BYTES_AHEAD
            and (program.all_sent or not self._sent)
        ):
            number = program.requests + len(new) + 1
            request = Request(waiting[0], number, self.write(number, waiting[0]), not self._sent)
            new.append(request)
            self._sent.append(request)
            waiting.popleft()
            size += len(request.line)
        if new:
            if len(self._sent) == len(new):
                self._busy_since = time.perf_counter()
            program.send(b"".join(request.line for request in new), len(new))

    def _receive(self, program: PersistentProcess) -> list[float] | RunError:
        """Return the answer to the oldest request; set how many requests the program may have."""
        request = self._sent[0]
        line = program.receive(self.timeout, self.limit)
        now = time.perf_counter()
        quick = now - self._busy_since < QUICK and self.key not in _one_at_a_time
        self._busy_since = now
        try:
            return self.read(line, request.number)
        except LostError:
            raise
        except RunError as failure:
            return _add_request(failure, "", request)
        finally:
            program.ahead = min(2 * program.ahead, MOST_AHEAD) if quick else 1


def _add_request(failure: RunError, errors: str, request: Request) -> RunError:
    shown = quote(request.line[:_REQUEST_QUOTED]) + ("..." if len(request.line) > _REQUEST_QUOTED else "")
    return RunError(failure.status, f"{failure}{errors}; request: {shown}")


def longest_answer(outputs: tuple[Quantity, ...]) -> int:
    """Return the largest length of an answer, in bytes."""
    return _SMALLEST_LIMIT + _BYTES_PER_NUMBER * size_of(outputs)


class RequestWriter:
    """Writes the line of a request.

    Parameters
    ----------
    inputs : tuple of Quantity
    """

    def __init__(self, inputs: tuple[Quantity, ...]) -> None:
        self._parts: list[tuple[str, int, int | None]] = []
        start = 0
        for quantity in inputs:
            before = ", " if self._parts else ""
            end = None if quantity.labels is None else start + quantity.size
            self._parts.append((f"{before}{json.dumps(quantity.name)}: ", start, end))
            start += quantity.size

    def write(self, number: int, values: list[float]) -> bytes:
        """Return the line of a request with I finite inputs."""
        # Python writes finite numbers and lists of them as JSON does; its JSON encoder is three times slower.
        named = "".join(
            f"{name}{values[start]!r}" if end is None else f"{name}{values[start:end]!r}"
            for name, start, end in self._parts
        )
        return f'{{"id": {number}, "inputs": {{{named}}}}}\n'.encode()


def read_answer(line: bytes, number: int, outputs: tuple[Quantity, ...]) -> list[float]:
    """Parse an answer.

    Parameters
    ----------
    line : bytes
    number : int
        Number of the request.
    outputs : tuple of Quantity

    Returns
    -------
    list of float, length P
        NaN for missing outputs.

    Raises
    ------
    LostError
        The line is not an answer to this request.
    RunError
        The answer reports a failure, or does not contain the outputs.
    """
    answer = _parse_object(line)
    found_number = answer.get("id")
    if isinstance(found_number, bool) or found_number != number:
        raise _lost_error(f"the answer must have id {number}", line)
    if "error" in answer:
        raise RunError(Status.RAISED, f"the program says: {quote(str(answer['error'])) or 'nothing'}")
    found = answer.get("outputs")
    if not isinstance(found, dict) or len(found) != len(outputs) or not all(q.name in found for q in outputs):
        names = [quantity.name for quantity in outputs]
        shown = quote(f"one of {list(found)}" if isinstance(found, dict) else type_name(found), _ANSWER_QUOTED)
        raise RunError(Status.UNREADABLE, f"'outputs' must be an object of {names}, but is {shown}")
    return [number for quantity in outputs for number in _parse_numbers(quantity, found[quantity.name])]


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        answer = _DECODER.decode(line.decode())
    except RecursionError:
        raise _lost_error("the answer is nested too deeply", line) from None
    except ValueError as error:  # errors of JSON and of UTF-8
        raise _lost_error(f"the answer is not JSON ({error})", line) from error
    if not isinstance(answer, dict):
        raise _lost_error(f"the answer must be a JSON object, not {type_name(answer)}", line)
    return answer


def _lost_error(cause: str, line: bytes) -> LostError:
    return LostError(Status.UNREADABLE, f"{cause}; it reads {quote(line[:_ANSWER_QUOTED])!r}")


def _parse_numbers(quantity: Quantity, value: Any) -> list[float]:
    values = value if isinstance(value, list) else [value]
    if len(values) != quantity.size or (quantity.labels is not None and not isinstance(value, list)):
        expected = "a number" if quantity.labels is None else f"a list of {quantity.size}"
        found = f"a list of {len(value)}" if isinstance(value, list) else type_name(value)
        raise RunError(Status.UNREADABLE, f"output {quantity.name} must be {expected}, but is {found}")
    for item in values:
        if item is not None and not isinstance(item, float):
            raise RunError(Status.UNREADABLE, f"output {quantity.name} must hold numbers, but holds {type_name(item)}")
    return [math.nan if item is None else item for item in values]
