"""`invgp doctor`."""

import re
import subprocess
import sys
from importlib.machinery import PathFinder

import numpy as np
import pytest


@pytest.fixture(scope="module")
def output():
    outcome = subprocess.run([sys.executable, "-m", "invgp", "doctor"], capture_output=True, text=True, check=True)
    return outcome.stdout


def test_that_versions_and_threads_are_reported(output):
    assert f"numpy {np.__version__}" in output
    assert "is missing" not in output
    assert re.search(r"\d+ usable cores", output)
    assert re.search(r"(openblas|mkl|blis).*: \d+ threads?\b", output)


def test_that_a_missing_gpu_is_reported_with_a_remedy(output):
    try:
        import cupy  # noqa: F401, PLC0415
    except ImportError:
        assert "cuda: no; device 'cuda' needs CuPy" in output
    else:
        assert re.search(r"cuda: (no; .*NVIDIA GPU|.* GiB)", output)


def test_that_a_gpu_that_is_asked_for_is_compared_with_the_processor(root):
    """On the stand-in for CuPy."""
    program = "from helpers.cupy_stand_in import install; install(); from invgp.cli import main; main()"
    command = [sys.executable, "-c", program, "doctor", "--device", "cuda"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root / "tests")
    assert "cuda: stand-in, 1.0 GiB, CuPy 14.2" in outcome.stdout
    assert re.search(r"Cholesky factor: relative difference \d\.\de-1\d", outcome.stdout)


@pytest.mark.skipif(PathFinder.find_spec("cupy") is not None, reason="CuPy is installed")
def test_that_a_gpu_that_is_asked_for_and_missing_ends_with_exit_code_4():
    command = [sys.executable, "-m", "invgp", "doctor", "--device", "cuda"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 4
    assert "device 'cuda' needs CuPy" in outcome.stderr
