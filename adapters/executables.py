"""A simulator that is a program: input files from templates, numbers from its output files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .directories import RunDirectory, check_labels
from .failures import check_settings, judged
from .outcomes import RunError, check_ending, check_intact, check_success, last_words, reason
from .processes import Environment, make_environment, run_process
from .programs import (
    InputFile,
    LocalFile,
    check_files,
    check_output_files,
    check_paths,
    find_program,
    load_arguments,
    load_template,
    local_files,
    program_files,
    project_files,
    text_of,
)
from .protocol import GAVE_OUTPUTS, AdapterError, Evaluations, Floats, Quantity, RunContext, Status
from .quantities import (
    check_batch,
    check_quantities,
    columns_of,
    did_you_mean,
    digest_of,
    size_of,
    written,
)
from .readers.base import OutputFile, Reader, select
from .readers.structured import RegexFile
from .readers.text import IncompleteError
from .templates import InputTemplate, Template, TemplateError, Values

Bounds = tuple[float, float]
Command = tuple[str, tuple[Template, ...]]

_KEPT = ("failed", "all", "none")


@dataclass(frozen=True)
class ExecutableModel:
    """A program, run once for each row in a private directory.

    A run's directory is ``context.directory / label``. It is the program's working directory and holds the
    input files, ``standard_output.txt`` and ``standard_error.txt``. It is removed after a run that went well,
    and kept after one that failed, unless `keep` says otherwise. A run that writes more than 64 MiB to standard output
    or to standard error is killed. No shell is involved.

    Parameters
    ----------
    command : program and arguments. A program with a path separator is taken relative to `search_path`; a
        bare name is looked up on ``PATH``. Arguments may hold template fields, ``{depth[1]}``; otherwise they
        are passed as they are: one that names a file must be an absolute path, since the program runs in
        another directory.
    inputs, outputs : what goes in and what comes out.
    input_files : files written for each run. Each input must appear in one of them, or in an argument.
    output_files : readers of the files of each run; between them they hold each output once.
    files : files copied or linked into each run's directory.
    target_file : a file, relative to the run's directory, whose presence is success whatever the exit code; empty for
        success by exit code 0.
    fallback : program and arguments to run, in a fresh directory, where `command` failed; empty for none.
    partial : whether a run that gave only some of its outputs has gone well; the others are then NaN.
    bounds : for some outputs, the smallest and the largest number that they may hold in a run that went well.
    keep : whose directories are kept: ``"failed"`` runs', ``"all"`` or ``"none"``.
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
    output_files: tuple[Reader, ...] = (OutputFile(),)
    files: tuple[LocalFile, ...] = ()
    target_file: str = ""
    fallback: tuple[str, ...] = ()
    partial: bool = False
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    keep: str = "failed"
    timeout: float | None = None
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    search_path: Path | None = None
    name: str = ""
    digest: str = field(init=False, repr=False)
    _folder: Path = field(init=False, repr=False, compare=False)
    _commands: tuple[Command, ...] = field(init=False, repr=False, compare=False)
    _templates: tuple[InputTemplate, ...] = field(init=False, repr=False, compare=False)
    _readers: tuple[Reader, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_quantities("inputs", self.inputs)
        check_quantities("outputs", self.outputs)
        folder = Path.cwd() if self.search_path is None else self.search_path.absolute()
        commands = tuple(
            (str(find_program(setting, command, folder)), load_arguments(setting, command, self.inputs))
            for setting, command in (("command", self.command), ("fallback", self.fallback))
            if command or setting == "command"
        )
        self._check_settings()
        check_files(self.files, folder)
        check_paths(self.input_files, self._output_paths(), self.files)
        check_output_files(self.output_files, self.outputs)
        templates = tuple(
            load_template(f"input_files[{i}]", file, folder, self.inputs) for i, file in enumerate(self.input_files)
        )
        for _, arguments in commands:
            self._check_all_inputs_used((*arguments, *templates))
        # The only writes to a frozen instance: what its settings determine.
        object.__setattr__(self, "name", self.name or Path(commands[0][0]).name)
        object.__setattr__(self, "_folder", folder)
        object.__setattr__(self, "_commands", commands)
        object.__setattr__(self, "_templates", templates)
        object.__setattr__(self, "_readers", tuple(self._in_time(reader) for reader in self.output_files))
        object.__setattr__(self, "digest", self._compute_digest(folder))

    @property
    def rows_per_task(self) -> int:
        """One: a run may take hours, and whoever waits wants to see each one come back."""
        return 1

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Run the program for each row of `values`, (B, I), one after the other."""
        values = check_batch(self.inputs, values, context)
        check_labels(context)
        environment = make_environment(self.environment, self.threads)
        outputs = np.full((len(values), size_of(self.outputs)), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        for i, label in enumerate(context.labels):
            directory = RunDirectory((context.directory / label).absolute())
            try:
                outputs[i] = self._run_with_fallback(self._named(values[i]), directory, environment)
                status[i], missing = judged(self.outputs, outputs[i], partial=self.partial)
                messages[i] = missing and f"run {label}: {missing}"
            except RunError as failure:
                status[i] = failure.status
                where = "" if self.keep == "none" else f"; directory: {directory.path}"
                messages[i] = f"run {label}: {failure}{where}"
            if self.keep == "none" or (self.keep == "failed" and status[i] in GAVE_OUTPUTS):
                directory.give_back(context)
        return Evaluations(outputs, tuple(status), tuple(messages))

    def _run_with_fallback(self, numbers: Values, directory: RunDirectory, environment: Environment) -> Floats:
        failures: list[RunError] = []
        for command in self._commands:
            try:
                return self._run(command, numbers, directory, environment)
            except RunError as failure:
                failures.append(failure)
        causes = "; the fallback: ".join(str(failure) for failure in failures)
        raise RunError(failures[-1].status, causes)

    def _run(self, command: Command, numbers: Values, directory: RunDirectory, environment: Environment) -> Floats:
        program, arguments = command
        try:
            argv = [program, *(argument.render(numbers) for argument in arguments)]
            self._prepare(directory, numbers)
            outcome = run_process(argv, directory.path, environment, self.timeout)
        except TemplateError as error:
            raise RunError(Status.NOT_STARTED, f"could not be started: {error}") from error
        except OSError as error:
            raise RunError(Status.NOT_STARTED, f"could not be started: {reason(error)}") from error
        try:
            intact = directory.is_intact()  # looked at first: another directory must not be removed, however it ended
            check_ending(outcome, self.timeout)
            check_intact(intact=intact)
            check_success(outcome, directory.path / self.target_file if self.target_file else None)
            return self._read(directory.path)
        except RunError as failure:
            raise RunError(failure.status, f"{failure}{last_words(outcome)}") from failure

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

    def _prepare(self, run: RunDirectory, numbers: Values) -> None:
        run.make()
        directory = run.path
        for brought in self.files:
            brought.bring(self._folder, directory)
        if self.files:
            # A directory that was copied may hold what an earlier run by hand left behind.
            for old in self._output_paths().values():
                (directory / old).unlink(missing_ok=True)
        for file, template in zip(self.input_files, self._templates, strict=True):
            path = directory / file.path
            if path.parent != directory:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(template.render(numbers).encode())

    def _in_time(self, reader: Reader) -> Reader:
        """A reader that takes no longer than the program may."""
        if isinstance(reader, RegexFile) and self.timeout is not None:
            return replace(reader, timeout=min(reader.timeout, self.timeout))
        return reader

    def _read(self, directory: Path) -> Floats:
        row = self._read_files(directory)
        judged(self.outputs, row, partial=self.partial)
        self._check_bounds(row)
        return row

    def _read_files(self, directory: Path) -> Floats:
        parts: dict[str, Floats] = {}
        for reader in self._readers:
            quantities = select(reader, self.outputs)
            numbers = self._read_file(reader, directory, quantities)
            if quantities == self.outputs:
                return numbers
            ends = np.cumsum([quantity.size for quantity in quantities])[:-1]
            parts.update(zip((q.name for q in quantities), np.split(numbers, ends), strict=True))
        return np.concatenate([parts[quantity.name] for quantity in self.outputs])

    def _read_file(self, reader: Reader, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:
        """The numbers of one reader; with `partial`, NaN for those that cannot be read, unless it is all there are."""
        try:
            return reader.read(directory, quantities)
        except IncompleteError as error:
            failure, numbers = RunError(Status.UNREADABLE, f"{_shown(reader)}: {error}"), error.numbers
        except FileNotFoundError:
            failure, numbers = RunError(Status.UNREADABLE, f"{_shown(reader)} was not written"), None
        except OSError as error:
            failure, numbers = RunError(Status.UNREADABLE, f"{_shown(reader)} cannot be read: {reason(error)}"), None
        except ValueError as error:
            failure, numbers = RunError(Status.UNREADABLE, f"{_shown(reader)}: {error}"), None
        if numbers is None:
            numbers = np.full(size_of(quantities), np.nan)
        if not self.partial or (len(self.output_files) == 1 and np.isnan(numbers).all()):
            raise failure
        return numbers

    def _check_bounds(self, row: Floats) -> None:
        for (name, label), number in zip(columns_of(self.outputs), row.tolist(), strict=True):
            low, high = self.bounds.get(name, (-math.inf, math.inf))
            if not (low <= number <= high or math.isnan(number)):
                broken = f"below its lower bound, {low:g}" if number < low else f"above its upper bound, {high:g}"
                raise RunError(Status.OUT_OF_BOUNDS, f"output {written(name, label)} is {number:g}, {broken}")

    def _output_paths(self) -> dict[str, str]:
        paths = {
            f"output_files[{i}].path" if j == 0 else f"output_files[{i}].path, file {j + 1}": path
            for i, reader in enumerate(self.output_files)
            for j, path in enumerate(reader.paths)
            if path is not None
        }
        return {**paths, "target_file": self.target_file} if self.target_file else paths

    def _check_settings(self) -> None:
        check_settings(self.timeout, self.threads, self.environment)
        if self.keep not in _KEPT:
            raise AdapterError("keep", f"must be one of {', '.join(map(repr, _KEPT))}; it is {self.keep!r}")
        names = [quantity.name for quantity in self.outputs]
        for name, (low, high) in self.bounds.items():
            if name not in names:
                raise AdapterError("bounds", f"{name!r} is no output; {did_you_mean(name, names)}")
            if not low < high:
                raise AdapterError("bounds", f"{name!r} must have min below max; they are {low:g} and {high:g}")

    def _check_all_inputs_used(self, templates: tuple[InputTemplate, ...]) -> None:
        used = set().union(*(template.columns(self.inputs) for template in templates))
        for column in columns_of(self.inputs):
            if column not in used:
                raise AdapterError(
                    "inputs",
                    f"{written(*column)} never reaches the program: write {{{written(*column)}}} "
                    "in the template of an input file, or in an argument of the command",
                )

    @property
    def former_digest(self) -> str:
        """The digest in ledgers of version 1, which holds absolute paths."""
        return self._compute_digest(None)

    def _compute_digest(self, folder: Path | None) -> str:
        # The timeout is left out: it decides whether a run ends, not what it gives.
        settings = (self.command, self.inputs, self.outputs, self.threads, sorted(self.environment.items()))
        rules = (self.target_file, self.fallback, self.partial, sorted(self.bounds.items()))
        templates = [(file.path, template) for file, template in zip(self.input_files, self._templates, strict=True)]
        return digest_of(
            [
                text_of(settings, folder),
                text_of(rules, folder),
                repr(templates),
                repr(self.output_files),
                *local_files(self.files, self._folder),
                *(
                    data
                    for (program, _), command in zip(self._commands, (self.command, self.fallback), strict=False)
                    for data in program_files(program, command)
                ),
                *project_files((*self.command, *self.fallback), self.environment, folder),
            ]
        )


def _shown(reader: Reader) -> str:
    paths = ["standard output" if path is None else repr(path) for path in reader.paths]
    if len(paths) > 1:
        return f"files {', '.join(paths)}"
    return paths[0] if reader.paths == (None,) else f"file {paths[0]}"
