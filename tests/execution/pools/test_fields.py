"""Field models whose runs are made elsewhere: on a Dask cluster, and by a server of the package umbridge."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.worker_pools import PATIENCE

pytestmark = pytest.mark.processes

CONFIG = """
[survey]
file = "survey.csv"
coordinates.position.unit = "m"
observations.average = { columns = ["average"], unit = "m" }

[grid.coordinates]
position = { unit = "m", start = 0, stop = 22, step = 2 }

[latents.depth]
unit = "m"
mean = 20
std = 4
kernel = { kind = "matern 5/2", length_scale = 10 }

[forward]
kind = "field"
FORWARD
inputs = ["depth"]
outputs = ["average"]

[noise]
std.average = 0.3

[inference]
max_runs = 40
"""
FUNCTION = 'adapter = "callable"\nfunction = "averages:averages"'
AVERAGES = """
def averages(depth):
    return (depth[..., 0::2] + depth[..., 1::2]) / 2.0
"""
SERVER = """
import sys, numpy, umbridge
from averages import averages

class Averages(umbridge.Model):
    def get_input_sizes(self, config): return [12]
    def get_output_sizes(self, config): return [6]
    def supports_evaluate(self): return True
    def __call__(self, parameters, config={}): return [averages(numpy.asarray(parameters[0])).tolist()]

umbridge.serve_models([Averages("averages")], int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{2 + 4 * n},{20 + 3 * np.sin(n):.4f}" for n in range(6)]
    (tmp_path / "survey.csv").write_text("\n".join(["position,average", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "averages.py").write_text(AVERAGES, encoding="utf-8")
    return tmp_path


def invert_field(folder: Path, forward: str = FUNCTION, scheduler: str | None = None) -> xr.Dataset:
    """The posterior without what tells where the runs were made."""
    sys.modules.pop("averages", None)
    (folder / "survey.toml").write_text(CONFIG.replace("FORWARD", forward), encoding="utf-8")
    posterior = invgp.invert(invgp.load(folder / "survey.toml"), scheduler=scheduler)
    assert 0 < posterior.attrs["invgp_runs"] <= 40
    assert posterior.attrs["invgp_runs_failed"] == 0
    return posterior.drop_attrs()


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The address of a server of the package umbridge, in a process of its own."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(port)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline, "the server did not come up"
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def test_that_a_dask_cluster_does_not_change_the_result_of_a_field(folder: Path, dask_file: str) -> None:
    assert invert_field(folder).identical(invert_field(folder, scheduler=dask_file))


@pytest.mark.slow
def test_that_a_server_does_not_change_the_result_of_a_field(folder: Path, server: str) -> None:
    asked = f'adapter = "umbridge"\nurls = ["{server}"]\nmodel = "averages"'
    assert invert_field(folder).identical(invert_field(folder, asked))


def test_that_a_server_with_another_grid_is_reported(folder: Path, server: str) -> None:
    asked = f'adapter = "umbridge"\nurls = ["{server}"]\nmodel = "averages"'
    finer = CONFIG.replace("FORWARD", asked).replace("step = 2 }", "step = 1 }")
    (folder / "survey.toml").write_text(finer, encoding="utf-8")
    with pytest.raises(invgp.errors.InvgpError, match=r"takes blocks of sizes \[12\]"):
        invgp.invert(invgp.load(folder / "survey.toml"))
