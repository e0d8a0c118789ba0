"""Binary matrices of PEST, PEST++ and pyEMU (``.jcb``, ``.jco``): values with the names of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..protocol import Floats

_OLD_NAMES = (12, 20)  # characters of the names of columns and rows in files of PEST
_NEW_NAMES = (200, 200)  # in files of PEST++ and pyEMU
_OLD_ENTRY = np.dtype([("place", "<i4"), ("value", "<f8")])
_NEW_ENTRY = np.dtype([("row", "<i4"), ("column", "<i4"), ("value", "<f8")])


def read_binary_matrix(data: bytes, largest: int) -> tuple[tuple[str, ...], tuple[str, ...], Floats]:
    """Read a binary matrix in one of its three formats.

    The numbers of columns, of rows and of entries are negative, negative and positive in the format of PEST, which
    counts entries along columns; all positive in that of PEST++, with a row and a column for each entry; and zero,
    negative and negative in the dense one.

    Parameters
    ----------
    data : bytes
        Content of the file.
    largest : int
        Number of rows and of columns from which on the matrix is refused.

    Returns
    -------
    rows, columns : tuple of str
        Names, in lower case.
    values : array, shape (R, C)

    Raises
    ------
    ValueError
        The content is no such matrix.
    """
    reader = _Reader(data)
    first, second, count = (int(number) for number in reader.array("<i4", 3))
    if first == 0:
        return _read_dense(reader, -second, largest)
    old = first < 0
    size = (abs(second), abs(first))
    if max(size) > largest or min(size) == 0 or count < 0 or (second < 0) != old:
        raise ValueError(f"is no binary matrix of at most {largest:,} rows and columns")
    entries = reader.array(_OLD_ENTRY if old else _NEW_ENTRY, count)
    columns, rows = (
        reader.names(n, width) for n, width in zip(size[::-1], _OLD_NAMES if old else _NEW_NAMES, strict=True)
    )
    if old:
        columns_of, rows_of = np.divmod(entries["place"].astype(int) - 1, size[0])
    else:
        rows_of, columns_of = entries["row"].astype(int), entries["column"].astype(int)
    if np.any((rows_of < 0) | (rows_of >= size[0]) | (columns_of < 0) | (columns_of >= size[1])):
        raise ValueError("has an entry outside of the matrix")
    values = np.zeros(size)
    values[rows_of, columns_of] = entries["value"]
    return rows, columns, values


def _read_dense(reader: _Reader, width: int, largest: int) -> tuple[tuple[str, ...], tuple[str, ...], Floats]:
    if not 0 < width <= largest:
        raise ValueError(f"is no binary matrix of at most {largest:,} columns")
    columns = reader.sized_names(width)
    rows: list[str] = []
    values: list[Floats] = []
    while reader.left and len(rows) < largest:
        rows += reader.sized_names(1)
        values.append(reader.array("<f8", width))
    return tuple(rows), columns, np.reshape(values, (len(rows), width))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    @property
    def left(self) -> int:
        """Number of bytes that were not read."""
        return len(self._data) - self._place

    def array(self, dtype: np.dtype[np.void] | str, count: int) -> np.ndarray:
        kind = np.dtype(dtype)
        return np.frombuffer(self._take(kind.itemsize * count), kind)

    def names(self, count: int, width: int) -> tuple[str, ...]:
        return _decode([self._take(width) for _ in range(count)])

    def sized_names(self, count: int) -> tuple[str, ...]:
        """Read the lengths of some names, then the names."""
        return _decode([self._take(int(size)) for size in self.array("<i4", count)])

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise ValueError("is no complete binary matrix: it ends too early")
        start, self._place = self._place, self._place + size
        return self._data[start : self._place]


def _decode(names: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(name.decode("latin-1").strip(" \0").lower() for name in names)
