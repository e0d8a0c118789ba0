"""Files that the model of a PEST case may read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

_OF_PEST = (".pst", ".tpl", ".ins")
_RESULTS = re.compile(
    r"\.(rec|rei|res|sen|seo|par|parb|jco|jcb|jac|jst|mtt|rst|rmr|rns|rnj|rnu|svd|cnd|fpr|ofr|log|rmx|drf|pfm|ptr|pest)"
    r"(\.\w+)?$|\.(\d+|base|phi|obs|par|pdc|infl|scen)\..*(csv|jcb|txt)$",
    re.IGNORECASE,
)


def model_files(control: Path, directory: Path, others: Collection[Path]) -> Iterator[Path]:
    """Yield files and directories beside a control file, except those of PEST itself, its results, and projects.

    Parameters
    ----------
    control : Path
        The control file, with an absolute path.
    directory : Path
        Directory of the new project; other directories with a configuration are left out as well.
    others : collection of Path
        Further files that are left out, resolved.
    """
    for entry in _entries(control.parent, directory.resolve(), others):
        result = entry.name.lower().startswith(control.stem.lower()) and _RESULTS.search(entry.name)
        if entry.parent != control.parent or not (
            result or entry.name.startswith("posterior.") or entry.suffix.lower() in _OF_PEST
        ):
            yield entry


def _entries(folder: Path, project: Path, others: Collection[Path]) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__pycache__")) or entry.resolve() in others or _is_config(entry):
            continue
        if not entry.is_dir():
            yield entry
        elif not _is_project(entry, project):
            inside = list(entry.rglob("*"))
            files = [path.resolve() for path in inside if path.is_file()]
            nested = project.is_relative_to(entry.resolve())  # it may not exist yet
            if nested or any(_is_project(path, project) for path in inside if path.is_dir()):
                yield from _entries(entry, project, others)
            elif not files or not all(file in others for file in files):
                yield entry


def _is_project(folder: Path, project: Path) -> bool:
    return folder.resolve() == project or any(_is_config(path) for path in folder.iterdir())


def _is_config(path: Path) -> bool:
    """Return whether a file is a configuration of invgp."""
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return {"survey", "latents", "noise"} <= set(found)
