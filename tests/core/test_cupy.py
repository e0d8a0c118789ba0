"""CuPy without a GPU: its names and arguments, and the core on a strict stand-in."""

import os
import subprocess
import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest

from helpers.cupy_stand_in import NAMES, StandIn
from helpers.record_cupy_names import recorded_names

ON_STAND_IN = ["tests/core", "tests/emulation", "tests/likelihoods", "tests/inference/test_gpu.py"]


@pytest.mark.skipif(PathFinder.find_spec("cupy") is None, reason="CuPy is not installed")
def test_that_cupy_has_the_functions_and_arguments_of_its_stand_in():
    actual = recorded_names()
    missing = [
        (module, name, argument)
        for module, functions in NAMES.items()
        for name, arguments in functions.items()
        for argument in [None, *(arguments or [])]
        if name not in actual[module] or (argument is not None and argument not in (actual[module][name] or []))
    ]
    assert missing == []


@pytest.mark.slow
@pytest.mark.processes
def test_that_core_emulator_samplers_and_inversions_run_on_the_stand_in(root):
    """In another process, because the stand-in takes the place of CuPy."""
    command = [sys.executable, "-m", "pytest", *ON_STAND_IN, "--device", "stand-in", "-k", "stand-in", "-m", "not slow"]
    command += ["--ignore", "tests/core/test_cupy.py", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    outcome = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout[-3000:]
    called = outcome.stdout.split("functions of CuPy that were called: ")[1].split()
    # The branches of invgp.core.backend that only CuPy takes.
    assert {"cupyx.scipy.linalg.solve_triangular", "cupyx.errstate", "cupy.linalg.cholesky"} <= set(called)
    assert len(called) > 50


@pytest.fixture
def cupy():
    return StandIn().modules()


def test_that_the_stand_in_converts_nothing_implicitly(cupy):
    array = cupy["cupy"].asarray(np.ones(3))
    for mixed in (
        lambda: np.asarray(array),
        lambda: array + np.ones(3),
        lambda: np.ones(3) * array,
        lambda: np.exp(array) + np.ones(3),
    ):
        with pytest.raises(TypeError):
            mixed()
    np.testing.assert_array_equal((2.0 * array + np.float64(1.0)).get(), np.full(3, 3.0))


def test_that_the_stand_in_has_only_functions_and_arguments_of_cupy(cupy):
    xp = cupy["cupy"]
    array = xp.asarray(np.ones((3, 3)))
    assert not hasattr(xp, "vecdot")  # NumPy has it
    with pytest.raises(TypeError, match="unexpected keyword"):
        xp.exp(array, where=True)
    with pytest.raises(TypeError, match="unexpected keyword"):
        xp.sum(array, initial=1.0)
    with pytest.raises(AttributeError, match="no attribute 'argpartition_'"):
        array.argpartition_  # noqa: B018


def test_that_the_linear_algebra_of_the_stand_in_neither_broadcasts_nor_reports_failures(cupy):
    xp = cupy["cupy"]
    stack, matrix = xp.asarray(np.eye(2) * np.ones((3, 1, 1))), xp.asarray(np.eye(2))
    with pytest.raises(ValueError, match="for multidimensional b"):
        xp.linalg.solve(stack, matrix)
    with pytest.raises(ValueError, match="incompatible batch count"):
        cupy["cupyx.scipy.linalg"].solve_triangular(stack, matrix, lower=True)
    indefinite = xp.asarray([[1.0, 2.0], [2.0, 1.0]])
    assert np.isfinite(xp.linalg.cholesky(indefinite).get()).all()
    with pytest.raises(np.linalg.LinAlgError), cupy["cupyx"].errstate(linalg="raise"):
        xp.linalg.cholesky(indefinite)
