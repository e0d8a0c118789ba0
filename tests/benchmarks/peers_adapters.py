"""What a run of a program costs through our adapters, a bare loop of `subprocess.run`, and UM-Bridge.

    python tests/benchmarks/peers_adapters.py

The C program of the Otway case study, run after run in one process. UM-Bridge, in an environment of its own, serves the
same program with its own server, as a person would wrap it; it is asked by its own client and by ours. Every side is
timed in turns, medians count, and all give the same times.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import environments
import numpy as np
import persistent
from tables import Table, tell
from workload import seconds

import invgp
from invgp.adapters import ForwardModel, Quantity, RunContext, UmbridgeModel
from invgp.execution.evaluate import evaluate
from invgp.ledger import Ledger

REQUIREMENTS = ("umbridge",)
SIDE = Path(__file__).with_name("_umbridge_side.py")
BARE = "subprocess.run, bare loop"
Way = Callable[[np.ndarray], float]  # seconds of all runs


def free_port() -> int:
    """One that nobody listens at."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def server(python: Path, folder: Path) -> Iterator[str]:
    """The address of UM-Bridge's own server of the program."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python, SIDE, "serve", str(port), str(folder / "two_way_times")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(url, process)
            yield url
        finally:
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until the server answers."""
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"UM-Bridge's server ended with exit code {process.returncode}")
        try:
            urlopen(f"{url}/Info", timeout=5).close()
        except (URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        else:
            return
    raise SystemExit("UM-Bridge's server does not answer")


@contextmanager
def client(python: Path, url: str, values: np.ndarray, folder: Path) -> Iterator[Way]:
    """UM-Bridge's own client."""
    np.save(folder / "values.npy", values)
    command = [python, SIDE, "ask", url, folder / "values.npy", folder / "outputs.npy"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def time_rows(values: np.ndarray) -> float:
            print("go", file=process.stdin, flush=True)
            return float(json.loads(process.stdout.readline())["seconds"])

        process.stdout.readline()
        try:
            yield time_rows
        finally:
            process.stdin.close()


def adapter(model: ForwardModel, folder: Path, ledger: Path | None = None) -> Way:
    """One of ours, with a new ledger for each time if there is to be one."""
    times = iter(range(1000))

    def time_rows(values: np.ndarray) -> float:
        context = RunContext([f"run-{i}" for i in range(len(values))], folder / "runs")
        if ledger is None:
            return seconds(lambda: evaluate(model, values, context))
        with Ledger(ledger.with_suffix(f".{next(times)}.sqlite")) as kept:
            return seconds(lambda: evaluate(model, values, context, recorder=kept.open_recorder(model)))

    return time_rows


def ways(python: Path, folder: Path, values: np.ndarray, stack: ExitStack) -> dict[str, Way]:
    """Everything that is timed."""
    ours = persistent.models(folder)
    url = stack.enter_context(server(python, folder))
    layers = persistent.LAYERS
    asked = UmbridgeModel(
        (url,),
        "times",
        (Quantity("depth", "m", layers), Quantity("velocity", "m s-1", layers)),
        (Quantity("time", "s", layers),),
    )
    return {
        BARE: lambda v: seconds(lambda: persistent.bare_loop(folder, v)),
        "invgp, executable": adapter(ours["executable"], folder),
        "invgp, executable and ledger": adapter(ours["executable"], folder, folder / "ledger"),
        "invgp, persistent program": adapter(ours["persistent"], folder),
        "invgp, batched program": adapter(ours["batched"], folder),
        "UM-Bridge, its client": stack.enter_context(client(python, url, values, folder)),
        "UM-Bridge, client of invgp": adapter(asked, folder),
    }


def check(folder: Path, values: np.ndarray) -> None:
    """UM-Bridge's answers are those of the bare loop."""
    np.testing.assert_allclose(np.load(folder / "outputs.npy"), persistent.bare_loop(folder, values), rtol=1e-12)


def table(found: Mapping[str, float], runs: int, repeats: int, versions: Mapping[str, str]) -> Table:
    """A row a way, with the ratio to the bare loop."""
    return Table(
        "One run of a program",
        "The C program of the Otway line, one run after the other. The bare loop writes the input file, starts the "
        "program with `subprocess.run` and reads the output file. The adapters of invgp do the same, and also handle "
        "directories, time limits and failed runs. A persistent program stays running for many runs, and a batched "
        "program processes all runs in one file. The UM-Bridge server runs the same program over HTTP on one machine. "
        f"Wall-clock time, medians of {repeats} times {runs} runs, measured in turns.",
        ("method", "ms per run", "ratio"),
        tuple((name, f"{1e3 * each:.3f}", f"{each / found[BARE]:.2f}") for name, each in found.items()),
        versions,
    )


def main(arguments: Sequence[str] | None = None) -> Table:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", type=Path, default=environments.cache_folder("umbridge"))
    parser.add_argument("--runs", type=int, default=200, help="runs a side (default: 200)")
    parser.add_argument("--repeats", type=int, default=5, help="measurements a side (default: 5)")
    chosen = parser.parse_args(arguments)
    python = environments.environment(chosen.environment, [REQUIREMENTS], ["umbridge"], "UM-Bridge")
    version = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('umbridge'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    values = persistent.random_models(chosen.runs)
    tell("one run of a program, by every adapter")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        persistent.build(folder)
        sides = ways(python, folder, values, stack)
        taken: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(chosen.repeats + 1):
            for side, way in sides.items():
                taken[side].append(way(values))
        check(folder, values)
    found = {side: statistics.median(t[1:]) / chosen.runs for side, t in taken.items()}
    versions = {"invgp": invgp.__version__, "umbridge": version}
    reported = table(found, chosen.runs, chosen.repeats, versions)
    print(reported)
    return reported


if __name__ == "__main__":
    main()
