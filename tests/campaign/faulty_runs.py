"""Faulty runs: every adapter under every pool, with simulators that fail in every way we could think of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import numpy as np

from .batch import ADAPTERS, FULL, POOLS, SMALL, TABLES, Size, plan, run_batch
from .cluster import cluster
from .forks import finish, start
from .surroundings import MARK_VARIABLE, changes, discard, left_with, look_at, make_canaries
from .tally import Tally, combine, has_traceback, summary

STARTS = 12  # of a batch whose runs kill the process that makes them


def try_batch(adapter: str, pool: str, home: Path, scheduler: str, size: Size, seed: int) -> Tally:
    """Make one batch, in as many processes as its runs kill, and count what is wrong."""
    tally = Tally(f"{adapter}, {pool}")
    home.mkdir(parents=True)
    make_canaries(home)
    rng = np.random.default_rng([seed, ADAPTERS.index(adapter), POOLS.index(pool)])
    values = plan(adapter, pool, size, rng)
    np.save(home / "values.npy", values)
    tally.cases = sum(TABLES[adapter].kind(x) != "ok" for x in values[:, 0])
    mark, log, report = f"campaign-{uuid4().hex}", home / "log", home / "report.json"
    before = look_at(home / "canaries")
    for _ in range(STARTS):
        environment = {MARK_VARIABLE: mark, "OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(home)}
        process = start(run_batch, adapter, pool, home, mark, scheduler, cwd=home, log=log, environment=environment)
        if not finish(process, size.patience):
            tally.add("hangs", f"the batch took longer than {size.patience:g} s: {log.read_text()[-3000:]}")
            break
        if report.exists() or process.exitcode not in (-9, -15):
            break
        tally.add("left", *_several(left_with(mark)))
    else:
        tally.add("lost", f"the batch did not end after {STARTS} starts")
    tally.add("left", *_several(left_with(mark)))
    printed = log.read_text(errors="replace") if log.exists() else ""
    if has_traceback(printed):
        tally.add("tracebacks", printed[-3000:])
    elif not report.exists() and not tally.faults:
        tally.add("lost", f"no report; exit code {process.exitcode}: {printed[-1000:]}")
    if report.exists():
        for count, sentences in json.loads(report.read_text()).items():
            tally.add(count, *_several(sentences))
    tally.add("destroyed", *_several(changes(before, look_at(home / "canaries"))))
    return tally


def _several(sentences: list[str]) -> tuple[str, int]:
    return "\n    ".join(sentences), len(sentences)


def faulty_runs(
    folder: Path,
    *,
    small: bool,
    seed: int,
    adapters: Iterable[str] = ADAPTERS,
    pools: Iterable[str] = POOLS,
    faults: Iterable[str] = (),
    tell=print,
) -> Tally:
    """All batches, those of one pool after the other; in small, one batch per adapter, and a pool for each."""
    size = (SMALL if small else FULL)._replace(faults=tuple(faults))
    tallies = []
    for pool in pools:
        with ExitStack() as stack:
            chosen = [a for i, a in enumerate(adapters) if not small or pool == POOLS[(i + seed) % len(POOLS)]]
            dask = stack.enter_context(cluster(folder / "dask")) if pool == "dask" else None
            for adapter in chosen:
                if dask is not None:
                    dask.wait_for_workers()
                home = folder / f"{adapter.replace(' ', '-')}-{pool}"
                scheduler = "" if dask is None else str(dask.file)
                tallies.append(try_batch(adapter, pool, home, scheduler, size, seed))
                tell(summary(tallies[-1], "faulty runs"))
                if not tallies[-1].faults:
                    discard(home)
    return combine("faulty runs", tallies)
