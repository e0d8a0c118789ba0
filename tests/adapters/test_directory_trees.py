"""Directories that a program filled, removed."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path

import pytest

from invgp.adapters.directory_trees import empty_directory, remove_tree


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
