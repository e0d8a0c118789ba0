"""The examples in the docstrings of the public API run and print what they show."""

import doctest
from importlib import import_module

import pytest

MODULES = [
    "invgp.estimator.model",
    "invgp.measures",
    *(
        f"invgp.likelihoods.{name}"
        for name in (
            "black_box",
            "gaussian",
            "gprn",
            "laplace",
            "logistic",
            "poisson",
            "seismic",
            "softmax",
            "student_t",
            "testing",
            "warped",
        )
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_that_examples_run(name):
    failed, tried = doctest.testmod(import_module(name))
    assert tried > 0
    assert failed == 0
