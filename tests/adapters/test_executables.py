from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

from helpers.executable_models import DEPTH, SPEED, TIME, MakeProgram, executable_model, run
from invgp.adapters import (
    AdapterError,
    Evaluations,
    ExecutableModel,
    InputFile,
    OutputFile,
    Quantity,
    RunContext,
    Status,
    executables,
)
from invgp.adapters.testing import check_forward_model

GRAVITY = Quantity("gravity", "mGal")
VALUES = np.array([[1.0, 10.0, 20.0], [3.0, 30.0, 40.0], [4.0, 50.0, 60.0]])


C_SIMULATOR = r"""
#include <stdio.h>
#include <math.h>
int main(void) {
    double v, a, b;
    FILE *in = fopen("model/in.txt", "r"), *out = fopen("times.txt", "w");
    if (!in || !out || fscanf(in, "%lf %lf %lf", &v, &a, &b) != 3) return 3;
    if (isnan(v)) { fprintf(stderr, "speed is nan\n"); return 4; }
    fprintf(out, "# time (s)\n%.17g, %.17g\n", a / v, b / v);
    fclose(out);
    return 0;
}
"""


@pytest.fixture(scope="session")
def program_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "simulator.c").write_text(C_SIMULATOR)
    subprocess.run(["cc", "-o", str(folder / "simulator"), str(folder / "simulator.c"), "-lm"], check=True)
    (folder / "in.txt").write_text("{speed}\n{depth[1]}\n{depth[2]}\n")
    return folder


def compiled_model(folder: Path, **settings: Any) -> ExecutableModel:
    return ExecutableModel(
        **{
            "command": ("./simulator",),
            "inputs": (SPEED, DEPTH),
            "outputs": (TIME,),
            "input_files": (InputFile(Path("in.txt"), "model/in.txt"),),
            "output_files": (OutputFile("times.txt"),),
            "search_path": folder,
            **settings,
        }
    )


def test_that_a_compiled_program_conforms(program_folder: Path, tmp_path: Path) -> None:
    check_forward_model(compiled_model(program_folder, timeout=20.0), VALUES, tmp_path)


def test_that_a_program_by_arguments_and_standard_output_conforms(program: MakeProgram, tmp_path: Path) -> None:
    model = executable_model(program("echo $1 $1"), tmp_path)
    check_forward_model(model, np.array([[1.5], [2.5], [3.0]]), tmp_path / "runs")


def test_that_numbers_go_in_and_come_out_exactly(program_folder: Path, tmp_path: Path) -> None:
    values = np.random.default_rng(1).lognormal(size=(20, 3))
    got = run(compiled_model(program_folder), tmp_path, values)
    np.testing.assert_array_equal(got.outputs, values[:, 1:] / values[:, :1])
    assert list((tmp_path / "runs" / "batch").iterdir()) == []


def test_that_a_program_in_parallel_gives_the_same(program_folder: Path, tmp_path: Path) -> None:
    model = compiled_model(program_folder)
    context = RunContext(["a", "b", "c"], tmp_path)
    parts = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(model.evaluate)(VALUES[i : i + 1], context.rows(i, i + 1)) for i in range(3)
    )
    np.testing.assert_array_equal(Evaluations.concatenate(parts).outputs, run(model, tmp_path, VALUES).outputs)


def test_that_outputs_come_from_several_files_in_their_own_order(program: MakeProgram, tmp_path: Path) -> None:
    sh = program("echo header; echo 7; mkdir out; echo 1.0D+01 20 30 > out/b.txt")
    model = executable_model(
        sh,
        tmp_path,
        outputs=(TIME, GRAVITY, Quantity("height", "m")),
        output_files=(
            OutputFile(outputs=("gravity",), skip_lines=1),
            OutputFile("out/b.txt", ("height", "time")),
        ),
    )
    assert run(model, tmp_path).outputs.tolist() == [[20.0, 30.0, 7.0, 10.0]]


def test_that_arguments_are_templates_and_no_shell_reads_them(program: MakeProgram, tmp_path: Path) -> None:
    sh = program("""printf '%s\\n' "$@" >&2; exit 2""")
    model = executable_model(sh, tmp_path, command=(sh, "speed={speed:.2f}", "$(touch hacked); {{x}} *"))
    got = run(model, tmp_path)
    assert "standard error: speed=1.00 | $(touch hacked); {x} *; directory" in got.messages[0]
    assert not (tmp_path / "runs" / "batch" / "r0" / "hacked").exists()


