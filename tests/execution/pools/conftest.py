"""Simulators whose runs take their time, or kill their worker; and a Dask cluster of separate processes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.worker_pools import Program, cluster
from invgp.adapters import CallableModel, ExecutableModel, Quantity


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A shell script as a simulator: `$1` is its input, and `started` gets a line a start."""

    def make(body: str = "") -> ExecutableModel:
        script = tmp_path / "simulator.sh"
        counted = f'echo "$1" >> {tmp_path}/started'
        script.write_text(f'#!/bin/sh\n{counted}\n{textwrap.dedent(body)}\nawk "BEGIN {{ print $1 / 3 }}"\n')
        script.chmod(0o755)
        inputs, outputs = (Quantity("x", "m"),), (Quantity("z", "s"),)
        return ExecutableModel(("./simulator.sh", "{x}"), inputs, outputs, search_path=tmp_path)

    return make


@pytest.fixture
def function(tmp_path: Path) -> Callable[[str], CallableModel]:
    """A function of one row, which can be imported wherever its folder can be read."""

    def make(body: str) -> CallableModel:
        (tmp_path / "simulator.py").write_text(f"import os, signal\n\n\ndef run(x):\n    {body}\n    return x / 3\n")
        inputs, outputs = (Quantity("x", "m"),), (Quantity("z", "s"),)
        return CallableModel("simulator:run", inputs, outputs, vectorised=False, search_path=tmp_path)

    return make


@pytest.fixture(scope="session")
def dask_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The scheduler file of a cluster of two workers, which their nannies start again when they die."""
    with cluster(tmp_path_factory.mktemp("dask"), workers=2) as (file, _):
        yield str(file)
