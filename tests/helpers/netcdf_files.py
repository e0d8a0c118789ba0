"""Damaged netCDF files, and functions that fail as their library does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import netCDF4
import numpy as np


def write_endless_netcdf(path: Path) -> None:
    """Write a file with a table of sites whose heap is zeros, as after a power failure; HDF5 reads it without end."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("site", 4)
        for name in ("position", "y"):
            file.createVariable(name, "f8", ("site",))[:] = [1.0, 2.0, 3.0, 4.0]
    content = bytearray(path.read_bytes())
    start = content.index(b"GCOL") + 16
    content[start : start + 512] = bytes(512)
    path.write_bytes(content)


def loop_for_ever() -> np.ndarray:
    while True:
        time.sleep(1.0)


def crash() -> np.ndarray:
    os.kill(os.getpid(), signal.SIGSEGV)
    return np.zeros(0)


def print_and_add(numbers: np.ndarray, more: float) -> np.ndarray:
    os.write(1, b"a library prints")
    return numbers + more


def refuse() -> np.ndarray:
    raise FileNotFoundError(2, "No such file")
