"""Help and completion come at once: they wait for no library that they do not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from invgp.cli import COMMANDS

pytestmark = pytest.mark.processes

HEAVY = (
    "cf_units",
    "dask",
    "joblib",
    "matplotlib",
    "netCDF4",
    "pandas",
    "psutil",
    "pydantic",
    "pyproj",
    "scipy",
    "sklearn",
    "xarray",
)


def run_and_list_modules(*arguments: str, cwd: Path, **environment: str) -> tuple[str, set[str]]:
    """What the command line prints, and the modules that it has loaded by its end."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from invgp.cli import main\nmain()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return result.stdout, set(result.stderr.split())


def test_that_help_waits_for_no_library(tmp_path: Path) -> None:
    reported, modules = run_and_list_modules("--help", cwd=tmp_path)
    for name in COMMANDS:
        assert f"\n  {name} " in reported
    assert not modules & {*HEAVY, "numpy", "rich", "importlib.metadata"}


@pytest.mark.parametrize("name", COMMANDS)
def test_that_help_of_a_command_waits_for_numpy_at_the_most(name: str, tmp_path: Path) -> None:
    reported, modules = run_and_list_modules(name, "--help", cwd=tmp_path)
    assert reported.startswith(f"Usage: invgp {name} ")
    assert "Example" in reported or "Start with: invgp" in reported
    assert not modules & {*HEAVY}


def complete(typed: str, cwd: Path) -> tuple[list[str], set[str]]:
    """What the shell offers after that has been typed."""
    words = typed.split(" ")
    environment = {
        "_INVGP_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    reported, modules = run_and_list_modules(cwd=cwd, **environment)
    return [line.partition(",")[2] for line in reported.splitlines()], modules


def test_that_the_shell_completes_commands_without_loading_them(tmp_path: Path) -> None:
    offered, modules = complete("invgp c", tmp_path)
    assert offered == ["calibrate", "check", "compare", "crossvalidate"]
    assert not modules & {*HEAVY, "numpy", "invgp.cli.check"}


def test_that_the_shell_completes_options(tmp_path: Path) -> None:
    offered, modules = complete("invgp run --w", tmp_path)
    assert offered == ["--without", "--workers", "--watch"]
    assert not modules & {*HEAVY}


def test_that_attributes_are_loaded_on_first_use(tmp_path: Path) -> None:
    code = (
        "import sys, invgp\n"
        "assert 'numpy' not in sys.modules\n"
        "assert {'load', 'invert', 'Problem'} <= set(dir(invgp))\n"
        "assert invgp.Problem.__name__ == 'Problem' and 'numpy' in sys.modules\n"
        "try:\n    invgp.lod\nexcept AttributeError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "module 'invgp' has no attribute 'lod'\n"
