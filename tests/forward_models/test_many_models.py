"""The C program kept running, and with many models in one file: the same times as with one model a file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import invgp
from helpers.c_programs import MALFORMED, UNREADABLE, UNWRITABLE, assert_fails, needs_compiler
from invgp.adapters import RunContext, persistent_process
from invgp.adapters.testing import check_forward_model
from invgp.forward_models import two_way_times

NAMES = "depth[1],depth[2],velocity[1],velocity[2]"

pytestmark = needs_compiler


def serve(program: Path, *lines: str) -> list[Any]:
    done = subprocess.run([program, "--serve"], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def request(number: int, depth: Sequence[float], velocity: Sequence[float]) -> str:
    return json.dumps({"id": number, "inputs": {"depth": list(depth), "velocity": list(velocity)}})


def batch(program: Path, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "models.csv").write_text(text)
    command = [str(program), "--batch", "models.csv", "times.csv"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def models(count: int, layers: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    depth = rng.uniform(1.0, 900.0, (count, layers)).cumsum(axis=1)
    return np.hstack([depth, rng.uniform(300.0, 8000.0, (count, layers))])


@pytest.mark.parametrize("layers", [1, 4, 3000])
def test_that_the_server_agrees_with_python(program: Path, layers: int) -> None:
    depth, velocity = np.split(models(5, layers), 2, axis=1)
    answers = serve(program, *(request(i, *pair) for i, pair in enumerate(zip(depth, velocity, strict=True))))
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3, 4]
    times = [answer["outputs"]["time"] for answer in answers]
    np.testing.assert_allclose(times, two_way_times(depth, velocity), rtol=1e-12)


@pytest.mark.parametrize(
    "line",
    [
        ' { "inputs" : {"velocity" :[2000 ,4e3],"depth":[1000,3000.0]} , "id":7 } ',
        '{"id":7,"inputs":{"depth":[1000,3000],"velocity":[2000,4000]}}\r',
    ],
)
def test_that_the_order_of_keys_and_white_space_do_not_matter(program: Path, line: str) -> None:
    assert serve(program, line) == [{"id": 7, "outputs": {"time": [1.0, 2.0]}}]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("", None),
        ("{", None),
        ("[]", None),
        ('{"id": 7}', 7),
        ('{"id": 7, "inputs": {"depth": [1], "velocity": [1]}} x', 7),
        ('{"id": 7, "inputs": {"depth": [1], "velocity": [1, 2]}}', 7),
        ('{"id": 7, "inputs": {"depth": [], "velocity": []}}', 7),
        ('{"id": 7, "inputs": {"depth": [NaN], "velocity": [1]}}', 7),
        ('{"id": 7, "inputs": {"depth": [[1]], "velocity": [1]}}', 7),
        ('{"id": 7, "inputs": {"depths": [1], "velocity": [1]}}', 7),
        ('{"inputs": {"depth": [1], "velocity": [1]}}', None),
        ('{"id": "7", "inputs": {"depth": [1], "velocity": [1]}}', None),
    ],
)
def test_that_the_server_rejects_an_invalid_request_and_continues(program: Path, line: str, number: int | None) -> None:
    refusal, answer = serve(program, line, request(8, [1000.0], [2000.0]))
    sentence = "a request must hold an id, and inputs depth and velocity of the same length"
    assert refusal == {"id": number, "error": sentence}
    assert answer == {"id": 8, "outputs": {"time": [1.0]}}


def test_that_the_server_names_a_velocity_that_is_not_positive(program: Path) -> None:
    [answer] = serve(program, request(7, [100.0, 200.0], [2000.0, -3.5]))
    assert answer == {"id": 7, "error": "the velocity of layer 2 must be positive, but it is -3.5 m s-1"}


def test_that_a_time_too_large_is_null(program: Path) -> None:
    assert serve(program, request(7, [1e308], [1e-300])) == [{"id": 7, "outputs": {"time": [None]}}]


@pytest.mark.parametrize("layers", [1, 4, 500])
def test_that_a_batch_agrees_with_python(program: Path, tmp_path: Path, layers: int) -> None:
    rows = models(20, layers)
    names = [f"{name}[{p}]" for name in ("depth", "velocity") for p in range(layers)]
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    done = batch(program, tmp_path, (tmp_path / "rows.csv").read_text())
    assert done.returncode == 0, done.stderr
    times = np.loadtxt(tmp_path / "times.csv", delimiter=",", ndmin=2).reshape(20, layers)
    np.testing.assert_allclose(times, two_way_times(*np.split(rows, 2, axis=1)), rtol=1e-12)


def test_that_a_row_of_a_batch_that_cannot_be_done_is_nan(program: Path, tmp_path: Path) -> None:
    done = batch(
        program, tmp_path, f"{NAMES}\n1000,3000,2000,4000\n\n1,2,3,0\n1000, 3000,2000 ,4e3\n".replace(" ,", ",")
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "times.csv").read_text().splitlines()[1:] == ["1,2", "nan", "1,2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'models.csv' must start with the names of its columns"),
        ("1,2,3,4\n", "must start with the names of its columns"),
        ("velocity[1],depth[1]\n", "must start with the names of its columns"),
        ("depth[1],depth[2],velocity[1]\n", "must start with the names of its columns"),
        (f"{NAMES}\n1,2,3\n", "line 2 of 'models.csv' must hold 4 numbers between commas"),
        (f"{NAMES}\n1,2,3,4\n1,2,3,4,5\n", "line 3 of 'models.csv' must hold 4 numbers"),
        (f"{NAMES}\n1,2,3,x\n", "line 2 of 'models.csv' must hold 4 numbers"),
        (f"{NAMES}\n1,2,3,nan\n", "line 2 of 'models.csv' must hold 4 numbers"),
    ],
)
def test_that_a_malformed_batch_is_refused(program: Path, tmp_path: Path, text: str, words: str) -> None:
    assert_fails(batch(program, tmp_path, text), MALFORMED, words)


def test_that_files_of_a_batch_that_are_not_there_are_named(program: Path, tmp_path: Path) -> None:
    (tmp_path / "models.csv").write_text(f"{NAMES}\n1,2,3,4\n")
    for models_file, times_file, code, words in (
        ("missing.csv", "times.csv", UNREADABLE, "the models file 'missing.csv' cannot be read"),
        ("models.csv", "missing/times.csv", UNWRITABLE, "the times file 'missing/times.csv' cannot be written"),
        ("models.csv", "/dev/full", UNWRITABLE, "the times file '/dev/full' was not written in full"),
    ):
        command = [str(program), "--batch", models_file, times_file]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert_fails(done, code, words)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["otway_c_persistent.toml", "otway_c_batched.toml"])
def test_that_the_configs_of_the_case_study_give_the_times_of_one_file_a_model(
    name: str, otway: Path, tmp_path: Path
) -> None:
    many, single = (invgp.load(otway / config).forward for config in (name, "otway_c.toml"))
    values = models(20, 4)
    context = RunContext([f"r{i}" for i in range(20)], tmp_path)
    expected = single.evaluate(values, context)
    np.testing.assert_allclose(many.evaluate(values, context).outputs, expected.outputs, rtol=1e-12, atol=0.0)
    values[3, 6] = -1.0
    assert [i for i, ok in enumerate(many.evaluate(values, context).ok) if not ok] == [3]
    check_forward_model(many, values[:5], tmp_path)
    persistent_process.end_all()
