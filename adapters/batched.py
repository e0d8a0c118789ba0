"""A simulator that is a program for many rows: it reads a table of inputs and writes a table of outputs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import numpy as np

from .directories import RunDirectory, check_labels
from .processes import STDERR, STDOUT, make_environment, run_process
from .programs import digest_project_files, find_program, format_settings, read_program_files
from .protocol import BATCH, GAVE_OUTPUTS, AdapterError, Evaluations, Floats, Quantity, RunContext, Status
from .quantities import check_batch, check_quantities, column_name, columns_of, digest_of, size_of
from .readers import read_numbers, read_text
from .readers.text import LINE_LIMIT, check_line_count
from .run_errors import (
    RunError,
    check_ending,
    check_inputs,
    check_intact,
    check_outputs,
    check_settings,
    check_success,
    quote_output,
    start_error,
)

ROWS_TRIED_SINGLY = 20
"""Rows of a failed batch that are run one by one. If all of them fail, the rest is not run."""

_SEPARATORS = {"csv": ",", "table": " "}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchedModel:
    """A program that is started once for many rows: it reads a table of inputs and writes a table of outputs.

    The input file has a line of column names, such as ``depth[1],depth[2],elevation``, and one line per run. The output
    file has one line per run, in the same order, with the outputs separated by commas or white space. Blank lines and
    lines that start with ``#`` are ignored. For a failed run, the line contains ``nan``, or consists of the word
    ``nan``.

    If the program fails for a batch, its rows are run one by one, so that one bad row does not affect the others; if
    the first `ROWS_TRIED_SINGLY` of them fail, the rest is not run. After a timeout the rows are not repeated. A row
    with an input that is not finite is left out. The directory of a batch is ``context.directory / label`` of its first
    row, with the suffix ``-batch`` if it has several rows. It is removed if the program succeeds. No shell is involved.

    Parameters
    ----------
    command : tuple of str
        Program and arguments. A program with a path separator is relative to `search_path`; a bare name is searched on
        ``PATH``. The program runs in the directory of its batch.
    inputs, outputs : tuple of Quantity
    input_file, output_file : str
        File names, without a directory.
    format : str
        Format of the input file: ``"csv"``, or ``"table"`` with spaces between columns and ``#`` before their names.
    skip_lines : int
        Number of lines to skip at the start of the output file, for example a line of names.
    rows : int
        Largest number of rows of a batch.
    partial : bool
        Whether a run that lacks some of its outputs succeeds; these are NaN.
    timeout : float, optional
        Time limit for a batch in s; None for no limit.
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
    input_file: str = "inputs.csv"
    output_file: str = "outputs.csv"
    format: str = "csv"
    skip_lines: int = 0
    rows: int = 500
    timeout: float | None = None
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
        self._check_files()
        if self.rows < 1:
            raise AdapterError("rows", f"must be at least 1; it is {self.rows!r}")
        # The only assignments to a frozen instance: values that the settings determine.
        object.__setattr__(self, "name", self.name or program.name)
        object.__setattr__(self, "_program", str(program))
        object.__setattr__(self, "digest", self._compute_digest(folder))

    @property
    def rows_per_task(self) -> int:
        """Number of rows per task: those of one batch."""
        return self.rows

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Run the program for the rows of `values`, shape (B, I), in batches of at most `rows`."""
        values = check_batch(self.inputs, values, context)
        check_labels(context)
        results = _Results(context.labels, self.outputs, partial=self.partial)
        usable = []
        for i, row in enumerate(values):
            try:
                check_inputs(self.inputs, row)
                usable.append(i)
            except RunError as failure:
                results.fail([i], failure)
        for start in range(0, len(usable), self.rows):
            self._run(usable[start : start + self.rows], values, context, results)
        return results.evaluations()

    def _run(self, chosen: list[int], values: Floats, context: RunContext, results: _Results) -> None:
        """Run some rows together or, if that fails, one by one."""
        first = context.labels[chosen[0]]
        name = first if len(chosen) == 1 else f"{first}{BATCH}"
        directory = RunDirectory((context.directory / name).absolute())
        try:
            results.set(chosen, self._run_once(values[chosen], directory))
        except RunError as failure:
            if len(chosen) > 1 and failure.status not in (Status.TIMEOUT, Status.NOT_STARTED):
                _log.warning(
                    "%s failed for a batch of %d, whose rows now run singly: %s", self.name, len(chosen), failure
                )
                self._run_singly(chosen, values, context, results)
            else:
                where = f" (in a batch of {len(chosen)})" if len(chosen) > 1 else ""
                results.fail(chosen, RunError(failure.status, f"{failure}; directory: {directory.path}"), where)
                return
        directory.remove()  # if the batch failed, the messages of its rows give the cause

    def _run_singly(self, chosen: list[int], values: Floats, context: RunContext, results: _Results) -> None:
        for done, i in enumerate(chosen):
            self._run([i], values, context, results)
            if done + 1 == ROWS_TRIED_SINGLY < len(chosen) and not any(
                results.has_succeeded(j) for j in chosen[:ROWS_TRIED_SINGLY]
            ):
                cause = f"not run, since the batch failed and so did its first {ROWS_TRIED_SINGLY} rows"
                results.fail(chosen[ROWS_TRIED_SINGLY:], RunError(Status.NOT_STARTED, cause))
                return

    def _run_once(self, values: Floats, directory: RunDirectory) -> Floats:
        """Start the program once for inputs (B, I); return the outputs (B, P)."""
        environment = make_environment(self.environment, self.threads)
        try:
            directory.make()
            (directory.path / self.input_file).write_text(self._table(values), encoding="utf-8")
            outcome = run_process([self._program, *self.command[1:]], directory.path, environment, self.timeout)
        except OSError as error:
            raise start_error(error) from error
        try:
            intact = directory.is_intact()  # checked first: a directory that replaced it must not be removed
            check_ending(outcome, self.timeout)
            check_intact(intact=intact)
            check_success(outcome, None)
            return self._read(directory.path, len(values))
        except RunError as failure:
            raise RunError(failure.status, f"{failure}{quote_output(outcome)}") from failure

    def _read(self, directory: Path, rows: int) -> Floats:
        """Return the numbers in the output file, shape (rows, P)."""
        try:
            text = read_text(directory, self.output_file)
            return read_rows(text, rows, size_of(self.outputs), self.skip_lines)
        except FileNotFoundError as error:
            raise RunError(Status.UNREADABLE, f"file {self.output_file!r} was not written") from error
        except (OSError, ValueError) as error:
            raise RunError(Status.UNREADABLE, f"file {self.output_file!r}: {error}") from error

    def _table(self, values: Floats) -> str:
        separator = _SEPARATORS[self.format]
        names = separator.join(column_name(*column) for column in columns_of(self.inputs))
        rows = (separator.join(map(repr, row)) for row in values.tolist())
        return "\n".join([names if self.format == "csv" else f"# {names}", *rows, ""])

    def _check_files(self) -> None:
        if self.format not in _SEPARATORS:
            raise AdapterError("format", f"must be 'csv' or 'table'; it is {self.format!r}")
        if self.skip_lines < 0:
            raise AdapterError("skip_lines", f"must not be negative; it is {self.skip_lines}")
        taken = {STDOUT, STDERR}
        for setting in ("input_file", "output_file"):
            name = getattr(self, setting)
            if name in ("", "..") or Path(name).name != name or "\0" in name:
                raise AdapterError(setting, f"{name!r} must be the name of a file, without a directory")
            if name in taken:
                raise AdapterError(setting, f"{name!r} is taken by another file")
            taken.add(name)
        for name, label in columns_of(self.inputs):
            if any(mark in column_name(name, label) for mark in (*', \t\n\r"',)):
                raise AdapterError(
                    "inputs",
                    f"{column_name(name, label)!r} cannot be the name of a column: it holds a comma, space or quote",
                )

    @property
    def former_digest(self) -> str:
        """The digest in ledgers of version 1, which contains absolute paths."""
        return self._compute_digest(None)

    def _compute_digest(self, folder: Path | None) -> str:
        # Without timeout and rows, which do not affect the outputs of a run.
        settings = (self.command, self.inputs, self.outputs, self.threads, sorted(self.environment.items()))
        files = (self.input_file, self.output_file, self.format, self.skip_lines, self.partial)
        return digest_of(
            [
                "batched",
                format_settings(settings, folder),
                repr(files),
                *read_program_files(self._program, self.command),
                *digest_project_files(self.command, self.environment, folder),
            ]
        )


class _Results:
    """Outputs, status and message of each row of a batch."""

    def __init__(self, labels: Sequence[str], outputs: tuple[Quantity, ...], *, partial: bool) -> None:
        self._labels, self._partial = labels, partial
        self._quantities = outputs
        self._outputs = np.full((len(labels), size_of(outputs)), np.nan)
        self._status = [Status.OK] * len(labels)
        self._messages = [""] * len(labels)

    def set(self, chosen: list[int], outputs: Floats) -> None:
        """Store the rows of `outputs`, shape (len(chosen), P), that are finite."""
        for i, row in zip(chosen, outputs, strict=True):
            try:
                self._status[i], missing = check_outputs(self._quantities, row, partial=self._partial)
                self._messages[i] = missing and f"run {self._labels[i]}: {missing}"
                self._outputs[i] = row
            except RunError as failure:
                self.fail([i], failure)

    def fail(self, chosen: list[int], failure: RunError, where: str = "") -> None:
        """Store the failure of some rows."""
        for i in chosen:
            self._status[i] = failure.status
            self._messages[i] = f"run {self._labels[i]}{where}: {failure}"

    def has_succeeded(self, i: int) -> bool:
        return self._status[i] in GAVE_OUTPUTS

    def evaluations(self) -> Evaluations:
        return Evaluations(self._outputs, tuple(self._status), tuple(self._messages))


def read_rows(text: str, rows: int, columns: int, skip_lines: int = 0) -> Floats:
    """Read a table of numbers.

    Parameters
    ----------
    text : str
        One line per row. Blank lines and lines that start with ``#`` are ignored. Numbers are read as in
        `read_numbers`. A line with the single word ``nan`` is a row of NaN.
    rows, columns : int
        Required number of rows and columns.
    skip_lines : int
        Number of lines to skip at the start.

    Returns
    -------
    array, shape (rows, columns)

    Raises
    ------
    ValueError
        A word is not a number (the message names the line), the table has another shape, or there are more than
        `LINE_LIMIT` lines without a row.
    """
    check_line_count(text, LINE_LIMIT + skip_lines + rows)
    table = np.empty((rows, columns))
    found = 0
    for position, line in enumerate(StringIO(text), start=1):
        if position <= skip_lines or not line.strip() or line.lstrip().startswith("#"):
            continue
        found += 1
        if found > rows:
            continue
        if line.strip().lower() == "nan":
            table[found - 1] = np.nan
            continue
        try:
            table[found - 1] = read_numbers(line, columns)
        except ValueError as error:
            raise ValueError(f"line {position}: {str(error).removeprefix('line 1: ')}") from error
    if found != rows:
        raise ValueError(f"expected {rows} row{'s' * (rows != 1)}, found {found}")
    return table
