"""A simulator that fails stops the inversion with exit code 3, and says which run, why, and where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.command_line import (
    CONFIG,
    FULL_GAUSSIAN,
    Command,
    invgp,
    with_few_runs,
    with_inference,
    with_program,
    write_files,
)

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


@pytest.mark.parametrize("fault", FAULTS)
def test_that_a_failing_program_stops_the_inversion(fault: str, invgp_here: Command, tmp_path: Path) -> None:
    body, expected = FAULTS[fault]
    config = with_few_runs(with_program(body=body, directory=tmp_path))
    write_files(tmp_path, config.replace("[noise]", "timeout = 0.1\n[noise]" if fault == "hang" else "[noise]"))
    result = invgp_here("run", "survey.toml", "-o", "line.nc", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert "Traceback" not in result.stderr
    assert "stopped at inference.max_failed_share = 0.1: 5 of 5 runs failed" in result.stderr
    printed = re.search(r"run (emulator-step-1-site\d-sample\d): (.*); directory: (.*)", result.stderr)
    assert printed is not None
    run, cause, where = printed.groups()
    assert cause == expected
    assert Path(where).parent.parent == tmp_path / "line.runs"
    assert Path(where).name == run
    assert {"standard_output.txt", "standard_error.txt"} <= {file.name for file in Path(where).iterdir()}
    assert not (tmp_path / "line.nc").exists()


@pytest.mark.parametrize("fault", RAISED)
@pytest.mark.parametrize(
    ("lines", "batch"), [([], "emulator-step-1"), ([FULL_GAUSSIAN], "evaluation-1")], ids=["default", "full gaussian"]
)
def test_that_a_failing_function_stops_the_inversion(
    fault: str, lines: list[str], batch: str, invgp_here: Command, tmp_path: Path
) -> None:
    body, expected = RAISED[fault]
    write_files(tmp_path, with_inference(*lines))
    (tmp_path / "model.py").write_text(f"def time(depth):\n    {body}\n")
    result = invgp_here("run", "survey.toml", "-o", "line.nc", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert f"run {batch}-site1-sample1: {expected}" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "line.runs").exists()


@pytest.mark.slow
def test_that_a_worker_that_dies_is_reported_in_one_sentence(tmp_path: Path) -> None:
    write_files(tmp_path, CONFIG.replace('"model:time"', '"model:time"\nvectorised = false'))
    (tmp_path / "model.py").write_text(
        "import os, signal\n\n\ndef time(depth):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = invgp("run", "survey.toml", "--workers", "2", cwd=tmp_path)
    assert result.returncode == 3
    assert re.match(r"invgp: a worker process died whenever it ran 'time'; workers = 1 runs it in this", result.stderr)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("lines", "batch"),
    [
        (['posterior = "coupled gaussian"', "max_failed_share = 0.5"], 18),
        ([FULL_GAUSSIAN, "max_evaluations = 1", "max_failed_share = 0.9"], 96),
    ],
    ids=["coupled gaussian", "full gaussian"],
)
def test_that_a_few_failures_are_counted_and_kept(
    lines: list[str], batch: int, invgp_here: Command, tmp_path: Path
) -> None:
    body = 'awk "BEGIN { if ($1 > 540) exit 4; print 2 * $1 / 2000 }"'
    write_files(tmp_path, with_inference(*lines, config=with_program(body=body, directory=tmp_path)))
    result = invgp_here("run", "survey.toml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    summary, directories = result.stdout.splitlines()
    made, failed = map(int, re.search(r" (\d+) runs, (\d+) failed", summary).groups())  # type: ignore[union-attr]
    assert made % batch == 0
    assert 0 < failed < 0.8 * made
    assert f" runs, {failed} failed" in result.stderr
    assert directories == f"{tmp_path}/posterior.runs: the directories of failed runs"
    [inversion] = (tmp_path / "posterior.runs").iterdir()
    kept = len(list(inversion.iterdir()))
    assert kept == failed if batch == 18 else 0 < kept <= failed  # sites that ask for the same run share it
