from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from helpers.executable_models import MakeProgram


@pytest.fixture
def program(tmp_path: Path) -> MakeProgram:
    """Write an executable script beside the config, in sh or in Python, and give its relative path."""

    def make(body: str, language: str = "sh", name: str = "simulator") -> str:
        first = "#!/bin/sh" if language == "sh" else f"#!{sys.executable} -IS"
        path = tmp_path / name
        path.write_text(f"{first}\n{textwrap.dedent(body)}")
        path.chmod(0o755)
        return f"./{name}"

    return make
