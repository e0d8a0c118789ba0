"""One batch of faulty runs: an adapter, a pool, a ledger; made in a process of its own, which reports in a file."""

from __future__ import annotations

import json
import logging
import math
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from invgp.adapters import (
    BatchedModel,
    CallableModel,
    Evaluations,
    ExecutableModel,
    ForwardModel,
    OutputFile,
    PersistentModel,
    Quantity,
    RunContext,
    Status,
    UmbridgeModel,
    dakota_model,
    pest_model,
)
from invgp.execution.evaluate import evaluate
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory
from invgp.ledger import Ledger
from invgp.problem import InferenceSettings

from . import faulty_function, faulty_program, faulty_responder, faulty_server
from .surroundings import left_with

PROGRAMS = ("executable", "standard output", "batched", "pest", "dakota")
ADAPTERS = ("callable", *PROGRAMS, "persistent", "umbridge")
POOLS = ("loop", "threads", "processes", "dask")
TIMEOUT = 4.0  # s: a busy machine must not let a run of milliseconds take as long
# These runs take longer: 1,100 directories, and 10,000 lines for a parser. A busy machine needs more than 4 s for them.
HEAVY, HEAVY_TIMEOUT = ("a deep tree", "ten thousand headers"), 60.0
TABLES: dict[str, ModuleType] = {
    "callable": faulty_function,
    **dict.fromkeys(PROGRAMS, faulty_program),
    "persistent": faulty_responder,
    "umbridge": faulty_server,
}
# A worker of its own survives them; a loop and threads go with them, and so do the nannies of Dask's workers.
DEADLY = ("kill its worker always", "kills its worker", "ends its worker", "crashes its worker")
DEADLY_ONCE = ("kill its worker once", "kill its worker's group once", "terminate its worker's group once")
X, Y = (Quantity("x", "m"),), (Quantity("y", "s", (1, 2)),)
CONTROL = """\
pcf
* control data
restart estimation
 1 2 1 0 1
 1 1 double point 1 0 0
* parameter data
 x none factor 1.0 1e-3 1e9 x 1.0 0.0 1
* observation data
 y1 1.0 1.0 y
 y2 1.0 1.0 y
* model command line
 {command}
* model input/output
 in.tpl in.txt
 out.ins out.txt
"""


class Size(NamedTuple):
    """How many runs a batch has.

    Attributes
    ----------
    faulty : runs that fail in some way; each fault once at the least.
    slow : of them those that take their whole time limit, or kill their worker.
    patience : seconds that the batch may take.
    faults : names of the faults to choose from; all if there are none.
    """

    faulty: int
    slow: int
    patience: float
    faults: tuple[str, ...] = ()


FULL, SMALL = Size(345, 9, 420.0), Size(1, 0, 120.0)


def is_slow(table: ModuleType, name: str) -> bool:
    """Whether a fault costs the whole time limit."""
    endings = table.FAULTS[name][1]
    return "timeout" in endings and len(endings) < 3


def faults_for(adapter: str, pool: str) -> list[str]:
    """The faults that this adapter and this pool can be asked about."""
    table, chosen = TABLES[adapter], []
    for name in table.NAMES:
        if name == "ok" or (name in DEADLY and pool not in ("processes", "dask")):
            continue
        if name in DEADLY_ONCE and pool == "dask" and "group" in name:
            continue
        chosen.append(name)
    return chosen


