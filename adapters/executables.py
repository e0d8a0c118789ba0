"""A simulator that is a program with input files from templates and output files with numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .directories import RunDirectory, check_labels
from .foreign_case import PestCase
from .processes import Environment, Outcome, make_environment, run_process
from .programs import (
    InputFile,
    LocalFile,
    check_files,
    check_output_files,
    check_paths,
    digest_local_files,
    digest_project_files,
    expand_files,
    find_program,
    format_settings,
    load_arguments,
    load_template,
    read_program_files,
)
from .protocol import GAVE_OUTPUTS, AdapterError, Evaluations, Floats, Quantity, RunContext, Status, output_size
from .quantities import (
    check_batch,
    check_quantities,
    column_name,
    columns_of,
    did_you_mean,
    digest_of,
    size_of,
)
from .readers.eclipse import EclipseFile
from .readers.netcdf import NetcdfFile
from .readers.reader import OutputFile, Reader, select
from .readers.structured import RegexFile
from .readers.text import IncompleteError
from .run_errors import (
    RunError,
    check_ending,
    check_intact,
    check_outputs,
    check_settings,
    check_success,
    describe_os_error,
    quote_output,
    start_error,
)
from .templates import InputTemplate, Template, TemplateError, Values

Bounds = tuple[float, float]
Command = tuple[str, tuple[Template, ...]]

_KEPT = ("failed", "all", "none")


@dataclass(frozen=True)
class ExecutableModel:
    """A program that is run once per row, in a private directory.

    The directory of a run is ``context.directory / label``. It is the working directory of the program and contains the
    input files, ``standard_output.txt`` and ``standard_error.txt``. By default it is removed after a successful run and
    kept after a failed one. A run that writes more than 64 MiB to standard output or to standard error is killed. No
    shell is involved.

    Parameters
    ----------
    command : tuple of str
        Program and arguments. A program with a path separator is relative to `search_path`; a bare name is searched on
        ``PATH``. Arguments may contain template fields such as ``{depth[1]}``. An argument that names a file must be an
        absolute path, because the program runs in another directory.
    inputs, outputs : tuple of Quantity
    input_files : tuple of InputFile
        Files that are written for each run. Each input must appear in one of them, or in an argument.
    output_files : tuple of Reader
        Readers of the output files. Together they read each output once.
    files : tuple of LocalFile
        Files that are copied or linked into each run directory.
    target_file : str
        A file, relative to the run directory, whose existence means success, whatever the exit code. If empty, success
        is the exit code 0.
    fallback : tuple of str
        Program and arguments to run, in an empty directory, if `command` fails; empty for none.
    then : tuple of tuple of str
        Programs and arguments to run after `command`, one after the other, in the same directory. Standard output is
        that of the last one.
    partial : bool
        Whether a run that lacks some of its outputs succeeds; these are NaN.
    bounds : mapping of str to tuple of float
        Smallest and largest valid value of some outputs.
    keep : str
        Which run directories are kept: ``"failed"``, ``"all"`` or ``"none"``.
    timeout : float, optional
        Time limit for a run in s; None for no limit.
    threads : int
        Value of ``OMP_NUM_THREADS`` and similar variables.
    environment : mapping of str to str
        Additional environment variables. They take precedence over `threads`.
    search_path : Path, optional
        Directory to which the paths of program and templates are relative; by default the current directory.
    jacobian : bool
        Whether the reader of all outputs also returns their derivatives by the inputs; see `Evaluations`.
    jacobian_cost : float
        Cost of these derivatives in runs, at least 0.
    name : str
        Name in messages and provenance; by default the file name of the program.
    case : PestCase, optional
        The PEST case from which the model was made.

    Raises
    ------
    AdapterError
        The settings are invalid. The program, templates and files named by absolute arguments are read here.
    """

    command: tuple[str, ...]
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]
    input_files: tuple[InputFile, ...] = ()
    output_files: tuple[Reader, ...] = (OutputFile(),)
    files: tuple[LocalFile, ...] = ()
    target_file: str = ""
    fallback: tuple[str, ...] = ()
    then: tuple[tuple[str, ...], ...] = ()
    partial: bool = False
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    keep: str = "failed"
    timeout: float | None = None
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    search_path: Path | None = None
    jacobian: bool = False
    jacobian_cost: float = 0.0
    name: str = ""
    case: PestCase | None = field(default=None, repr=False, compare=False)
    digest: str = field(init=False, repr=False)
    _folder: Path = field(init=False, repr=False, compare=False)
    _commands: tuple[Command, ...] = field(init=False, repr=False, compare=False)
    _then: tuple[Command, ...] = field(init=False, repr=False, compare=False)
    _templates: tuple[InputTemplate, ...] = field(init=False, repr=False, compare=False)
    _readers: tuple[Reader, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_quantities("inputs", self.inputs)
        check_quantities("outputs", self.outputs)
        folder = Path.cwd() if self.search_path is None else self.search_path.absolute()
        commands = tuple(
            self._load_command(setting, command, folder)
            for setting, command in (("command", self.command), ("fallback", self.fallback))
            if command or setting == "command"
        )
        later = tuple(self._load_command("command", command, folder) for command in self.then)
        self._check_settings()
        object.__setattr__(self, "files", expand_files(self.files, folder))
        check_files(self.files, folder)
        check_paths(self.input_files, self._output_paths(), self.files)
        check_output_files(self.output_files, self.outputs)
        templates = tuple(
            load_template(f"input_files[{i}]", file, folder, self.inputs) for i, file in enumerate(self.input_files)
        )
        for _, arguments in commands:
            self._check_all_inputs_used((*arguments, *templates, *(word for _, words in later for word in words)))
        # The only assignments to a frozen instance: values that the settings determine.
        object.__setattr__(self, "name", self.name or Path(commands[0][0]).name)
        object.__setattr__(self, "_folder", folder)
        object.__setattr__(self, "_commands", commands)
        object.__setattr__(self, "_then", later)
        object.__setattr__(self, "_templates", templates)
        object.__setattr__(self, "_readers", tuple(self._limit_time(reader) for reader in self.output_files))
        object.__setattr__(self, "digest", self._compute_digest(folder))

    def _load_command(self, setting: str, command: tuple[str, ...], folder: Path) -> Command:
        return str(find_program(setting, command, folder)), load_arguments(setting, command, self.inputs)

    @property
    def rows_per_task(self) -> int:
        """One row per task, because a run may take hours."""
        return 1

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Run the program for each row of `values`, shape (B, I), in order."""
        values = check_batch(self.inputs, values, context)
        check_labels(context)
        environment = make_environment(self.environment, self.threads)
        outputs = np.full((len(values), output_size(self)), np.nan)
        status, messages = [Status.OK] * len(values), [""] * len(values)
        for i, label in enumerate(context.labels):
            directory = RunDirectory((context.directory / label).absolute())
            try:
                outputs[i] = self._run_with_fallback(self._name_inputs(values[i]), directory, environment)
                status[i], missing = check_outputs(
                    self.outputs, outputs[i, : size_of(self.outputs)], partial=self.partial
                )
                messages[i] = missing and f"run {label}: {missing}"
            except RunError as failure:
                status[i] = failure.status
                where = "" if self.keep == "none" else f"; directory: {directory.path}"
                messages[i] = f"run {label}: {failure}{where}"
            if self.keep == "none" or (self.keep == "failed" and status[i] in GAVE_OUTPUTS):
                directory.remove(keep_spare=context.more)
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
        try:
            programs = [
                [program, *(argument.render(numbers) for argument in arguments)]
                for program, arguments in (command, *self._then)
            ]
            self._prepare(directory, numbers)
        except TemplateError as error:
            raise RunError(Status.NOT_STARTED, f"could not be started: {error}") from error
        except OSError as error:
            raise start_error(error) from error
        deadline = math.inf if self.timeout is None else time.monotonic() + self.timeout
        for place, argv in enumerate(programs, start=1):
            outcome = self._run_program(argv, directory, environment, deadline)
            try:
                intact = directory.is_intact()  # checked first: a directory that replaced it must not be removed
                check_ending(outcome, self.timeout)
                check_intact(intact=intact)
                last = place == len(programs)
                check_success(outcome, directory.path / self.target_file if self.target_file and last else None)
                if last:
                    return self._read(directory.path)
            except RunError as failure:
                which = "" if len(programs) == 1 else f"command {place} of {len(programs)}, {Path(argv[0]).name!r}: "
                quoted = quote_output(outcome, has_results=any(None in reader.paths for reader in self.output_files))
                raise RunError(failure.status, f"{which}{failure}{quoted}") from failure
        raise RunError(Status.NOT_STARTED, "there is no command")

    def _run_program(
        self, argv: list[str], directory: RunDirectory, environment: Environment, deadline: float
    ) -> Outcome:
        left = None if self.timeout is None else max(deadline - time.monotonic(), 0.0)
        try:
            return run_process(argv, directory.path, environment, left)
        except OSError as error:
            raise start_error(error) from error

    def _name_inputs(self, row: Floats) -> Values:
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
        for local in self.files:
            local.provide(self._folder, directory)
        if self.files:
            # A copied directory may contain the output files of an earlier run by hand.
            for old in self._output_paths().values():
                (directory / old).unlink(missing_ok=True)
        for file, template in zip(self.input_files, self._templates, strict=True):
            path = directory / file.path
            if path.parent != directory:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(template.render(numbers).encode())

    def _limit_time(self, reader: Reader) -> Reader:
        """Return a reader whose time limit is not longer than that of the program."""
        if isinstance(reader, RegexFile | NetcdfFile | EclipseFile) and self.timeout is not None:
            return replace(reader, timeout=min(reader.timeout, self.timeout))
        return reader

    def _read(self, directory: Path) -> Floats:
        row = self._read_files(directory)
        values, derivatives = np.split(row, [size_of(self.outputs)])
        check_outputs(self.outputs, values, partial=self.partial)
        self._check_bounds(values)
        if not np.isfinite(derivatives).all():
            raise RunError(Status.NAN, "the Jacobian has a number that is not finite")
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
        """Return the numbers of one reader; with `partial`, NaN for those that cannot be read, unless all are."""
        try:
            return reader.read(directory, quantities)
        except IncompleteError as error:
            failure, numbers = RunError(Status.UNREADABLE, f"{_describe_files(reader)}: {error}"), error.numbers
        except FileNotFoundError:
            failure, numbers = RunError(Status.UNREADABLE, f"{_describe_files(reader)} was not written"), None
        except OSError as error:
            failure, numbers = (
                RunError(Status.UNREADABLE, f"{_describe_files(reader)} cannot be read: {describe_os_error(error)}"),
                None,
            )
        except ValueError as error:
            failure, numbers = RunError(Status.UNREADABLE, f"{_describe_files(reader)}: {error}"), None
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
                raise RunError(Status.OUT_OF_BOUNDS, f"output {column_name(name, label)} is {number:g}, {broken}")

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
        if not (math.isfinite(self.jacobian_cost) and self.jacobian_cost >= 0.0):
            raise AdapterError("jacobian_cost", f"must be a number of runs, at least 0, was {self.jacobian_cost!r}")
        if self.jacobian and self.partial:
            raise AdapterError("partial", "must be false with jacobian = true, because a Jacobian has all outputs")
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
                    f"{column_name(*column)} never reaches the program: write {{{column_name(*column)}}} "
                    "in the template of an input file, or in an argument of the command",
                )

    @property
    def former_digest(self) -> str:
        """The digest in ledgers of version 1, which contains absolute paths."""
        return self._compute_digest(None)

    def _compute_digest(self, folder: Path | None) -> str:
        # Without the timeout, which does not affect the outputs of a run.
        settings = (self.command, self.inputs, self.outputs, self.threads, sorted(self.environment.items()))
        rules = (self.target_file, self.fallback, self.partial, sorted(self.bounds.items()))
        if self.then:
            rules += (self.then,)  # type: ignore[assignment]
        if self.jacobian:
            rules += ("jacobian",)  # type: ignore[assignment]
        templates = [(file.path, template) for file, template in zip(self.input_files, self._templates, strict=True)]
        return digest_of(
            [
                format_settings(settings, folder),
                format_settings(rules, folder),
                repr(templates),
                repr(self.output_files),
                *digest_local_files(self.files, self._folder),
                *(
                    data
                    for (program, _), command in (
                        *zip(self._commands, (self.command, self.fallback), strict=False),
                        *zip(self._then, self.then, strict=True),
                    )
                    for data in read_program_files(program, command)
                ),
                *digest_project_files(
                    (*self.command, *self.fallback, *(word for words in self.then for word in words)),
                    self.environment,
                    folder,
                ),
            ]
        )


def _describe_files(reader: Reader) -> str:
    paths = ["standard output" if path is None else repr(path) for path in reader.paths]
    if len(paths) > 1:
        return f"files {', '.join(paths)}"
    return paths[0] if reader.paths == (None,) else f"file {paths[0]}"
