import pytest

from invgp.units import conversion, is_unit, suggest_unit


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [("km", "m", 1.5, 1500.0), ("ms", "s", 250.0, 0.25), ("degC", "K", 20.0, 293.15), ("m/s", "m s-1", 3.0, 3.0)],
)
def test_that_values_are_converted(source, target, value, expected):
    factor, offset = conversion(source, target)
    assert value * factor + offset == pytest.approx(expected, rel=1e-12)


def test_that_what_measures_something_else_is_not_converted():
    assert conversion("m", "s") is None


@pytest.mark.parametrize(
    ("text", "known"), [("ohm m", True), ("1", True), ("furlongz", False), ("", False), ("m s-1", True)]
)
def test_that_units_are_what_udunits_knows(text, known):
    assert is_unit(text) is known


def test_that_logarithmic_units_are_not_converted_by_a_factor():
    assert conversion("lg(re 1 mW)", "W") is None


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("mD", "such as 'millidarcy'"),
        ("md", "such as 'millidarcy'; 'md' would be a milli-day"),
        ("STB/day", "such as 'bbl day-1'"),
        ("gpd/ft2", "such as 'gallon day-1 ft-2'"),
        ("m3/d", ""),
        ("furlongz", ""),
    ],
)
def test_that_units_of_oil_fields_and_hydrology_have_a_suggestion(text, suggestion):
    assert suggest_unit(text) == suggestion
    if suggestion:
        assert is_unit(suggestion.split("'")[1])
