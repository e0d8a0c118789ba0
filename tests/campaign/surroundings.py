"""What must stay as it is around faulty programs: files that are not theirs, and the list of processes."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from invgp.adapters.directory_trees import remove_tree

from .faulty_program import OUTPUTS

MARK_VARIABLE = "INVGP_CAMPAIGN_MARK"
# s, for processes that are about to end, on a busy machine: a worker whose parent is killed while it starts, looks for
# its parent only after its imports, and the resource tracker of loky waits for it
PATIENCE = 20.0


def make_canaries(home: Path) -> None:
    """Write files and folders that no run may change; the folder has decoys of what a run's directory holds."""
    canaries = home / "canaries"
    folder = canaries / "folder"
    (folder / "below").mkdir(parents=True)
    for name in (*OUTPUTS.values(), "standard_error.txt", "below/file.txt", "in.txt", "inputs.csv"):
        (folder / name).write_text("1.0 2.0\n")
    (canaries / "numbers.txt").write_text("1.0 2.0\n")
    (canaries / "secret.txt").write_text("a secret that no message may quote\n")
    os.mkfifo(folder / "pipe")


def discard(folder: Path) -> None:
    """Remove a folder as far as possible; `shutil.rmtree` cannot remove the deep trees of faulty programs."""
    with suppress(OSError):
        remove_tree(folder)


def look_at(folder: Path) -> dict[str, str]:
    """A digest of each entry below a folder, by its path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path.relative_to(folder))] = f"{about.st_mode:o} {about.st_ino} {content}"
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The paths that were changed, removed or added."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def processes_with(mark: str, *, programs: bool = False) -> list[psutil.Process]:
    """Living processes with the mark among their arguments or, unless only programs count, in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if any(mark in word for word in process.cmdline()) or (
                not programs and process.environ().get(MARK_VARIABLE) == mark
            ):
                found.append(process)
        except psutil.Error:  # it ended while we looked, or it is not ours
            continue
    return found


def left_with(mark: str, *, programs: bool = False, patience: float = PATIENCE) -> list[str]:
    """End the processes that have the mark and do not end by themselves; their arguments."""
    deadline = time.monotonic() + patience
    while (found := processes_with(mark, programs=programs)) and time.monotonic() < deadline:
        time.sleep(0.05)
    printed = []
    for process in found:
        try:
            printed.append(f"{process.pid}: {' '.join(process.cmdline())[-200:]}")
            process.kill()
        except psutil.Error:
            continue
    return printed
