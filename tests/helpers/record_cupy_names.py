"""Write cupy_names.json: the public functions of CuPy with the names of their arguments.

Run it in an environment that has CuPy (`pip install cupy-cuda12x`); a GPU is not needed. The stand-in for CuPy
(cupy_stand_in.py) has exactly these functions.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
from pathlib import Path

PATH = Path(__file__).with_name("cupy_names.json")
MODULES = ("cupy", "cupy.linalg", "cupy.fft")
# This module needs cuBLAS at import: its source is read instead.
UNIMPORTABLE = {"cupyx.scipy.linalg": ("scipy/linalg/_solve_triangular.py", ("solve_triangular",))}
METHODS = "ndarray"


def recorded_names() -> dict[str, dict[str, list[str] | None]]:
    """Return the arguments of each function of each module: "name", "name=" if optional, "/" and "*" as in Python.

    A universal function has None. The methods and attributes of arrays are listed under "ndarray".
    """
    found: dict[str, dict[str, list[str] | None]] = {}
    for module in MODULES:
        members = vars(importlib.import_module(module))
        found[module] = {
            name: _arguments(member)
            for name, member in sorted(members.items())
            if not name.startswith("_") and callable(member) and not inspect.isclass(member)
        }
    cupy = importlib.import_module("cupy")
    found[METHODS] = {name: None for name in sorted(dir(cupy.ndarray)) if not name.startswith("_")}
    package = importlib.util.find_spec("cupyx")
    if package is None or package.origin is None:
        raise SystemExit("record_cupy_names.py: CuPy lacks cupyx")
    for module, (path, names) in UNIMPORTABLE.items():
        tree = ast.parse((Path(package.origin).parent / path).read_text(encoding="utf-8"))
        functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
        found[module] = {name: _arguments_of_source(functions[name]) for name in names}
    found["cupyx"] = {"errstate": _arguments(importlib.import_module("cupyx").errstate)}
    return found


def _arguments(function: object) -> list[str] | None:
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    found: list[str] = []
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            found.append(f"*{one.name}")
        elif one.kind is one.VAR_KEYWORD:
            found.append(f"**{one.name}")
        else:
            if one.kind is one.KEYWORD_ONLY and not any(name.startswith("*") for name in found):
                found.append("*")
            found.append(one.name if one.default is one.empty else f"{one.name}=")
    return found


def _arguments_of_source(arguments: ast.arguments) -> list[str]:
    names = [one.arg for one in arguments.args]
    first = len(names) - len(arguments.defaults)
    return [*names[:first], *(f"{name}=" for name in names[first:])]


if __name__ == "__main__":
    PATH.write_text(json.dumps(recorded_names(), indent=1) + "\n", encoding="utf-8")
