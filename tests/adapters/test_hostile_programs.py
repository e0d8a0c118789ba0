"""Whatever a program puts in the place of its files and directories, no run hangs and nothing elsewhere is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from helpers.executable_models import MakeProgram
from invgp.adapters import (
    BatchedModel,
    CsvFile,
    Evaluations,
    ExecutableModel,
    ForwardModel,
    JsonFile,
    LocalFile,
    NetcdfFile,
    OutputFile,
    PersistentModel,
    PythonFile,
    Quantity,
    Reader,
    RegexFile,
    RunContext,
    Status,
    TableFile,
    supervisor,
)
from invgp.adapters.dakota import dakota_model
from invgp.adapters.pest.instructions import Instructions
from invgp.adapters.pest.pest_model import pest_model

pytestmark = pytest.mark.processes

X, Y = (Quantity("x", "m"),), (Quantity("y", "s"),)
SECRET = "1.0 the secret"

# A program that takes the number x, whatever the adapter, does BODY in its directory and answers x + 1.
PROGRAM = """
import json, os, socket, sys, time
def daemon(scrub=False):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            number = str(os.getpid()).encode()
            os.write(writing, number)
            os.closerange(0, 256)
            if scrub:
                os.execve({python!r}, ["python", "-IS", "-c", "import time; time.sleep(60)"], {{}})
            time.sleep(60)
        os._exit(0)
    os.close(writing)
    found = b""
    while more := os.read(reading, 100): found += more
    with open({pids!r}, "a") as file: print(found.decode(), file=file)
    return int(found)
def body():
{body}
def number_of(text): return float(text.split(",")[-1].split()[-1])
kind = sys.argv[1]
if kind == "persistent":
    body()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({{"id": request["id"], "outputs": {{"y": request["inputs"]["x"] + 1}}}}), flush=True)
elif kind == "batched":
    rows = [float(line) for line in open("inputs.csv").read().split()[1:]]
    open("outputs.csv", "w").write("".join(f"{{x + 1}}\\n" for x in rows))
    body()
elif kind == "dakota":
    x = float(open("params.in").read().split()[2])
    open("results.out", "w").write(f"{{x + 1}} y\\n")
    body()
elif kind == "pest":
    open("out.txt", "w").write(f"{{float(open('in.txt').read()) + 1}}\\n")
    body()
else:
    open("out.txt", "w").write(f"{{float(sys.argv[2]) + 1}}\\n")
    body()
