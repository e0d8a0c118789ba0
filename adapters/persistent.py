"""A simulator that is a program which stays: started once, and asked row after row."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .conversation import Conversation
from .failures import check_inputs, check_settings, judged
from .lines import RequestWriter, line_limit, read_answer
from .outcomes import RunError
from .processes import make_environment
from .programs import find_program, program_files, project_files, text_of
from .protocol import Evaluations, Floats, Quantity, RunContext, Status
from .quantities import check_batch, check_quantities, digest_of, size_of
from .servers import Server


@dataclass(frozen=True)
class PersistentModel:
    """A program that reads one request a line from standard input, and answers each on standard output, in JSON.

    The lines are those of `adapters.lines`. Each process that evaluates rows keeps one program running, started with
    its first row, in a temporary directory of its own, and ended with the process. A program that crashes, hangs,
    answers what it was not asked or writes too long a line is ended with all its children, and the next row gets a
    fresh one; `adapters.conversation` says which row is to blame. A row with an input that is not finite is not
    sent. No shell is involved.

    Parameters
    ----------
    command : program and arguments. A program with a path separator is taken relative to `search_path`; a
        bare name is looked up on ``PATH``. An argument that names a file must be an absolute path.
    inputs, outputs : what goes in and what comes out.
    partial : whether a run that gave only some of its outputs has gone well; the others are then NaN.
    timeout : seconds of wall time that an answer may take, with the start of the program if it is its first; a program
        that has several requests before it is given as long for each.
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
        object.__setattr__(self, "digest", self._compute_digest(folder))

    @property
    def rows_per_task(self) -> int:
        """Enough rows that handing out a task costs little beside them."""
        return 64

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Ask the program for each row of `values`, (B, I), one after the other."""
        values = check_batch(self.inputs, values, context)
        outputs = np.full((len(values), size_of(self.outputs)), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        sent = np.isfinite(values).all(axis=1)
        asked = self._conversation(values.tolist(), context.directory.absolute())
        with closing(asked.answers(np.flatnonzero(sent).tolist())) as answers:
            for i, answer in answers:
                if isinstance(answer, RunError):
                    status[i], messages[i] = answer.status, f"run {context.labels[i]}: {answer}"
                else:
                    outputs[i] = answer
        for i in np.flatnonzero(~np.isfinite(outputs).all(axis=1)).tolist():
            if status[i] is Status.OK:
                status[i], why = self._incomplete(values[i], outputs[i])
                messages[i] = f"run {context.labels[i]}: {why}"
        return Evaluations(outputs, tuple(status), tuple(messages))

    def _incomplete(self, values: Floats, outputs: Floats) -> tuple[Status, str]:
        """What is said of a row (I,) that was not sent, or of an answer (P,) that lacks some of its numbers."""
        try:
            check_inputs(self.inputs, values)
        except RunError as failure:
            return failure.status, str(failure)
        return judged(self.outputs, outputs, partial=self.partial)

    def _read(self, line: bytes, number: int) -> list[float]:
        numbers = read_answer(line, number, self.outputs)
        if not all(map(math.isfinite, numbers)):
            judged(self.outputs, np.asarray(numbers), partial=self.partial)
        return numbers

    def _conversation(self, values: list[list[float]], home: Path) -> Conversation:
        writer = RequestWriter(self.inputs)
        return Conversation(
            # Whoever ends the runs of a killed worker knows them by their home, hence a program for each.
            key=(str(os.getpid()), self.digest, self._program, str(home)),
            start=lambda: Server(
                [self._program, *self.command[1:]], make_environment(self.environment, self.threads), home
            ),
            write=lambda number, row: writer.write(number, values[row]),
            read=self._read,
            timeout=self.timeout,
            limit=line_limit(self.outputs),
        )

    @property
    def former_digest(self) -> str:
        """The digest in ledgers of version 1, which holds absolute paths."""
        return self._compute_digest(None)

    def _compute_digest(self, folder: Path | None) -> str:
        # The timeout is left out: it decides whether a run ends, not what it gives.
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
                text_of(settings, folder),
                *program_files(self._program, self.command),
                *project_files(self.command, self.environment, folder),
            ]
        )
