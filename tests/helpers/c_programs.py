"""The C program of the two-way times: its exit codes, and whether it can be compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import invgp.forward_models

SOURCE = Path(invgp.forward_models.__file__).with_name("two_way_times.c")
CC = os.environ.get("CC", "cc")
needs_compiler = pytest.mark.skipif(shutil.which(CC) is None, reason="there is no C compiler here")

USAGE, UNREADABLE, MALFORMED, BAD_VELOCITY, UNWRITABLE, NO_MEMORY = 1, 2, 3, 4, 5, 6


def assert_fails(done: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
