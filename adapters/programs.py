"""The settings of an executable, checked once: program, arguments, templates, paths."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .processes import STDERR, STDOUT
from .protocol import AdapterError, Quantity
from .quantities import did_you_mean, nearest
from .templates import Template, TemplateError

_LIKENESS = 0.8  # of names of files: many end alike


@dataclass(frozen=True)
class InputFile:
    """A file written before each run.

    Parameters
    ----------
    template : text file with fields, such as ``{depth[1]:.3f}``; relative to the model's `search_path`.
    path : where to write it, relative to the run's directory.
    """

    template: Path
    path: str


@dataclass(frozen=True)
class OutputFile:
    """A file read after each run, as numbers.

    Parameters
    ----------
    path : where the program writes it, relative to the run's directory; None for standard output.
    outputs : names of the quantities that it holds, in its order; None for all, in the model's order.
    skip_lines : how many lines to pass over at its start.
    """

    path: str | None = None
    outputs: tuple[str, ...] | None = None
    skip_lines: int = 0

    def select(self, quantities: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
        """Pick those of `quantities` that the file holds, in its order."""
        if self.outputs is None:
            return quantities
        known = {quantity.name: quantity for quantity in quantities}
        return tuple(known[name] for name in self.outputs)


def find_program(command: tuple[str, ...], folder: Path) -> Path:
    """Find the absolute path of the program; links are kept, since some programs look at their name."""
    if not command or not command[0]:
        raise AdapterError("command", "must name a program, but is empty")
    for word in command:
        if "\0" in word:
            raise AdapterError("command", f"{word!r} holds a null character")
    name = command[0]
    if os.sep not in name:
        found = shutil.which(name)
        if found is None:
            beside = f"; for the file beside the config, write './{name}'" if (folder / name).is_file() else ""
            raise AdapterError("command", f"no program {name!r} on PATH{beside}")
        return Path(found).absolute()
    path = Path(os.path.normpath(folder / name))
    if not path.is_file():
        raise AdapterError("command", f"there is no file {path}{_neighbour(path)}")
    if not os.access(path, os.X_OK):
        raise AdapterError("command", f"{path} is not executable; chmod +x makes it so")
    return path


def load_arguments(command: tuple[str, ...], inputs: tuple[Quantity, ...]) -> tuple[Template, ...]:
    """Read the arguments, without the program, as templates."""
    return tuple(_checked(f"command[{i}]", word, inputs) for i, word in enumerate(command[1:], start=1))


def load_template(setting: str, path: Path, inputs: tuple[Quantity, ...]) -> Template:
    """Read a template and check its fields."""
    try:
        text = path.read_bytes().decode()  # as bytes: line ends stay as they are
    except FileNotFoundError as error:
        raise AdapterError(setting, f"there is no file {path}{_neighbour(path)}") from error
    except OSError as error:
        raise AdapterError(setting, f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AdapterError(setting, f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    return _checked(setting, text, inputs, f"{path}, ")


def check_paths(input_files: tuple[InputFile, ...], output_files: tuple[OutputFile, ...]) -> None:
    """Raise `AdapterError` if a path leaves the run's directory, or two files have the same."""
    taken = {PurePosixPath(STDOUT): "standard output", PurePosixPath(STDERR): "standard error"}
    for i, written in enumerate(input_files):
        setting = f"input_files[{i}].path"
        path = _inside(setting, written.path)
        if path in taken:
            raise AdapterError(setting, f"{written.path!r} is taken by {taken[path]}")
        taken[path] = setting
    for i, read in enumerate(output_files):
        if read.path is None:
            continue
        setting = f"output_files[{i}].path"
        # If the program did not write it, what we wrote would be read as its result.
        owner = taken.get(_inside(setting, read.path))
        if owner is not None:
            hint = "; for standard output, leave the path out" if owner == "standard output" else ""
            raise AdapterError(setting, f"{read.path!r} is taken by {owner}{hint}")


def check_output_files(files: tuple[OutputFile, ...], outputs: tuple[Quantity, ...]) -> None:
    """Raise `AdapterError` unless the files hold each output exactly once."""
    names = [quantity.name for quantity in outputs]
    source: dict[str, str] = {}
    for i, file in enumerate(files):
        setting = f"output_files[{i}].outputs"
        if file.skip_lines < 0:
            raise AdapterError(f"output_files[{i}].skip_lines", f"must not be negative; it is {file.skip_lines}")
        for name in names if file.outputs is None else file.outputs:
            if name not in names:
                raise AdapterError(setting, f"{name!r} is no output; {did_you_mean(name, names)}")
            if name in source:
                raise AdapterError(setting, f"{name!r} is read already by {source[name]}")
            source[name] = setting
    missing = [name for name in names if name not in source]
    if missing:
        raise AdapterError("output_files", f"{missing[0]!r} is an output, but no file holds it")


def program_files(program: str, command: tuple[str, ...]) -> Iterator[bytes]:
    """Give the bytes of the program and of each file that an argument names by its absolute path."""
    for path in (Path(program), *(Path(word) for word in command[1:] if word.startswith(os.sep))):
        if not path.is_file():
            continue
        try:
            yield path.read_bytes()
        except PermissionError:  # a licensed code may be executable, yet not readable
            about = path.stat()
            yield f"{about.st_size} bytes of {about.st_mtime_ns} ns".encode()


def _checked(setting: str, text: str, inputs: tuple[Quantity, ...], where: str = "") -> Template:
    try:
        template = Template(text)
        template.check(inputs)
    except TemplateError as error:
        raise AdapterError(setting, f"{where}{error}") from error
    return template


def _inside(setting: str, path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if "\0" in path or pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise AdapterError(setting, f"{path!r} must be a file inside the run's directory: relative, and without '..'")
    return pure


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f", nor a directory {path.parent}"
    near = nearest(path.name, [entry.name for entry in path.parent.iterdir()], _LIKENESS)
    return f"; did you mean {near!r}?" if near is not None else ""
