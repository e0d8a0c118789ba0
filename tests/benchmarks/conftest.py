"""The benchmarks as modules."""

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def benchmark(monkeypatch):
    """Import a benchmark by its name."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module
