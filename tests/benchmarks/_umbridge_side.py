"""UM-Bridge's side of `peers_adapters.py`: a server that starts a program for each run, and the client of the package.

python _umbridge_side.py serve PORT PROGRAM
python _umbridge_side.py ask URL VALUES.npy OUTPUTS.npy
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import umbridge


class Program(umbridge.Model):
    """Depths and velocities of four layers to two-way times, through files, as a person would wrap it."""

    def __init__(self, program):
        super().__init__("times")
        self.program = program

    def get_input_sizes(self, config):
        return [4, 4]

    def get_output_sizes(self, config):
        return [4]

    def __call__(self, parameters, config):
        with tempfile.TemporaryDirectory() as folder:
            layers = "".join(f"{d!r} {v!r}\n" for d, v in zip(*parameters, strict=True))
            Path(folder, "model.txt").write_text(f"4\n{layers}")
            subprocess.run([self.program, "model.txt", "times.txt"], cwd=folder, check=True)
            return [[float(line) for line in Path(folder, "times.txt").read_text().splitlines()[1:]]]

    def supports_evaluate(self):
        return True


def ask(url, values, outputs):
    """Time runs one after the other, for each line read."""
    model = umbridge.HTTPModel(url, "times")
    rows = np.load(values).tolist()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        found = [model([row[:4], row[4:]])[0] for row in rows]
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
        np.save(outputs, found)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        umbridge.serve_models([Program(sys.argv[3])], int(sys.argv[2]))
    else:
        ask(*sys.argv[2:])
