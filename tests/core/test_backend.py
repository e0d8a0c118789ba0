import sys

import numpy as np
import pytest

from invgp.core.backend import (
    DeviceError,
    array_namespace,
    cholesky,
    device_of,
    linear_algebra,
    lower_inverse,
    lower_outer_product,
    lower_product,
    product,
    select_backend,
    symmetrise,
    to_numpy,
    tril,
    tril_with_diagonal,
    zero_where,
)


def test_that_arrays_go_to_their_place_and_come_back(backend, rng):
    values = rng.standard_normal((3, 2)).astype(backend.dtype)
    there = backend.asarray(values)
    assert there.dtype == getattr(array_namespace(there), backend.dtype)
    np.testing.assert_array_equal(to_numpy(there), values)
    assert to_numpy(backend.asmask(values > 0)).dtype == bool


def test_that_factors_of_a_stack_stay_on_their_device(backend, tolerance, rng):
    half = rng.standard_normal((2, 5, 5))
    matrices = half @ half.transpose(0, 2, 1) + np.eye(5)
    factors = cholesky(backend.asarray(matrices))
    assert device_of(factors) == device_of(backend.asarray(0.0))
    np.testing.assert_allclose(to_numpy(factors), np.linalg.cholesky(matrices), rtol=tolerance(backend, 1e-14))


def test_that_a_singular_covariance_gets_as_little_jitter_as_it_takes(backend, tolerance):
    x = np.linspace(0, 1, 60)[:, None]
    smooth = 25.0 * np.exp(-0.5 * (x - x.T) ** 2 / 0.5**2)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(smooth)
    factor = to_numpy(cholesky(backend.asarray(smooth)))
    np.testing.assert_allclose(factor @ factor.T, smooth, atol=25.0 * tolerance(backend, 1e-7, 1e-2))


@pytest.mark.parametrize("size", [5, 300])
def test_that_triangular_matrices_are_inverted_for_any_memory_layout(size, backend, tolerance, rng):
    half = rng.standard_normal((2, size, size)) / np.sqrt(size)
    lower = np.linalg.cholesky(half @ half.transpose(0, 2, 1) + np.eye(size))
    inverse = to_numpy(lower_inverse(backend.asarray(lower)))
    np.testing.assert_allclose(
        inverse @ lower, np.broadcast_to(np.eye(size), lower.shape), atol=tolerance(backend, 1e-13)
    )
    assert not np.any(np.triu(inverse, 1))
    transposed = np.ascontiguousarray(lower.mT).mT  # as it lies after a transposition
    np.testing.assert_array_equal(lower_inverse(transposed), lower_inverse(lower))


def test_that_a_triangle_without_inverse_is_refused(numpy_backend):
    with pytest.raises(np.linalg.LinAlgError, match="zero on its diagonal"):
        lower_inverse(numpy_backend.asarray([[1.0, 0.0], [2.0, 0.0]]))


def test_that_an_indefinite_matrix_is_refused(backend):
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        cholesky(backend.asarray([[1.0, 2.0], [2.0, 1.0]]))


def test_that_cuda_without_cupy_is_reported_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"needs CuPy, which is not installed: pip install 'invgp\[cuda12\]'"):
        select_backend("cuda")
    assert select_backend("auto").device == "cpu"


def test_that_an_unknown_device_is_refused():
    with pytest.raises(DeviceError, match="must be 'cpu', 'cuda' or 'auto', was 'tpu'"):
        select_backend("tpu")


@pytest.mark.parametrize("panel", [3, 256])
def test_that_products_of_triangular_matrices_equal_those_of_full_matrices(panel, backend, tolerance, rng, monkeypatch):
    monkeypatch.setattr(linear_algebra, "PANEL_SIZE", panel)
    left, right = np.tril(rng.standard_normal((2, 8, 8))), np.tril(rng.standard_normal((3, 2, 8, 8)))
    there = [backend.asarray(left), backend.asarray(right)]
    close = {"rtol": tolerance(backend, 1e-13), "atol": tolerance(backend, 1e-13)}
    np.testing.assert_allclose(to_numpy(lower_product(*there)), left @ right, **close)
    transposed = np.tril(left.swapaxes(-1, -2) @ right)
    np.testing.assert_allclose(np.tril(to_numpy(lower_product(*there, transposed=True))), transposed, **close)
    outer = np.tril(right @ right.swapaxes(-1, -2))
    np.testing.assert_allclose(np.tril(to_numpy(lower_outer_product(there[1], there[1]))), outer, **close)
    np.testing.assert_array_equal(to_numpy(there[1]), right.astype(backend.dtype))


def test_that_products_of_triangular_matrices_do_not_depend_on_the_memory_layout(rng):
    lower, upper = np.tril(rng.standard_normal((8, 8))), np.triu(rng.standard_normal((8, 8)))
    for right in (upper.T, np.flip(upper), np.asfortranarray(lower)):
        for left in (lower, upper.T, np.flip(upper)):
            np.testing.assert_allclose(lower_product(left, right), left @ right, rtol=1e-13, atol=1e-13)
            transposed = np.tril(lower_product(left, right, transposed=True))
            np.testing.assert_allclose(transposed, np.tril(left.T @ right), rtol=1e-13, atol=1e-13)
            outer = np.tril(lower_outer_product(left, right))
            np.testing.assert_allclose(outer, np.tril(left @ right.T), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("panel", [3, 256])
def test_that_triangles_are_cut_out_and_mirrored(panel, backend, rng, monkeypatch):
    monkeypatch.setattr(linear_algebra, "PANEL_SIZE", panel)
    whole = rng.standard_normal((2, 8, 8)).astype(backend.dtype)
    lower = np.tril(whole)
    np.testing.assert_array_equal(to_numpy(tril(backend.asarray(whole))), lower)
    mirrored = lower + np.tril(whole, k=-1).swapaxes(-1, -2)
    np.testing.assert_array_equal(to_numpy(symmetrise(backend.asarray(whole))), mirrored)
    diagonal = rng.standard_normal((2, 8)).astype(backend.dtype)
    expected = np.tril(whole, k=-1) + diagonal[..., None] * np.eye(8, dtype=backend.dtype)
    for matrices, known in ((whole, False), (lower, True)):
        found = tril_with_diagonal(backend.asarray(matrices.copy()), backend.asarray(diagonal), lower=known)
        np.testing.assert_array_equal(to_numpy(found), expected)


def test_that_products_take_parts_of_matrices_as_they_lie(rng):
    left, right = rng.standard_normal((2, 9, 7)), rng.standard_normal((7, 5))
    for a, b in ((left[:, 1:6, 2:], right[2:, 1:]), (left[:, :, :5], right.T[:, :5].T), (left[:, ::2, :], right)):
        np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-13, atol=1e-13)


def test_that_zeros_are_put_where_a_condition_holds(backend, rng):
    array, condition = rng.standard_normal((4, 3, 2)).astype(backend.dtype), np.asarray([[True], [False], [False]])
    for holds in (condition, np.zeros_like(condition)):
        found = zero_where(backend.asmask(holds), backend.asarray(array.copy()))
        np.testing.assert_array_equal(to_numpy(found), np.where(holds, np.zeros_like(array), array))
