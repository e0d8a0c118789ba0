"""Signals at random moments, over all kinds of inversion; each is resumed, and must end as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from uuid import uuid4

import xarray as xr

from .cluster import Cluster, cluster
from .forks import command, finish, start
from .projects import KINDS, posterior, recorded_inputs, started_inputs, write_project
from .surroundings import MARK_VARIABLE, discard, left_with
from .tally import Tally, combine, has_traceback, summary

PATIENCE = 180.0  # s, for an inversion of some seconds on a busy machine
SECONDS = 0.03  # that a run takes
POOLS = {
    "loop": ["--workers", "1"],
    "processes": ["--workers", "2"],
    "threads": ["--workers", "2"],
    "dask": [],
}
UNDER_WAY = {"loop": 1, "processes": 2, "threads": 2, "dask": 2}  # runs that a signal may cut short
SENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
INTERRUPTED = 130
PER_PROJECT = 3  # signals, before it is resumed to its end
FULL, SMALL = 13, 1  # signals per kind
SMALL_KINDS = ("field",)


class Project:
    """A project that is interrupted: what its simulator and its ledger say before and after."""

    def __init__(self, kind: str, pool: str, folder: Path, dask: Cluster | None, tally: Tally) -> None:
        self.kind, self.pool, self.folder, self.dask, self.tally = kind, pool, folder, dask, tally
        self.mark = f"campaign-{uuid4().hex}"
        write_project(kind, folder, SECONDS)
        if pool == "threads":
            config = folder / "survey.toml"
            config.write_text(config.read_text().replace("seed = 3", 'seed = 3\nbackend = "threading"'))
        self.interruptions = 0

    def begin(self) -> ForkServerProcess:
        self.known, self.seen = recorded_inputs(self.folder), len(started_inputs(self.folder))
        how = POOLS[self.pool] if self.dask is None else ["--scheduler", str(self.dask.file)]
        environment = {MARK_VARIABLE: self.mark, "OPENBLAS_NUM_THREADS": "1"}
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        return start(command, "run", "survey.toml", *how, cwd=self.folder, log=log, environment=environment)

    def end(self, process: ForkServerProcess, what: str) -> None:
        """Wait for the end, and count what is wrong."""
        about = f"{self.kind}, {self.pool}, {what}, {self.folder}"
        if not finish(process, PATIENCE):
            self.tally.add("hangs", f"{about}: {self.printed[-2000:]}")
        if has_traceback(self.output):
            self.tally.add("tracebacks", f"{about}: {self.printed[-2000:]}")
        self.tally.add("left", f"{about}: {(found := left_with(self.mark))}", len(found))
        lost = self.known - recorded_inputs(self.folder)
        self.tally.add("lost", f"{about}: {len(lost)} runs are no longer in the ledger", len(lost))
        again = [x for x in started_inputs(self.folder)[self.seen :] if x in self.known]
        self.tally.add("repeated", f"{about}: {again}", len(again))

    @property
    def output(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def interrupt(self, moments: random.Random, runs: int, seconds: float) -> bool:
        """Begin the inversion and send a signal at a random moment; whether it came before the end."""
        process = self.begin()
        left = runs - len(self.known)
        if moments.random() < 0.7:  # after some runs, and a little later
            wanted, pause = self.seen + moments.randint(1, max(1, left - 1)), moments.uniform(0.0, SECONDS)
            deadline = time.monotonic() + PATIENCE
            while process.is_alive() and len(started_inputs(self.folder)) < wanted and time.monotonic() < deadline:
                time.sleep(0.003)
            time.sleep(pause)
        else:
            process.join(moments.uniform(0.05, seconds))
        alive = process.is_alive()
        if self.dask is not None and moments.random() < 0.5:
            alive = alive and self.dask.kill_worker(moments)
            what, wanted_code = "a Dask worker killed", 0
        else:
            number = moments.choice(SENT)
            what, wanted_code = number.name, -number if number is signal.SIGKILL else INTERRUPTED
            with suppress(ProcessLookupError):
                if number is signal.SIGINT or moments.random() < 0.5:
                    os.killpg(process.pid, number)
                else:
                    os.kill(process.pid, number)
        self.end(process, what)
        if alive:
            self.interruptions += 1
            if process.exitcode not in (wanted_code, 0):
                self.tally.add("lost", f"{self.kind}, {what}: exit code {process.exitcode}: {self.printed[-500:]}")
        return alive

    def resume(self, undisturbed: xr.Dataset, runs: int) -> None:
        """Run it to its end, and compare the posterior."""
        process = self.begin()
        self.end(process, "resumed")
        about = f"{self.kind}, {self.pool}, {self.folder}"
        if process.exitcode != 0:
            self.tally.add("lost", f"{about}: exit code {process.exitcode}: {self.printed[-1000:]}")
        elif not posterior(self.folder).identical(undisturbed):
            self.tally.add("lost", f"{about}: the posterior differs from the undisturbed one")
        more = len(started_inputs(self.folder)) - runs - UNDER_WAY[self.pool] * self.interruptions
        self.tally.add("repeated", f"{about}: {more} runs more than were cut short", max(more, 0))


def undisturbed_of(kind: str, folder: Path, tally: Tally) -> tuple[xr.Dataset, int, float]:
    """The posterior of an inversion that nobody disturbs, its number of runs, and the seconds that it takes."""
    project = Project(kind, "loop", folder, None, tally)
    began = time.monotonic()
    project.end(project.begin(), "undisturbed")
    return posterior(folder), len(started_inputs(folder)), time.monotonic() - began


def signals(folder: Path, *, small: bool, seed: int, kinds: Iterable[str] = (), tell=print) -> Tally:
    """Interrupt projects of each kind until each has had its number of signals."""
    tallies = []
    pools = ["processes"] if small else list(POOLS)
    kinds = kinds or (SMALL_KINDS if small else tuple(KINDS))
    with ExitStack() as stack:
        dask = stack.enter_context(cluster(folder / "dask")) if "dask" in pools else None
        for place, kind in enumerate(kinds):
            moments = random.Random(f"{seed} {kind}")
            tally, made = Tally(f"signals, {kind}"), 0
            expected, runs, seconds = undisturbed_of(kind, folder / f"{kind}-undisturbed", tally)
            while tally.cases < (SMALL if small else FULL) and made < 4 * FULL:
                pool = pools[(place + made) % len(pools)]
                used = dask if pool == "dask" else None
                if used is not None:
                    used.wait_for_workers()
                project = Project(kind, pool, folder / f"{kind}-{made}", used, tally)
                made += 1
                faults = tally.faults
                while project.interruptions < (1 if small else PER_PROJECT):
                    if not project.interrupt(moments, runs, seconds):
                        break
                project.resume(expected, runs)
                tally.cases += project.interruptions
                if tally.faults == faults:
                    discard(project.folder)
            tell(summary(tally, "signals"))
            tallies.append(tally)
    return combine("signals", tallies)
