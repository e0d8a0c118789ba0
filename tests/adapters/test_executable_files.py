"""Programs as they are: files brought along, several formats, target files, fallbacks, bounds, kept directories."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.executable_models import DEPTH, SPEED, TIME, MakeProgram, executable_model, run
from invgp.adapters import (
    AdapterError,
    CsvFile,
    ExecutableModel,
    InputFile,
    JsonFile,
    LocalFile,
    OutputFile,
    Quantity,
    RegexFile,
    Status,
    TableFile,
)
from invgp.adapters.testing import check_forward_model

MISFIT = Quantity("misfit", "1")
VALUES = np.array([[1.0, 10.0, 20.0], [3.0, 30.0, 40.0]])

C_PROGRAM = r"""
#include <stdio.h>
int main(void) {
    double v, a, b, scale;
    FILE *plain = fopen("speed.txt", "r"), *pest = fopen("depth.txt", "r"), *data = fopen("data/scale.txt", "r");
    FILE *out = fopen("times.csv", "w");
    if (!plain || !pest || !data || !out) return 3;
    if (fscanf(plain, "speed=%lf", &v) != 1 || fscanf(pest, "%24lf%24lf", &a, &b) != 2) return 4;
    if (fscanf(data, "%lf", &scale) != 1) return 5;
    fprintf(out, "layer,t\n1,%.17g\n2,%.17g\n", scale * a / v, scale * b / v);
    printf("iteration 1 misfit: 9\niteration 2 misfit: %.17g\n", v);
    return fclose(out);
}
"""


@pytest.fixture
def compiled_adapter(tmp_path: Path) -> ExecutableModel:
    (tmp_path / "program.c").write_text(C_PROGRAM)
    subprocess.run(["cc", "-o", str(tmp_path / "program"), str(tmp_path / "program.c")], check=True)
    (tmp_path / "speed.txt").write_text("speed={speed:.17g}\n")
    (tmp_path / "depth.tpl").write_text(f"ptf ~\n~{'depth1':<22}~~{'depth_2':<22}~\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "scale.txt").write_text("2.0")
    return ExecutableModel(
        command=("./program",),
        inputs=(SPEED, DEPTH),
        outputs=(MISFIT, TIME),
        input_files=(
            InputFile(Path("speed.txt"), "speed.txt"),
            InputFile(Path("depth.tpl"), "depth.txt", "tpl"),
        ),
        output_files=(
            CsvFile("times.csv", ("time",), column="t"),
            RegexFile(None, ("misfit",), pattern=r"misfit: (\S+)", row=-1),
        ),
        files=(LocalFile(Path("data"), link=True),),
        timeout=20.0,
        search_path=tmp_path,
    )


def test_that_a_c_program_with_files_of_all_kinds_conforms(compiled_adapter: ExecutableModel, tmp_path: Path) -> None:
    check_forward_model(compiled_adapter, VALUES, tmp_path / "runs")
    got = run(compiled_adapter, tmp_path, VALUES)
    expected = np.stack([VALUES[:, 0], *(2.0 * VALUES[:, 1:] / VALUES[:, :1]).T], axis=1)
    np.testing.assert_allclose(got.outputs, expected, rtol=1e-15)
    assert (tmp_path / "data" / "scale.txt").read_text() == "2.0"


def test_that_files_are_copied_and_linked(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "a.txt").write_text("1\n")
    (tmp_path / "b.txt").write_text("2\n")
    sh = program("echo 9 >> in/copy.txt; cat mesh/a.txt link.txt; test -L link.txt && test ! -L in/copy.txt")
    files = (
        LocalFile(Path("mesh")),
        LocalFile(Path("b.txt"), "in/copy.txt"),
        LocalFile(tmp_path / "b.txt", "link.txt", link=True),
    )
    model = executable_model(sh, tmp_path, files=files)
    assert run(model, tmp_path).outputs.tolist() == [[1.0, 2.0]]
    assert (tmp_path / "b.txt").read_text() == "2\n"
    (tmp_path / "mesh" / "a.txt").write_text("3\n")
    assert executable_model(sh, tmp_path, files=files).digest != model.digest


def test_that_a_directory_is_not_copied_into_itself(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.txt").write_text("1\n")
    model = executable_model(program("cat runs/a.txt"), tmp_path, files=(LocalFile(Path("runs")),))
    got = run(model, tmp_path)
    assert got.status[0] is Status.NOT_STARTED
    assert "the directory 'runs' is copied for each run, but runs are inside it" in got.messages[0]
    assert len(got.messages[0]) < 1000


def test_that_one_file_may_be_read_twice(program: MakeProgram, tmp_path: Path) -> None:
    model = executable_model(
        program("echo '{\"t\": [1, 2]}' > o.json; echo 5 6"),
        tmp_path,
        outputs=(TIME, MISFIT),
        output_files=(JsonFile("o.json", ("time",), key="t"), TableFile(None, ("misfit",), column=2)),
    )
    assert run(model, tmp_path).outputs.tolist() == [[1.0, 2.0, 6.0]]


@pytest.mark.parametrize(
    ("body", "status", "cause"),
    [
        ("echo 1 2; touch done; exit 7", Status.OK, ""),
        ("echo 1 2; touch done; kill -SEGV $$", Status.OK, ""),
        ("echo 1 2", Status.EXIT_CODE, "exit code 0, and the target file 'done' was not written"),
        ("exit 7", Status.EXIT_CODE, "exit code 7, and the target file 'done' was not written"),
        ("kill -SEGV $$", Status.KILLED, "killed by signal SIGSEGV, and the target file"),
    ],
)
def test_that_a_target_file_is_success(
    body: str, status: Status, cause: str, program: MakeProgram, tmp_path: Path
) -> None:
    got = run(executable_model(program(body), tmp_path, target_file="done"), tmp_path)
    assert got.status == (status,)
    assert cause in got.messages[0]


def test_that_a_fallback_runs_where_the_command_failed(program: MakeProgram, tmp_path: Path) -> None:
    fast = program('touch trace; [ "$1" = 1.0 ] && echo 1 1 && exit; echo diverged >&2; exit 2', name="fast")
    slow = program('[ -e trace ] && exit 5; [ "$1" = 3.0 ] && exit 6; echo $1 $1', name="slow")
    model = executable_model(fast, tmp_path, fallback=(slow, "{speed}"))
    got = run(model, tmp_path, [[1.0], [2.0], [3.0]])
    assert got.status == (Status.OK, Status.OK, Status.EXIT_CODE)
    assert got.outputs[:2].tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert got.messages[2].startswith(
        "run r2: exit code 2; standard error: diverged; the fallback: exit code 6; directory: "
    )
    assert model.digest != executable_model(fast, tmp_path).digest
    check_forward_model(model, np.array([[1.0], [2.0], [3.0]]), tmp_path / "check")


def test_that_an_output_out_of_bounds_fails_its_run(program: MakeProgram, tmp_path: Path) -> None:
    model = executable_model(program("echo 1 $1"), tmp_path, bounds={"time": (0.0, 5.0)})
    got = run(model, tmp_path, [[4.0], [6.0]])
    assert got.status == (Status.OK, Status.OUT_OF_BOUNDS)
    assert got.messages[1].startswith("run r1: output time[2] is 6, above its upper bound, 5; directory: ")
    assert np.isnan(got.outputs[1]).all()
    check_forward_model(model, np.array([[4.0], [6.0]]), tmp_path / "check")


@pytest.mark.parametrize(("keep", "kept"), [("failed", {"r1"}), ("all", {"r0", "r1"}), ("none", set())])
def test_that_directories_are_kept_as_requested(
    keep: str, kept: set[str], program: MakeProgram, tmp_path: Path
) -> None:
    model = executable_model(program('[ "$1" = 2.0 ] && exit 9; echo $1 $1'), tmp_path, keep=keep)
    got = run(model, tmp_path, [[1.0], [2.0]])
    assert got.status == (Status.OK, Status.EXIT_CODE)
    assert {path.name for path in (tmp_path / "runs" / "batch").iterdir()} == kept
    assert ("directory" in got.messages[1]) == (keep != "none")


def test_that_a_template_value_cannot_lead_out(program: MakeProgram, tmp_path: Path) -> None:
    sh = program("printf '%s\\n' \"$1\" >&2; exit 1")
    got = run(executable_model(sh, tmp_path), tmp_path, [[np.nan], [-np.inf]])
    assert "standard error: nan;" in got.messages[0]
    assert "standard error: -inf;" in got.messages[1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"files": (LocalFile(Path("dat")),)}, r"files\[0\].source: there is no file .*/dat; did you mean 'data'\?"),
        ({"files": (LocalFile(Path("data"), "../x"),)}, r"files\[0\].path: '../x' must be a file inside"),
        ({"files": (LocalFile(Path("data"), "/x"),)}, r"files\[0\].path: '/x' must be a file inside"),
        ({"files": (LocalFile(Path("data")),) * 2}, r"files\[1\].path: 'data' is taken by files\[0\].path"),
        (
            {
                "files": (LocalFile(Path("data"), link=True),),
                "input_files": (InputFile(Path("in.txt"), "data/in.txt"),),
            },
            r"input_files\[0\].path: 'data/in.txt' is taken by files\[0\].path",
        ),
        (
            {"files": (LocalFile(Path("data"), link=True),), "output_files": (OutputFile("data/new.txt"),)},
            r"output_files\[0\].path: 'data/new.txt' is taken by files\[0\].path",
        ),
        (
            {"files": (LocalFile(Path("data/old.txt")),), "output_files": (OutputFile("old.txt"),)},
            r"output_files\[0\].path: 'old.txt' is taken by files\[0\]",
        ),
        ({"files": (LocalFile(Path()),)}, r"files\[0\].path: '.' must be a file inside"),
        ({"target_file": "../done"}, "target_file: '../done' must be a file inside"),
        ({"fallback": ("./nothing",)}, "fallback: there is no file"),
        ({"fallback": ("./simulator", "{sped}")}, r"fallback\[1\]: line 1: \{sped\} names no input"),
        ({"fallback": ("./simulator",)}, "inputs: speed never reaches the program"),
        ({"bounds": {"tim": (0, 1)}}, r"bounds: 'tim' is no output; did you mean 'time'\?"),
        ({"bounds": {"time": (1, 0)}}, "bounds: 'time' must have min below max; they are 1 and 0"),
        ({"keep": "some"}, "keep: must be one of 'failed', 'all', 'none'; it is 'some'"),
        (
            {"input_files": (InputFile(Path("in.txt"), "in.txt", "ptf"),)},
            r"input_files\[0\].format: must be 'plain' or 'tpl'; it is 'ptf'",
        ),
        (
            {"input_files": (InputFile(Path("in.txt"), "in.txt", "tpl"),)},
            r"input_files\[0\].template: .*/in.txt, line 1: must be 'ptf' and a delimiter",
        ),
    ],
)
def test_that_settings_that_cannot_work_are_refused(
    settings: dict[str, Any], sentence: str, program: MakeProgram, tmp_path: Path
) -> None:
    sh = program("echo 1 2")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old.txt").write_text("1 2")
    (tmp_path / "in.txt").write_text("1")
    with pytest.raises(AdapterError, match=sentence):
        executable_model(sh, tmp_path, **settings)


def test_that_an_old_output_in_a_copied_directory_is_not_read(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old.txt").write_text("1 2")
    files, outputs = (LocalFile(Path("data")),), (OutputFile("data/old.txt"),)
    got = run(executable_model(program(":"), tmp_path, files=files, output_files=outputs), tmp_path)
    assert "file 'data/old.txt' was not written" in got.messages[0]
    assert (tmp_path / "data" / "old.txt").read_text() == "1 2"


def test_that_a_linked_original_outlives_the_run(program: MakeProgram, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("1")
    model = executable_model(
        program("echo 1 2; exit $1"), tmp_path, files=(LocalFile(Path("data"), link=True),), keep="none"
    )
    for _ in range(2):
        assert run(model, tmp_path, [[0.0]]).status[0] in (Status.OK, Status.EXIT_CODE)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["x"]
