"""Descriptions of settings by strings, by which files recognise equal settings, likelihoods and functions."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from invgp.core.backend import to_numpy
from invgp.core.kernels import Kernel

MAX_LISTED = 6  # numbers: longer arrays are described by their shape and a hash
MAX_DEPTH = 12  # of values in values
FUNCTION = "the function "
STANDARD = sys.stdlib_module_names - {"__main__"}
INSTALLED = {"site-packages", "dist-packages"}  # directories of packages
PLAIN = (type(None), bool, int, float, complex, str, bytes, Path)

# Ends of the names of what belongs to the code of a function or class. They are followed by the parts of a value.
CODE = " (code)"
OBJECT = " (object)"  # whose method the function is
KINDS_OF_CODE = (CODE, OBJECT, " (global ", " (enclosed ", " (default ", " (constant ")


def is_from_code(name: str) -> bool:
    """Whether a description by `describe_value` belongs to the code of a function or class.

    Parameters
    ----------
    name : str
        Name of the description.

    Returns
    -------
    bool
    """
    return any(kind in name for kind in KINDS_OF_CODE)


def describe_value(name: str, value: Any, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """Describe a value by strings that are equal if and only if (up to hash collisions) the values are equal.

    A function is described by its name, a digest of its code, its default values, the variables that it encloses, the
    object whose method it is, and the global variables that it uses: values, and functions and classes of the user,
    which are described in the same way. An object is described by its attributes and, if its class is the user's, by
    the methods and constants of the class. The following is left out: code of invgp, of the standard library and of
    installed packages, private attributes of their objects that are not arrays, and what a function finds as an
    attribute of a module.

    Parameters
    ----------
    name : str
        Name of the value.
    value : Any
        An array, number, string, sequence, function or object.
    leave_out : sequence of str
        Attributes of an object to ignore.

    Returns
    -------
    dict of str to str
        Descriptions by name; the attributes of an object have dotted names.
    """
    description = _Description()
    description.add(name, value, leave_out)
    return description.texts


class _Description:
    """Descriptions of a value and its parts.

    Attributes
    ----------
    texts : dict of str to str
        Descriptions by name.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._within: list[Any] = []  # the values that contain the present one
        self._functions: list[Any] = []  # those that are described already

    def add(self, name: str, value: Any, leave_out: Sequence[str] = ()) -> None:
        """Describe a value, except for some attributes."""
        text = _describe_simple(value)
        if text is None and (len(self._within) > MAX_DEPTH or any(value is one for one in self._within)):
            text = f"a {type(value).__name__}"
        if text is not None:
            self.texts[name] = text
            return
        self._within.append(value)
        if isinstance(value, Mapping):
            self.texts[name] = str(len(value))
            self._add_all({f"{name}[{part!r}]": inner for part, inner in value.items()})
        elif isinstance(value, Sequence):
            self.texts[name] = str(len(value))
            self._add_all({f"{name}[{i}]": inner for i, inner in enumerate(value)})
        elif callable(value) and hasattr(value, "__qualname__"):
            self.texts[name] = f"{FUNCTION}{value.__qualname__}"
            self._add_code(name, value)
        else:
            self.texts[name] = type(value).__name__
            parts = _attributes(value).items()
            self._add_all({f"{name}.{part}": inner for part, inner in parts if part not in leave_out})
            self._add_class(name, type(value))
        self._within.pop()

    def _add_all(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.add(name, value)

    def _add_class(self, name: str, kind: type) -> None:
        """Describe the methods and constants of a class of the user."""
        for base in reversed(kind.__mro__):
            for part, member in (vars(base) if _is_own(base.__module__) else {}).items():
                function = _function_of(member)
                if function is not None and (not _is_special(part) or part == "__call__"):
                    self._add_code(f"{name}.{part}", function)
                elif isinstance(member, PLAIN) and not _is_special(part):
                    self.add(f"{name} (constant {part})", member)

    def _add_code(self, name: str, function: Callable[..., Any]) -> None:
        """Describe the code of a function or class, once, and the values that the code uses."""
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, ModuleType):
            self.add(name + OBJECT, owner)
        plain = inspect.unwrap(function)
        plain = plain.__func__ if isinstance(plain, MethodType) else plain
        if any(plain is one for one in self._functions):
            return
        self._functions.append(plain)
        if isinstance(plain, type):
            self._add_class(name, plain)
            return
        if isinstance(plain, FunctionType) and _is_own(plain.__module__):
            self.texts[name + CODE] = _digest(_code(plain))
            self._add_all(_used_values(name, plain))


