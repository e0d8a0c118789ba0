"""Measure how many public functions have a numpydoc section on their parameters: python tests/benchmarks/docstrings.py.

A function counts if neither it nor its class or module has a leading underscore, if it is at module level or in a
class, and if it has parameters besides `self` and `cls`. A method of a protocol or base class is documented there, for
all classes that implement it. The public API is what the pages `docs/api*.md` list. `--list` prints the functions
without a section; `--api` and `--package` select a part, for example ``invgp.core``.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "invgp": ROOT / "invgp",
    "invgp.adapters": ROOT / "adapters",
    "invgp.forward_models": ROOT / "forward_models",
}
PROTOCOLS = {  # base class or protocol, and the packages with its implementations
    "Likelihood": ("invgp.likelihoods",),
    "Kernel": ("invgp.core.kernels",),
    "Posterior": ("invgp.core.posteriors",),
    "ForwardModel": ("invgp.adapters",),
    "Reader": ("invgp.adapters.readers", "invgp.adapters.pest"),
    "Link": ("invgp.links",),
    "ExactTarget": ("invgp.sampling",),
    "Stationary": ("invgp.core.kernels",),
    "Full": ("invgp.core.posteriors",),
    "MapQuantity": ("invgp.maps.map_quantities",),
    "PriorFunction": ("invgp.maps.prior_functions",),
    "Surrogate": ("invgp.emulation", "invgp.sampling"),
    "InputTemplate": ("invgp.adapters",),
    "PriorDraw": ("invgp.maps.prior_draws",),
    "Pool": ("invgp.execution.pools",),
    "Monitor": ("invgp.execution", "invgp.progress", "invgp.cli", "invgp.validation"),
}
DIRECTIVE = re.compile(r"^\.\. (currentmodule|autofunction|autoclass):: (\S+)", re.MULTILINE)


class Function(NamedTuple):
    """A public function: its module, its name with that of its class, its parameters, and its docstring."""

    module: str
    name: str
    parameters: tuple[str, ...]
    docstring: str

    @property
    def has_section(self) -> bool:
        """Whether the docstring has a section ``Parameters``."""
        return "Parameters\n-----" in self.docstring


def public_functions(module: str, source: str) -> Iterator[Function]:
    """Yield the public functions of the source of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            yield from (_describe(module, one, f"{node.name}.") for one in methods)
        elif isinstance(node, ast.FunctionDef):
            yield _describe(module, node, "")


def _describe(module: str, node: ast.FunctionDef, prefix: str) -> Function:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = tuple(one.arg for one in every if one.arg not in ("self", "cls"))
    return Function(module, prefix + node.name, names, ast.get_docstring(node) or "")


def find_functions() -> list[Function]:
    """List the public functions with parameters of all packages."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if any(part.startswith("_") and part != "__init__" for part in parts) or "-project" in str(path):
                continue
            module = ".".join((package, *(part for part in parts if part != "__init__")))
            found += public_functions(module, path.read_text(encoding="utf-8"))
    return [one for one in found if one.parameters and not one.name.rpartition(".")[2].startswith("_")]


def documented_functions(functions: list[Function]) -> set[Function]:
    """Select the functions with a section, and the implementations of methods that a protocol documents."""
    documented = {one for one in functions if one.has_section}
    for protocol, packages in PROTOCOLS.items():
        methods = {one.name.partition(".")[2] for one in documented if one.name.startswith(f"{protocol}.")}
        documented |= {
            one
            for one in functions
            if one.name.partition(".")[2] in methods
            and any(f"{one.module}.".startswith(f"{package}.") for package in packages)
        }
    return documented


def api_names() -> set[tuple[str, str]]:
    """Collect the modules and names of the functions and classes that the pages of the API list."""
    names = set()
    for page in sorted((ROOT / "docs").glob("api*.md")):
        current = ""
        for kind, name in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            if kind == "currentmodule":
                current = name
                continue
            module, _, short = name.rpartition(".")
            found = getattr(importlib.import_module(module or current), short)
            names.add((found.__module__, short))
    return names


def main() -> None:
    """Print the shares, and on request the functions without a section."""
    parser = argparse.ArgumentParser(description="Count the public functions with a section on their parameters.")
    parser.add_argument("--list", action="store_true", help="list the functions without a section")
    parser.add_argument("--api", action="store_true", help="count only the public API")
    parser.add_argument("--package", default="invgp", help="module or package to count (default: invgp)")
    options = parser.parse_args()
    functions, names = find_functions(), api_names()
    documented = documented_functions(functions)
    api = [one for one in functions if (one.module, one.name.partition(".")[0]) in names]
    chosen = api if options.api else [one for one in functions if f"{one.module}.".startswith(f"{options.package}.")]
    if options.list:
        for one in chosen:
            if one not in documented:
                print(f"{one.module}.{one.name}({', '.join(one.parameters)})")
    for words, some in (("public API", api), (f"all of {options.package}", chosen)):
        count = sum(one in documented for one in some)
        print(f"{words}: {count} of {len(some)} ({count / max(len(some), 1):.1%})")


if __name__ == "__main__":
    main()
