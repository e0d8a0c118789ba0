"""Many runs of a fast program: started for each, kept running, and started once for all of them.

    python tests/benchmarks/persistent.py

The C program of the Otway case study, in one process. The bare loop writes a model file, starts the program and reads
its times, with nothing of ours; the three adapters add what they add. No side has a ledger: `ledger.py` says what that
adds to a row. Every side is timed in turns, and medians count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from workload import seconds

import invgp.forward_models
from invgp.adapters import (
    BatchedModel,
    ExecutableModel,
    ForwardModel,
    InputFile,
    OutputFile,
    PersistentModel,
    Quantity,
    RunContext,
)

LAYERS = (1, 2, 3, 4)
TEMPLATE = "4\n" + "".join(f"{{depth[{i}]}} {{velocity[{i}]}}\n" for i in LAYERS)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure and print; how many times faster than the bare loop each adapter is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=500, help="runs a side (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="measurements a side (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        sides = {"bare loop": lambda values: bare_loop(folder, values)}
        sides |= {kind: evaluation(model, folder) for kind, model in models(folder).items()}
        times = median_seconds(sides, random_models(chosen.runs), chosen.repeats)
    print(f"{chosen.runs} runs of a C program, median of {chosen.repeats}")
    for kind, taken in times.items():
        each = 1e6 * taken / chosen.runs
        print(f"{kind:12} {taken:8.4f} s {each:8.1f} us a run, ratio {times['bare loop'] / taken:6.1f}")
    return {kind: times["bare loop"] / taken for kind, taken in times.items() if kind != "bare loop"}


def build(folder: Path) -> None:
    """Compile the program."""
    source = Path(invgp.forward_models.__file__).with_name("two_way_times.c")
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=c99", "-O2", "-o", str(folder / "two_way_times"), str(source)], check=True
    )
    (folder / "model.tpl").write_text(TEMPLATE)


def models(folder: Path) -> dict[str, ForwardModel]:
    """The same program behind each adapter."""
    inputs = Quantity("depth", "m", LAYERS), Quantity("velocity", "m s-1", LAYERS)
    outputs = (Quantity("time", "s", LAYERS),)
    program = "./two_way_times"
    return {
        "executable": ExecutableModel(
            (program, "model.txt", "times.txt"),
            inputs,
            outputs,
            input_files=(InputFile(Path("model.tpl"), "model.txt"),),
            output_files=(OutputFile("times.txt"),),
            timeout=60.0,
            search_path=folder,
        ),
        "persistent": PersistentModel((program, "--serve"), inputs, outputs, search_path=folder),
        "batched": BatchedModel((program, "--batch", "inputs.csv", "outputs.csv"), inputs, outputs, search_path=folder),
    }


def random_models(runs: int) -> np.ndarray:
    """Depths and velocities, (runs, 8)."""
    rng = np.random.default_rng(1)
    return np.hstack([rng.uniform(1.0, 900.0, (runs, 4)).cumsum(axis=1), rng.uniform(1000.0, 5000.0, (runs, 4))])


def bare_loop(folder: Path, values: np.ndarray) -> np.ndarray:
    """What a person would write in an afternoon."""
    place = folder / "bare"
    place.mkdir(exist_ok=True)
    outputs = []
    for row in values.tolist():
        layers = "".join(f"{depth!r} {velocity!r}\n" for depth, velocity in zip(row[:4], row[4:], strict=True))
        (place / "model.txt").write_text(f"4\n{layers}")
        subprocess.run([str(folder / "two_way_times"), "model.txt", "times.txt"], cwd=place, check=True)
        outputs.append([float(line) for line in (place / "times.txt").read_text().splitlines()[1:]])
    return np.array(outputs)


def evaluation(model: ForwardModel, folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """A model as a function of its values."""

    def run(values: np.ndarray) -> np.ndarray:
        result = model.evaluate(values, RunContext([f"run-{i}" for i in range(len(values))], folder / "runs"))
        assert result.ok.all(), result.messages
        return result.outputs

    return run


def median_seconds(
    sides: dict[str, Callable[[np.ndarray], np.ndarray]], values: np.ndarray, repeats: int
) -> dict[str, float]:
    """Median seconds of each side, after a first call that shows that all of them give the same."""
    wanted = sides["bare loop"](values)
    for side in sides.values():
        np.testing.assert_allclose(side(values), wanted, rtol=1e-12)
    times: dict[str, list[float]] = {kind: [] for kind in sides}
    for _ in range(repeats):
        for kind, side in sides.items():
            times[kind].append(seconds(lambda side=side: side(values)))
    return {kind: float(np.median(taken)) for kind, taken in times.items()}


if __name__ == "__main__":
    main()
