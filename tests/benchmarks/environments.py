"""Environments of their own for other packages, made once in the user's cache folder, never in the repository."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Where an environment is kept by default."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "invgp" / name


def environment(folder: Path, steps: Sequence[Sequence[str]], modules: Sequence[str], what: str) -> Path:
    """The interpreter of an environment that has some modules, made if it is not there.

    Parameters
    ----------
    steps : requirements for pip; those of a step are installed together.
    what : the packages' name, for messages.

    Raises
    ------
    SystemExit
        If it cannot be made.
    """
    python = folder / "bin" / "python"
    imports = [python, "-W", "ignore", "-c", f"import {', '.join(modules)}"]
    if python.exists() and not subprocess.run(imports, capture_output=True, check=False).returncode:
        return python
    print(f"Installing {', '.join(r for step in steps for r in step)} into {folder} ...", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    for step in steps:
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step]
        installed = subprocess.run(pip, capture_output=True, text=True, check=False)
        if installed.returncode:
            raise SystemExit(f"{what} cannot be installed into {folder}; pip says:\n{installed.stderr[-2000:]}")
    return python


def process_error(what: str, code: int | None, printed: Path) -> SystemExit:
    """To be raised where a process in such an environment ended early: with the end of what it printed."""
    end = printed.read_text(encoding="utf-8", errors="replace")[-2000:]
    return SystemExit(f"{what} ended with exit code {code}; it printed:\n{end}")
