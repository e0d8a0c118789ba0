"""A persistent program that cannot be started keeps no file descriptors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from invgp.adapters.persistent_process import PersistentProcess
from invgp.adapters.run_errors import RunError


def test_that_pipes_are_closed_if_there_are_too_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, opened = os.pipe, []

    def fail_at_third() -> tuple[int, int]:
        if len(opened) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        opened.append(made())
        return opened[-1]

    monkeypatch.setattr(os, "pipe", fail_at_third)
    with pytest.raises(RunError, match=r"could not be started: .*Too many open files"):
        PersistentProcess(["/bin/cat"], {}, tmp_path)
    for descriptor in (descriptor for pipe in opened for descriptor in pipe):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
