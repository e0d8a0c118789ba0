"""`invgp doctor`."""

import re
import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture(scope="module")
def told():
    outcome = subprocess.run([sys.executable, "-m", "invgp", "doctor"], capture_output=True, text=True, check=True)
    return outcome.stdout


def test_that_versions_and_threads_are_reported(told):
    assert f"numpy {np.__version__}" in told
    assert "is missing" not in told
    assert re.search(r"\d+ usable cores", told)
    assert re.search(r"(openblas|mkl|blis).*: \d+ threads?\b", told)


def test_that_a_missing_gpu_is_reported_with_a_remedy(told):
    try:
        import cupy  # noqa: F401, PLC0415
    except ImportError:
        assert "cuda: no; device 'cuda' needs CuPy" in told
    else:
        assert re.search(r"cuda: (no; .*NVIDIA GPU|.* GiB)", told)
