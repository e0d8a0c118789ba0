"""Import of a function by its name, such as ``"package.module:function"``."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .protocol import AdapterError
from .quantities import closest_match, did_you_mean, type_name

# Modules that this process imported from project directories: directory and digest of the file, by module name.
# Several projects may have a `simulator.py`, and a file may be changed during a session.
_imported: dict[str, tuple[Path, str]] = {}


def import_function(reference: str, search_path: Path | None) -> Callable[..., Any]:
    """Import a function by name.

    Parameters
    ----------
    reference : str
        Name such as ``"package.module:function"``.
    search_path : Path, optional
        Directory that is put at the start of ``sys.path``.

    Returns
    -------
    callable

    Raises
    ------
    AdapterError
        There is no such function; the setting is ``function``.
    """
    module_name, colon, attribute = reference.partition(":")
    if not (colon and module_name and attribute) or module_name.startswith("."):
        raise AdapterError("function", f"{reference!r} must read 'package.module:function'")
    module = _import_module(module_name, None if search_path is None else search_path.absolute())
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in vars(found) if callable(getattr(found, name)) and not name.startswith("_")]
            raise AdapterError("function", f"module {module_name!r} has no {attribute!r}; {did_you_mean(part, public)}")
        found = getattr(found, part)
    if not callable(found):
        raise AdapterError("function", f"{reference!r} is {type_name(found)}, which cannot be called")
    return found  # type: ignore[no-any-return]


def _import_module(name: str, folder: Path | None) -> ModuleType:
    if folder is not None:
        if not folder.is_dir():
            raise AdapterError("search_path", f"there is no directory {folder}")
        if sys.path[:1] != [str(folder)]:
            sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]
        _forget_outdated(name, folder)
        if name in _imported and name in sys.modules:
            return sys.modules[name]
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        absent = error.name or ""
        if name != absent and not name.startswith(f"{absent}."):
            raise AdapterError("function", f"{name!r} needs a module {absent!r}, which is not installed") from error
        places = "sys.path" if folder is None else f"{folder} and the rest of sys.path"
        raise AdapterError(
            "function", f"there is no module {absent!r} on {places}{_suggest_module(name, folder)}"
        ) from error
    except Exception as error:
        raise AdapterError("function", f"importing {name!r} raised {type(error).__name__}: {error}") from error
    finally:
        if folder is not None:
            _record_imports(folder)
    if folder is not None:
        _check_origin(name, folder)
    return module


def _forget_outdated(name: str, folder: Path) -> None:
    """Remove a module from the import cache if it is from another project, or if its file has changed."""
    for known, (home, digest) in list(_imported.items()):
        module = sys.modules.get(known)
        moved = home != folder and _find_module(known.partition(".")[0], folder) is not None
        edited = home == folder and known == name and module is not None and _file_digest(module) != digest
        if moved or edited:
            del _imported[known]
            sys.modules.pop(known, None)


def _record_imports(folder: Path) -> None:
    """Record the modules that were imported from `folder`."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(f"{folder}{os.sep}") and _find_module(name.partition(".")[0], folder) is not None:
            _imported.setdefault(name, (folder, _file_digest(module)))


def _check_origin(name: str, folder: Path) -> None:
    top = name.partition(".")[0]
    expected = _find_module(top, folder)
    loaded = getattr(sys.modules[top], "__file__", None)
    if expected is None or loaded is None or Path(loaded).resolve().is_relative_to(folder.resolve()):
        return
    raise AdapterError("function", f"{expected} has the name of a module that is loaded already, {loaded}; rename it")


def _find_module(top: str, folder: Path) -> Path | None:
    for candidate in (folder / f"{top}.py", folder / top / "__init__.py", folder / top):
        if candidate.exists():
            return candidate
    return None


def _file_digest(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return "" if file is None or not Path(file).is_file() else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _suggest_module(name: str, folder: Path | None) -> str:
    if folder is None:
        return ""
    stems = sorted(entry.stem for entry in folder.glob("*.py"))
    near = closest_match(name, stems)
    if near is not None:
        return f"; did you mean {near!r}?"
    return f"; {folder} has {', '.join(repr(stem) for stem in stems)}" if stems else ""
