"""A simulator that is a program which stays: started once, and asked row after row."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .failures import check_inputs, check_settings, judged, quoted
from .lines import LostError, line_limit, read_answer, write_request
from .outcomes import RunError
from .processes import make_environment
from .programs import find_program, program_files
from .protocol import Evaluations, Floats, Quantity, RunContext, Status
from .quantities import check_batch, check_quantities, digest_of, size_of
from .servers import Server, give_back, take

_SHOWN = 500  # characters of a request that failed

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PersistentModel:
    """A program that reads one request a line from standard input, and answers each on standard output, in JSON.

    The lines are those of `adapters.lines`. Each process that evaluates rows keeps one program running, started with
    its first row, in a temporary directory of its own, and ended with the process. A program that crashes, hangs,
    answers what it was not asked or writes too long a line is ended with all its children, and the next row gets a
    fresh one. A row that was lost other than by time is tried once more if that program had answered before: whether a
    row goes well does not depend on the rows before it. A row with an input that is not finite is not sent. No shell
    is involved.

    Parameters
    ----------
    command : program and arguments. A program with a path separator is taken relative to `search_path`; a
        bare name is looked up on ``PATH``. An argument that names a file must be an absolute path.
    inputs, outputs : what goes in and what comes out.
    partial : whether a run that gave only some of its outputs has gone well; the others are then NaN.
    timeout : seconds of wall time that an answer may take, with the start of the program if it is its first.
    threads : what ``OMP_NUM_THREADS`` and its like are set to.
    environment : variables added to ours; they win over `threads`.
    search_path : directory that a relative path of the program starts from; None for the current.
    name : for messages and provenance; the program's file name if empty.

    Raises
    ------
    AdapterError
        If the settings cannot work. Program and files named by absolute arguments are read here.
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
        # The only writes to a frozen instance: what its settings determine.
        object.__setattr__(self, "name", self.name or program.name)
        object.__setattr__(self, "_program", str(program))
        object.__setattr__(self, "digest", self._compute_digest())

    @property
    def rows_per_task(self) -> int:
        """Enough rows that handing out a task costs little beside them."""
        return 64

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Ask the program for each row of `values`, (B, I), one after the other."""
        values = check_batch(self.inputs, values, context)
        outputs = np.full((len(values), size_of(self.outputs)), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        home = context.directory.absolute()
        for i, label in enumerate(context.labels):
            try:
                check_inputs(self.inputs, values[i])
                outputs[i] = self._answer(values[i], home)
                status[i], missing = judged(self.outputs, outputs[i], partial=self.partial)
                messages[i] = missing and f"run {label}: {missing}"
            except RunError as failure:
                outputs[i] = np.nan
                status[i] = failure.status
                messages[i] = f"run {label}: {failure}"
        return Evaluations(outputs, tuple(status), tuple(messages))

    def _answer(self, row: Floats, home: Path) -> Floats:
        # Whoever ends the runs of a killed worker knows them by their home, hence a program for each.
        key = (str(os.getpid()), self.digest, self._program, str(home))
        server = take(key)
        if server is not None:
            try:
                return self._ask(server, row, key)
            except LostError as loss:
                if loss.status is Status.TIMEOUT:
                    raise
                _log.info("%s: tried again with a fresh program, since the last one was lost: %s", self.name, loss)
        environment = make_environment(self.environment, self.threads)
        return self._ask(Server([self._program, *self.command[1:]], environment, home), row, key)

    def _ask(self, server: Server, row: Floats, key: tuple[str, ...]) -> Floats:
        """Ask a program, which is then ready for the next row, or ended."""
        number = server.asked + 1
        request = write_request(number, self.inputs, row)
        sound = False
        try:
            outputs = read_answer(server.ask(request, self.timeout, line_limit(self.outputs)), number, self.outputs)
            judged(self.outputs, outputs, partial=self.partial)
            sound = True
        except LostError as loss:
            raise LostError(loss.status, f"{loss}{server.last_words()}; asked: {_shown(request)}") from loss
        except RunError as failure:
            sound = True
            raise RunError(failure.status, f"{failure}; asked: {_shown(request)}") from failure
        finally:
            if sound:
                give_back(key, server)
            else:
                server.end()
        return outputs

    def _compute_digest(self) -> str:
        # The timeout is left out: it decides whether a run ends, not what it gives.
        settings = (
            self.command,
            self.inputs,
            self.outputs,
            self.threads,
            sorted(self.environment.items()),
            self.partial,
        )
        return digest_of(["persistent", repr(settings), *program_files(self._program, self.command)])


def _shown(request: bytes) -> str:
    text = quoted(request[:_SHOWN])
    return text if len(request) <= _SHOWN else f"{text}..."
