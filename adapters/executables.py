"""A simulator that is a program: input files from templates, numbers from its output files."""

from __future__ import annotations

import errno
import logging
import math
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .processes import (
    KEPT,
    LOG_LIMIT,
    STDERR,
    STDOUT,
    Ending,
    Outcome,
    make_environment,
    read_tail,
    run_process,
)
from .programs import (
    InputFile,
    OutputFile,
    check_output_files,
    check_paths,
    find_program,
    load_arguments,
    load_template,
    program_files,
)
from .protocol import AdapterError, Evaluations, Floats, Quantity, RunContext, Status
from .quantities import (
    check_batch,
    check_quantities,
    columns_of,
    digest_of,
    first_bad_output,
    size_of,
    written,
)
from .readers import read_numbers, read_text
from .templates import Template, Values

_FLOODED = {Ending.STDOUT_LIMIT: "standard output", Ending.STDERR_LIMIT: "standard error"}

_log = logging.getLogger(__name__)


class _RunError(Exception):
    """One run did not give its outputs."""

    def __init__(self, status: Status, cause: str) -> None:
        super().__init__(cause)
        self.status = status


@dataclass(frozen=True)
class ExecutableModel:
    """A program, run once for each row in a private directory.

    A run's directory is ``context.directory / label``. It is the program's working directory and holds the
    input files, ``standard_output.txt`` and ``standard_error.txt``. It is removed after a run that went well,
    and kept after one that failed. A run that writes more than 64 MiB to standard output or to standard error is
    killed. No shell is involved.

    Parameters
    ----------
    command : program and arguments. A program with a path separator is taken relative to `search_path`; a
        bare name is looked up on ``PATH``. Arguments may hold template fields, ``{depth[1]}``; otherwise they
        are passed as they are: one that names a file must be an absolute path, since the program runs in
        another directory.
    inputs, outputs : what goes in and what comes out.
    input_files : files written for each run. Each input must appear in one of them, or in an argument.
    output_files : files read after each run; between them they hold each output once.
    timeout : seconds of wall time a run may take; None for no limit.
    threads : what ``OMP_NUM_THREADS`` and its like are set to.
    environment : variables added to ours; they win over `threads`.
    search_path : directory that relative paths of program and templates start from; None for the current.
    name : for messages and provenance; the program's file name if empty.

    Raises
    ------
    AdapterError
        If the settings cannot work. Program, templates and files named by absolute arguments are read here.
    """

    command: tuple[str, ...]
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]
    input_files: tuple[InputFile, ...] = ()
    output_files: tuple[OutputFile, ...] = (OutputFile(),)
    timeout: float | None = None
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    search_path: Path | None = None
    name: str = ""
    digest: str = field(init=False, repr=False)
    _program: str = field(init=False, repr=False, compare=False)
    _arguments: tuple[Template, ...] = field(init=False, repr=False, compare=False)
    _templates: tuple[Template, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_quantities("inputs", self.inputs)
        check_quantities("outputs", self.outputs)
        folder = Path.cwd() if self.search_path is None else self.search_path.absolute()
        program = find_program(self.command, folder)
        self._check_settings()
        check_paths(self.input_files, self.output_files)
        check_output_files(self.output_files, self.outputs)
        arguments = load_arguments(self.command, self.inputs)
        templates = tuple(
            load_template(f"input_files[{i}].template", folder / file.template, self.inputs)
            for i, file in enumerate(self.input_files)
        )
        self._check_all_inputs_used((*arguments, *templates))
        # The only writes to a frozen instance: what its settings determine.
        object.__setattr__(self, "name", self.name or program.name)
        object.__setattr__(self, "_program", str(program))
        object.__setattr__(self, "_arguments", arguments)
        object.__setattr__(self, "_templates", templates)
        object.__setattr__(self, "digest", self._compute_digest())

    @property
    def rows_per_task(self) -> int:
        """One: a run may take hours, and whoever waits wants to see each one come back."""
        return 1

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Run the program for each row of `values`, (B, I), one after the other."""
        values = check_batch(self.inputs, values, context)
        for label in context.labels:
            if label in ("", ".", "..") or "/" in label or "\0" in label:
                raise ValueError(f"context.labels: {label!r} cannot be the name of a directory")
        environment = make_environment(self.environment, self.threads)
        outputs = np.full((len(values), size_of(self.outputs)), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        for i, label in enumerate(context.labels):
            directory = (context.directory / label).absolute()
            try:
                outputs[i] = self._run(values[i], directory, environment)
            except _RunError as failure:
                status[i] = failure.status
                messages[i] = f"run {label}: {failure}{_last_words(directory)}; directory: {directory}"
        return Evaluations(outputs, tuple(status), tuple(messages))

    def _run(self, row: Floats, directory: Path, environment: Mapping[str, str]) -> Floats:
        numbers = self._named(row)
        argv = [self._program, *(argument.render(numbers) for argument in self._arguments)]
        try:
            self._prepare(directory, numbers)
            outcome = run_process(argv, directory, environment, self.timeout)
        except OSError as error:
            raise _RunError(Status.NOT_STARTED, f"could not be started: {_reason(error)}") from error
        self._check_outcome(outcome)
        outputs = self._read(directory)
        try:
            shutil.rmtree(directory)
        except OSError as error:
            _log.warning("the directory of a run that went well could not be removed: %s", error)
        return outputs

    def _named(self, row: Floats) -> Values:
        numbers: dict[str, float | Mapping[str | int, float]] = {}
        start = 0
        for quantity in self.inputs:
            part = row[start : start + quantity.size].tolist()
            numbers[quantity.name] = (
                part[0] if quantity.labels is None else dict(zip(quantity.labels, part, strict=True))
            )
            start += quantity.size
        return numbers

    def _prepare(self, directory: Path, numbers: Values) -> None:
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            shutil.rmtree(directory)
            directory.mkdir()
        for file, template in zip(self.input_files, self._templates, strict=True):
            path = directory / file.path
            if path.parent != directory:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(template.render(numbers).encode())

    def _check_outcome(self, outcome: Outcome) -> None:
        if outcome.ending is Ending.TIMEOUT:
            raise _RunError(Status.TIMEOUT, f"timed out after {self.timeout:g} s")
        if outcome.ending in _FLOODED:
            raise _RunError(
                Status.KILLED,
                f"killed, since it wrote more than {LOG_LIMIT // 2**20} MiB to {_FLOODED[outcome.ending]}, "
                f"of which the first and last {KEPT // 2**10} KiB are kept",
            )
        if outcome.returncode < 0:
            raise _RunError(Status.KILLED, f"killed by signal {_signal_name(-outcome.returncode)}")
        if outcome.returncode > 0:
            raise _RunError(Status.EXIT_CODE, f"exit code {outcome.returncode}")

    def _read(self, directory: Path) -> Floats:
        parts: dict[str, Floats] = {}
        for file in self.output_files:
            quantities = file.select(self.outputs)
            shown = "standard output" if file.path is None else f"file {file.path!r}"
            try:
                text = read_text(directory / (STDOUT if file.path is None else file.path))
                numbers = read_numbers(text, size_of(quantities), file.skip_lines)
            except FileNotFoundError as error:
                raise _RunError(Status.UNREADABLE, f"{shown} was not written") from error
            except OSError as error:
                raise _RunError(Status.UNREADABLE, f"{shown} cannot be read: {_reason(error)}") from error
            except ValueError as error:
                raise _RunError(Status.UNREADABLE, f"{shown}: {error}") from error
            ends = np.cumsum([quantity.size for quantity in quantities])[:-1]
            parts.update(zip((q.name for q in quantities), np.split(numbers, ends), strict=True))
        row = np.concatenate([parts[quantity.name] for quantity in self.outputs])
        bad = first_bad_output(self.outputs, row)
        if bad is not None:
            raise _RunError(Status.NAN, bad)
        return row

    def _check_settings(self) -> None:
        if self.timeout is not None and not (math.isfinite(self.timeout) and self.timeout > 0):
            raise AdapterError("timeout", f"must be a positive number of seconds, or None; it is {self.timeout!r}")
        if self.threads < 1:
            raise AdapterError("threads", f"must be at least 1; it is {self.threads!r}")
        for key, value in self.environment.items():
            if not key or "=" in key or "\0" in key + value:
                raise AdapterError("environment", f"{key!r} = {value!r} cannot be an environment variable")

    def _check_all_inputs_used(self, templates: tuple[Template, ...]) -> None:
        used = set().union(*(template.columns(self.inputs) for template in templates))
        for column in columns_of(self.inputs):
            if column not in used:
                raise AdapterError(
                    "inputs",
                    f"{written(*column)} never reaches the program: write {{{written(*column)}}} "
                    "in the template of an input file, or in an argument of the command",
                )

    def _compute_digest(self) -> str:
        # The timeout is left out: it decides whether a run ends, not what it gives.
        settings = (self.command, self.inputs, self.outputs, self.threads, sorted(self.environment.items()))
        files = [(file.path, template.text) for file, template in zip(self.input_files, self._templates, strict=True)]
        return digest_of(
            [
                repr(settings),
                repr(files),
                repr(self.output_files),
                *program_files(self._program, self.command),
            ]
        )


def _reason(error: OSError) -> str:
    """Say what went wrong, in words that a person without errno tables can use."""
    if error.errno == errno.ENOEXEC:
        return f"{error}; a script must start with a line such as #!/bin/sh"
    return str(error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)


def _last_words(directory: Path) -> str:
    """Quote the end of standard error on one line, as part of a message; nothing if it said nothing."""
    try:
        tail = read_tail(directory / STDERR)
    except OSError:  # the run came to nothing before there was such a file
        return ""
    line = " | ".join(part.strip() for part in tail.splitlines() if part.strip())
    printable = "".join(character if character.isprintable() else "?" for character in line)
    return f"; standard error: {printable}" if printable else ""
