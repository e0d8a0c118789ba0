from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgp.adapters.readers import file_access, read_numbers, read_text


@given(st.lists(st.floats(allow_nan=False)), st.sampled_from([" ", ",", ", ", "\n", "\r\n", "\t"]))
def test_that_numbers_are_read_back_exactly_with_any_separator(numbers: list[float], separator: str) -> None:
    text = "# a comment\n" + separator.join(map(repr, numbers))
    np.testing.assert_array_equal(read_numbers(text, len(numbers)), numbers)


def test_that_fortran_exponents_are_understood() -> None:
    text = "1.0D+03 -2.5d-1 1.0+103 .5-100 3.D0 1Q2"
    np.testing.assert_array_equal(read_numbers(text, 6), [1e3, -0.25, 1e103, 0.5e-100, 3.0, 100.0])


def test_that_nan_and_inf_are_numbers() -> None:
    np.testing.assert_array_equal(read_numbers("NaN -inf Infinity", 3), [np.nan, -np.inf, np.inf])


def test_that_lines_are_skipped_and_comments_ignored() -> None:
    assert read_numbers("time (s)\n  # 7 8\n1 2\n", 2, skip_lines=1).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2\n3 abc", "line 2: 'abc' is not a number"),
        ("1 2 3 *******", r"line 1: '\*\*\*\*\*\*\*' is not a number"),
        ("1 2 3 1_0", "'1_0' is not a number"),
        ("x" * 500, f"line 1: '{'x' * 60}...' is not a number"),
        ("1 2 3", "expected 4 numbers, found 3"),
        ("1 2 3 4 5 six", "expected 4 numbers, found 6"),
        ("", "expected 4 numbers, found 0"),
    ],
)
def test_that_a_text_without_the_numbers_is_refused_with_what_it_holds(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_numbers(text, 4)


def test_that_line_numbers_count_skipped_lines() -> None:
    with pytest.raises(ValueError, match="line 3: 'bad'"):
        read_numbers("head\nhead\nbad", 1, skip_lines=2)


def test_that_a_file_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_access, "SIZE_LIMIT", 5)
    (tmp_path / "out.txt").write_text("12345")
    assert read_text(tmp_path, "out.txt") == "12345"
    monkeypatch.setattr(file_access, "SIZE_LIMIT", 4)
    with pytest.raises(ValueError, match="holds 5 bytes, over the limit of 4 bytes"):
        read_text(tmp_path, "out.txt")


def test_that_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.txt")
    with pytest.raises(ValueError, match="not a regular file"):
        read_text(tmp_path, "out.txt")


def test_that_bytes_that_are_no_text_are_reported_as_no_number(tmp_path: Path) -> None:
    (tmp_path / "out.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not a number"):
        read_numbers(read_text(tmp_path, "out.bin"), 1)
