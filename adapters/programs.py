"""The settings of an executable: checks of program, arguments, templates and paths, and digests."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .pest.pest_template import PestTemplate, named_parameters
from .processes import STDERR, STDOUT
from .protocol import AdapterError, Quantity
from .quantities import closest_match, did_you_mean
from .readers.reader import Reader, select
from .templates import InputTemplate, Template, TemplateError

_PATH_END = re.compile(r"[\s'\",:;]")  # in an argument or a variable
_PATTERN = re.compile(r"[*?\[]")
_SIMILARITY = 0.8  # of file names: many have the same ending


@dataclass(frozen=True)
class InputFile:
    """A file that is written before each run.

    Parameters
    ----------
    template : Path or InputTemplate
        Template file, relative to the `search_path` of the model, or a template.
    path : str
        File to write, relative to the run directory.
    format : str
        Format of a template file: ``"plain"`` with fields such as ``{depth[1]:.3f}``, or ``"tpl"`` for PEST.
    """

    template: Path | InputTemplate
    path: str
    format: str = "plain"


@dataclass(frozen=True)
class LocalFile:
    """A file, or a directory with its content, that is copied or linked into each run directory.

    Parameters
    ----------
    source : Path
        The file, relative to the `search_path` of the model.
    path : str
        Its place, relative to the run directory; by default its own name.
    link : bool
        Whether to link it instead of copying it. If the program writes to a link, the original is changed.
    """

    source: Path
    path: str = ""
    link: bool = False

    @property
    def place(self) -> PurePosixPath:
        """Its place, relative to the run directory."""
        return PurePosixPath(self.path or self.source.name)

    def provide(self, folder: Path, directory: Path) -> None:
        """Copy or link the file from `folder` into a run directory."""
        source, place = (folder / self.source).absolute(), directory / self.place
        place.parent.mkdir(parents=True, exist_ok=True)
        if self.link:
            place.symlink_to(source)
        elif source.is_dir():
            if directory.resolve().is_relative_to(source.resolve()):
                # A copy would contain itself.
                raise OSError(f"the directory {str(self.source)!r} is copied for each run, but runs are inside it")
            shutil.copytree(source, place, dirs_exist_ok=True)
        else:
            shutil.copy(source, place)


def find_program(setting: str, command: tuple[str, ...], folder: Path) -> Path:
    """Return the absolute path of the program. Links are not resolved, because some programs use their name."""
    if not command or not command[0]:
        raise AdapterError(setting, "must name a program, but is empty")
    for word in command:
        if "\0" in word:
            raise AdapterError(setting, f"{word!r} holds a null character")
    name = command[0]
    if os.sep not in name:
        found = shutil.which(name)
        if found is None:
            beside = f"; for the file beside the config, write './{name}'" if (folder / name).is_file() else ""
            raise AdapterError(setting, f"no program {name!r} on PATH{beside}")
        return Path(found).absolute()
    path = Path(os.path.normpath(folder / name))
    if not path.is_file():
        raise AdapterError(setting, f"there is no file {path}{_suggest_file(path)}")
    if not os.access(path, os.X_OK):
        raise AdapterError(setting, f"{path} is not executable; chmod +x makes it so")
    return path


def load_arguments(setting: str, command: tuple[str, ...], inputs: tuple[Quantity, ...]) -> tuple[Template, ...]:
    """Return the arguments, without the program, as templates."""
    arguments = []
    for i, word in enumerate(command[1:], start=1):
        try:
            arguments.append(Template(word))
            arguments[-1].check(inputs)
        except TemplateError as error:
            raise AdapterError(f"{setting}[{i}]", str(error)) from error
    return tuple(arguments)


def load_template(setting: str, file: InputFile, folder: Path, inputs: tuple[Quantity, ...]) -> InputTemplate:
    """Return a template whose fields were checked."""
    if not isinstance(file.template, Path):
        template, where = file.template, ""
    else:
        path = folder / file.template
        text, where = _read_template(f"{setting}.template", path), f"{path}, "
    if file.format not in ("plain", "tpl"):
        raise AdapterError(f"{setting}.format", f"must be 'plain' or 'tpl'; it is {file.format!r}")
    try:
        if where:
            template = Template(text) if file.format == "plain" else PestTemplate(text, named_parameters(inputs))
        template.check(inputs)
    except TemplateError as error:
        raise AdapterError(f"{setting}.template", f"{where}{error}") from error
    return template


def _read_template(setting: str, path: Path) -> str:
    try:
        return path.read_bytes().decode()  # as bytes: line ends stay as they are
    except FileNotFoundError as error:
        raise AdapterError(setting, f"there is no file {path}{_suggest_file(path)}") from error
    except OSError as error:
        raise AdapterError(setting, f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AdapterError(setting, f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def expand_files(files: tuple[LocalFile, ...], folder: Path) -> tuple[LocalFile, ...]:
    """Return the files, with each pattern such as ``data/*.dat`` replaced by the files that it matches, in order.

    With a `path`, they are placed in the directory of this name; otherwise each has its own name.
    """
    found: list[LocalFile] = []
    for i, file in enumerate(files):
        pattern = str(file.source)
        if not _PATTERN.search(pattern) or (folder / file.source).exists():
            found.append(file)
            continue
        base = Path(os.sep) if file.source.is_absolute() else folder
        matches = sorted(base.glob(pattern.lstrip(os.sep) if file.source.is_absolute() else pattern))
        if not matches:
            raise AdapterError(f"files[{i}].source", f"no file matches {str(base / pattern)!r}")
        found += (
            LocalFile(match, str(PurePosixPath(file.path) / match.name) if file.path else "", file.link)
            for match in matches
        )
    return tuple(found)


def check_files(files: tuple[LocalFile, ...], folder: Path) -> None:
    """Raise `AdapterError` unless the files exist and their places are inside the run directory."""
    for i, file in enumerate(files):
        source = folder / file.source
        if not (source.is_file() or source.is_dir()):
            raise AdapterError(f"files[{i}].source", f"there is no file {source}{_suggest_file(source)}")
        if not os.access(source, os.R_OK):
            raise AdapterError(f"files[{i}].source", f"{source} cannot be read")
        _check_inside(f"files[{i}].path", str(file.place))


def check_paths(
    input_files: tuple[InputFile, ...], output_paths: Mapping[str, str], files: tuple[LocalFile, ...]
) -> None:
    """Raise `AdapterError` if a path is outside the run directory, or if two files have the same path.

    Parameters
    ----------
    input_files : tuple of InputFile
    output_paths : mapping of str to str
        Path by setting, for the files that the program writes.
    files : tuple of LocalFile
    """
    taken = {PurePosixPath(STDOUT): "standard output", PurePosixPath(STDERR): "standard error"}
    placed = [(f"files[{i}].path", str(file.place)) for i, file in enumerate(files)]
    linked = {file.place: f"files[{i}].path" for i, file in enumerate(files) if file.link}
    for setting, path in (*placed, *((f"input_files[{i}].path", file.path) for i, file in enumerate(input_files))):
        pure = _check_inside(setting, path)
        # A file in a linked directory would be written outside the run directory.
        owner = taken.get(pure) or next((linked[parent] for parent in pure.parents if parent in linked), None)
        if owner is not None:
            raise AdapterError(setting, f"{path!r} is taken by {owner}")
        taken[pure] = setting
    for setting, path in output_paths.items():
        # If the program did not write the file, our own file would be read as its result.
        pure = _check_inside(setting, path)
        owner = taken.get(pure) or next((taken[parent] for parent in pure.parents if parent in linked), None)
        if owner is not None:
            hint = "; for standard output, leave the path out" if owner == "standard output" else ""
            raise AdapterError(setting, f"{path!r} is taken by {owner}{hint}")


def check_output_files(files: tuple[Reader, ...], outputs: tuple[Quantity, ...]) -> None:
    """Raise `AdapterError` unless the files contain each output exactly once."""
    names = [quantity.name for quantity in outputs]
    source: dict[str, str] = {}
    for i, file in enumerate(files):
        setting = f"output_files[{i}].outputs"
        skipped = getattr(file, "skip_lines", 0)
        if skipped < 0:
            raise AdapterError(f"output_files[{i}].skip_lines", f"must not be negative; it is {skipped}")
        for name in names if file.outputs is None else file.outputs:
            if name not in names:
                raise AdapterError(setting, f"{name!r} is no output; {did_you_mean(name, names)}")
            if name in source:
                raise AdapterError(setting, f"{name!r} is read already by {source[name]}")
            source[name] = setting
    missing = [name for name in names if name not in source]
    if missing:
        raise AdapterError("output_files", f"{missing[0]!r} is an output, but no file holds it")
    for i, file in enumerate(files):
        try:
            file.check(select(file, outputs))
        except AdapterError as error:
            raise AdapterError(f"output_files[{i}].{error.setting}", error.sentence) from error


def format_settings(settings: object, folder: Path | None) -> str:
    """Return settings as text for a digest, with paths below `folder` relative to it, so that a project can be moved.

    The path of a directory is not changed, because its content is not part of the digest and may differ in a copy.

    Parameters
    ----------
    settings : object
        Strings, and tuples and lists of them, may contain paths.
    folder : Path, optional
        Directory of the project; None leaves all paths unchanged.
    """
    return repr(settings if folder is None else _make_relative(settings, folder))


def digest_project_files(
    command: tuple[str, ...], environment: Mapping[str, str], folder: Path | None
) -> Iterator[bytes]:
    """Yield a digest of each file whose path `format_settings` makes relative.

    Files that `read_program_files` reads are left out.

    Parameters
    ----------
    command : tuple of str
        Program and arguments.
    environment : mapping of str to str
        Environment variables of the program.
    folder : Path, optional
        Directory of the project; None yields nothing.
    """
    if folder is None:
        return
    words = [word for word in command if not os.path.isfile(word)]  # noqa: PTH113 - a word need not be a path
    for word in (*words, *(value for _, value in sorted(environment.items()))):
        for _, path in _paths_below(folder, word):
            if path is not None and path.is_file():
                yield _digest_file(path) if os.access(path, os.R_OK) else _read_bytes(path)


def _make_relative(settings: object, folder: Path) -> object:
    if isinstance(settings, tuple | list):
        return type(settings)(_make_relative(item, folder) for item in settings)
    if not isinstance(settings, str):
        return settings
    text = settings
    for start, path in reversed(_paths_below(folder, settings)):
        if path is None or not path.is_dir():
            text = f"{text[:start]}.{text[start + len(str(folder)) :]}"
    return text


def _paths_below(folder: Path, text: str) -> list[tuple[int, Path | None]]:
    """Return the position of each path below a directory in a text, and the longest one that exists, or None."""
    found: list[tuple[int, Path | None]] = []
    for match in re.finditer(rf"(?:\A|(?<=['\"=:,])){re.escape(str(folder) + os.sep)}", text):
        ends = [len(text), *(end.start() for end in reversed([*_PATH_END.finditer(text, match.end())]))]
        paths = (Path(text[match.start() : end]) for end in ends)
        found.append((match.start(), next((path for path in paths if os.path.exists(path)), None)))  # noqa: PTH110
    return found


def read_program_files(program: str, command: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the bytes of the program and of each file that an argument names by its absolute path."""
    for path in (Path(program), *(Path(word) for word in command[1:] if word.startswith(os.sep))):
        if path.is_file():
            yield _read_bytes(path)


def digest_local_files(files: tuple[LocalFile, ...], folder: Path) -> Iterator[bytes]:
    """Yield the place and a digest of each file that is copied or linked; the files may be large."""
    for file in files:
        source = folder / file.source
        for path in sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]:
            yield str(file.place / path.relative_to(source)).encode()
            yield _digest_file(path)


def _digest_file(path: Path) -> bytes:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError:  # a licensed program may be executable but not readable
        file = path.stat()
        return f"{file.st_size} bytes of {file.st_mtime_ns} ns".encode()


def _check_inside(setting: str, path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if "\0" in path or pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise AdapterError(setting, f"{path!r} must be a file inside the run's directory: relative, and without '..'")
    return pure


def _suggest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f", nor a directory {path.parent}"
    near = closest_match(path.name, [entry.name for entry in path.parent.iterdir()], _SIMILARITY)
    return f"; did you mean {near!r}?" if near is not None else ""