def plan(adapter: str, pool: str, size: Size, rng: np.random.Generator) -> np.ndarray:
    """Inputs (B, 1), all different, in random order: those that fail in some way, and some that do not."""
    table, faulty, slow = TABLES[adapter], size.faulty, size.slow
    names = [name for name in faults_for(adapter, pool) if not size.faults or name in size.faults]
    costly = [name for name in names if is_slow(table, name) or name in (*DEADLY, *DEADLY_ONCE)]
    cheap = [name for name in names if name not in costly]
    chosen = [*rng.permutation(costly)[:slow].tolist(), *cheap * max(1, math.ceil(faulty / max(len(cheap), 1)))]
    chosen = chosen[: max(faulty, len(names))] + ["ok"] * (len(chosen) // 8 + 4)
    # A quarter is exact in every format, and so are its double and its square.
    return np.asarray(
        [[table.NAMES.index(name) + table.KINDS * i + 0.25] for i, name in enumerate(rng.permutation(chosen), start=1)]
    )


@contextmanager
def model_of(adapter: str, home: Path, mark: str, timeout: float) -> Iterator[ForwardModel]:
    """The faulty simulator behind an adapter."""
    here = Path(__file__).parent
    python = (sys.executable, "-I", "-S")
    program = (*python, str(here / "faulty_program.py"), adapter, str(home), mark)
    settings: dict[str, Any] = {"timeout": timeout}
    if adapter == "callable":
        shutil.copy(here / "faulty_function.py", home)
        yield CallableModel("faulty_function:respond", X, Y, vectorised=False, search_path=home, rows=16)
    elif adapter == "executable":
        yield ExecutableModel((*program, "{x}"), X, Y, output_files=(OutputFile("times.txt"),), **settings)
    elif adapter == "standard output":
        yield ExecutableModel((*program, "{x}"), X, Y, **settings)
    elif adapter == "batched":
        yield BatchedModel(program, X, Y, rows=3, **settings)
    elif adapter == "pest":
        (home / "in.tpl").write_text("ptf ~\n~          x           ~\n")
        (home / "out.ins").write_text("pif @\nl1 !y1! !y2!\n")
        (home / "case.pst").write_text(CONTROL.format(command=" ".join(program)))
        yield pest_model(home / "case.pst", X, Y, **settings)
    elif adapter == "dakota":
        yield dakota_model(program, X, Y, **settings)
    elif adapter == "persistent":
        yield PersistentModel((*python, str(here / "faulty_responder.py"), str(home), mark), X, Y, **settings)
    else:
        server = [*python, str(here / "faulty_server.py"), str(home)]
        with subprocess.Popen(server, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                assert process.stdout is not None
                url = f"http://127.0.0.1:{int(process.stdout.readline())}"
                yield UmbridgeModel((url,), "model", X, Y, retries=1, connections=2, **settings)
            finally:
                process.kill()


def started_inputs(home: Path) -> list[float]:
    """The inputs of all runs that were ever started, by the simulator's own count."""
    file = home / "started"
    return [float(line) for line in file.read_text().split()] if file.exists() else []


def recorded_inputs(ledger: Path) -> dict[float, Status]:
    """The inputs of the runs in a ledger, and what became of them."""
    if not ledger.exists():
        return {}
    with Ledger(ledger, read_only=True) as opened:
        return {float(run.inputs[0]): run.status for run in opened.runs()}


def settings_of(pool: str, scheduler: str) -> InferenceSettings:
    if pool == "dask":
        return InferenceSettings(backend="dask", scheduler=scheduler, worker_timeout=120.0)
    return InferenceSettings(backend="threading" if pool == "threads" else "loky", workers=1 if pool == "loop" else 2)


def run_batch(adapter: str, pool: str, home: Path, mark: str, scheduler: str) -> None:
    """Run the inputs of `values.npy`, twice with one ledger, and write what is wrong to `report.json`."""
    logging.disable(logging.WARNING)
    values = np.load(home / "values.npy")
    heavy = np.asarray([TABLES[adapter].kind(x) in HEAVY for x in values[:, 0]])
    values, heavy = np.concatenate([values[~heavy], values[heavy]]), np.sort(heavy)
    ledger = home / "runs.sqlite"
    before, seen = recorded_inputs(ledger), len(started_inputs(home))
    report: dict[str, list[str]] = {"lost": [], "repeated": [], "left": []}
    with (
        model_of(adapter, home, mark, TIMEOUT) as model,
        model_of(adapter, home, mark, HEAVY_TIMEOUT) as patient,
        open_pool(settings_of(pool, scheduler)) as workers,
        make_run_directory(home / "runs") as directory,
        Ledger(ledger) as opened,
    ):

        def evaluate_all() -> Evaluations:
            parts = []
            for rows, of_rows in ((~heavy, model), (heavy, patient)):
                context = RunContext([f"run-{i}" for i in rows.nonzero()[0]], directory, more=True)
                recorder = opened.open_recorder(of_rows)
                if rows.any():
                    parts.append(evaluate(of_rows, values[rows], context, pool=workers, recorder=recorder))
            return Evaluations.concatenate(parts)

        outcome = evaluate_all()
        if adapter != "persistent":  # whose programs stay until the end
            report["left"] += left_with(mark, programs=True, patience=0.5)
        known = {x: status for x, status in recorded_inputs(ledger).items() if status is not Status.NOT_STARTED}
        first = len(started_inputs(home))
        again = evaluate_all()
    report["repeated"] += [f"{x} ({kind})" for x, kind in _made_again(adapter, started_inputs(home)[first:], known)]
    finished = {x for x, status in before.items() if status is not Status.NOT_STARTED}
    report["repeated"] += [f"{x} ({kind})" for x, kind in _made_again(adapter, started_inputs(home)[seen:], finished)]
    if adapter not in ("batched", "persistent", "umbridge", "callable") and not seen and pool != "dask":
        counts = Counter(started_inputs(home)[:first])
        report["repeated"] += [
            f"{x} was started {times} times" for x, times in counts.items() if times > _starts(adapter, x)
        ]
    report["lost"] += _lost(adapter, values[:, 0], outcome, known)
    if again.outputs.tobytes() != outcome.outputs.tobytes() or again.status != outcome.status:
        changed = [i for i, (a, b) in enumerate(zip(again.status, outcome.status, strict=True)) if a is not b]
        moved = [i for i in changed if outcome.status[i] is not Status.NOT_STARTED]
        report["lost"] += [f"{values[i, 0]}: {outcome.status[i]}, then {again.status[i]} by the ledger" for i in moved]
    secrets = [message for message in outcome.messages if "a secret that no message may quote" in message]
    report["lost"] += [f"a message quotes a file outside of the run's directory: {m[:200]}" for m in secrets]
    (home / "report.json").write_text(json.dumps(report))


def _starts(adapter: str, x: float) -> int:
    return 2 if TABLES[adapter].kind(x) in DEADLY else 1


def _made_again(adapter: str, xs: list[float], known: Any) -> list[tuple[float, str]]:
    return [(x, TABLES[adapter].kind(x)) for x in xs if x in known]


def _lost(adapter: str, xs: np.ndarray, outcome: Any, known: dict[float, Status]) -> Iterator[str]:
    table = TABLES[adapter]
    for x, row, status, message in zip(xs.tolist(), outcome.outputs, outcome.status, outcome.messages, strict=True):
        name = table.kind(x)
        endings = table.FAULTS[name][1]
        if status.value not in endings:
            yield f"{name} ended as {status.value!r}, not as {' or '.join(map(repr, endings))}: {message[:300]}"
        elif status is Status.OK and name != "one number too many" and row.tolist() != [2 * x, x * x]:
            yield f"{name} gave {row.tolist()} for {x}"
        elif status is not Status.OK and (not message or np.isfinite(row).any()):
            yield f"{name} failed without a message, or with outputs"
        if status is not Status.NOT_STARTED and known.get(x) is not status:
            yield f"{name}: the ledger has {known.get(x)!r} for {x}, where {status!r} was reported"
