"""PEST's templates and instructions: each rule of the formats, and round trips."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgp.adapters import PestTemplate, Quantity, TemplateError
from invgp.adapters.pest.instructions import InstructionError, Instructions
from invgp.adapters.pest.pest_template import Parameter, fit_number

DEPTH = Quantity("depth", "m", (1, 2))
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, st.integers(24, 40))
def test_that_a_number_in_a_wide_space_reads_back_exactly(number: float, width: int) -> None:
    text = fit_number(number, width)
    assert text is not None
    assert "." in text
    assert float(text) == number


@given(st.floats(-1e300, 1e300), st.integers(3, 23))
def test_that_a_number_that_fits_is_the_nearest_of_its_width(number: float, width: int) -> None:
    text = fit_number(number, width)
    if text is None:
        assert width < 8  # -1.e-308
        return
    assert len(text) <= width
    error = abs(float(text) - number)
    for digits in range(17):
        plain = f"{number:.{digits}e}"
        if len(plain) <= width and "." in plain:
            assert error <= abs(float(plain) - number)


@pytest.mark.parametrize(
    ("number", "width", "text"),
    [
        (0.0, 3, "0.0"),
        (-0.125, 5, "-.125"),
        (0.125, 5, "0.125"),
        (12345.678, 8, "12345.68"),
        (12345.678, 6, "12346."),
        (12345.678, 5, "1.2e4"),
        (12345.678, 4, "1.e4"),
        (12345.678, 3, None),
        (1.5e-10, 7, "1.5e-10"),
        (1e-10, 6, "1.e-10"),
        (0.001, 3, None),
        (1 / 3, 10, ".333333333"),
        (math.nan, 3, "nan"),
        (-math.inf, 3, None),
    ],
)
def test_that_as_many_digits_are_written_as_fit(number: float, width: int, text: str | None) -> None:
    assert fit_number(number, width) == text


def test_that_spaces_are_filled_in_any_case_and_the_narrowest_decides() -> None:
    template = PestTemplate("ptf ~\nfirst ~Depth_1   ~ km\nagain ~ DEPTH_1       ~\n~depth_2~")
    assert template.names == ("depth_1", "depth_2")
    text = template.render({"depth": {1: 1 / 3, 2: 2.0}})
    # `Depth_1   ` and its two delimiters take 12 characters, there and in the wider space below.
    first, again, last = text.split("\n")
    written = f"{fit_number(1 / 3, 12)}"
    assert len(written) == 12
    assert first == f"first {written} km"
    assert again == f"again {written.rjust(17)}"
    assert last == "2.".rjust(9)
    assert template.columns((DEPTH,)) == {("depth", 1), ("depth", 2)}


@given(st.lists(FINITE, min_size=2, max_size=2), st.sampled_from("~@#%|"))
def test_that_a_template_round_trips(numbers: list[float], delimiter: str) -> None:
    d = delimiter
    text = f"ptf {d}\n{d}{'depth1':<24}{d},{d}{'depth[2]':<24}{d}"
    rendered = PestTemplate(text).render({"depth": dict(zip((1, 2), numbers, strict=True))})
    assert [float(word) for word in rendered.split(",")] == numbers


def test_that_the_label_may_be_the_name_and_others_keep_their_value() -> None:
    parameters = {
        "hk": Parameter(1.0, source="hk", scale=10.0, offset=1.0),
        "vk": Parameter(0.5, source="hk", ratio=0.1),
        "por": Parameter(0.25),
    }
    template = PestTemplate("ptf ~\n~hk   ~ ~vk   ~ ~por  ~", parameters)
    template.check((Quantity("conductivity", "m", ("HK",)),))
    words = template.render({"conductivity": {"HK": 2.0}}).split()
    assert [float(word) for word in words] == [21.0, 0.2, 0.25]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: must be 'ptf' and a delimiter"),
        ("ptf a\n", "line 1: must be 'ptf'"),
        ("pif ~\n", "line 1: must be 'ptf'"),
        ("ptf ~\n~a~ ~b\n", "line 2: has a delimiter '~' without its partner"),
        ("ptf ~\nx\n~  ~\n", "line 3: '  ' between two delimiters is no name"),
        ("ptf ~\n~a b~\n", "line 2: 'a b' between"),
    ],
)
def test_that_a_bad_template_names_its_line(text: str, sentence: str) -> None:
    with pytest.raises(TemplateError, match=sentence):
        PestTemplate(text)


def test_that_unknown_and_ambiguous_names_are_reported() -> None:
    with pytest.raises(TemplateError, match=r"line 2: 'depht_1' names no input; did you mean 'depth_1'\?"):
        PestTemplate("ptf ~\n~depht_1~").check((DEPTH,))
    twins = (Quantity("a", "m", ("top",)), Quantity("b", "m", ("top",)))
    with pytest.raises(TemplateError, match=r"'top' may be a\[top\] or b\[top\]"):
        PestTemplate("ptf ~\n~top~").check(twins)


def test_that_a_number_that_does_not_fit_is_reported() -> None:
    with pytest.raises(TemplateError, match=r"'a' is 12345\.0, of which no digit fits in 3 characters"):
        PestTemplate("ptf ~\n~a~").render({"a": 12345.0})


OUTPUT = """\
MODEL RUN 7
  period 1   head =   12.5  flow= 3.25D+01
  period 2   head =   13.5  flow=-4.5