"""
CONTROL = """pcf
* control data
restart estimation
1 1 1 0 1
1 1 single point
5.0 2.0 0.3 0.03 10
3.0 3.0 0.001
0.1
30 0.01 3 3 0.01 3
1 1 1
* parameter groups
g relative 0.01 0.0 switch 2.0 parabolic
* parameter data
x none relative 1.0 0.0 100.0 g 1.0 0.0 1
* observation groups
obs
* observation data
y 0.0 1.0 obs
* model command line
./simulator pest
* model input/output
in.tpl in.txt
out.ins out.txt
"""
OUTPUT = {
    "executable": "out.txt",
    "batched": "outputs.csv",
    "dakota": "results.out",
    "pest": "out.txt",
}


Make = Callable[..., ForwardModel]


@pytest.fixture
def make(program: MakeProgram, tmp_path: Path) -> Make:
    """A model of the kind, whose program does `body`."""

    def model(kind: str, body: str = "pass", **settings: object) -> ForwardModel:
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        text = PROGRAM.format(python=sys.executable, pids=str(tmp_path / "pids"), body=indented)
        command = program(text, language="python")
        common = {"timeout": 20.0, "search_path": tmp_path, **settings}
        if kind == "executable":
            readers = common.pop("output_files", (OutputFile("out.txt"),))
            return ExecutableModel((command, kind, "{x}"), X, Y, output_files=readers, **common)  # type: ignore[arg-type]
        if kind == "batched":
            return BatchedModel((command, kind), X, Y, **common)  # type: ignore[arg-type]
        if kind == "persistent":
            return PersistentModel((command, kind), X, Y, **common)  # type: ignore[arg-type]
        if kind == "dakota":
            return dakota_model((command, kind), X, Y, format="text", **common)  # type: ignore[arg-type]
        (tmp_path / "in.tpl").write_text("ptf ~\n~   x            ~\n")
        (tmp_path / "out.ins").write_text("pif @\nl1 !y!\n")
        (tmp_path / "case.pst").write_text(CONTROL)
        return pest_model(tmp_path / "case.pst", X, Y, timeout=20.0)

    return model


def run(model: ForwardModel, folder: Path, *numbers: float, more: bool = False) -> Evaluations:
    values = np.asarray(numbers or (1.0,))[:, None]
    return model.evaluate(values, RunContext([f"r{i}" for i in range(len(values))], folder / "runs" / "batch", more))


def alive(pids: Path) -> list[int]:
    found = []
    for word in pids.read_text().split():
        try:
            if psutil.Process(int(word)).status() != psutil.STATUS_ZOMBIE:
                found.append(int(word))
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory that no run may touch; it has what runs have."""
    folder = tmp_path / "elsewhere"
    for place in (folder, folder / "r0", folder / "r1", folder / "batch" / "r0", folder / "batch" / "r1"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("precious", "out.txt", "outputs.csv", "results.out", "standard_error.txt"):
            (place / name).write_text(SECRET)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


REPLACED = {
    "fifo": "os.mkfifo(NAME)",
    "device": "os.symlink('/dev/zero', NAME)",
    "socket": "socket.socket(socket.AF_UNIX).bind(NAME)",
    "directory": "os.mkdir(NAME)",
    "link": "os.symlink({elsewhere!r} + '/precious', NAME)",
    "loop": "os.symlink(NAME, NAME)",
}


@pytest.mark.parametrize("what", REPLACED)
@pytest.mark.parametrize("kind", OUTPUT)
def test_that_special_files_fail_the_run_at_once(
    kind: str, what: str, make: Make, tmp_path: Path, elsewhere: Path
) -> None:
    replace = REPLACED[what].format(elsewhere=str(elsewhere))
    names = OUTPUT[kind], "standard_error.txt", "standard_output.txt"
    body = f"for NAME in {names}:\n    os.remove(NAME)\n    {replace}"
    got = run(make(kind, f"print('dear me', file=sys.stderr, flush=True)\n{body}"), tmp_path)
    assert got.status == (Status.UNREADABLE,)
    assert OUTPUT[kind] in got.messages[0]
    assert "standard error: dear me" in got.messages[0]
    assert "secret" not in got.messages[0]


READERS: dict[str, Reader] = {
    "numbers": OutputFile("out.txt"),
    "standard output": OutputFile(),
    "table": TableFile("out.txt"),
    "csv": CsvFile("out.txt"),
    "json": JsonFile("out.txt"),
    "regex": RegexFile("out.txt", pattern=r"(\S+)"),
    "netcdf": NetcdfFile("out.txt", variable="y"),
    "python": PythonFile("out.txt", function="numpy:loadtxt"),
    "below": OutputFile("sub/out.txt"),
}


@pytest.mark.parametrize("what", [what for what in REPLACED if what != "loop"])
@pytest.mark.parametrize("name", READERS)
def test_that_no_reader_opens_a_special_file_or_leaves_the_directory(
    name: str, what: str, tmp_path: Path, elsewhere: Path
) -> None:
    reader = READERS[name]
    place = tmp_path / "run" / (reader.paths[0] or "standard_output.txt")
    (tmp_path / "run").mkdir()
    if name == "below" and what == "link":
        place.parent.symlink_to(elsewhere)
    else:
        place.parent.mkdir(exist_ok=True)
        code = REPLACED[what].format(elsewhere=str(elsewhere)).replace("NAME", "name")
        here = Path.cwd()
        os.chdir(place.parent)  # the name of a socket must be short
        try:
            exec(f"import os, socket; {code}", {"name": place.name})
        finally:
            os.chdir(here)
    with pytest.raises(ValueError, match=r"is not a regular file|leads out of the run's directory") as refused:
        reader.read(tmp_path / "run", Y)
    assert "secret" not in str(refused.value)


def test_that_a_link_within_the_directory_is_followed(make: Make, tmp_path: Path) -> None:
    body = "os.mkdir('run7'); os.rename('out.txt', 'run7/step9'); os.symlink('run7', 'last')\n"
    body += "os.symlink('last/step9', 'out.txt')"
    assert run(make("executable", body), tmp_path).outputs.tolist() == [[2.0]]


def test_that_a_linked_input_file_is_no_output(program: MakeProgram, tmp_path: Path) -> None:
    # What a program writes goes to another name; a link that it makes to a linked file leads out of the directory.
    (tmp_path / "table").write_text("1.0\n")
    command = program("ln -s table out.txt")
    model = ExecutableModel(
        (command, "{x}"),
        X,
        Y,
        output_files=(OutputFile("out.txt"),),
        files=(LocalFile(Path("table"), link=True),),
        search_path=tmp_path,
    )
    got = run(model, tmp_path)
    assert got.status == (Status.UNREADABLE,)
    assert "is a link that leads out of the run's directory" in got.messages[0]


LINKED = "os.rename(place, place + '-moved'); os.symlink({elsewhere!r}, place)"
REPLACEMENTS = {
    "its directory by a link": f"place = os.getcwd(); {LINKED}",
    "the parent of it by a link": f"place = os.path.dirname(os.getcwd()); {LINKED}",
    "the parent of that by a link": f"place = os.path.dirname(os.path.dirname(os.getcwd())); {LINKED}",
    "its directory by another": f"place = os.getcwd(); {LINKED.replace('symlink', 'rename')}",
}


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("what", REPLACEMENTS)
@pytest.mark.parametrize("kind", ["executable", "batched"])
def test_that_nothing_is_removed_behind_links_of_a_program(
    kind: str, what: str, more: bool, make: Make, tmp_path: Path, elsewhere: Path
) -> None:
    kept = contents(elsewhere)
    settings = {"keep": "none"} if kind == "executable" else {"rows": 1}
    body = (
        f"if not os.path.exists('{tmp_path}/once'):\n    open('{tmp_path}/once', 'w')\n    "
        + REPLACEMENTS[what].format(elsewhere=str(elsewhere))
        + "\nif kind == 'batched': sys.exit(0 if os.getcwd().endswith('r1') else 3)"
    )
    got = run(make(kind, body, **settings), tmp_path, 1.0, 2.0, 3.0, more=more)
    assert not got.ok[0]
    where = next(p for p in (elsewhere, tmp_path / "runs" / "batch" / "r0") if (p / "precious").exists())
    assert contents(where) == kept
    # The runs after it go on, or are refused if there is no place for them.
    assert got.ok[1] or "was replaced by a link" in got.messages[1]
    for spare in (tmp_path / "runs").rglob(".spare-*"):
        assert not spare.is_symlink()
    run(make("executable"), tmp_path, 1.0, 2.0, more=more)
    assert contents(where) == kept


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["executable", "batched"])
def test_that_a_program_that_is_timed_out_does_not_lose_what_it_put_in_the_place_of_its_directory(
    kind: str, make: Make, tmp_path: Path, elsewhere: Path
) -> None:
    kept = contents(elsewhere)
    body = REPLACEMENTS["its directory by another"].format(elsewhere=str(elsewhere)) + "\ntime.sleep(60)"
    assert run(make(kind, body, timeout=0.5), tmp_path).status == (Status.TIMEOUT,)
    got = run(make(kind), tmp_path)
    assert "a program put something else there" in got.messages[0]
    assert contents(tmp_path / "runs" / "batch" / "r0") == kept


