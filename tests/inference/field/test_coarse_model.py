"""Field models that correct a cheaper model of the same outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.local_averages import FUNCTION, exact_moments, windows
from invgp.errors import ConfigError
from invgp.inference.pilot import expected_cost, pilot_size, run_pilot

COARSE = (
    FUNCTION
    + """

def near(depth, position):  # other weights, a factor and an offset
    return 90.0 * (weights(position + 1.0) @ depth) + 30.0


def mirrored(depth, position):
    return averages(40.0 - depth, position)


def constant(depth, position):
    return 2000.0 + 0.0 * averages(depth, position)


def in_another_unit(depth, position):
    return 1e5 * averages(depth, position)


def unrelated(depth, position):
    waves = np.cos(np.arange(depth.size) * np.arange(1, position.size + 1)[:, None])
    return 2000.0 + 30.0 * (waves @ (depth - 20.0))


def curved(depth, position):
    return averages(depth, position) + 0.3 * (weights(position) @ (depth - 20.0) ** 2)
"""
)


TABLE = """[forward.coarse]
adapter = "callable"
function = "averages:{}"
vectorised = false
"""


def coarse_model(function: str, fine: str = "averages", settings: str = "") -> dict[str, str]:
    """Changes of the config for a coarse model, and for a basis that keeps nearly all of the prior variance."""
    return {
        "averages:averages": f"averages:{fine}",
        "[noise]": TABLE.format(function) + "\n[noise]",
        "kept_variance = 0.999": f"kept_variance = 0.999999\n{settings}",
    }


@pytest.fixture
def load_changed(folder: Path, load_problem: Callable[..., invgp.Problem]) -> Callable[..., invgp.Problem]:
    (folder / "averages.py").write_text(COARSE, encoding="utf-8")
    return load_problem


@pytest.mark.slow
def test_that_the_posterior_is_that_of_the_fine_model_from_fewer_runs(
    load_changed: Callable[..., invgp.Problem],
) -> None:
    problem = load_changed(coarse_model("near"))
    posterior, alone = invgp.invert(problem), invgp.invert(load_changed({"0.999": "0.999999"}))
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_runs"] <= 24 < alone.attrs["invgp_runs"]
    assert posterior.attrs["invgp_coarse_runs"] > 24
    assert posterior.attrs["invgp_coarse_runs_failed"] == 0
    mean, std = exact_moments(problem)
    np.testing.assert_allclose((posterior["depth"] - mean) / std, 0.0, atol=0.1)
    np.testing.assert_allclose(posterior["depth_std"] / std, 1.0, atol=0.05)
    assert problem.grid is not None
    predicted = windows(problem.grid.X[:, 0]) @ posterior["depth"].values
    np.testing.assert_allclose(posterior["average_predicted"], predicted, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("function", ["mirrored", "constant", "unrelated", "in_another_unit", "always_fails"])
def test_that_a_useless_coarse_model_costs_only_runs(load_changed: Callable[..., invgp.Problem], function: str) -> None:
    problem = load_changed(coarse_model(function))
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_converged"] == "yes"
    mean, std = exact_moments(problem)
    np.testing.assert_allclose((posterior["depth"] - mean) / std, 0.0, atol=0.2)
    np.testing.assert_allclose(posterior["depth_std"] / std, 1.0, atol=0.1)
    unused = "The coarse model was not used" in posterior.attrs["invgp_diagnostics"]
    assert unused or function in ("mirrored", "constant", "unrelated")


@pytest.mark.slow
def test_that_a_nonlinear_fine_model_is_corrected(load_changed: Callable[..., invgp.Problem]) -> None:
    posterior = invgp.invert(load_changed(coarse_model("averages", fine="curved")))
    alone = invgp.invert(load_changed({"averages:averages": "averages:curved", "0.999": "0.999999"}))
    assert posterior.attrs["invgp_converged"] == alone.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_runs"] < alone.attrs["invgp_runs"]
    off = (posterior["depth"] - alone["depth"]) / alone["depth_std"]
    assert float(np.sqrt(np.mean(off**2))) < 0.15
    assert abs(float(np.median(posterior["depth_std"] / alone["depth_std"])) - 1.0) < 0.05


def test_that_failing_coarse_runs_are_left_out(load_changed: Callable[..., invgp.Problem]) -> None:
    problem = load_changed(coarse_model("half_fail", settings="max_failed_share = 0.8"))
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_coarse_runs_failed"] > 0
    assert posterior.attrs["invgp_runs_failed"] == 0
    mean, std = exact_moments(problem)
    np.testing.assert_allclose((posterior["depth"] - mean) / std, 0.0, atol=0.2)


@pytest.mark.slow
def test_that_neither_workers_nor_a_ledger_change_the_result_and_no_run_is_repeated(
    load_changed: Callable[..., invgp.Problem], tmp_path: Path
) -> None:
    problem, ledger = load_changed(coarse_model("averages", fine="curved")), tmp_path / "runs.sqlite"
    alone = invgp.invert(problem, ledger=ledger)
    with_workers, again = invgp.invert(problem, workers=2), invgp.invert(problem, ledger=ledger)
    for other in (with_workers, again):
        xr.testing.assert_equal(other["depth"], alone["depth"])
        xr.testing.assert_equal(other["depth_sample"], alone["depth_sample"])
    for runs in ("invgp_runs", "invgp_coarse_runs"):
        assert again.attrs[runs] == alone.attrs[runs]
    assert again.attrs["invgp_runs_from_ledger"] == alone.attrs["invgp_runs"]
    assert again.attrs["invgp_coarse_runs_from_ledger"] == alone.attrs["invgp_coarse_runs"]
    known = invgp.invert(problem, ledger=ledger, new_runs=False)
    off = (known["depth"] - alone["depth"]) / alone["depth_std"]
    assert float(np.sqrt(np.mean(off**2))) < 0.1


def test_that_each_fidelity_has_its_budget(load_changed: Callable[..., invgp.Problem]) -> None:
    limits = coarse_model("averages", "curved", "max_runs = 16\nmax_coarse_runs = 50")
    posterior = invgp.invert(load_changed(limits))
    assert posterior.attrs["invgp_runs"] <= 16
    assert posterior.attrs["invgp_coarse_runs"] <= 50


@pytest.mark.slow
def test_that_hyperparameters_are_learnt_with_a_coarse_model(load_changed: Callable[..., invgp.Problem]) -> None:
    learn = {"length_scale = 12 }": "length_scale = 12 }\nlearn = { std = true }"}
    found = [
        invgp.invert(load_changed({**changes, **learn}))
        for changes in (coarse_model("near"), {"kept_variance = 0.999": "kept_variance = 0.999999"})
    ]
    assert found[0].attrs["invgp_runs"] < found[1].attrs["invgp_runs"]
    off = (found[0]["depth"] - found[1]["depth"]) / found[1]["depth_std"]
    assert float(np.sqrt(np.mean(off**2))) < 0.2
    assert abs(float(np.median(found[0]["depth_std"] / found[1]["depth_std"])) - 1.0) < 0.1


@pytest.mark.slow
def test_that_both_fidelities_are_forecast(load_changed: Callable[..., invgp.Problem], tmp_path: Path) -> None:
    problem = load_changed(coarse_model("averages", fine="curved"))
    alone = load_changed({"averages:averages": "averages:curved"})
    assert expected_cost(problem).runs < expected_cost(alone).runs
    assert expected_cost(alone).coarse_runs == 0
    size = pilot_size(problem)
    assert size < pilot_size(alone)
    pilot = run_pilot(problem, size, directory=tmp_path / "runs")
    cost = expected_cost(problem, pilot)
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_runs"] / 3 < cost.runs < 3 * posterior.attrs["invgp_runs"]
    assert pilot.coarse_runs <= posterior.attrs["invgp_coarse_runs"]
    assert posterior.attrs["invgp_coarse_runs"] / 3 < cost.coarse_runs < 3 * posterior.attrs["invgp_coarse_runs"]


def test_that_a_coarse_model_can_be_a_python_function() -> None:
    rng = np.random.default_rng(0)
    axis = {"unit": "m", "start": 0.0, "stop": 9.0, "step": 1.0}
    problem = invgp.define(
        {"x": np.arange(5.0), "level": rng.standard_normal(5)},
        coordinates={"x": "m"},
        observations={"level": "m"},
        latents={"height": {"unit": "m", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 2.0}}},
        grid={"x": axis},
        forward={"function": lambda height: height[..., ::2], "coarse": {"function": lambda height: height[..., 1::2]}},
        noise={"level": 0.1},
    )
    assert problem.coarse is not None
    assert problem.coarse.outputs == problem.forward.outputs
    assert problem.with_coarse_model is not None
    assert problem.with_coarse_model.forward is problem.coarse


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vectorised = false\n\n": "vectorised = false\npartial = true\n\n"}, "forward.coarse.partial: must be false"),
        ({'function = "averages:near"': 'function = "averages:nothing"'}, "forward.coarse.function"),
        (
            {'function = "averages:near"': 'function = "averages:near"\ntimeout = 3'},
            "forward.coarse.timeout: unknown key",
        ),
        (
            {'function = "averages:near"': 'function = "averages:near"\nkind = "site"'},
            "forward.coarse.kind: must be that",
        ),
        (
            {'function = "averages:near"': 'function = "averages:near"\ninputs = ["position", "depth"]'},
            "forward.coarse.inputs: must be those of [forward]",
        ),
        ({"0.999999": "0.999999\nlocalisation = 30"}, "inference.localisation: must be left out with [forward.coarse]"),
        ({"0.999999": "0.999999\nmax_coarse_runs = 3"}, "inference.max_coarse_runs: must be at least 8"),
    ],
)
def test_that_mistakes_have_a_sentence(
    load_changed: Callable[..., invgp.Problem], folder: Path, changes: dict[str, str], message: str
) -> None:
    load_changed(coarse_model("near"))
    text = (folder / "survey.toml").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "survey.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        invgp.load(folder / "survey.toml")
    assert any(sentence.startswith(message) for sentence in caught.value.sentences)


def test_that_site_models_have_no_coarse_model() -> None:
    with pytest.raises(ConfigError, match=r"forward\.coarse: must be left out unless forward\.kind = 'field'"):
        invgp.define(
            {"x": [0.0, 1.0], "level": [0.0, 1.0]},
            coordinates={"x": "m"},
            observations={"level": "m"},
            latents={"height": {"unit": "m", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 2.0}}},
            forward={"function": lambda height: height, "coarse": {"function": lambda height: height}},
            noise={"level": 0.1},
        )
