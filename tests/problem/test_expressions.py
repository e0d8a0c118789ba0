"""Expressions of latents: what they mean, their units, and what is refused."""

import numpy as np
import pytest

from invgp.errors import ConfigError
from invgp.maps.map_quantities import parse_threshold
from invgp.problem.expressions import ExpressionLatent, parse_expression

LATENTS = [
    ExpressionLatent("depth", "m", "layer", (1, 2, 4), linear=True),
    ExpressionLatent("velocity", "km s-1", "layer", (1, 2, 4), linear=False),
    ExpressionLatent("porosity", "1", None, None, linear=True),
    ExpressionLatent("facies", "1", "rock", ("sand", "shale"), linear=True),
]
VALUES = {
    "depth": np.asarray([[100.0, 250.0, 400.0], [90.0, 200.0, 300.0]]),
    "velocity": np.asarray([[1.5, 2.0, 3.0], [1.4, 2.1, 3.3]]),
    "porosity": np.asarray([[0.1], [0.2]]),
    "facies": np.asarray([[1.0, 2.0], [3.0, 4.0]]),
}


@pytest.mark.parametrize(
    ("text", "unit", "dimension", "linear", "expected"),
    [
        ("thickness = depth[2] - depth[1]", "m", None, True, [150.0, 110.0]),
        ("deepest [km] = depth[4]", "km", None, True, [0.4, 0.3]),
        ("height = quantity(1, 'km') - depth[1]", "km", None, True, [0.9, 0.91]),
        ("half = -depth / 2", "m", "layer", True, -0.5 * VALUES["depth"]),
        ("time [s] = depth / velocity", "s", "layer", False, 1e-3 * VALUES["depth"] / VALUES["velocity"]),
        ("squared = depth[1] ** 2", "m2", None, False, [1e4, 8100.0]),
        ("root = sqrt(depth[1] * depth[1])", "m", None, False, [100.0, 90.0]),
        ("scaled = depth * porosity", "m", "layer", False, VALUES["depth"] * VALUES["porosity"]),
        ("less = depth - depth[1]", "m", "layer", True, VALUES["depth"] - VALUES["depth"][:, :1]),
        ("ratio = log(velocity[2] / velocity[1])", "1", None, False, np.log([2.0 / 1.5, 2.1 / 1.4])),
        ("least = minimum(depth[1], quantity(95, 'm'))", "m", None, False, [95.0, 90.0]),
        ("far = abs(porosity - 1)", "1", None, False, [0.9, 0.8]),
        ("clay = facies['shale'] * 2", "1", None, True, [4.0, 8.0]),
    ],
)
def test_that_an_expression_has_its_value_unit_and_shape(text, unit, dimension, linear, expected):
    found = parse_expression(text, LATENTS)
    assert (found.unit, found.dimension, found.linear) == (unit, dimension, linear)
    np.testing.assert_allclose(found.evaluate(VALUES), expected)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("depth[2] - depth[1]", "must be 'name = expression'"),
        ("depth = porosity", "must give a new name"),
        ("x = 1 + 2", "must name a latent"),
        ("x = (depth", "must be an expression that can be read"),
        ("x = depht", "there is no latent 'depht'.*did you mean 'depth'"),
        ("x = depth[3]", "'depth' has no label 3; it has 1, 2 and 4"),
        ("x = porosity[1]", "'porosity' has no labels"),
        ("x = depth + velocity", "'km s-1' cannot be converted to 'm'"),
        ("x = exp(depth)", r"'m' cannot be converted to '1': divide its argument by quantity\(1, \"m\"\)"),
        ("x = depth + facies", "'1' cannot be converted to 'm'|different dimensions"),
        ("x = depth * facies", "'layer' and 'rock' are different dimensions"),
        ("x [parsec per fortnight ago] = porosity", "is not a unit that UDUNITS knows"),
        ("x = porosity ** porosity", "an exponent must be a number"),
        ("x = sqrt(depth)", "to the power of 0.5 is not a unit"),
        ("x = porosity % 2", "the operators are"),
        ("x = open('file')", "is not allowed"),
        ("x = porosity.__class__", "is not allowed"),
        ("x = [porosity for _ in (1,)]", "is not allowed"),
        ("x = (lambda: porosity)()", "is not allowed"),
        ("x = True + porosity", "is not allowed"),
        ("x = quantity('1', 'm')", "is not allowed|is written as"),
        ("x = depth ** 1e308", "'m' to the power of 1e\\+308 is not a unit"),
        ("x = porosity * 9 ** 9 ** 9 ** 9", "is not a finite number"),
        ("x = porosity * 1e400", "'1e309' is not a finite number"),
        (f"x = porosity * 1{'0' * 400}", "is not a finite number"),
        (f"x = porosity * 1{'0' * 5000}", "must be an expression that can be read"),
        ("x = " + "1 + " * 300 + "porosity", "must not have more than 100 operations within each other"),
        ("x = " + "-" * 5000 + "porosity", "within each other|must be an expression that can be read"),
        ("x = " + "porosity + " * 5000 + "porosity", "of at most 10,000 characters"),
    ],
)
def test_that_what_makes_no_sense_is_rejected_with_a_message(text, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        parse_expression(text, LATENTS)
    assert str(caught.value).startswith("derive: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


TEMPERATURE = [ExpressionLatent("temperature", "degC", "layer", (1, 2), linear=True)]


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("warming = temperature[2] - temperature[1]", 15.0, "K"),
        ("gradient [K/km] = (temperature[2] - temperature[1]) / quantity(500, 'm')", 30.0, "K/km"),
        ("middle [degC] = (temperature[1] + temperature[2]) / 2", 17.5, "degC"),
        ("above = temperature[2] - quantity(77, 'degF')", 0.0, "K"),
    ],
)
def test_that_temperatures_count_from_absolute_zero(text, value, unit):
    found = parse_expression(text, TEMPERATURE)
    assert (float(found.evaluate({"temperature": np.asarray([10.0, 25.0])})), found.unit) == (
        pytest.approx(value),
        unit,
    )
    assert found.linear


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = gain * gain", "'dBZ' times 'dBZ' is not a unit"),
        ("x = 1 / gain", "'1' over 'dBZ' is not a unit"),
        ("x = gain ** 2", "'dBZ' to the power of 2 is not a unit"),
    ],
)
def test_that_logarithms_are_not_multiplied(text, sentence, capfd):
    with pytest.raises(ConfigError, match=sentence):
        parse_expression(text, [ExpressionLatent("gain", "dBZ", None, None, linear=True)])
    assert capfd.readouterr().err == ""


UNITS = {"depth": "m", "velocity": "m s-1", "temperature": "degC"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("velocity>2500 m/s", 2500.0),
        ("velocity > 2.5 km/s", 2500.0),
        ("depth > -3.5e2", -350.0),
        ("temperature > 300 K", 26.85),
    ],
)
def test_that_a_threshold_is_in_the_unit_of_its_quantity(text, value):
    assert parse_threshold(text, UNITS).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("depth < 3", "must be 'name > number unit'"),
        ("depth > deep", "must be 'name > number unit'"),
        ("depht > 3", "did you mean 'depth'"),
        ("depth > 3 kg", "must be in a unit that converts to 'm', was 'kg'"),
        ("depth > 1.2.3", "must have a number, was '1.2.3'"),
    ],
)
def test_that_a_threshold_that_makes_no_sense_is_refused(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_threshold(text, UNITS)
