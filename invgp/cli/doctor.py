"""`invgp doctor`: devices, libraries and threads of this machine, and what is missing."""

from __future__ import annotations

import importlib
import os
import platform
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

import click

from invgp.cli.console import json_option, print_json, print_line
from invgp.errors import DeviceMissingError
from invgp.formatting import count_noun

GIB = 2**30
CHECKED_ROWS = 300  # of the matrices that GPU and processor both factorise
LARGEST_DIFFERENCE = 1e-9  # of results of the GPU, relative to the largest: rounding errors are far smaller
EXTRAS = {
    "dask": "dask",
    "rasterio": "geotiff",
    "pyogrio": "geopackage",
    "pyevtk": "vtk",
    "resfo_utilities": "eclipse",
}


@click.command(epilog="Examples: invgp doctor; invgp doctor --device cuda; invgp doctor --json")
@click.option(
    "--device",
    type=click.Choice(("cpu", "cuda")),
    default="cpu",
    help="With cuda, also compare results of the GPU with those of the processor.",
)
@json_option
def command(device: str) -> None:
    """Print devices, libraries, BLAS and thread counts, and missing packages."""
    if device == "cuda":
        from invgp.cli.check import check_device  # noqa: PLC0415 - help must not wait for SciPy

        check_device(device)
    found = {
        "Machine": machine(),
        "Libraries": libraries(),
        "BLAS and OpenMP": threads(),
        "Devices": devices(),
        "Optional": extras(),
        **({"GPU against processor": compare_gpu()} if device == "cuda" else {}),
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


def compare_gpu() -> list[str]:
    """Return the differences between results of the GPU and the processor, relative to the largest result.

    Raises
    ------
    DeviceMissingError
        The results differ by more than rounding.
    """
    import numpy as np  # noqa: PLC0415

    from invgp.core.backend import cholesky, select_backend, solve_triangular, to_numpy  # noqa: PLC0415
    from invgp.core.kernels import Matern52  # noqa: PLC0415

    rng = np.random.default_rng(0)
    X, right = rng.random((2, CHECKED_ROWS, 2)), rng.standard_normal((2, CHECKED_ROWS, 3))
    found: dict[str, list[np.ndarray]] = {}
    for device in ("cpu", "cuda"):
        backend = select_backend(device)
        kernel, xp = Matern52(1.0, np.full(2, 0.1)).on_backend(backend), backend.namespace
        points = backend.asarray(X)
        covariance = xp.stack([kernel(points[k, ...], points[k, ...]) for k in range(2)])
        factor = cholesky(covariance)
        solved = solve_triangular(factor, backend.asarray(right))
        for name, value in (("kernel", covariance), ("Cholesky factor", factor), ("triangular solve", solved)):
            found.setdefault(name, []).append(to_numpy(value))
    lines, wrong = [], []
    for name, (on_cpu, on_gpu) in found.items():
        difference = float(np.max(np.abs(on_gpu - on_cpu)) / np.max(np.abs(on_cpu)))
        lines.append(f"{name}: relative difference {difference:.1e}")
        wrong += [] if difference <= LARGEST_DIFFERENCE else [f"{name} ({difference:.1e})"]
    if wrong:
        raise DeviceMissingError(
            "results of the GPU differ from those of the processor by more than rounding: "
            + ", ".join(wrong)
            + "; use device 'cpu', and check the CUDA driver and the version of CuPy"
        )
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
