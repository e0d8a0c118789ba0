from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgp.adapters import Quantity, Template, TemplateError
from invgp.adapters.templates import Values

INPUTS = (
    Quantity("speed", "m s-1"),
    Quantity("depth", "m", (1, 2)),
    Quantity("density", "kg m-3", ("sand", "clay")),
)
VALUES: Values = {"speed": 0.1, "depth": {1: 10.0, 2: 20.0}, "density": {"sand": 1600.0, "clay": 1800.0}}


@given(st.floats())
def test_that_a_float_without_a_specification_reads_back_exactly(number: float) -> None:
    text = Template("a {speed} b").render({"speed": number})
    back = float(text.split()[1])
    np.testing.assert_array_equal(back, number)


@given(st.text())
def test_that_text_with_doubled_braces_comes_out_as_it_went_in(text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    template = Template(escaped)
    assert template.fields == ()
    assert template.render({}) == text


@given(st.text())
def test_that_no_text_does_worse_than_a_template_error(text: str) -> None:
    with suppress(TemplateError):
        Template(text).check(INPUTS)


def test_that_labels_and_specifications_are_understood() -> None:
    template = Template("v={speed:.3f}\r\nz={depth[2]} rho={density[clay]:8.1e} {{x}}\n")
    template.check(INPUTS)
    assert template.render(VALUES) == "v=0.100\r\nz=20.0 rho= 1.8e+03 {x}\n"
    assert [(f.name, f.label, f.spec, f.line) for f in template.fields] == [
        ("speed", None, ".3f", 1),
        ("depth", "2", "", 2),
        ("density", "clay", "8.1e", 2),
    ]
    assert template.columns(INPUTS) == {("speed", None), ("depth", 2), ("density", "clay")}


def test_that_numpy_floats_are_written_as_plain_numbers() -> None:
    assert Template("{speed}").render({"speed": np.float64(0.1)}) == "0.1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\n{speed.__class__}", r"line 2: \{speed.__class__\} is neither"),
        ("{depth[1].real}", r"line 1: .* is neither"),
        ("{depth[1][2]}", r"line 1: .* is neither"),
        ("{speed!r}", r"line 1: \{speed!r\} has a conversion"),
        ("\n\n{}", r"line 3: \{\} has no name"),
        ("{0}", r"line 1: \{0\} has no name"),
        ("{speed:{depth}}", r"line 1: .* nested or overlong"),
        ("{speed:999999999f}", r"line 1: .* nested or overlong"),
        ("{speed:d}", r"line 1: .* suits no float"),
        ("a\n}", r"line 2: Single '}' .* doubled"),
        ("a\nb {speed", r"line 2: .* doubled"),
    ],
)
def test_that_anything_but_a_named_number_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(TemplateError, match=sentence):
        Template(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{sped}", r"line 1: \{sped\} names no input; did you mean 'speed'\?"),
        ("{zzz}", r"there is 'speed', 'depth', 'density'"),
        ("{depth}", r"line 1: \{depth\} needs a label, \{depth\[1\]\}; valid labels are 1, 2"),
        ("{depth[3]}", r"line 1: \{depth\[3\]\} has an unknown label; valid labels are 1, 2"),
        ("{speed[1]}", r"has a label, but 'speed' is a single number: write \{speed\}"),
    ],
)
def test_that_an_unknown_placeholder_is_reported_with_the_valid_ones(text: str, sentence: str) -> None:
    with pytest.raises(TemplateError, match=sentence):
        Template(text).check(INPUTS)


@pytest.mark.parametrize("text", ["{other}", "{depth}", "{depth[3]}", "{speed[1]}"])
def test_that_a_missing_value_is_reported(text: str) -> None:
    with pytest.raises(TemplateError, match="has no value"):
        Template(text).render(VALUES)
