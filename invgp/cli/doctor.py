"""`invgp doctor`: devices, libraries and threads of this machine, and what is missing."""

from __future__ import annotations

import importlib
import os
import platform
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

import click

from invgp.cli.console import json_option, print_json, print_line
from invgp.formatting import count_noun

GIB = 2**30
EXTRAS = {"dask": "dask", "rasterio": "geotiff", "pyevtk": "vtk"}


@click.command(epilog="Examples: invgp doctor; invgp doctor --json")
@json_option
def command() -> None:
    """Print devices, libraries, BLAS and thread counts, and missing packages."""
    found = {
        "Machine": machine(),
        "Libraries": libraries(),
        "BLAS and OpenMP": threads(),
        "Devices": devices(),
        "Optional": extras(),
    }
    for title, lines in found.items():
        print_line(title)
        for line in lines:
            print_line(f"  {line}")
    print_json({title.lower().replace(" ", "_"): lines for title, lines in found.items()})


def machine() -> list[str]:
    """Return the interpreter, the system, the cores and the memory."""
    import psutil  # noqa: PLC0415

    memory = psutil.virtual_memory()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        f"{usable} usable cores ({psutil.cpu_count(logical=False)} physical), "
        f"{memory.total / GIB:.1f} GiB of memory, {memory.available / GIB:.1f} free",
    ]


def libraries() -> list[str]:
    """Return the versions of invgp and its dependencies."""
    needed = [r.split(";")[0] for r in requires("invgp") or [] if "extra ==" not in r]
    names = ["invgp", *sorted((_name(r) for r in needed), key=str.lower)]
    return [f"{name} {_version(name)}" for name in names]


def threads() -> list[str]:
    """Return the linear algebra libraries of NumPy and SciPy, with their numbers of threads."""
    from threadpoolctl import threadpool_info  # noqa: PLC0415

    for name in ("numpy", "scipy.linalg"):
        importlib.import_module(name)
    found = [
        f"{i['internal_api']} {i.get('version') or ''}: {count_noun(i['num_threads'], 'thread')}"
        for i in threadpool_info()
    ]
    return found or ["none that threadpoolctl knows"]


def devices() -> list[str]:
    """Return the devices for arrays."""
    from invgp.core.backend import DeviceError, select_backend  # noqa: PLC0415 - help must not wait for SciPy

    try:
        select_backend("cuda")
    except DeviceError as missing:
        return ["cpu: yes", f"cuda: no; {missing}"]
    cupy = importlib.import_module("cupy")
    lines = ["cpu: yes"]
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        about = cupy.cuda.runtime.getDeviceProperties(number)
        memory = about["totalGlobalMem"] / GIB
        lines.append(f"cuda: {about['name'].decode()}, {memory:.1f} GiB, CuPy {cupy.__version__}")
    return lines


def extras() -> list[str]:
    """Return the optional packages, and how to install those that are missing."""
    return [
        f"{package} {version(package)}"
        if find_spec(package)
        else f"{package}: not installed; pip install 'invgp[{extra}]'"
        for package, extra in EXTRAS.items()
    ]


def _name(requirement: str) -> str:
    for end, character in enumerate(requirement):
        if not (character.isalnum() or character in "-_."):
            return requirement[:end]
    return requirement


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is missing"
