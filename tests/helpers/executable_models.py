"""Quantities that the tests of programs share, and a program that takes one number and gives two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from invgp.adapters import Evaluations, ExecutableModel, Quantity, RunContext

MakeProgram = Callable[..., str]

SPEED = Quantity("speed", "m s-1")
DEPTH = Quantity("depth", "m", (1, 2))
TIME = Quantity("time", "s", (1, 2))


def executable_model(program: str, folder: Path, **settings: Any) -> ExecutableModel:
    """One input by argument, two outputs by standard output."""
    return ExecutableModel(
        **{
            "command": (program, "{speed}"),
            "inputs": (SPEED,),
            "outputs": (TIME,),
            "search_path": folder,
            "timeout": 20.0,
            **settings,
        }
    )


def run(model: ExecutableModel, folder: Path, values: Any = ((1.0,),)) -> Evaluations:
    array = np.asarray(values, dtype=float)
    return model.evaluate(array, RunContext([f"r{i}" for i in range(len(array))], folder / "runs" / "batch"))
