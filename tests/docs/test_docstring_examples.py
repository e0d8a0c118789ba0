"""The examples in the docstrings of the public API run and print what they show."""

import doctest
from importlib import import_module
from runpy import run_path

import pytest

import invgp

MODULES = [
    "invgp.estimator.model",
    "invgp.measures",
    *(f"invgp.forward_models.{name}" for name in ("columns", "gravity", "heat", "magnetics")),
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


WITH_POSTERIOR = [
    "invgp.accessor",
    "invgp.api.answers",
    "invgp.api.measurements",
    "invgp.api.posterior_files",
    "invgp.api.presentation",
    "invgp.api.prior_data",
    "invgp.api.validation",
    "invgp.config.define_problem",
    "invgp.errors",
    "invgp.formatting",
    "invgp.maps.predict",
    "invgp.posterior.attributes",
    "invgp.netcdf",
    *(f"invgp.plots.{name}" for name in ("draws", "figures", "fit", "inference_figures", "sections")),
    "invgp.scaffolds.column_roles",
    "invgp.units",
]


@pytest.mark.parametrize("name", WITH_POSTERIOR)
def test_that_examples_with_a_posterior_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = invgp.define(
        {"x": [0.0, 100.0, 200.0], "time": [0.105, 0.112, 0.121]},
        coordinates={"x": "m"},
        observations={"time": "s"},
        latents={"depth": {"unit": "m", "mean": 100, "std": 20, "kernel": {"length_scale": 300}}},
        forward=lambda depth: 2.0 * depth / 2000.0,
        noise={"time": 0.005},
    )
    names = {"invgp": invgp, "problem": problem, "posterior": invgp.invert(problem)}
    failed, tried = doctest.testmod(import_module(name), extraglobs=names)
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_that_examples_run(name):
    failed, tried = doctest.testmod(import_module(name))
    assert tried > 0
    assert failed == 0


def test_that_the_public_api_documents_its_parameters(root):
    count = run_path(str(root / "tests" / "benchmarks" / "docstrings.py"))
    functions = count["find_functions"]()
    documented, names = count["documented_functions"](functions), count["api_names"]()
    api = [one for one in functions if (one.module, one.name.partition(".")[0]) in names]
    assert len(api) > 100
    assert [f"{one.module}.{one.name}" for one in api if one not in documented] == []
