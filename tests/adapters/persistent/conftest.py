"""No program is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.persistent_models import programs_of
from invgp.adapters import persistent_process


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    persistent_process.end_all()
    assert programs_of(tmp_path) == []
