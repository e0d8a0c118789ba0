"""How long the command line takes to say something, beside `import numpy`: python tests/benchmarks/startup.py.

The smallest of several times is reported, because other programs on the machine only add to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

TIMES = 15
MODULE = [sys.executable, "-m", "invgp"]
COMPLETION = {"_INVGP_COMPLETE": "bash_complete", "COMP_CWORD": "2", "COMP_WORDS": "invgp run --w"}
COMMANDS: dict[str, tuple[list[str], Mapping[str, str]]] = {
    "python -c 'import numpy'": ([sys.executable, "-c", "import numpy"], {}),
    "python -m invgp --help": ([*MODULE, "--help"], {}),
    "python -m invgp run --help": ([*MODULE, "run", "--help"], {}),
    "completion of 'invgp run --w'": (MODULE, COMPLETION),
}


def seconds(command: list[str], environment: Mapping[str, str]) -> float:
    """The time of one call."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
    return time.perf_counter() - started


def measure_commands(times: int = TIMES) -> dict[str, float]:
    """The smallest of several times, in seconds, of each command; in turns, so that each meets the same load."""
    found = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(times):
        for name, (command, environment) in COMMANDS.items():
            found[name] = min(found[name], seconds(command, environment))
    return found


if __name__ == "__main__":
    found = measure_commands()
    base = next(iter(found.values()))
    for name, least in found.items():
        print(f"{name:32} {1000 * least:6.0f} ms  {least / base:5.2f}")
