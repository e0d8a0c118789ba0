"""The server and the tables that the guide shows."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.executable_models import DEPTH, TIME
from invgp.adapters import PersistentModel, Quantity, RunContext
from invgp.adapters.testing import check_forward_model
from invgp.config import load

pytestmark = pytest.mark.processes


def server_of(page: str) -> str:
    [example] = re.findall(r"```python\n#!/usr/bin/env python3\n([^`]*for line in sys.stdin.*?)```", page, re.DOTALL)
    return f"#!{sys.executable}\n{example}"


@pytest.fixture
def guide(root: Path) -> str:
    return (root / "docs" / "simulators.md").read_text(encoding="utf-8")


def test_that_the_server_of_the_guide_conforms(guide: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(server_of(guide))
    (tmp_path / "server.py").chmod(0o755)
    quantities = DEPTH, Quantity("velocity", "m s-1", (1, 2))
    served = PersistentModel(("./server.py",), quantities, (TIME,), search_path=tmp_path)
    check_forward_model(served, np.array([[100.0, 200.0, 2000.0, 4000.0], [100.0, 200.0, 500.0, 800.0]]), tmp_path)
    [failed] = served.evaluate(np.array([[1.0, 2.0, 0.0, 1.0]]), RunContext(["r0"], tmp_path)).messages
    assert failed.startswith("run r0: the program says: float division by zero")


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["callable", "executable", "persistent", "batched"])
def test_that_the_tables_of_the_guide_run(adapter: str, guide: str, otway: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(otway, tmp_path / "otway")
    (folder / "simulator.py").write_text("from invgp.forward_models import two_way_times\n")
    (folder / "server.py").write_text(server_of(guide))
    (folder / "server.py").chmod(0o755)
    tables = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    table = next(table for table in tables if f'adapter = "{adapter}"' in table)
    config = (folder / "otway_c.toml").read_text()
    before, _, after = config.partition("[forward]")
    (folder / "guide.toml").write_text(f"{before}{table}\n[noise]{after.partition('[noise]')[2]}")
    forward = load(folder / "guide.toml").forward
    values = np.array([[200.0, 500.0, 1600.0, 2200.0, 1950.0, 2300.0, 2750.0, 3650.0]] * 2)
    got = forward.evaluate(values, RunContext(["a", "b"], tmp_path / "runs"))
    assert got.messages == ("", "")
    np.testing.assert_allclose(got.outputs[:, 0], 400.0 / 1950.0)
