"""Options and fixtures that every test may use."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import array_api_strict
import numpy as np
import pytest

from invgp.core.backend import Backend, select_backend

pytest.register_assert_rewrite("helpers")

ROOT = Path(__file__).resolve().parent.parent
MARKED_FOLDERS = {"docs": ["docs"], "case_studies": ["study", "slow"]}


def pytest_configure() -> None:
    """A run in the background inherits that SIGINT is ignored, and so would every program that a test interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=["cpu", "cuda", "stand-in"],
        default="cpu",
        help="cuda: run the core's tests on the GPU as well; stand-in: on a strict stand-in for CuPy",
    )
    parser.addoption(
        "--otway-data",
        type=Path,
        default=os.environ.get("INVGP_OTWAY_DATA"),
        help="folder with the real Otway times and the published posteriors (default: $INVGP_OTWAY_DATA)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of whole folders, and those that use the browser."""
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        for mark in MARKED_FOLDERS.get(folder, []):
            item.add_marker(mark)
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


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


def places(device: str) -> dict[str, Backend]:
    """Everywhere that arrays may live: NumPy, every device of array_api_strict, and a GPU if asked for."""
    if device == "stand-in":
        from helpers.cupy_stand_in import install  # noqa: PLC0415 - it takes the place of CuPy

        return {"stand-in": install()}
    about = array_api_strict.__array_namespace_info__()
    found = {"numpy": select_backend("cpu")}
    for strict in about.devices():
        dtype = "float64" if "float64" in about.dtypes(device=strict, kind="real floating") else "float32"
        name = str(strict).split("'")[1]
        found[f"strict-{name}-{dtype}"] = Backend(array_api_strict, strict, dtype)
    return found | ({"cuda": select_backend("cuda")} if device == "cuda" else {})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `backend` runs in every place."""
    if "backend" in metafunc.fixturenames:
        found = places(metafunc.config.getoption("--device"))
        metafunc.parametrize("backend", found.values(), ids=found.keys())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the functions of CuPy that were called on its stand-in."""
    if config.getoption("--device") == "stand-in":
        from helpers.cupy_stand_in import STAND_IN  # noqa: PLC0415 - only if it is in use

        names = sorted({name for name, _ in STAND_IN.calls})
        terminalreporter.write_line(f"functions of CuPy that were called: {' '.join(names)}")


@pytest.fixture
def numpy_backend() -> Backend:
    """NumPy, double precision."""
    return select_backend("cpu")


@pytest.fixture
def tolerance() -> Callable[..., float]:
    """tolerance(where, 1e-12) in double precision; in single, `single`."""

    def choose(backend: Backend, double: float, single: float = 1e-4) -> float:
        return double if backend.dtype == "float64" else single

    return choose


@pytest.fixture
def rng() -> np.random.Generator:
    """Seeded."""
    return np.random.default_rng(20260101)
