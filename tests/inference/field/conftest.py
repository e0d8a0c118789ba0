"""The field along a line that most tests here invert."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.local_averages import CONFIG, FUNCTION, POSITIONS, covariance, windows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config with its survey and its function."""
    rng = np.random.default_rng(0)
    nodes = np.arange(0.0, 99.0, 2.0)
    truth = 20.0 + np.linalg.cholesky(covariance(nodes) + 1e-8 * np.eye(nodes.size)) @ rng.standard_normal(nodes.size)
    observed = windows(nodes) @ truth + 0.5 * rng.standard_normal(POSITIONS.size)
    rows = [f"{x},{y}" for x, y in zip(POSITIONS, observed, strict=True)]
    rows[4] = f"{POSITIONS[4]},"  # not measured
    (tmp_path / "survey.csv").write_text("\n".join(["position,average", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "survey.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "averages.py").write_text(FUNCTION, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "averages", raising=False)
    return tmp_path


@pytest.fixture
def load_problem(folder: Path) -> Callable[..., invgp.Problem]:
    """The problem of the config with some lines changed."""

    def load(changes: dict[str, str] | None = None) -> invgp.Problem:
        text = CONFIG
        for old, new in (changes or {}).items():
            assert old in text
            text = text.replace(old, new)
        (folder / "survey.toml").write_text(text, encoding="utf-8")
        return invgp.load(folder / "survey.toml")

    return load
