"""Options and fixtures that every test may use."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """A run in the background inherits that SIGINT is ignored, and so would every program that a test interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", choices=["cpu", "cuda"], default="cpu", help="cuda: run the core's tests on the GPU as well"
    )
    parser.addoption(
        "--otway-data",
        type=Path,
        default=os.environ.get("INVGP_OTWAY_DATA"),
        help="folder with the real Otway times and the published posteriors (default: $INVGP_OTWAY_DATA)",
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def otway(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Otway case study, set up by its own script in a copy, so that a check leaves nothing in the repository."""
    clone = tmp_path_factory.mktemp("clone")
    made = shutil.ignore_patterns("build", "data", "results", "__pycache__")
    for name in ("case_studies", "forward_models"):
        shutil.copytree(root / name, clone / name, ignore=made)
    folder = clone / "case_studies" / "otway"
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(["bash", str(folder / "setup.sh")], check=True, env=environment, capture_output=True)
    return folder
