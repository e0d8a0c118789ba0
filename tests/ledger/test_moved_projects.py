"""A project that was moved or copied goes on with its ledger as if it had stayed where it was."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import chdir, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import invgp
from invgp.adapters import BatchedModel, ExecutableModel, PersistentModel, Quantity, RunContext
from invgp.execution.evaluate import evaluate
from invgp.inference.earlier_runs import fingerprint, former_fingerprint
from invgp.ledger import Ledger
from invgp.ledger.rows import run_key
from invgp.progress import SilentMonitor

SURVEY = """\
[survey]
file = "sites.csv"

[survey.coordinates.position]
unit = "m"

[survey.observations.time]
columns = ["t"]
unit = "s"

[latents.depth]
unit = "m"
mean = 500
std = "15%"
kernel = { length_scale = 1000 }
LATENT

[forward]
FORWARD
inputs = ["depth"]
outputs = ["time"]

[noise]
NOISE
std.time = 0.02

[inference]
seed = 3
INFERENCE
"""
FIELD = """
[grid.coordinates.position]
unit = "m"
start = 0
stop = 2000
step = 250
"""
SITES = "position,t\n0,0.50\n400,0.52\n800,0.49\n1200,0.47\n1600,\n2000,0.51\n"
FUNCTION = """\
import numpy as np


def time(depth):
    return 2.0 * depth / (2000.0 + 0.1 * depth)


def times(depth):
    return np.interp([0, 400, 800, 1200, 1600, 2000], np.arange(0.0, 2001.0, 250.0), time(np.asarray(depth)))
"""
CALLABLE = 'adapter = "callable"\nfunction = "model:time"\nvectorised = false'
PROGRAM = 'adapter = "executable"\ncommand = ["./simulator.sh", "{depth}"]'
SCRIPT = '#!/bin/sh\nawk "BEGIN { print 2 * $1 / (2000 + 0.1 * $1) }"\n'
KINDS = {
    "emulated": {},
    "direct": {"INFERENCE": "emulator = false\nmax_evaluations = 4"},
    "factorised": {"INFERENCE": 'posterior = "full gaussian"\nemulator = false\nmax_evaluations = 3'},
    "inducing points": {"INFERENCE": "inducing = 3"},
    "mini-batches": {"INFERENCE": "emulator = false\nbatch = 3\nmax_evaluations = 4"},
    "field": {"FORWARD": 'kind = "field"\nadapter = "callable"\nfunction = "model:times"\nvectorised = false'},
    "learnt prior": {"LATENT": "learn = { std = 2 }"},
    "Student-t noise": {"NOISE": 'kind = "student-t"'},
    "program": {"FORWARD": PROGRAM},
}


def make_project(directory: Path, parts: dict[str, str]) -> None:
    """Write config, survey and simulator."""
    directory.mkdir()
    text = SURVEY + (FIELD if "field" in parts.get("FORWARD", "") else "")
    for name in ("LATENT", "FORWARD", "NOISE", "INFERENCE"):
        text = text.replace(f"\n{name}\n", f"\n{parts.get(name, CALLABLE if name == 'FORWARD' else '')}\n")
    (directory / "survey.toml").write_text(text)
    (directory / "sites.csv").write_text(SITES)
    (directory / "model.py").write_text(FUNCTION)
    (directory / "simulator.sh").write_text(SCRIPT)
    (directory / "simulator.sh").chmod(0o755)


class StoppedError(Exception):
    """In the middle of an inversion."""


@dataclass
class Stopping(SilentMonitor):
    """Ends an inversion after some runs, as a signal would."""

    runs: float = np.inf
    made: int = field(default=0, init=False)

    def add_runs(self, succeeded: int, failed: int, *, reused: int = 0) -> None:
        self.made += succeeded + failed - reused
        if self.made >= self.runs:
            raise StoppedError


def invert(directory: Path, *, stop: float = np.inf) -> tuple[xr.Dataset, int]:
    """The variables of the posterior, and how many runs were made."""
    monitor = Stopping(stop)
    problem = invgp.load(directory / "survey.toml")
    posterior = invgp.invert(problem, ledger=directory / "runs.sqlite", monitor=monitor)
    return posterior.drop_attrs(), monitor.made


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_that_a_project_gives_the_same_posterior_in_any_directory(kind: str, tmp_path: Path) -> None:
    project, moved, elsewhere = tmp_path / "project", tmp_path / "a" / "moved", tmp_path / "elsewhere"
    make_project(project, KINDS[kind])
    expected, runs = invert(project)
    assert runs > 6
    (project / "runs.sqlite").unlink()
    with pytest.raises(StoppedError):
        invert(project, stop=runs // 2)
    shutil.copytree(project, tmp_path / "copy")
    (tmp_path / "a").mkdir()
    project.rename(moved)
    elsewhere.mkdir()
    with Ledger(moved / "runs.sqlite", read_only=True) as ledger:
        finished = len(list(ledger.runs()))
    assert 0 < finished < runs
    for directory in (tmp_path / "copy", moved):
        with chdir(elsewhere):
            continued, made = invert(directory)
        assert made == runs - finished
        xr.testing.assert_identical(continued, expected)
    moved.rename(project)
    repeated, made = invert(project)
    assert made == 0
    xr.testing.assert_identical(repeated, expected)


def make_version_1(path: Path, *, inversions: dict[str, str], models: dict[str, str]) -> None:
    """Make of a ledger what the invgp before would have written, with its own names of inversions and models."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in ("models", "runs", "inversions"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        for new, old in inversions.items():
            assert connection.execute("UPDATE inversions SET inversion = ? WHERE inversion = ?", (old, new)).rowcount
        for new, old in models.items():
            assert connection.execute("UPDATE models SET digest = ? WHERE digest = ?", (old, new)).rowcount
            connection.create_function("key", 1, lambda inputs, old=old: run_key(old.encode(), inputs))
            connection.execute("UPDATE runs SET digest = key(inputs)")
        connection.execute("PRAGMA user_version = 1")


