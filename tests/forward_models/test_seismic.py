"""Two-way times: closed forms, broadcasting, and the C program against the Python function."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from helpers.c_programs import (
    BAD_VELOCITY,
    MALFORMED,
    NO_MEMORY,
    UNREADABLE,
    UNWRITABLE,
    USAGE,
    assert_fails,
    needs_compiler,
)
from invgp.forward_models import two_way_times


def random_model(rng: np.random.Generator, layers: int) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum(rng.uniform(1.0, 900.0, layers)), rng.uniform(300.0, 8000.0, layers)


def model_text(depth: np.ndarray, velocity: np.ndarray) -> str:
    rows = [f"{d!r} {v!r}" for d, v in zip(depth.tolist(), velocity.tolist(), strict=True)]
    return "\n".join([str(len(rows)), *rows, ""])


def run(program: Path, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "model.txt").write_text(text)
    command = [str(program), "model.txt", "times.txt"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_that_one_layer_takes_twice_its_depth_over_its_velocity() -> None:
    np.testing.assert_allclose(two_way_times([1500.0], [2000.0]), [1.5], rtol=1e-15)


def test_that_equal_velocities_ignore_the_layers() -> None:
    depth = np.array([100.0, 250.0, 1700.0, 1700.0])
    np.testing.assert_allclose(two_way_times(depth, np.full(4, 2500.0)), 2.0 * depth / 2500.0, rtol=1e-14)


def test_that_times_add_up_layer_by_layer() -> None:
    depth, velocity = np.array([200.0, 500.0, 1600.0, 2200.0]), np.array([1950.0, 2300.0, 2750.0, 3650.0])
    times = two_way_times(depth, velocity)
    first = 2.0 * 200.0 / 1950.0
    second = first + 2.0 * 300.0 / 2300.0
    third = second + 2.0 * 1100.0 / 2750.0
    np.testing.assert_allclose(times, [first, second, third, third + 2.0 * 600.0 / 3650.0], rtol=1e-14)
    np.testing.assert_allclose(two_way_times(depth[:2], velocity[:2]), times[:2], rtol=1e-15)


def test_that_a_layer_of_no_thickness_takes_no_time() -> None:
    np.testing.assert_array_equal(np.diff(two_way_times([300.0, 300.0], [2000.0, 50.0])), [0.0])


def test_that_leading_axes_are_independent_models() -> None:
    rng = np.random.default_rng(3)
    depth = rng.uniform(1.0, 900.0, (5, 7, 4)).cumsum(axis=-1)
    velocity = rng.uniform(300.0, 8000.0, (5, 7, 4))
    times = two_way_times(depth, velocity)
    assert times.shape == (5, 7, 4)
    for index in np.ndindex(5, 7):
        np.testing.assert_array_equal(times[index], two_way_times(depth[index], velocity[index]))


def test_that_leading_axes_broadcast() -> None:
    rng = np.random.default_rng(4)
    depth, velocity = rng.uniform(1.0, 900.0, (6, 1, 3)).cumsum(axis=-1), rng.uniform(300.0, 8000.0, 3)
    times = two_way_times(depth, velocity)
    assert times.shape == (6, 1, 3)
    np.testing.assert_array_equal(times, two_way_times(depth, np.broadcast_to(velocity, depth.shape)))


def test_that_the_arguments_are_left_alone_and_integers_do_not_truncate() -> None:
    depth, velocity = np.array([100, 250]), np.array([3000, 4000])
    times = two_way_times(depth, velocity)
    assert times.dtype == np.float64
    np.testing.assert_allclose(times, [200.0 / 3000.0, 200.0 / 3000.0 + 300.0 / 4000.0], rtol=1e-15)
    np.testing.assert_array_equal(depth, [100, 250])
    np.testing.assert_array_equal(velocity, [3000, 4000])


@pytest.mark.slow
@needs_compiler
def test_that_the_c_program_agrees_with_python(program: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for layers in [1, 1, 4, 500, *rng.integers(1, 40, 196)]:
        depth, velocity = random_model(rng, int(layers))
        done = run(program, tmp_path, model_text(depth, velocity))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "times.txt").read_text().startswith("#")
        times = np.loadtxt(tmp_path / "times.txt", ndmin=1)
        np.testing.assert_allclose(times, two_way_times(depth, velocity), rtol=1e-10, atol=0.0)


@needs_compiler
def test_that_the_c_program_skips_comments_and_blank_lines(program: Path, tmp_path: Path) -> None:
    comment = "# " + "x" * 5000
    done = run(program, tmp_path, f"# model\n{comment}\n\n2\r\n# first\n1000 2000\n  3e3\t4000   \n\n# end")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "times.txt"), [1.0, 2.0])


@needs_compiler
@pytest.mark.parametrize("arguments", [[], ["model.txt"], ["a", "b", "c"]])
def test_that_the_c_program_explains_its_usage(program: Path, arguments: list[str]) -> None:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    assert_fails(done, USAGE, "usage: two_way_times MODEL_FILE TIMES_FILE")


@needs_compiler
@pytest.mark.parametrize("name", ["missing.txt", "."])
def test_that_the_c_program_names_a_file_it_cannot_read(program: Path, tmp_path: Path, name: str) -> None:
    command = [str(program), name, "times.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert_fails(done, UNREADABLE, f"the model file '{name}' cannot be read")
    assert not (tmp_path / "times.txt").exists()


@needs_compiler
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("two\n1 2\n", "line 1 of 'model.txt' must hold the number of layers"),
        ("0\n", "line 1 of 'model.txt' must hold the number of layers"),
        ("-1\n", "line 1 of 'model.txt' must hold the number of layers"),
        ("1.5\n100 2000\n", "line 1 of 'model.txt' must hold the number of layers"),
        ("9" * 40 + "\n", "line 1 of 'model.txt' must hold the number of layers"),
        ("2\n100 2000\n", "announces 2 layers, but it holds 1"),
        ("1\n100 2000\n200 2000\n", "announces 1 layers, but it holds more"),
        ("1\n\n100\n", "line 3 of 'model.txt' must hold a depth in m and a velocity in m s-1"),
        ("1\n100 2000 7\n", "line 2 of 'model.txt' must hold a depth"),
        ("1\n100 2000m\n", "line 2 of 'model.txt' must hold a depth"),
        ("1\n1e999 2000\n", "line 2 of 'model.txt' must hold a depth"),
        ("1\nnan 2000\n", "line 2 of 'model.txt' must hold a depth"),
        ("1\n100 " + "1" * 2000 + "\n", "line 2 of 'model.txt' must hold a depth"),
    ],
)
def test_that_the_c_program_refuses_a_malformed_model(program: Path, tmp_path: Path, text: str, words: str) -> None:
    assert_fails(run(program, tmp_path, text), MALFORMED, words)
    assert not (tmp_path / "times.txt").exists()


@needs_compiler
@pytest.mark.parametrize("velocity", ["0", "-2000", "-0.0"])
def test_that_the_c_program_refuses_a_velocity_that_is_not_positive(
    program: Path, tmp_path: Path, velocity: str
) -> None:
    done = run(program, tmp_path, f"2\n100 2000\n200 {velocity}\n")
    assert_fails(done, BAD_VELOCITY, "the velocity on line 3 of 'model.txt' must be positive")


@needs_compiler
def test_that_the_c_program_names_a_file_it_cannot_write(program: Path, tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("1\n100 2000\n")
    command = [str(program), "model.txt", "missing/times.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert_fails(done, UNWRITABLE, "the times file 'missing/times.txt' cannot be written")


@needs_compiler
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_that_the_c_program_notices_a_full_disk(program: Path, tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("1\n100 2000\n")
    command = [str(program), "model.txt", "/dev/full"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert_fails(done, UNWRITABLE, "was not written in full")


@needs_compiler
def test_that_the_c_program_survives_an_absurd_number_of_layers(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path, "4000000000000000000\n100 2000\n")
    assert_fails(done, NO_MEMORY, "there is not enough memory")
