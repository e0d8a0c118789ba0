"""Heads of the finite-difference program, against closed forms and a solver of SciPy's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import spsolve

from helpers.c_programs import needs_compiler

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def program(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("build") / "steady_heads"
    source = root / "forward_models" / "steady_heads.c"
    subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", "-O2", "-o", str(built), str(source), "-lm"], check=True)
    return built


def heads(program: Path, folder: Path, K: np.ndarray, recharge: float, west: float, east: float) -> np.ndarray:
    """Heads (rows, columns) in m of cells of 10 m by 10 m, 5 m thick, with conductivities K in m s-1."""
    rows, columns = K.shape
    wells = "\n".join(f"{i + 1} {j + 1}" for i in range(rows) for j in range(columns))
    text = f"{rows} {columns}\n10 5\n{recharge}\n{west} {east}\n{K.size}\n{wells}\n"
    (folder / "aquifer.txt").write_text(text, encoding="utf-8")
    np.savetxt(folder / "k.txt", K)
    subprocess.run([program, "aquifer.txt", "k.txt", "heads.txt"], cwd=folder, check=True)
    return np.loadtxt(folder / "heads.txt")[:, 1].reshape(K.shape)


def test_that_a_uniform_aquifer_has_a_parabola_of_heads(program: Path, tmp_path: Path) -> None:
    columns, T, recharge = 200, 5e-4, 1e-8
    found = heads(program, tmp_path, np.full((2, columns), T / 5.0), recharge, 12.0, 9.0)
    x, length = 10.0 * (np.arange(columns) + 0.5), 10.0 * columns
    exact = 12.0 - 3.0 * x / length + recharge / (2.0 * T) * x * (length - x)
    np.testing.assert_allclose(found, np.broadcast_to(exact, found.shape), atol=recharge / T * 100.0)


def test_that_blocks_in_series_share_the_drop_by_their_resistances(program: Path, tmp_path: Path) -> None:
    K = np.tile([1e-4, 3e-4, 2e-5, 7e-4], (3, 1))
    found = heads(program, tmp_path, K, 0.0, 10.0, 0.0)
    resistances = 1.0 / K[0]
    until = np.cumsum(resistances) - 0.5 * resistances
    np.testing.assert_allclose(found, np.tile(10.0 * (1.0 - until / resistances.sum()), (3, 1)), rtol=1e-9)


def test_that_a_heterogeneous_aquifer_is_solved_as_by_scipy(program: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, columns = 7, 9
    K = np.exp(rng.standard_normal((rows, columns)) - 9.0)
    T, index = (5.0 * K).ravel(), np.arange(K.size).reshape(K.shape)
    pairs = [*zip(index[:, :-1].ravel(), index[:, 1:].ravel()), *zip(index[:-1].ravel(), index[1:].ravel())]  # noqa: B905
    A, b = scipy.sparse.lil_array((K.size, K.size)), np.full(K.size, 1e-8 * 100.0)
    for i, j in pairs:
        between = 2.0 / (1.0 / T[i] + 1.0 / T[j])
        A[i, i] += between
        A[j, j] += between
        A[i, j] -= between
        A[j, i] -= between
    for cells, head in ((index[:, 0], 3.0), (index[:, -1], 8.0)):
        A[cells, cells] += 2.0 * T[cells]
        b[cells] += 2.0 * T[cells] * head
    np.testing.assert_allclose(heads(program, tmp_path, K, 1e-8, 3.0, 8.0).ravel(), spsolve(A.tocsc(), b), rtol=1e-9)


def test_that_a_conductivity_that_is_not_positive_is_reported(program: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        heads(program, tmp_path, np.asarray([[1.0, -1.0]]), 0.0, 1.0, 0.0)