@pytest.mark.parametrize("stopped", [False, True])
def test_that_an_inversion_continues_with_a_ledger_of_the_version_before(stopped: bool, tmp_path: Path) -> None:
    make_project(tmp_path / "project", KINDS["emulated"])
    config, path = tmp_path / "project" / "survey.toml", tmp_path / "project" / "runs.sqlite"
    expected, runs = invert(config.parent)
    finished = runs
    if stopped:
        path.unlink()
        with pytest.raises(StoppedError):
            invert(config.parent, stop=runs // 2)
        with Ledger(path) as ledger:
            finished = len(list(ledger.runs()))
    problem = invgp.load(config)
    make_version_1(path, inversions={fingerprint(problem, 3): former_fingerprint(problem, 3)}, models={})
    with Ledger(path, read_only=True) as ledger:
        assert len(list(ledger.runs())) == finished
    again, made = invert(config.parent)
    assert made == runs - finished
    xr.testing.assert_identical(again, expected)


def test_that_an_inversion_is_the_same_with_other_workers(tmp_path: Path) -> None:
    make_project(tmp_path / "project", KINDS["emulated"])
    problem = invgp.load(tmp_path / "project" / "survey.toml")
    assert fingerprint(problem.with_inference(workers=3, backend="dask"), 3) == fingerprint(problem, 3)
    assert fingerprint(problem.with_inference(emulator_error=0.3), 3) != fingerprint(problem, 3)


def model(folder: Path, kind: str) -> Any:
    quantities = (Quantity("x", "m"),), (Quantity("z", "s"),)
    settings = {"environment": {"DATA": f"{folder}/data"}, "search_path": folder}
    program = str(folder / "simulator.sh")
    if kind == "executable":
        return ExecutableModel(
            (program, "{x}", f"--file={folder}/x.txt"), *quantities, fallback=(program, "{x}"), **settings
        )
    kinds = {"persistent": PersistentModel, "batched": BatchedModel}
    return kinds[kind]((program, f"--file={folder}/x.txt"), *quantities, **settings)


@pytest.mark.parametrize("kind", ["executable", "persistent", "batched"])
def test_that_absolute_paths_inside_a_project_do_not_make_another_model(kind: str, tmp_path: Path) -> None:
    for name in ("one", "other"):
        make_project(tmp_path / name, {})
    one, other = (model(tmp_path / name, kind) for name in ("one", "other"))
    assert one.digest == other.digest
    assert one.former_digest != other.former_digest
    (tmp_path / "other" / "simulator.sh").write_text(SCRIPT + "# changed")
    assert model(tmp_path / "other", kind).digest != one.digest


@pytest.mark.parametrize("where", ["argument", "list", "variable"])
@pytest.mark.parametrize("kind", [ExecutableModel, PersistentModel, BatchedModel])
def test_that_the_content_of_a_file_inside_a_project_is_part_of_the_model(
    kind: Any, where: str, tmp_path: Path
) -> None:
    def digest(name: str) -> str:
        folder = tmp_path / name
        words = {"argument": [f"--mesh={folder}/mesh 1.dat"], "list": [f"{folder}/no,{folder}/mesh 1.dat"]}
        variables = {"MESH": f"{folder}/mesh 1.dat"} if where == "variable" else {}
        command = (str(folder / "simulator.sh"), *["{x}"] * (kind is ExecutableModel), *words.get(where, []))
        quantities = (Quantity("x", "m"),), (Quantity("z", "s"),)
        return str(kind(command, *quantities, environment=variables, search_path=folder).digest)

    for name in ("one", "other"):
        make_project(tmp_path / name, {})
        (tmp_path / name / "mesh 1.dat").write_text("1")
    assert digest("one") == digest("other")
    (tmp_path / "other" / "mesh 1.dat").write_text("2")
    assert digest("one") != digest("other")


def test_that_the_path_of_a_directory_inside_a_project_is_part_of_the_model(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "other"):
        make_project(tmp_path / name, {})
        (tmp_path / name / "data").mkdir()
        digests.append(model(tmp_path / name, "executable").digest)
    assert digests[0] != digests[1]


def test_that_a_path_outside_of_a_project_is_part_of_the_model(tmp_path: Path) -> None:
    for name in ("project", "one", "other"):
        make_project(tmp_path / name, {})
    quantities = (Quantity("x", "m"),), (Quantity("z", "s"),)
    programs = [str(tmp_path / name / "simulator.sh") for name in ("one", "other")]
    models = [ExecutableModel((p, "{x}"), *quantities, search_path=tmp_path / "project") for p in programs]
    assert models[0].digest != models[1].digest
    assert [m.digest for m in models] == [m.former_digest for m in models]


def test_that_runs_of_a_model_with_absolute_paths_are_found_in_a_ledger_of_the_version_before(tmp_path: Path) -> None:
    make_project(tmp_path / "project", {})
    simulator, path = model(tmp_path / "project", "executable"), tmp_path / "runs.sqlite"
    values, context = np.asarray([[500.0], [600.0]]), RunContext(["a", "b"], tmp_path)
    with Ledger(path) as ledger:
        outcome = evaluate(simulator, values, context, recorder=ledger.open_recorder(simulator))
    make_version_1(path, inversions={}, models={simulator.digest: simulator.former_digest})
    for _ in range(2):
        with Ledger(path) as ledger:
            known = ledger.open_recorder(simulator).look_up(values)
            assert known.found.all()
            assert np.array_equal(known.outcome.outputs, outcome.outputs)
            assert [run.model.digest for run in ledger.runs()] == [simulator.digest] * 2