def _describe_simple(value: Any) -> str | None:
    """Describe a value without parts that need descriptions of their own; None for other values."""
    text = None
    if isinstance(value, Kernel):
        text = json.dumps(value.describe())
    elif is_array_api_obj(value):
        text = _describe_array(to_numpy(value))
    elif isinstance(value, PLAIN):
        text = repr(value)
    elif hasattr(type(value), "__array__"):
        text = _describe_array(np.asarray(value))
    elif isinstance(value, Set):
        text = f"{{{', '.join(sorted(map(repr, value)))}}}"
    elif isinstance(value, ModuleType):
        text = f"the module {value.__name__}"
    elif isinstance(value, list | tuple) and _is_plain(value):
        text = _describe_numbers(value)
    elif not isinstance(value, Mapping | Sequence) and not callable(value) and _top_of(type(value)) in STANDARD:
        text = repr(value)
        text = f"a {type(value).__name__}" if " at 0x" in text else text
    return text


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object by name, also those in slots; only public ones for a class of a package."""
    if isinstance(value, partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    names = [name for kind in type(value).__mro__ for name in np.atleast_1d(getattr(kind, "__slots__", ())).tolist()]
    found = {name: getattr(value, name) for name in names if not _is_special(name) and hasattr(value, name)}
    found |= getattr(value, "__dict__", {})
    if _is_own(type(value).__module__) or _top_of(type(value)) == "invgp":
        return found
    return {name: one for name, one in found.items() if not name.startswith("_") or is_array_api_obj(one)}


def _used_values(name: str, function: FunctionType) -> dict[str, Any]:
    """Return default values and enclosed and global variables of a function by the names of their descriptions."""
    used = {f"{name} (default {i})": one for i, one in enumerate(function.__defaults__ or ())}
    used |= {f"{name} (default {part})": one for part, one in (function.__kwdefaults__ or {}).items()}
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            used[f"{name} (enclosed {variable})"] = cell.cell_contents
    known = function.__globals__
    for variable in sorted(set(_names(function.__code__)) & known.keys()):
        if _is_value_or_own(known[variable]):
            used[f"{name} (global {variable})"] = known[variable]
    return used


def _is_value_or_own(value: Any) -> bool:
    """Whether a global variable is described: a value, or a function or class of the user."""
    if isinstance(value, (*PLAIN, Mapping, Set, Sequence, partial)) or is_array_api_obj(value):
        return True
    named = callable(value) and hasattr(value, "__qualname__")
    return _is_own((getattr(value, "__module__", None) if named else type(value).__module__) or "builtins")


def _is_own(module: str | None) -> bool:
    """Whether a module is the user's: not of invgp, of the standard library or of an installed package."""
    top = (module or "__main__").partition(".")[0]
    if top == "invgp" or top in STANDARD:
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return file is None or not INSTALLED & set(Path(file).parts)


def _top_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _function_of(member: Any) -> FunctionType | None:
    """Return the function of a method, property or class method; None for other members of a class."""
    for attribute, kinds in (("fget", property), ("__func__", (staticmethod, classmethod)), ("func", cached_property)):
        if isinstance(member, kinds):
            member = getattr(member, attribute)
    member = inspect.unwrap(member) if callable(member) else member
    return member if isinstance(member, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code uses, also in functions in it."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)


def _code(function: FunctionType) -> str:
    """Return the source without comments and layout; if it cannot be read, and for lambda expressions, the bytecode.

    Bytecode depends on the version of Python.
    """
    if function.__name__ != "<lambda>":
        with suppress(OSError, TypeError, SyntaxError):
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            body = getattr(tree.body[0], "body", [])
            if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                del body[0]  # the docstring
            return ast.dump(tree)
    return _bytecode(function.__code__)


def _bytecode(code: CodeType) -> str:
    constants = [_bytecode(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _describe_numbers(values: Sequence[Any]) -> str:
    """Describe numbers as an array, and strings or kernels as a tuple."""
    try:
        return _describe_array(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        texts = [json.dumps(one.describe()) if isinstance(one, Kernel) else repr(one) for one in values]
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def _is_plain(value: Any) -> bool:
    """Whether a value, or all elements of a sequence, are numbers, strings or kernels."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, (*PLAIN, Kernel, np.generic))


def _describe_array(array: np.ndarray[Any, Any]) -> str:
    if array.size <= MAX_LISTED:
        return str(array.tolist())
    data = repr(array.tolist()).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes()
    return f"the array {array.shape} of {_digest(data)}"


def _digest(data: str | bytes) -> str:
    return f"SHA-256 {hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:12]}"
