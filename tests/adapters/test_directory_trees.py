"""Directories that a program filled, removed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from helpers.executable_models import MakeProgram, executable_model
from invgp.adapters import RunContext
from invgp.adapters.directory_trees import empty_directory, remove_tree
from invgp.inference.invert import _temporary_directory


@pytest.fixture(autouse=True)
def _no_deep_trees_for_pytest_to_remove(tmp_path: Path) -> Iterator[None]:
    yield
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


def fill(folder: Path, depth: int) -> None:
    """Directories inside each other, with a file and a link in each, and a branch in the first ones."""
    (folder / "tree").mkdir(parents=True)
    with chdir(folder / "tree"):
        for level in range(depth):
            Path("file").write_text("x")
            Path("link").symlink_to(folder / "kept")
            if level < 5:
                Path("branch/below").mkdir(parents=True)
                Path("branch/below/file").write_text("x")
            os.mkdir("deep")  # noqa: PTH102 - the path is too long for anything but a name
            os.chdir("deep")


def test_that_a_tree_deeper_than_the_stack_is_removed_and_its_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    fill(tmp_path, 1500)
    remove_tree(tmp_path / "tree")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["kept", "kept/file"]


def test_that_a_directory_is_emptied_and_stays(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    descriptor = os.open(tmp_path / "tree", os.O_RDONLY)
    empty_directory(descriptor)
    os.close(descriptor)
    assert list((tmp_path / "tree").iterdir()) == []


def test_that_a_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    assert (tmp_path / "tree" / "file").exists()


@pytest.mark.slow
def test_that_a_deep_temporary_directory_of_an_inversion_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _temporary_directory() as directory:
        fill(directory, 1500)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["", "exit 3"])
def test_that_a_program_may_leave_a_tree_deeper_than_the_stack(
    ending: str, program: MakeProgram, tmp_path: Path
) -> None:
    body = f"mkdir -p {'d/' * 1500}; echo 1 2; {ending}"
    context = RunContext(["run"], tmp_path / "runs")
    for _ in range(2):  # the directory of a run that failed is removed when its label comes again
        outcome = executable_model(program(body), tmp_path).evaluate(np.ones((1, 1)), context)
        assert outcome.ok.tolist() == [not ending]
    assert (tmp_path / "runs" / "run").exists() == bool(ending)
