"""kill -9 of an inversion: what it runs ends with it, so that nothing runs in vain, or twice when it goes on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helpers.command_line import SIMULATOR, Command, with_few_runs, with_inference, with_program, write_files
from helpers.running_commands import PATIENCE, left_behind, start_command
from helpers.worker_pools import cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]

UNDER_WAY = 2  # runs at once

# A program with a child that has left its group, and which goes on for long unless `go` is there.
BODY = f"""cd "$(dirname "$0")"
echo "$1" >> started
if [ ! -e go ]; then setsid sleep 600 & sleep 600; fi
{SIMULATOR}"""


def programs(folder: Path) -> list[int]:
    """The programs of all runs below a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            place = process.environ().get("INVGP_RUN_DIRECTORY", "")
            if Path(place).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:  # it ended while we looked, or it is not ours
            continue
    return found


def until_there_are(wanted: bool, folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while bool(programs(folder)) != wanted:
        assert not wanted or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "programs go on" if not wanted else "no program was started"
        time.sleep(0.05)


def started_inputs(folder: Path) -> list[str]:
    file = folder / "started"
    return file.read_text().split() if file.exists() else []


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "dask").mkdir()
    with cluster(tmp_path / "dask", workers=2) as (file, _):
        yield file


def arguments(how: str, request: pytest.FixtureRequest) -> list[str]:
    if how == "dask":
        return ["--scheduler", str(request.getfixturevalue("scheduler"))]
    return ["--workers", "1" if how == "loop" else "2"]


@pytest.mark.parametrize("how", ["loop", "processes", "threading", "dask"])
def test_that_programs_end_with_the_inversion_that_runs_them(
    how: str, request: pytest.FixtureRequest, invgp_here: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "survey"
    folder.mkdir()
    config = with_few_runs(with_program(body=BODY, directory=folder))
    write_files(folder, with_inference('backend = "threading"', config=config) if how == "threading" else config)
    command = ["run", "survey.toml", *arguments(how, request)]
    under_way = 1 if how == "loop" else UNDER_WAY
    with start_command(*command, cwd=folder) as (process, mark):
        until_there_are(True, folder, process)
        deadline = time.monotonic() + PATIENCE
        while len(started_inputs(folder)) < under_way:
            assert time.monotonic() < deadline, "not all workers are at work"
            time.sleep(0.05)
        process.kill()
        process.communicate(timeout=PATIENCE)
        until_there_are(False, folder, process)
        assert left_behind(mark) == []
    (folder / "go").touch()
    killed = started_inputs(folder)
    result = invgp_here(*command, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert " 0 failed" in result.stdout
    again = started_inputs(folder)[len(killed) :]
    assert len(set(again)) == len(again)
    assert len(killed) == under_way
    assert set(killed) <= set(again)
