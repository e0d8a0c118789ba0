from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from invgp.adapters import processes, supervisor
from invgp.adapters.processes import KEPT, STDERR, STDOUT, Ending, Outcome, make_environment, run_process

pytestmark = pytest.mark.processes

SH = "/bin/sh"
FLOODS = {1: Ending.STDOUT_LIMIT, 2: Ending.STDERR_LIMIT}


def run(code: str, directory: Path, timeout: float | None = 20.0) -> Outcome:
    return run_process((SH, "-c", code), directory, make_environment({}, 1), timeout)


def is_alive(pid: int) -> bool:
    # Orphans that were killed stay as zombies where nobody is there to reap them.
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def pids_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


# Python closes inherited files in its children: such a grandchild is out of group, session and lifeline.
DETACHED = f"""{sys.executable} -ISc '
import subprocess
p = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
print(p.pid, file=open("pids", "a"), flush=True)
'"""


def test_that_output_goes_to_files_and_the_exit_code_is_reported(tmp_path: Path) -> None:
    outcome = run("pwd; echo $PWD; echo oh dear >&2; exit 3", tmp_path)
    assert outcome == Outcome(Ending.EXITED, 3)
    assert outcome.standard_error == "oh dear"
    assert (tmp_path / STDOUT).read_text() == f"{tmp_path}\n{tmp_path}\n"
    assert (tmp_path / STDERR).read_text() == "oh dear\n"


def test_that_a_signal_is_reported(tmp_path: Path) -> None:
    assert run("kill -SEGV $$", tmp_path).returncode == -signal.SIGSEGV


def test_that_standard_input_is_empty(tmp_path: Path) -> None:
    assert run("cat", tmp_path) == Outcome(Ending.EXITED, 0)


def test_that_threads_are_capped_and_extras_win(tmp_path: Path) -> None:
    environment = make_environment({"MKL_NUM_THREADS": "5", "MODE": "fast"}, threads=3)
    code = "echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $NUMEXPR_NUM_THREADS $MKL_NUM_THREADS $MODE"
    run_process((SH, "-c", code), tmp_path, environment)
    assert (tmp_path / STDOUT).read_text() == "3 3 3 5 fast\n"


def test_that_a_program_that_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_process(("/no/such/program",), tmp_path, {})


def test_that_a_hanging_simulator_is_killed_with_its_children(tmp_path: Path) -> None:
    code = f"""
    sleep 60 & echo $! >> pids
    setsid sleep 60 & echo $! >> pids
    {DETACHED}
    (setsid sh -c 'echo $$ >> pids; sleep 60; true' &)
    echo $$ >> pids
    : > ready
    wait; sleep 60
    """
    start = time.monotonic()
    assert run(code, tmp_path, timeout=2.0).ending is Ending.TIMEOUT
    assert (tmp_path / "ready").exists()
    assert 2.0 <= time.monotonic() - start < 50.0
    pids = pids_in(tmp_path / "pids")
    assert len(pids) == 5
    assert [pid for pid in pids if is_alive(pid)] == []
    assert marked_processes(tmp_path) == []


def test_that_a_program_that_stops_its_supervisor_ends_with_it(tmp_path: Path) -> None:
    code = "echo $PPID >> pids; setsid sleep 60 & echo $! >> pids; echo $$ >> pids; kill -STOP $PPID; sleep 60"
    assert run(code, tmp_path, timeout=2.0).ending is Ending.TIMEOUT
    pids = pids_in(tmp_path / "pids")
    assert len(pids) == 3
    assert [pid for pid in pids if is_alive(pid)] == []
    assert run("true", tmp_path) == Outcome(Ending.EXITED, 0)