def test_that_a_program_that_stops_its_supervisor_is_timed_out(make: Make, tmp_path: Path) -> None:
    body = "for _ in range(5000):\n    os.kill(os.getppid(), 19)\n    time.sleep(0.01)"
    got = run(make("executable", body, timeout=0.5), tmp_path)
    assert got.status == (Status.TIMEOUT,)


def test_that_a_supervisor_that_was_stopped_once_continues(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = supervisor._Supervisor.send_request

    def stop_and_ask(self: supervisor._Supervisor, *request: Any) -> None:
        self._process.send_signal(signal.SIGSTOP)  # as a program does whose first act it is
        ask(self, *request)

    monkeypatch.setattr(supervisor._Supervisor, "send_request", stop_and_ask)
    assert run(make("executable", timeout=None), tmp_path).ok.all()


@pytest.mark.parametrize("scrub", [False, True], ids=["marked", "scrubbed"])
@pytest.mark.parametrize("kind", [*OUTPUT, "persistent"])
def test_that_no_daemon_outlives_its_run(kind: str, scrub: bool, make: Make, tmp_path: Path) -> None:
    model = make(kind, f"daemon({scrub})\nif kind == 'persistent': sys.exit(3)")
    got = run(model, tmp_path, 1.0, 2.0)
    assert got.ok.all() == (kind != "persistent"), got.messages
    assert (tmp_path / "pids").read_text().split()
    assert alive(tmp_path / "pids") == []


def test_that_runs_in_threads_end_their_own_daemons_alone(make: Make, tmp_path: Path) -> None:
    # A run goes well only if its daemon is alive at its end, whatever ended beside it meanwhile.
    model = make("executable", "pid = daemon(True)\ntime.sleep(float(sys.argv[2]))\nos.kill(pid, 0)")
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(run, model, tmp_path / "slow", 0.6)
        quick = threads.submit(run, model, tmp_path / "quick", 0.0, 0.01, 0.02)
    assert slow.result().ok.all(), slow.result().messages
    assert quick.result().ok.all(), quick.result().messages
    assert len((tmp_path / "pids").read_text().split()) == 4
    assert alive(tmp_path / "pids") == []


def test_that_daemons_are_found_by_their_environment_where_there_is_no_subreaper(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "SUBREAPER", False)
    monkeypatch.setattr(supervisor._supervisors, "idle", [])
    assert run(make("executable", "daemon()"), tmp_path).ok.all()
    got = run(make("executable", "daemon()\nos.fork()\ntime.sleep(60)", timeout=0.5), tmp_path)
    assert got.status == (Status.TIMEOUT,)
    assert len((tmp_path / "pids").read_text().split()) == 2
    assert alive(tmp_path / "pids") == []
    supervisor._supervisors.end_all()


def test_that_a_program_that_kills_its_supervisor_fails_alone(make: Make, tmp_path: Path) -> None:
    body = "daemon()\nif sys.argv[2] == '1.0':\n    os.kill(os.getppid(), 9)\n    time.sleep(60)"
    got = run(make("executable", body), tmp_path, 1.0, 2.0)
    assert got.status == (Status.KILLED, Status.OK)
    assert alive(tmp_path / "pids") == []


def test_that_processes_that_fork_and_end_without_pause_are_caught(make: Make, tmp_path: Path) -> None:
    body = f"""
if os.fork() == 0:
    os.setsid()
    while True:
        if os.fork():
            os._exit(0)
        with open({str(tmp_path / "pids")!r}, "w") as file:
            file.write(str(os.getpid()))
time.sleep(0.2)
"""
    assert run(make("executable", body), tmp_path).ok.all()
    last = (tmp_path / "pids").read_text()
    time.sleep(0.1)
    assert (tmp_path / "pids").read_text() == last


WORKER = """
import sys
from pathlib import Path
from invgp.adapters.processes import make_environment, run_process
run_process((sys.argv[2], "executable", "1.0"), Path(sys.argv[1]), make_environment({}, 1))
"""


def test_that_a_daemon_does_not_outlive_a_worker_that_is_killed(make: Make, tmp_path: Path) -> None:
    make("executable", "daemon(True)\ntime.sleep(60)")
    command = [sys.executable, "-c", WORKER, str(tmp_path), str(tmp_path / "simulator")]
    with subprocess.Popen(command) as worker:
        wait_until(lambda: (tmp_path / "pids").exists() and bool((tmp_path / "pids").read_text().split()))
        worker.kill()
    wait_until(lambda: not alive(tmp_path / "pids"))


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("whose", ["reader", "program"])
def test_that_a_catastrophic_regular_expression_ends_with_the_time_of_the_run(
    whose: str, make: Make, tmp_path: Path
) -> None:
    seconds = 0.2 if whose == "reader" else 20.0
    reader = RegexFile("log.txt", pattern=r"(?:a+a+)+b (\S+)", timeout=seconds)
    body = "open('log.txt', 'w').write('a' * 5000)"
    settings = {} if whose == "reader" else {"timeout": 0.5}
    got = run(make("executable", body, output_files=(reader,), **settings), tmp_path)
    assert got.status == (Status.UNREADABLE,)
    assert f"took longer than {0.2 if whose == 'reader' else 0.5} s" in got.messages[0]


def test_that_the_time_of_a_search_changes_no_digest(make: Make) -> None:
    readers = [RegexFile("out.txt", pattern=r"(\S+)", timeout=seconds) for seconds in (1.0, 2.0)]
    first, second = (make("executable", output_files=(reader,)) for reader in readers)
    assert first.digest == second.digest


def test_that_long_lines_of_blanks_and_digits_cost_little(tmp_path: Path) -> None:
    # Each took time that grew with the square of the length.
    (tmp_path / "out.txt").write_text("1" * 1_000_000 + "x\n")
    with pytest.raises(ValueError, match="is not a number"):
        OutputFile("out.txt").read(tmp_path, Y)
    blanks = " " * 1_000_000 + "\n"
    for instructions in ("pif @\nl1 w !y!\n", "pif @\nl1 !y!\n"):
        with pytest.raises(ValueError, match=r"there is no word|was not found"):
            Instructions(instructions).read(blanks)
