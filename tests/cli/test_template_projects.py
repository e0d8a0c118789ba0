"""Every command, from an empty directory, for each project template."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import xarray as xr

from helpers.command_line import Command
from invgp.cli import COMMANDS
from invgp.scaffolds import KINDS

pytestmark = [pytest.mark.processes, pytest.mark.slow]

# Each command of the way, and a file that is there after it.
STEPS = [
    (["check", "survey.toml"], "survey.toml"),
    (["run", "survey.toml"], "posterior.nc"),
    (["predict", "posterior.nc"], "posterior.map.nc"),
    (["plot", "posterior.nc"], "posterior.png"),
    (["report", "posterior.nc"], "posterior.html"),
    (["export", "posterior.nc", "--format", "csv"], "posterior.csv"),
]


@pytest.fixture
def port() -> int:
    """One that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def start_server(folder: Path, port: int) -> Iterator[None]:
    """The server of the project, as its README says to start it."""
    with subprocess.Popen(
        [sys.executable, "server.py", str(port)], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"Serving 'valley' at http://127.0.0.1:{port}; press Ctrl-C to stop\n"
            yield
        finally:
            server.terminate()


@pytest.mark.parametrize("kind", KINDS)
def test_that_a_newcomer_gets_from_an_empty_folder_to_a_result(
    kind: str, invgp_here: Command, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in an environment that was activated: the programs of the projects are scripts of `python3`.
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
    folder = tmp_path / "empty"
    folder.mkdir()
    assert invgp_here("init", kind, cwd=folder).returncode == 0
    if kind == "umbridge":  # the one line that may have to be edited
        config = folder / "survey.toml"
        config.write_text(config.read_text().replace("127.0.0.1:4242", f"127.0.0.1:{port}"))
    with start_server(folder, port) if kind == "umbridge" else nullcontext():
        for arguments, file in STEPS:
            if arguments[0] not in COMMANDS:
                continue
            scalars = kind == "scalars"  # nothing varies in space
            if scalars and arguments[0] == "predict":
                continue
            result = invgp_here(*arguments, cwd=folder)
            assert result.returncode == 0, result.stderr
            assert "warning" not in result.stderr
            assert (folder / (file.replace(".png", "_scalars.png") if scalars else file)).stat().st_size > 0
    with xr.open_dataset(folder / "posterior.nc") as posterior:
        assert posterior.attrs["invgp_converged"] == "yes"
        for name in posterior.attrs["invgp_observations"].split():
            misfit = posterior[f"{name}_residual"] / posterior[f"{name}_noise_std"]
            assert float((misfit**2).mean()) < 1.5, "the data are fitted to their noise"


def test_that_a_server_that_is_not_running_is_named(invgp_here: Command, tmp_path: Path, port: int) -> None:
    invgp_here("init", "umbridge", cwd=tmp_path)
    config = tmp_path / "survey.toml"
    config.write_text(config.read_text().replace("127.0.0.1:4242", f"127.0.0.1:{port}"))
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert result.returncode == 3
    assert result.stderr == (
        f"invgp: the simulator failed at the prior mean, site 1: run site-1: server http://127.0.0.1:{port} cannot be "
        "reached: Connection refused; is it running, and is that its address?\n"
    )
