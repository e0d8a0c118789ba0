"""Projects that are moved or copied, finished or in the middle: they go on there, with the same posterior."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import xarray as xr

from .forks import command, finish, start
from .projects import KINDS, posterior, recorded_inputs, started_inputs, write_project
from .signals import PATIENCE, SECONDS, undisturbed_of
from .tally import Tally, combine, has_traceback, summary

SMALL_KINDS = ("emulated",)
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


def try_move(kind: str, expected: xr.Dataset, runs: int, folder: Path, *, half: bool, copy: bool) -> Tally:
    """Run a project, whole or in half, take it elsewhere, and run it there from another working directory."""
    about = f"{kind}, {'half' if half else 'finished'}, {'copied' if copy else 'moved'}"
    tally = Tally(f"moves, {about}", cases=1)
    here, there = folder / "here", folder / "elsewhere" / "there"
    write_project(kind, here, SECONDS)
    process = start(command, "run", "survey.toml", cwd=here, log=folder / "log", environment=ENVIRONMENT)
    if half:
        deadline = time.monotonic() + PATIENCE
        while process.is_alive() and len(started_inputs(here)) < runs // 2 and time.monotonic() < deadline:
            time.sleep(0.003)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if not finish(process, PATIENCE):
        tally.add("hangs", f"{about}: {(folder / 'log').read_text()[-1000:]}")
    there.parent.mkdir()
    if copy:
        shutil.copytree(here, there)
        shutil.rmtree(here / "posterior.runs", ignore_errors=True)
    else:
        here.rename(there)
    known, seen = recorded_inputs(there), len(started_inputs(there))
    (there / "posterior.nc").unlink(missing_ok=True)
    process = start(command, "run", "there/survey.toml", cwd=there.parent, log=folder / "log", environment=ENVIRONMENT)
    if not finish(process, PATIENCE):
        tally.add("hangs", f"{about}: {(folder / 'log').read_text()[-1000:]}")
    printed = (folder / "log").read_text(errors="replace")
    if has_traceback(printed):
        tally.add("tracebacks", f"{about}: {printed[-1000:]}")
    again = [x for x in started_inputs(there)[seen:] if x in known]
    tally.add("repeated", f"{about}: {again}", len(again))
    if process.exitcode != 0:
        tally.add("lost", f"{about}: exit code {process.exitcode}: {printed[-500:]}")
    elif not posterior(there).identical(expected):
        found = posterior(there)
        other = [name for name in found.variables if not found[name].identical(expected.get(name))]
        tally.add("lost", f"{about}: the posterior differs from the undisturbed one in {other or 'its attributes'}")
    return tally


def moves(folder: Path, *, small: bool, seed: int, kinds: Iterable[str] = (), tell=print) -> Tally:
    """Move and copy projects of each kind."""
    tallies = []
    for kind in kinds or (SMALL_KINDS if small else KINDS):
        first = Tally(f"moves, {kind}")
        expected, runs, _ = undisturbed_of(kind, folder / f"{kind}-undisturbed", first)
        ways = [(True, False)] if small else [(half, copy) for half in (True, False) for copy in (True, False)]
        mine = [
            try_move(kind, expected, runs, folder / f"{kind}-{n}", half=half, copy=copy)
            for n, (half, copy) in enumerate(ways)
        ]
        tallies += [first, *mine]
        tell(summary(combine(first.part, [first, *mine]), "moves"))
    return combine("moves", tallies)
