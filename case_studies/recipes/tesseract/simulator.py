"""Two-way times from Tesseract servers; `python simulator.py` waits for them and writes a survey."""

import os
import time
from functools import cache

import numpy as np
from tesseract_core import Tesseract

SERVERS = os.environ.get("TESSERACT_SERVERS", "http://127.0.0.1:8765").split()


@cache
def connect():
    """Each worker process uses one of the servers."""
    return Tesseract.from_url(SERVERS[os.getpid() % len(SERVERS)])


def two_way_time(depth, velocity):
    """Two-way times (s) of reflectors at depths (m), below layers with velocities (m/s)."""
    inputs = {"depth": np.asarray(depth, dtype=float), "velocity": np.asarray(velocity, dtype=float)}
    return connect().apply(inputs)["time"]


def wait_for_servers(seconds=120.0):
    """Return when all servers answer."""
    deadline = time.monotonic() + seconds
    for server in SERVERS:
        while True:
            try:
                Tesseract.from_url(server).health()
                break
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


if __name__ == "__main__":
    wait_for_servers()
    rng, x = np.random.default_rng(1), np.arange(8) * 100.0
    depth = np.stack([220 + 40 * np.sin(x / 200), 520 + 60 * np.cos(x / 300)], axis=-1)
    velocity = np.stack([1900 + 0.1 * x, 2500 - 0.2 * x], axis=-1)
    times = np.array([two_way_time(d, v) for d, v in zip(depth, velocity, strict=True)])
    times += rng.normal(0.0, 0.004, times.shape)
    np.savetxt("sites.csv", np.column_stack([x, times]), "%.6g", ",", header="x,t1,t2", comments="")