layer  1.00 2.00,3.00
xx  1234.5678yy
time:5.5s end
"""


@pytest.mark.parametrize(
    ("instructions", "numbers"),
    [
        ("l2 @head =@ !h1!", {"h1": 12.5}),
        ("@period 2@ @flow=@ !q2!", {"q2": -4.5}),
        ("@period@ @flow=-@ !q2!", {"q2": 4.5}),  # on to the first line that holds both
        ("l2 @flow=@ !q1!\nl1 @flow=@ !Q2!", {"q1": 32.5, "q2": -4.5}),
        ("l4 w !a! w !b!", {"a": 1.0, "b": 2.0}),
        ("l4 @layer@ !a! !dum! !c!", {"a": 1.0, "c": 3.0}),
        ("l4 w w !b!", {"b": 2.0}),
        ("l5 [a]5:8 [b]10:11", {"a": 1234.0, "b": 56.0}),
        ("l4 (a)9:10 (b)13:14", {"a": 1.0, "b": 2.0}),
        ("l4 t12 !b!", {"b": 2.0}),
        ("@time:@ !t!@s@", {"t": 5.5}),
        ("l1 @RUN@\n& !n!", {"n": 7.0}),
        ("@MODEL@\nl1 @head =@\n& !h1! @=@ !q1!\n\nl1 w w w w w !h2!", {"h1": 12.5, "q1": 32.5, "h2": 13.5}),
    ],
)
def test_that_instructions_lead_to_numbers(instructions: str, numbers: dict[str, float]) -> None:
    parsed = Instructions(f"pif @\n{instructions}\n")
    assert parsed.read(OUTPUT) == numbers
    assert parsed.read(OUTPUT.replace("\n", "\r\n")) == numbers
    assert set(parsed.names) == set(numbers)


@given(st.lists(FINITE, min_size=1, max_size=5))
def test_that_free_semi_fixed_and_fixed_numbers_read_back(numbers: list[float]) -> None:
    width = 26
    text = "head\n" + "".join(repr(number).rjust(width) for number in numbers)
    free = "l2 " + " ".join(f"!o{i}!" for i in range(len(numbers)))
    fixed = "l2 " + " ".join(f"[o{i}]{width * i + 1}:{width * (i + 1)}" for i in range(len(numbers)))
    semi = "l2 " + " ".join(f"(o{i}){width * i + width - 1}:{width * (i + 1)}" for i in range(len(numbers)))
    for instructions in (free, fixed, semi):
        assert list(Instructions(f"pif ~\n{instructions}").read(text).values()) == numbers


@pytest.mark.slow
@given(st.text(), st.text())
def test_that_no_text_does_worse_than_an_error(instructions: str, text: str) -> None:
    with suppress(ValueError):
        Instructions(f"pif @\n{instructions}").read(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ptf @", "line 1: must be 'pif'"),
        ("pif @\n!a!", "line 2: must start with a marker, or with 'l'"),
        ("pif @\n& !a!", "line 2: must start"),
        ("pif @\nl1 @abc", "line 2: has a marker without text or without its end '@'"),
        ("pif @\nl1 @@", "line 2: has a marker without text"),
        ("pif @\nl1 x5", "line 2: 'x5' is no instruction"),
        ("pif @\nl1 [a]5:3", "line 2: columns 5:3 must grow from 1"),
        ("pif @\nl0 !a!", "line 2: must advance by one line at least"),
        ("pif @\nl1 !a! l1", "line 2: only at its start can a line advance"),
        ("pif @\nl1 !a!\nl1 !A!", "the observation 'a' is read 2 times"),
    ],
)
def test_that_bad_instructions_name_their_line(text: str, sentence: str) -> None:
    with pytest.raises(InstructionError, match=sentence):
        Instructions(text)


@pytest.mark.parametrize(
    ("instructions", "sentence"),
    [
        ("@nowhere@ !a!", r"no line below line 0 holds 'nowhere' \(line 2 of the instructions\)"),
        ("l9 !a!", "ends with line 7, before line 9"),
        ("l1 @RUN@ !a! !b!", "line 1: 'b' was not found after column 11"),
        ("l1 !a!", "line 1, 'a': 'MODEL' is not a number"),
        ("l1 [a]20:22", "line 1: 'a' was not found in columns 20 to 22"),
        ("l1 (a)20:22", "line 1: 'a' was not found in columns 20 to 22"),
        ("l1 !dum! @RUN@ @RUN@", "line 1: there is no text 'RUN' after column 9"),
        ("l1 w w w", "line 1: there is no word after white space after column 10"),
        ("l1 t50", "line 1: column 50 lies before the cursor or beyond the end"),
    ],
)
def test_that_the_position_of_a_mismatch_in_a_file_is_reported(instructions: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Instructions(f"pif @\n{instructions}").read(OUTPUT)
