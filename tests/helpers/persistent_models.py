"""Programs that serve, and models of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil

from helpers.executable_models import SPEED, TIME, MakeProgram
from invgp.adapters import Evaluations, PersistentModel, RunContext, Status

OK = Status.OK
# It answers with the speed and its square; a body says what it does for a speed of 2.
SERVER = """\
import json, os, signal, subprocess, sys, time

def answer(time, **changes):
    print(json.dumps({"id": request["id"], "outputs": {"time": time}} | changes), flush=True)

for line in sys.stdin:
    request = json.loads(line)
    speed = request["inputs"]["speed"]
    if speed == 2.0:
        %s
    else:
        answer([speed, speed**2])
"""


def programs_of(home: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get("INVGP_RUN_DIRECTORY", "")
            if Path(mark).is_relative_to(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def model(program: MakeProgram, folder: Path, body: str = "pass", **settings: Any) -> PersistentModel:
    command = program(SERVER % body, language="python")
    known = {"command": (command,), "inputs": (SPEED,), "outputs": (TIME,), "search_path": folder, "timeout": 20.0}
    return PersistentModel(**{**known, **settings})


def run(model: PersistentModel, folder: Path, speeds: Any = (1.0, 2.0, 3.0)) -> Evaluations:
    values = np.asarray(speeds, dtype=float).reshape(len(speeds), -1)
    return model.evaluate(values, RunContext([f"r{i}" for i in range(len(values))], folder / "runs"))


HANG = "time.sleep(3600)"
