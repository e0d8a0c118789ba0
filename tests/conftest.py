"""Options and fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
