"""Model command lines of a PEST control file, and the files beside it that they name."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from ..programs import LocalFile
from ..protocol import AdapterError
from .control_sections import SETTING, split_words
from .files import convert_path, find_file

SHELL = "/bin/sh"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SHELL_CHARACTERS = re.compile(r"[|<>&;`$*?~]")
_SHELL_WORD = re.compile(r"[^\s|<>&;()'\"]+")


def needs_shell(line: str) -> bool:
    """Return whether a command line has pipes, redirections or other characters that a shell interprets."""
    return _SHELL_CHARACTERS.search(_QUOTED.sub("", line)) is not None


def split_command(
    line: str, control: Path, model_files: Collection[str]
) -> tuple[tuple[str, ...], tuple[LocalFile, ...]]:
    """Return the program and its arguments, and the files beside the control file that they name.

    Parameters
    ----------
    line : str
        Model command line.
    control : Path
        The control file.
    model_files : collection of str
        Files that templates write and instructions read, relative to the control file.

    Raises
    ------
    AdapterError
        It has an incomplete quote, or starts with a batch file of Windows.
    """
    folder = control.absolute().parent
    words = split_words(line)
    if not words or words[0].startswith(("'", '"')):
        raise AdapterError(SETTING, f"{control}: the model command line {line!r} has a quote without its partner")
    if Path(convert_path(words[0])).suffix.lower() in (".bat", ".cmd"):
        raise AdapterError(
            SETTING,
            f"{control}: the model command line {line!r} is a batch file of Windows; write its commands into a script "
            "that starts with #!/bin/sh, and name that in a copy of the control file",
        )
    program = _find_program_name(words[0], folder)
    if needs_shell(line):
        start = line.find(words[0])
        rest = line[start + len(words[0]) :]
        program = words[0] if needs_shell(words[0]) else program
        if ".." in Path(program).parts and (folder / program).is_file():
            program = str(folder / program)  # a shell runs in the directory of the run
        text = line[:start] + program + _SHELL_WORD.sub(lambda match: _find_path(match[0], folder, model_files), rest)
        named = tuple(_files_beside(_SHELL_WORD.findall(text), folder))
        return (SHELL, "-c", _escape(text)), named
    arguments = [_find_path(word, folder, model_files) for word in words[1:]]
    return (program, *map(_escape, arguments)), tuple(_files_beside(arguments, folder))


def _escape(word: str) -> str:
    """Return a text that stays the same if it is used as a template."""
    return word.replace("{", "{{").replace("}", "}}")


def _files_beside(words: list[str], folder: Path) -> Iterator[LocalFile]:
    for word in dict.fromkeys(words):
        if not Path(word).is_absolute() and ".." not in Path(word).parts and (folder / word).is_file():
            yield LocalFile(Path(word), word)


def _find_path(word: str, folder: Path, model_files: Collection[str]) -> str:
    """Return a word; one with backslashes that is the path of a file has slashes instead."""
    plain = convert_path(word)
    return plain if plain != word and (plain in model_files or (folder / plain).exists()) else word


def _find_program_name(word: str, folder: Path) -> str:
    r"""Return the name of the program; a name of Windows (``bin\MF6.exe``) may be ``bin/mf6`` here."""
    name = convert_path(word)
    names = [name, name[:-4]] if name.lower().endswith(".exe") else [name]
    for possible in names:
        if os.sep not in possible and shutil.which(possible) is not None:
            return possible
        path = find_file(folder, possible)
        if path.is_file():
            if Path(possible).is_absolute():
                return str(path)
            found = os.path.relpath(path, folder)
            return found if os.sep in found else f"./{found}"
    return name
