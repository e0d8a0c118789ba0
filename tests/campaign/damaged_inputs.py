"""Damaged inputs: whatever was done to a file or a reply, one sentence and an exit code, or the right answer."""

from __future__ import annotations

import faulthandler
import io
import json
import random
import resource
import shutil
import signal
import socketserver
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from . import faulty_server, mutate_files
from .faulty_server import reply
from .forks import finish, start
from .projects import LEDGER, write_project
from .surroundings import changes, discard, look_at, make_canaries
from .tally import Tally, combine, has_traceback, summary

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300.0  # for one case: most take a tenth of a second, but the first of a group inverts a survey
MEMORY = 8 * 2**30  # bytes of addresses: a damaged size must not be believed
CODES = (0, 1, 2, 3, 4, 6)
FULL = {
    "config": 400,
    "template": 250,
    "pest": 350,
    "posterior": 600,
    "ledger": 300,
    "npy": 200,
    "npz": 150,
    "umbridge": 300,
}
SMALL = {"config": 8, "posterior": 2, "template": 8, "pest": 12, "ledger": 3, "npy": 8, "npz": 6, "umbridge": 20}

POSTERIORS = ("sampled", "field", "emulated", "sampled field")
READERS = (
    ("predict", "damaged.nc", "--grid", "5", "-o", "map.nc"),
    ("export", "damaged.nc", "--format", "csv", "-o", "out.csv"),
    ("export", "damaged.nc", "--format", "arviz", "-o", "out.arviz.nc"),
    ("report", "damaged.nc", "-o", "report.html"),
    ("plot", "damaged.nc"),
    ("compare", "damaged.nc", "--runs", "900", "--chains", "8", "--effective", "1"),  # as few as give draws
)

# What a case does; it returns what is wrong, or nothing.
Case = tuple[str, Callable[[], str]]


def call(*arguments: str, cwd: Path, codes: tuple[int, ...] = CODES) -> str:
    """A command of invgp in this process; what is wrong with its end, where any of these exit codes is right."""
    from invgp.cli import main  # noqa: PLC0415 - in the process that was forked

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    code, printed, reported = 0, io.StringIO(), io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(chdir(cwd))
        stack.enter_context(redirect_stdout(printed))
        stack.enter_context(redirect_stderr(reported))
        stack.enter_context(patch.object(sys, "argv", ["invgp", *arguments]))
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            return f"an exception escapes from invgp {' '.join(arguments)}: {traceback.format_exc()[-1500:]}"
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    if code not in codes or has_traceback(reported.getvalue()):
        return f"invgp {' '.join(arguments)} ended with {code}: {reported.getvalue()[-1500:]}"
    if code and not reported.getvalue().strip():
        return f"invgp {' '.join(arguments)} ended with {code} and without a word"
    return ""


def config_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    """Configs and surveys, checked."""
    from .mutate_config import damaged_projects  # noqa: PLC0415

    for what, config in islice(damaged_projects(ROOT, folder, numbers.stop, seed), numbers.start, None):
        yield what, lambda config=config: call("check", config.name, cwd=config.parent)


def file_cases(
    folder: Path, numbers: range, seed: int, scaffold: str, names: tuple[str, ...], mutate=mutate_files.mutate_text
) -> Iterator[Case]:
    """Files of a project to start from, checked with a run of its simulator."""
    source = ROOT / "invgp" / "scaffolds" / scaffold
    shutil.copytree(source, folder / "project")
    sound = {name: (source / name).read_bytes() for name in names}
    for number in numbers:
        rng = random.Random(f"{seed} {scaffold} {number}")
        name = names[number % len(names)]
        for other, content in sound.items():
            (folder / "project" / other).write_bytes(content)
        (folder / "project" / name).write_bytes(mutate(sound[name], rng))
        yield f"{name}, case {number}", lambda: call("check", "survey.toml", cwd=folder / "project")


def template_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    return file_cases(folder, numbers, seed, "executable-project", ("model.tpl",))


def pest_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    return file_cases(folder, numbers, seed, "pest-project", ("theis.pst", "aquifer.tpl", "drawdown.ins"))


def finished_project(folder: Path, kind: str = "emulated") -> Path:
    """A small project, of four sites, that was inverted."""
    project = folder / kind.replace(" ", "-")
    write_project(kind, project, 0.0)
    if "field" not in kind:
        sites = (project / "sites.csv").read_text().splitlines()
        (project / "sites.csv").write_text("\n".join([*sites[:5], ""]))
    wrong = call("run", "survey.toml", cwd=project)
    if wrong:
        raise RuntimeError(wrong)
    return project


