"""Commands that are interrupted while they run, and the processes that they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil

from helpers.command_line import MODULE

PATIENCE = 120.0  # s, for a busy machine; what is measured is checked below
PROMPT = 20.0  # s, from Ctrl-C to the end: far less than the minute of a run, on a busy machine too


@contextmanager
def start_command(
    *arguments: str, cwd: Path, ignored: signal.Signals | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command in a process group of its own, as a shell starts it, and a mark that all its children bear."""
    mark = uuid4().hex
    environment = {**os.environ, "INVGP_TEST_MARK": mark}
    with subprocess.Popen(
        [*MODULE, *arguments],
        cwd=cwd,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=None if ignored is None else lambda: signal.signal(ignored, signal.SIG_IGN),  # noqa: PLW1509
    ) as process:
        try:
            yield process, mark
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, f"it ended before {path} appeared: {process.communicate()[1]}"
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def left_behind(mark: str) -> list[str]:
    """Processes that bear the mark, once those that are about to end have had a moment."""
    found: list[str] = []
    for _ in range(50):
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("INVGP_TEST_MARK") == mark:
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:  # it ended while we looked, or it is not ours
                continue
        if not found:
            break
        time.sleep(0.05)
    return found


def interrupt(process: subprocess.Popen[str], *, group: bool = True) -> tuple[str, float]:
    """Send SIGINT; return the standard error output and the seconds until the process ends."""
    started = time.monotonic()
    if group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    return errors, time.monotonic() - started


def own_words(errors: str) -> list[str]:
    """Return the lines of the output without the warnings of joblib about resources that it removes."""
    return [line for line in errors.splitlines() if line.startswith(("invgp:", "emulator", "evaluation", "Traceback"))]
