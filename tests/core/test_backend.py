import sys

import numpy as np
import pytest

from invgp.core.backend import DeviceError, array_namespace, cholesky, device_of, place, to_numpy


def test_that_arrays_go_to_their_place_and_come_back(where, rng):
    values = rng.standard_normal((3, 2)).astype(where.dtype)
    there = where.asarray(values)
    assert there.dtype == getattr(array_namespace(there), where.dtype)
    np.testing.assert_array_equal(to_numpy(there), values)
    assert to_numpy(where.asmask(values > 0)).dtype == bool


def test_that_factors_of_a_stack_stay_on_their_device(where, tolerance, rng):
    half = rng.standard_normal((2, 5, 5))
    matrices = half @ half.transpose(0, 2, 1) + np.eye(5)
    factors = cholesky(where.asarray(matrices))
    assert device_of(factors) == device_of(where.asarray(0.0))
    np.testing.assert_allclose(to_numpy(factors), np.linalg.cholesky(matrices), rtol=tolerance(where, 1e-14))


def test_that_a_singular_covariance_gets_as_little_jitter_as_it_takes(where, tolerance):
    x = np.linspace(0, 1, 60)[:, None]
    smooth = 25.0 * np.exp(-0.5 * (x - x.T) ** 2 / 0.5**2)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(smooth)
    factor = to_numpy(cholesky(where.asarray(smooth)))
    np.testing.assert_allclose(factor @ factor.T, smooth, atol=25.0 * tolerance(where, 1e-7, 1e-2))


def test_that_an_indefinite_matrix_is_refused(where):
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky(where.asarray([[1.0, 2.0], [2.0, 1.0]]))


def test_that_cuda_without_cupy_is_one_clear_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"needs CuPy, which is not installed: pip install 'invgp\[cuda12\]'"):
        place("cuda")
    assert place("auto").device == "cpu"


def test_that_an_unknown_device_is_refused():
    with pytest.raises(DeviceError, match="must be 'cpu', 'cuda' or 'auto', was 'tpu'"):
        place("tpu")