def marked_processes(directory: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("INVGP_RUN_DIRECTORY") == str(directory):
                found.append(process.pid)
        except psutil.Error:
            continue
    return [pid for pid in found if is_alive(pid)]


def test_that_children_do_not_outlive_a_simulator_that_ended(tmp_path: Path) -> None:
    # In the group; in the session, but in a group of its own; in a session of its own; there without a mark.
    code = """
    sleep 60 & echo $! >> pids
    sh -c 'set -m; sleep 60 & echo $! >> pids'
    env -i setsid sh -c 'echo $$ >> pids; : > unmarked; sleep 60; true' &
    while [ ! -e unmarked ]; do sleep 0.01; done
    setsid sh -c 'echo $$ >> pids; : > ready; sleep 60; true' &
    while [ ! -e ready ]; do sleep 0.01; done
    """
    assert run(code, tmp_path) == Outcome(Ending.EXITED, 0)
    pids = pids_in(tmp_path / "pids")
    assert len(pids) == 4
    assert [pid for pid in pids if is_alive(pid)] == []


def test_that_a_child_that_holds_the_output_open_does_not_keep_us_waiting(tmp_path: Path) -> None:
    start = time.monotonic()
    run("echo 1; sleep 60 &", tmp_path)
    assert time.monotonic() - start < 30.0


@pytest.mark.parametrize("stream", [1, 2])
def test_that_a_flood_of_output_is_stopped_and_cut_to_its_ends(
    stream: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_LIMIT", 1_000_000)
    start = time.monotonic()
    outcome = run(f"echo other >&{3 - stream}; (echo the start; yes) >&{stream}", tmp_path)
    assert time.monotonic() - start < 30.0
    assert outcome.ending is FLOODS[stream]
    log, other = (tmp_path / name for name in ((STDOUT, STDERR) if stream == 1 else (STDERR, STDOUT)))
    kept = log.read_text()
    assert kept.startswith("the start\ny\ny\n")
    assert kept.rstrip().endswith("y\ny")
    assert "bytes were cut out here" in kept
    assert 2 * KEPT < len(kept) < 2 * KEPT + 100
    assert other.read_text() == "other\n"


@pytest.mark.parametrize("stream", [1, 2])
def test_that_a_flood_that_ends_by_itself_is_a_flood(
    stream: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_LIMIT", 100_000)
    outcome = run(f"head -c 200000 /dev/zero >&{stream}; rm -f standard_*.txt", tmp_path)
    assert outcome == Outcome(FLOODS[stream], 0)


def test_that_the_limit_itself_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOG_LIMIT", 100_000)
    code = "head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2; sleep 0.3"
    assert run(code, tmp_path) == Outcome(Ending.EXITED, 0)
    assert (tmp_path / STDOUT).stat().st_size == (tmp_path / STDERR).stat().st_size == 100_000


def test_that_the_end_of_a_long_standard_error_is_quoted(tmp_path: Path) -> None:
    outcome = run("head -c 1000000 /dev/zero | sed 's/\\x0/é/g' >&2; echo the end >&2", tmp_path)
    assert outcome.standard_error == "é" * 1993 + "the end"


def test_that_an_interrupt_kills_the_tree_and_passes_through(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from invgp.adapters.processes import make_environment, run_process\n"
        "script = 'setsid sleep 60 & echo $! > pids; echo $$ >> pids; mv pids ready; wait'\n"
        "run_process(('/bin/sh', '-c', script), Path(sys.argv[1]), make_environment({}, 1))\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert wait_for((tmp_path / "ready").exists)
    worker.send_signal(signal.SIGINT)
    _, stderr = worker.communicate(timeout=10)
    assert "KeyboardInterrupt" in stderr
    assert [pid for pid in pids_in(tmp_path / "ready") if is_alive(pid)] == []


def test_that_an_interrupted_spawn_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = supervisor._Supervisor.send_request

    def raise_interrupt(*request: Any) -> None:
        real(*request)
        assert wait_for(lambda: marked_processes(tmp_path) != [])
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor._Supervisor, "send_request", raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        run("sleep 60", tmp_path)
    assert marked_processes(tmp_path) == []


def test_that_no_descriptor_leaks(tmp_path: Path) -> None:
    run("true", tmp_path)
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        run("true", tmp_path)
        with pytest.raises(FileNotFoundError):
            run_process(("/no/such/program",), tmp_path, {})
    assert len(list(Path("/dev/fd").iterdir())) == before