def posterior_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    """Posteriors of several kinds, each read by all commands that read one."""
    from .mutate_posterior import damage  # noqa: PLC0415

    projects: dict[str, Path] = {}
    for number in numbers:
        kind = POSTERIORS[number % len(POSTERIORS)]
        if kind not in projects:
            projects[kind] = finished_project(folder, kind)
            check_readers(projects[kind])
        project = projects[kind]
        what = damage(project / "posterior.nc", project / "damaged.nc", seed * 10**6 + number)
        yield f"{project.name} posterior, case {number}, {what}", lambda project=project: read_posterior(project)


def check_readers(project: Path) -> None:
    """Raise an error unless every command reads the whole posterior: otherwise its cases would show nothing."""
    shutil.copy(project / "posterior.nc", project / "damaged.nc")
    for command in READERS:
        wrong = call(*command, cwd=project, codes=(0,))
        if wrong:
            raise RuntimeError(wrong)


def read_posterior(project: Path) -> str:
    """Read a damaged posterior with each command; what is wrong with the first one that goes wrong."""
    return next(filter(None, (call(*command, cwd=project) for command in READERS)), "")


def ledger_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    """Ledgers, listed, shown, exported, and used by an inversion."""
    project = finished_project(folder)
    whole = (project / LEDGER).read_bytes()
    damaged = project / "damaged.sqlite"
    commands = (
        ("runs", "list", "damaged.sqlite"),
        ("runs", "show", "damaged.sqlite", "2"),
        ("runs", "list", "damaged.sqlite", "--failed", "--json"),
        ("run", "survey.toml", "-o", "again.nc", "--ledger", "damaged.sqlite"),
    )
    for number in numbers:
        for rest in project.glob("damaged.sqlite-*"):
            rest.unlink()
        what = mutate_files.mutate_ledger(whole, damaged, random.Random(f"{seed} ledger {number}"))
        command = commands[number % len(commands)]
        yield f"ledger, case {number}, {what}", lambda command=command: call(*command, cwd=project)


def npy_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    """Covariances of noise in NumPy files, checked with the config that names them."""
    project = folder / "project"
    write_project("field", project, 0.0)
    config = project / "survey.toml"
    config.write_text(config.read_text().replace("std.average = 0.02", 'covariance = "noise.npy"'))
    np.save(project / "sound.npy", 4e-4 * np.eye(8))
    whole = (project / "sound.npy").read_bytes()
    for number in numbers:
        (project / "noise.npy").write_bytes(mutate_files.mutate_npy(whole, random.Random(f"{seed} npy {number}")))
        yield f"npy, case {number}", lambda: call("check", "survey.toml", cwd=project)


def npz_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    """Saved models."""
    from invgp.core.training import Blocks  # noqa: PLC0415
    from invgp.estimator import SAVIGP  # noqa: PLC0415
    from invgp.likelihoods import Gaussian  # noqa: PLC0415

    X = np.linspace(0, 6, 20)[:, None]
    path = folder / "model.npz"
    SAVIGP(Gaussian(0.3), inducing=4, method=Blocks(learn=("posterior",))).fit(X, np.sin(X[:, 0])).save(path)
    whole = path.read_bytes()

    def load() -> str:
        try:
            SAVIGP.load(path, Gaussian(0.3))
        except ValueError as error:
            return "" if str(path) in str(error) else f"the error does not name the file: {error}"
        except BaseException:
            return traceback.format_exc()[-1500:]
        return ""

    for number in numbers:
        path.write_bytes(mutate_files.mutate_bytes(whole, random.Random(f"{seed} npz {number}")))
        yield f"npz, case {number}", load


