"""Binary matrices, written here byte by byte as PEST, PEST++ and pyEMU write them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from invgp.adapters import AdapterError
from invgp.adapters.pest.matrices import read_covariance

NAMES = ("hk:1", "a_long_parameter_name_of_32_chars", "rch")
MATRIX = np.array([[2.0, -0.5, 0.0], [-0.5, 1.0, 0.25], [0.0, 0.25, 3.0]])
ENTRIES = [(i, j) for j in range(3) for i in range(3) if MATRIX[i, j]]


def pest(names: tuple[str, ...] = NAMES) -> bytes:
    """In the format of PEST: entries are counted from 1 along columns, and names are cut."""
    parts = [struct.pack("<3i", -3, -3, len(ENTRIES))]
    parts += [struct.pack("<id", i + 1 + 3 * j, MATRIX[i, j]) for i, j in ENTRIES]
    return b"".join([*parts, *(n.encode().ljust(12)[:12] for n in names), *(n.encode().ljust(20)[:20] for n in names)])


def pestpp(columns: tuple[str, ...] = NAMES) -> bytes:
    parts = [struct.pack("<3i", 3, 3, len(ENTRIES)), *(struct.pack("<2id", i, j, MATRIX[i, j]) for i, j in ENTRIES)]
    return b"".join([*parts, *(n.upper().encode().ljust(200) for n in (*columns, *NAMES))])


def dense(names: tuple[str, ...] = NAMES) -> bytes:
    parts = [struct.pack("<3i", 0, -3, -3), *(struct.pack("<i", len(n)) for n in names), *(n.encode() for n in names)]
    for name, row in zip(names, MATRIX, strict=True):
        parts.append(struct.pack("<i", len(name)) + name.encode() + row.tobytes())
    return b"".join(parts)


@pytest.mark.parametrize("suffix", [".jcb", ".cov"])
@pytest.mark.parametrize(
    ("content", "names"),
    [(pest(("hk:1", "hk:2", "rch")), ("hk:1", "hk:2", "rch")), (pestpp(), NAMES), (dense(), NAMES)],
)
def test_that_binary_covariances_of_all_formats_are_read(
    content: bytes, names: tuple[str, ...], suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"prior{suffix}"
    path.write_bytes(content)
    found = read_covariance("control", path)
    assert found.names == names
    np.testing.assert_array_equal(found.matrix, MATRIX)


def test_that_an_uncertainty_file_may_name_a_binary_matrix(tmp_path: Path) -> None:
    (tmp_path / "prior.jcb").write_bytes(dense())
    block = "START COVARIANCE_MATRIX\n file prior.jcb\n variance_multiplier 2\nEND COVARIANCE_MATRIX\n"
    (tmp_path / "prior.unc").write_text(block)
    np.testing.assert_array_equal(read_covariance("control", tmp_path / "prior.unc").matrix, 2.0 * MATRIX)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pestpp()[:-1], "is no complete binary matrix: it ends too early"),
        (dense()[:-1], "is no complete binary matrix: it ends too early"),
        (b"\0", "is no complete binary matrix: it ends too early"),
        (pestpp(("rch", *NAMES[:2])), "the names of rows and of columns must be the same, in the same order"),
        (pest(), "the names of rows and of columns must be the same, in the same order"),
        (struct.pack("<3i", 10**9, 10**9, 1), "is no binary matrix of at most 20,000 rows and columns"),
        (struct.pack("<3i", 0, -(10**9), -(10**9)), "is no binary matrix of at most 20,000 columns"),
        (struct.pack("<3i", 3, -3, 1), "is no binary matrix of at most 20,000 rows and columns"),
        (pestpp().replace(struct.pack("<2i", 2, 1), struct.pack("<2i", 2, 7)), "has an entry outside of the matrix"),
        (dense().replace(struct.pack("<d", 3.0), struct.pack("<d", np.nan)), "a number is not finite"),
    ],
)
def test_that_a_damaged_binary_matrix_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "prior.jcb").write_bytes(content)
    with pytest.raises(AdapterError, match=re.escape(sentence)):
        read_covariance("control", tmp_path / "prior.jcb")
