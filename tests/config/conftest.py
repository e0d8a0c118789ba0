"""A project that tests edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.config_files import CALLABLE, CONFIG, EXECUTABLE, SIMULATOR, SITES, Edits, WriteSurvey, edit_text


@pytest.fixture
def write_survey(tmp_path: Path) -> WriteSurvey:
    """Write a config, its survey and its simulators into one folder, with edits; give the config's path."""

    def write(config: Edits | None = None, sites: Edits | None = None, *, executable: bool = False) -> Path:
        text = edit_text(CONFIG, {CALLABLE: EXECUTABLE} if executable else {})
        (tmp_path / "survey.toml").write_text(edit_text(text, config or {}))
        (tmp_path / "sites.csv").write_text(edit_text(SITES, sites or {}))
        (tmp_path / "simulator.py").write_text(SIMULATOR)
        program = tmp_path / "simulator.sh"
        program.write_text("#!/bin/sh\ncat model.txt > times.txt\n")
        program.chmod(0o755)
        (tmp_path / "model.tpl").write_text("{depth[1]} {depth[2]}\n# {velocity}\n")
        return tmp_path / "survey.toml"

    return write