@pytest.mark.parametrize(
    ("body", "status", "cause"),
    [
        ("exit 3", Status.EXIT_CODE, "exit code 3"),
        ("echo no good >&2; exit 1", Status.EXIT_CODE, "exit code 1; standard error: no good"),
        ("kill -SEGV $$", Status.KILLED, "killed by signal SIGSEGV"),
        ("kill -40 $$", Status.KILLED, "killed by signal 40"),
        ("sleep 60", Status.TIMEOUT, "timed out after 0.3 s"),
        ("echo 1 abc", Status.UNREADABLE, "standard output: line 1: 'abc' is not a number"),
        ("echo 1", Status.UNREADABLE, "standard output: expected 2 numbers, found 1"),
        ("echo 1 2 3", Status.UNREADABLE, "standard output: expected 2 numbers, found 3"),
        (":", Status.UNREADABLE, "standard output: expected 2 numbers, found 0"),
        ("echo 1 nan; echo why >&2", Status.NAN, "output time[2] is nan; standard error: why"),
        ("echo -Infinity 1", Status.NAN, "output time[1] is -inf"),
    ],
)
def test_that_the_message_of_a_failed_run_contains_run_reason_and_directory(
    body: str, status: Status, cause: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(executable_model(program(body), tmp_path, timeout=0.3 if "sleep" in body else 20.0), tmp_path)
    directory = tmp_path / "runs" / "batch" / "r0"
    assert got.status == (status,)
    assert got.messages == (f"run r0: {cause}; directory: {directory}",)
    assert directory.is_dir()
    assert np.isnan(got.outputs).all()


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (":", "file 'times.txt' was not written"),
        ("echo 1 > times.txt", "file 'times.txt': expected 2 numbers, found 1"),
        ("printf '1\\nabc' > times.txt", "file 'times.txt': line 2: 'abc' is not a number"),
        ("mkdir times.txt", "file 'times.txt': is not a regular file"),
        ("mkfifo times.txt", "file 'times.txt': is not a regular file"),
        ("ln -s times.txt times.txt", "file 'times.txt' cannot be read: "),
        ("head -c 300 /dev/urandom | tr -d '\\n#' > times.txt; echo x >> times.txt", "file 'times.txt': "),
        (
            "truncate -s 65M times.txt",
            "file 'times.txt': holds 68157440 bytes, over the limit of 67108864 bytes",
        ),
    ],
)
def test_that_an_output_file_that_cannot_be_read_is_reported(
    body: str, cause: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(executable_model(program(body), tmp_path, output_files=(OutputFile("times.txt"),)), tmp_path)
    assert got.status == (Status.UNREADABLE,)
    assert got.messages[0].startswith(f"run r0: {cause}")


def test_that_a_failed_row_does_not_disturb_its_neighbours(program: MakeProgram, tmp_path: Path) -> None:
    got = run(
        executable_model(program('[ "$1" = 2.0 ] && exit 9; echo $1 $1'), tmp_path), tmp_path, [[1.0], [2.0], [3.0]]
    )
    assert got.status == (Status.OK, Status.EXIT_CODE, Status.OK)
    assert [p.name for p in (tmp_path / "runs" / "batch").iterdir()] == ["r1"]


def test_that_huge_output_is_bounded_in_the_message(program: MakeProgram, tmp_path: Path) -> None:
    model = executable_model(
        program("yes 'complaint \x1b[1m' | head -c 20000000 >&2; yes 1 | head -c 20000000"), tmp_path
    )
    got = run(model, tmp_path)
    assert got.status == (Status.UNREADABLE,)
    assert "holds 10000000 lines, over the limit" in got.messages[0]
    assert len(got.messages[0]) < 3000
    assert got.messages[0].isprintable()


@pytest.mark.parametrize(("stream", "shown"), [(1, "standard output"), (2, "standard error")])
def test_that_a_program_that_never_stops_printing_is_killed(
    stream: int, shown: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(executable_model(program(f"yes 1 >&{stream}"), tmp_path), tmp_path)
    assert got.status == (Status.KILLED,)
    cause = f"killed, since it wrote more than 64 MiB to {shown}, of which the first and last 32 KiB are kept"
    assert got.messages[0].startswith(f"run r0: {cause}; ")
    directory = tmp_path / "runs" / "batch" / "r0"
    assert sum(file.stat().st_size for file in directory.iterdir()) < 70_000


def test_that_a_directory_of_an_earlier_attempt_is_replaced(program: MakeProgram, tmp_path: Path) -> None:
    old = tmp_path / "runs" / "batch" / "r0"
    old.mkdir(parents=True)
    (old / "times.txt").write_text("1 2")
    got = run(executable_model(program(":"), tmp_path, output_files=(OutputFile("times.txt"),)), tmp_path)
    assert "was not written" in got.messages[0]


def test_that_a_run_directory_that_cannot_be_made_is_reported(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in the way")
    got = run(executable_model(program("echo 1 2"), tmp_path), tmp_path, [[1.0], [2.0]])
    assert got.status == (Status.NOT_STARTED,) * 2
    assert re.match(r"run r1: could not be started: .*Not a directory.*; directory: ", got.messages[1])


def test_that_a_full_disk_is_reported(program_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_no_space(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    model = compiled_model(program_folder)
    monkeypatch.setattr(Path, "write_bytes", raise_no_space)
    got = run(model, tmp_path, VALUES)
    assert got.status == (Status.NOT_STARTED,) * 3
    assert "No space left on device" in got.messages[0]


def test_that_a_program_that_cannot_be_started_is_reported(program: MakeProgram, tmp_path: Path) -> None:
    command = program("echo 1 2")
    model = executable_model(command, tmp_path)
    (tmp_path / "simulator").write_text("echo 1 2\n")
    assert "a script must start with a line such as #!/bin/sh" in run(model, tmp_path).messages[0]
    (tmp_path / "simulator").unlink()
    got = run(model, tmp_path)
    assert got.status == (Status.NOT_STARTED,)
    assert "could not be started" in got.messages[0]


def test_that_a_directory_that_cannot_be_removed_does_not_fail_the_run(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(path: str, *, dir_fd: int) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("invgp.adapters.directories.remove_tree", busy)
    assert run(executable_model(program("echo 1 2"), tmp_path), tmp_path).ok.all()
    assert "could not be removed" in caplog.text


@pytest.mark.parametrize("label", ["", ".", "..", "../r", "/etc", "a/b"])
def test_that_a_label_cannot_lead_out_of_the_directory(label: str, program: MakeProgram, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a directory"):
        executable_model(program("echo 1 2"), tmp_path).evaluate(np.ones((1, 1)), RunContext([label], tmp_path))


def test_that_an_interrupt_passes_through(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(executables, "run_process", raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(executable_model(program("echo 1 2"), tmp_path), tmp_path)


def test_that_threads_and_environment_reach_the_program(program: MakeProgram, tmp_path: Path) -> None:
    sh = program("echo $OMP_NUM_THREADS $LEVEL")
    got = run(executable_model(sh, tmp_path, threads=3, environment={"LEVEL": "8"}), tmp_path)
    assert got.outputs.tolist() == [[3.0, 8.0]]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"command": ()}, "command: must name a program, but is empty"),
        ({"command": ("",)}, "command: must name a program"),
        ({"command": ("./simulatr",)}, r"command: there is no file .*/simulatr; did you mean 'simulator'\?"),
        ({"command": ("./no/such",)}, r"command: there is no file .*/no/such, nor a directory .*/no"),
        ({"command": ("./in.txt",)}, r"command: .*/in.txt is not executable; chmod \+x"),
        ({"command": ("no-such-program",)}, "command: no program 'no-such-program' on PATH$"),
        ({"command": ("simulator",)}, "no program 'simulator' on PATH; for the file .* write './simulator'"),
        ({"command": ("./simulator", "a\0")}, "command: 'a.*' holds a null character"),
        (
            {"command": ("./simulator", "{sped}")},
            r"command\[1\]: line 1: \{sped\} names no input; did you mean 'speed'",
        ),
        ({"command": ("./simulator", "{speed")}, r"command\[1\]: line 1: .*doubled"),
        (
            {"inputs": (SPEED, DEPTH, GRAVITY)},
            r"inputs: gravity never reaches the program: write \{gravity\}",
        ),
        (
            {"inputs": (SPEED, Quantity("depth", "m", (1, 2, 3)))},
            r"inputs: depth\[3\] never reaches the program",
        ),
        ({"outputs": ()}, "outputs: must name at least one"),
        (
            {"input_files": (InputFile(Path("in.tx"), "a"),)},
            r"input_files\[0\].template: there is no file .*'in.txt'",
        ),
        (
            {"input_files": (InputFile(Path("sub"), "a"),)},
            r"input_files\[0\].template: .*/sub cannot be read: Is a dir",
        ),
        (
            {"input_files": (InputFile(Path("bin"), "a"),)},
            r"input_files\[0\].template: .*/bin is not UTF-8 text",
        ),
        (
            {"input_files": (InputFile(Path("bad"), "a"),)},
            r"input_files\[0\].template: .*/bad, line 2: \{x\} names no",
        ),
        (
            {"input_files": (InputFile(Path("in.txt"), "../a"),)},
            r"input_files\[0\].path: '../a' must be a file inside",
        ),
        ({"input_files": (InputFile(Path("in.txt"), "/a"),)}, r"input_files\[0\].path: '/a' must be"),
        ({"input_files": (InputFile(Path("in.txt"), "."),)}, r"input_files\[0\].path: '.' must be"),
        ({"input_files": (InputFile(Path("in.txt"), ""),)}, r"input_files\[0\].path: '' must be"),
        (
            {"input_files": (InputFile(Path("in.txt"), "a"),) * 2},
            r"input_files\[1\].path: 'a' is taken by input_files\[0\]",
        ),
        ({"input_files": (InputFile(Path("in.txt"), "standard_error.txt"),)}, "is taken by standard error"),
        (
            {"output_files": (OutputFile("a/../../b"),)},
            r"output_files\[0\].path: 'a/../../b' must be a file inside",
        ),
        (
            {"output_files": (OutputFile("./model/in.txt"),)},
            r"output_files\[0\].path: .* is taken by input_files\[0\]",
        ),
        (
            {"output_files": (OutputFile("standard_output.txt"),)},
            "taken by standard output; .* leave the path out",
        ),
        (
            {"output_files": (OutputFile("a", ("tim",)),)},
            r"output_files\[0\].outputs: 'tim' is no output; did you mean",
        ),
        (
            {"output_files": (OutputFile("a"), OutputFile("b"))},
            r"\[1\].outputs: 'time' is read already by output_files\[0\]",
        ),
        ({"output_files": ()}, "output_files: 'time' is an output, but no file holds it"),
        (
            {"output_files": (OutputFile("a", skip_lines=-1),)},
            r"output_files\[0\].skip_lines: must not be negative",
        ),
        ({"timeout": 0.0}, "timeout: must be a positive number of seconds; it is 0.0"),
        ({"timeout": float("nan")}, "timeout: must be a positive"),
        ({"threads": 0}, "threads: must be at least 1; it is 0"),
        ({"environment": {"A=B": "1"}}, "environment: 'A=B' = '1' cannot be"),
    ],
)
def test_that_settings_that_cannot_work_are_reported(
    settings: Any, sentence: str, program_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(program_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "bin").write_bytes(b"\xff\xfe")
    (tmp_path / "bad").write_text("{speed}\n{x}")
    with pytest.raises(AdapterError, match=sentence):
        compiled_model(tmp_path, **settings)


def test_that_a_program_is_found_on_the_path_or_from_the_current_directory(
    program_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program_folder), prepend=os.pathsep)
    assert run(compiled_model(program_folder, command=("simulator",)), tmp_path, VALUES).ok.all()
    monkeypatch.chdir(program_folder)
    assert run(compiled_model(program_folder, search_path=None), tmp_path, VALUES).ok.all()
    assert run(compiled_model(Path("..") / program_folder.name), tmp_path, VALUES).ok.all()


def test_that_a_relative_directory_for_runs_will_do(
    program_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert compiled_model(program_folder).evaluate(VALUES, RunContext(["a", "b", "c"], Path("runs"))).ok.all()


def test_that_the_digest_sees_all_that_decides_the_outputs(program_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(program_folder, tmp_path, dirs_exist_ok=True)
    data = tmp_path / "data.txt"
    data.write_text("1")
    digests = [
        compiled_model(tmp_path).digest,
        compiled_model(tmp_path, threads=2).digest,
        compiled_model(tmp_path, environment={"A": "1"}).digest,
        compiled_model(tmp_path, command=("./simulator", "-v")).digest,
        compiled_model(tmp_path, command=("./simulator", str(data))).digest,
        compiled_model(tmp_path, output_files=(OutputFile("times.txt", skip_lines=1),)).digest,
        compiled_model(tmp_path, inputs=(Quantity("speed", "km s-1"), DEPTH)).digest,
    ]
    data.write_text("2")
    digests.append(compiled_model(tmp_path, command=("./simulator", str(data))).digest)
    (tmp_path / "in.txt").write_text("{speed} {depth[1]} {depth[2]}\n")
    digests.append(compiled_model(tmp_path).digest)
    with (tmp_path / "simulator").open("ab") as file:
        file.write(b"\0")
    digests.append(compiled_model(tmp_path).digest)
    assert len(set(digests)) == len(digests)


def test_that_the_digest_travels_with_the_files_and_ignores_the_timeout(program_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(program_folder, tmp_path, dirs_exist_ok=True)
    model = compiled_model(program_folder)
    assert compiled_model(tmp_path, timeout=5.0).digest == model.digest
    assert pickle.loads(pickle.dumps(model)).digest == model.digest
    assert (model.name, model.rows_per_task) == ("simulator", 1)


def test_that_an_interpreter_runs_a_script_by_its_absolute_path(tmp_path: Path) -> None:
    script = tmp_path / "simulate.py"
    script.write_text("import sys\nprint(sys.argv[1], 2 * float(sys.argv[1]))\n")
    model = executable_model(sys.executable, tmp_path, command=(sys.executable, str(script), "{speed}"))
    assert run(model, tmp_path).outputs.tolist() == [[1.0, 2.0]]