class _Replies(socketserver.StreamRequestHandler):
    """A server whose replies are as they should be, but for one path."""

    damaged: tuple[str, bytes] = ("", b"")

    def handle(self) -> None:
        path, damaged = self.damaged
        while request := self.rfile.readline():
            length = 0
            while (line := self.rfile.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            message = self.rfile.read(length)
            asked = request.split()[1].decode()
            if asked == path:
                self.wfile.write(damaged)
                return
            friendly = faulty_server.FRIENDLY.get(asked)
            self.wfile.write(reply(friendly) if friendly else faulty_server.answer(json.loads(message)["input"][0][0]))


def umbridge_cases(folder: Path, numbers: range, seed: int) -> Iterator[Case]:
    """Replies of a server to each request that a client makes."""
    from invgp.adapters import Quantity, RunContext, UmbridgeModel  # noqa: PLC0415

    replies = {**faulty_server.FRIENDLY, "/Evaluate": '{"output": [[6.5, 10.5625]]}'}
    inputs, outputs = (Quantity("x", "m"),), (Quantity("y", "s", (1, 2)),)

    def evaluate() -> str:
        model = UmbridgeModel((url,), "model", inputs, outputs, timeout=2.0, retries=0)
        try:
            outcome = model.evaluate(np.asarray([[3.25]]), RunContext(["run"], folder))
        except BaseException:
            return traceback.format_exc()[-1500:]
        if outcome.ok[0] != np.isfinite(outcome.outputs).all() or outcome.ok[0] == bool(outcome.messages[0]):
            return f"{outcome}"
        return ""

    with faulty_server.Server(("127.0.0.1", 0), _Replies) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for number in numbers:
            rng = random.Random(f"{seed} umbridge {number}")
            path = rng.choice(list(replies))
            if rng.random() < 0.5:
                damaged = reply(json.dumps(mutate_files.mutate_json(json.loads(replies[path]), rng)))
            else:
                damaged = mutate_files.mutate_bytes(reply(replies[path]), rng)
            _Replies.damaged = path, damaged
            yield f"reply to {path}, case {number}: {damaged[:300]!r}", evaluate
        server.shutdown()


GROUPS = {
    "config": config_cases,
    "template": template_cases,
    "pest": pest_cases,
    "posterior": posterior_cases,
    "ledger": ledger_cases,
    "npy": npy_cases,
    "npz": npz_cases,
    "umbridge": umbridge_cases,
}


def try_group(group: str, folder: Path, count: int, seed: int, skip: int) -> None:
    """Try the cases of a group from number `skip` on; `progress` has the case at hand, `wrong` what is wrong."""
    tempfile.tempdir = str(folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    numbers = range(skip, count)
    with (folder / "stack").open("w") as stack:
        faulthandler.dump_traceback_later(SECONDS, exit=True, file=stack)  # for what comes before the first case, too
        for number, (what, attempt) in zip(numbers, GROUPS[group](folder, numbers, seed), strict=True):
            (folder / "progress").write_text(json.dumps([number, what]))
            faulthandler.dump_traceback_later(SECONDS, exit=True, file=stack)
            wrong = attempt()
            if wrong:
                with (folder / "wrong").open("a") as file:
                    file.write(json.dumps([what, wrong]) + "\n")
        faulthandler.cancel_dump_traceback_later()
    (folder / "progress").write_text(json.dumps([count, "done"]))


def watch_group(group: str, folder: Path, count: int, seed: int) -> Tally:
    """Try a group in a process of its own; one that hangs or crashes is counted, and the next goes on behind it."""
    tally, number = Tally(f"damaged {group}"), 0
    make_canaries(folder)
    before = look_at(folder / "canaries")
    while number < count:
        home = folder / f"from-{number}"
        home.mkdir()
        environment = {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        process = start(
            try_group, group, home, count, seed, number, cwd=home, log=home / "log", environment=environment
        )
        ended = finish(process, SECONDS * (count - number + 2))
        log, progress = home / "log", home / "progress"
        printed = log.read_text(errors="replace") if log.exists() else ""
        reached, what = json.loads(progress.read_text()) if progress.exists() else (-1, "before the first case")
        if reached < count:
            stack = (home / "stack").read_text() if (home / "stack").exists() else ""
            kind = "hangs" if stack or not ended else "tracebacks"
            tally.add(kind, f"{what}: exit code {process.exitcode}: {(stack or printed)[-1500:]}")
        if reached < 0:  # nor would the next process come to a case
            break
        tally.cases = min(reached + 1, count)
        if (home / "wrong").exists():
            for line in (home / "wrong").read_text().splitlines():
                tally.add("tracebacks", ": ".join(json.loads(line)))
        number = reached + 1
    tally.add("destroyed", str(found := changes(before, look_at(folder / "canaries"))), len(found))
    return tally


def damaged_inputs(
    folder: Path, *, small: bool, seed: int, groups: Iterable[str] = (), tell: Callable[[str], Any] = print
) -> Tally:
    """All groups, or some."""
    tallies = []
    for group, count in (SMALL if small else FULL).items():
        if groups and group not in groups:
            continue
        (folder / group).mkdir(parents=True)
        tallies.append(watch_group(group, folder / group, count, seed))
        tell(summary(tallies[-1], "files"))
        if not tallies[-1].faults:
            discard(folder / group)
    return combine("damaged inputs", tallies)
