"""A simulator that fails stops the inversion with exit code 3, and says which run, why, and where."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import CONFIG, at_once, invgp, small, with_program, write_files

FAULTS = {
    "crash": ("echo 'no mesh' >&2; kill -SEGV $$", "killed by signal SIGSEGV; standard error: no mesh"),
    "exit code": ("echo 'no mesh' >&2; exit 3", "exit code 3; standard error: no mesh"),
    "hang": ("sleep 60", "timed out after 0.1 s"),
    "garbage": ("echo '*** 0.5 ***'", "standard output: line 1: '***' is not a number"),
    "NaN": ("echo nan", "output time is nan"),
}


RAISED = {
    "exception": ("raise FloatingPointError('no mesh')", "FloatingPointError: no mesh"),
    "function of NaN": ("return depth * float('nan')", "output time is nan"),
    "function of text": ("return 'fast'", "output time came as a str that holds no numbers"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each fault, with a survey whose simulator has it."""
    home = tmp_path_factory.mktemp("faults")
    for fault, (body, _) in FAULTS.items():
        (home / fault).mkdir()
        config = small(with_program(body=body, directory=home / fault))
        write_files(home / fault, config.replace("[noise]", "timeout = 0.1\n[noise]" if fault == "hang" else "[noise]"))
    for fault, (body, _) in RAISED.items():
        (home / fault).mkdir()
        write_files(home / fault)
        (home / fault / "model.py").write_text(f"def time(depth):\n    {body}\n")
    return home


@pytest.fixture(scope="module")
def results(home: Path) -> dict[str, subprocess.CompletedProcess[str]]:
    faults = [*FAULTS, *RAISED]
    commands = [["run", f"{fault}/survey.toml", "-o", f"{fault}/line.nc"] for fault in faults]
    return dict(zip(faults, at_once(commands, cwd=home), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_that_a_failing_program_stops_the_inversion(
    fault: str, home: Path, results: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    result = results[fault]
    assert (result.returncode, result.stdout) == (3, "")
    assert "Traceback" not in result.stderr
    assert "stopped at inference.max_failed_share = 0.1: 2 of 2 runs failed" in result.stderr
    said = re.search(r"run (evaluation1-site\d-sample\d): (.*); directory: (.*)", result.stderr)
    assert said is not None
    run, cause, where = said.groups()
    assert cause == FAULTS[fault][1]
    assert Path(where).parent.parent == home / fault / "line.runs"
    assert Path(where).name == run
    assert {"standard_output.txt", "standard_error.txt"} <= {file.name for file in Path(where).iterdir()}
    assert not (home / fault / "line.nc").exists()


@pytest.mark.parametrize("fault", RAISED)
def test_that_a_failing_function_stops_the_inversion(
    fault: str, home: Path, results: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    result = results[fault]
    assert (result.returncode, result.stdout) == (3, "")
    assert f"run evaluation1-site1-sample1: {RAISED[fault][1]}" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (home / fault / "line.runs").exists()


def test_that_a_worker_that_dies_is_a_sentence(tmp_path: Path) -> None:
    write_files(tmp_path, CONFIG.replace('"model:time"', '"model:time"\nvectorised = false'))
    (tmp_path / "model.py").write_text(
        "import os, signal\n\n\ndef time(depth):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = invgp("run", "survey.toml", "--workers", "2", cwd=tmp_path)
    assert result.returncode == 3
    assert re.match(r"invgp: a worker process .*died while it ran 'time'", result.stderr)
    assert "Traceback" not in result.stderr


def test_that_a_few_failures_are_counted_and_kept(tmp_path: Path) -> None:
    body = 'awk "BEGIN { if ($1 > 520) exit 4; print 2 * $1 / 2000 }"'
    config = with_program(body=body, directory=tmp_path)
    write_files(tmp_path, config.replace("seed = 3", "seed = 3\nmax_evaluations = 1\nmax_failed_share = 0.9"))
    result = invgp("run", "survey.toml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    summary, directories = result.stdout.splitlines()
    failed = int(re.search(r"96 runs, (\d+) failed", summary)[1])  # type: ignore[index]
    assert 0 < failed < 80
    assert f"96 runs, {failed} failed" in result.stderr
    assert directories == f"{tmp_path}/posterior.runs: the directories of failed runs"
    [inversion] = (tmp_path / "posterior.runs").iterdir()
    assert len(list(inversion.iterdir())) == failed
