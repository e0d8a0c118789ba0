"""The public functions on posteriors: in memory and from files, with errors that name their arguments."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import invgp
from invgp import api
from invgp.cli import app
from invgp.errors import ArgumentError, ConfigError, InvgpError, PlotError, replace_arguments


@pytest.fixture(scope="module")
def problem() -> invgp.Problem:
    return invgp.define(
        {"x": [0.0, 100.0, 200.0, 300.0], "time": [0.105, 0.112, 0.121, 0.118]},
        coordinates={"x": "m"},
        observations={"time": "s"},
        latents={"depth": {"unit": "m", "mean": 100, "std": 20, "kernel": {"length_scale": 300}}},
        forward=lambda depth: 2.0 * depth / 2000.0,
        noise={"time": 0.005},
    )


@pytest.fixture(scope="module")
def posterior(problem: invgp.Problem) -> xr.Dataset:
    return invgp.invert(problem)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_that_every_public_name_exists() -> None:
    assert sorted(invgp.__all__) == sorted(dir(invgp))
    for name in invgp.__all__:
        assert getattr(invgp, name) is not None
    with pytest.raises(AttributeError, match="module 'invgp' has no attribute 'inverted'"):
        _ = invgp.inverted  # type: ignore[attr-defined]


def test_that_functions_are_not_shadowed_by_packages() -> None:
    for module in ("invgp.reports", "invgp.exporters", "invgp.plots", "invgp.validation.calibration"):
        import_module(module)
    for name in ("report", "export", "plot", "calibrate", "compare", "write"):
        assert inspect.isfunction(getattr(invgp, name))


def test_that_a_posterior_is_the_same_after_a_file(posterior: xr.Dataset) -> None:
    path = invgp.write(posterior, "results/line.nc")
    assert path == Path("results/line.nc")
    xr.testing.assert_equal(invgp.open_posterior(path), posterior)
    assert invgp.has_converged(posterior) is True
    assert invgp.has_converged(posterior.assign_attrs(invgp_converged="no")) is False
    old = {key: value for key, value in posterior.attrs.items() if key != "invgp_converged"}
    assert invgp.has_converged(posterior.drop_attrs().assign_attrs({**old, "invgp_settled": "yes"})) is True


@pytest.mark.slow
def test_that_datasets_and_files_give_the_same_results(posterior: xr.Dataset) -> None:
    path = invgp.write(posterior, "line.nc")
    assert invgp.plot(posterior, "memory.png", dpi=50) == (Path("memory.png"), Path("memory_fit.png"))
    assert invgp.plot(path, dpi=50) == (Path("line.png"), Path("line_fit.png"))
    assert Path("memory.png").read_bytes() == Path("line.png").read_bytes()
    assert invgp.report(path) == Path("line.html")
    assert invgp.report(posterior) == Path("posterior.html")
    assert invgp.export(path, "csv") == [Path("line.csv")]
    assert invgp.export(posterior, "csv") == [Path("posterior.csv")]
    assert Path("line.csv").read_text() == Path("posterior.csv").read_text()
    xr.testing.assert_equal(invgp.predict(path, 100), invgp.predict(posterior, "100"))


def test_that_a_single_figure_is_written_to_its_own_file(posterior: xr.Dataset) -> None:
    assert invgp.plot(posterior, "line.svg", kinds=["convergence"]) == (Path("line.svg"),)
    assert "<svg" in Path("line.svg").read_text()


@pytest.mark.slow
def test_that_a_posterior_is_compared_with_chains_of_its_problem(problem: invgp.Problem, posterior: xr.Dataset) -> None:
    found = invgp.compare(posterior, problem, chains=16, effective=200, output="draws.nc", plot="draws.png")
    # The problem is linear and Gaussian, so that the posterior is exact.
    assert float(np.abs(found["depth_error"]).max()) < 0.5
    assert float(np.abs(found["depth_ratio"] - 1.0).max()) < 0.3
    assert found.attrs["invgp_reference_chains"] == 16
    assert sorted(path.name for path in Path().iterdir()) == ["draws.nc", "draws.png"]


@pytest.mark.slow
def test_that_a_calibration_continues_from_its_output(problem: invgp.Problem) -> None:
    first = invgp.calibrate(problem, 2, output="line.nc", plot="line.png")
    more = invgp.calibrate(problem, 3, output="line.nc")
    xr.testing.assert_equal(more["depth_pit"][:2], first["depth_pit"])
    with pytest.raises(ArgumentError, match=r"^surveys: must be at least 3, was 2: .* choose another `output`"):
        invgp.calibrate(problem, 2, output="line.nc")


MISTAKES: list[tuple[Any, str]] = [
    (lambda p: invgp.predict(p, latents=["dept"]), "latents: must be a latent of the posterior, was 'dept'"),
    (lambda p: invgp.predict(p, -5), "grid: must be a step greater than 0, was '-5'"),
    (lambda p: invgp.predict(p, quantiles=[2.0]), "quantiles: must be between 0 and 1, were 2"),
    (lambda p: invgp.plot(p, "a.jpg"), "output: must end in .png, .svg or .pdf, was 'a.jpg'"),
    (lambda p: invgp.plot(p, "a.png", kinds=["maps"]), "kinds: must be of section, map, profile, fit, "),
    (lambda p: invgp.plot(p, "a.png", show=["mode"]), "show: must be of mean, std, "),
    (lambda p: invgp.plot(p, "a.png", latents=["dept"]), "latents: must be one of depth, was 'dept'"),
    (lambda p: invgp.plot(p, "a.png", site=2), "site: must be left out unless `kinds` contains correlation, was 2"),
    (lambda p: invgp.plot(p, "a.png", limits={"dept": (0, 1)}), "limits: must be of one of depth, "),
    (lambda p: invgp.plot(p, "a.png", format="svg"), "format: must be that of `output`, which is 'a.png', was 'svg'"),
    (lambda p: invgp.plot(3), "posterior: must be an xarray.Dataset or a path, was a int"),
    (lambda p: invgp.report(p, "a.pdf"), "output: must end in .html, was 'a.pdf'"),
    (lambda p: invgp.report(p.drop_attrs()), "posterior: must be a posterior of invgp, was another dataset"),
    (
        lambda p: invgp.export(p, "xls"),
        "format: must be csv, geotiff, geopackage, aseg-gdf2, vtk, arviz, pest, was 'xls'",
    ),
    (lambda p: invgp.export(p, "csv", variables=["dept"]), "variables: must be a field of the file, was 'dept'"),
    (lambda p: invgp.write(p, "a.txt"), "path: must end in .nc, was 'a.txt'"),
    (invgp.compare, "config: must be the problem or the configuration of the posterior, was not given"),
    (lambda p: invgp.compare(p, chains=1), "chains: must be at least 8, was 1"),
    (lambda p: invgp.compare(p, chains=10), "chains: must be a multiple of 4, was 10"),
    (lambda p: invgp.open_posterior("none.nc"), "the posterior 'none.nc' cannot be read"),
]


@pytest.mark.parametrize(("call", "sentence"), MISTAKES, ids=[sentence[:30] for _, sentence in MISTAKES])
def test_that_a_mistake_names_the_argument(call: Any, sentence: str, posterior: xr.Dataset) -> None:
    with pytest.raises((ConfigError, PlotError)) as caught:
        call(posterior)
    assert str(caught.value).startswith(sentence)
    assert "--" not in str(caught.value)
    assert not list(Path().iterdir())


def test_that_settings_of_a_problem_are_checked(problem: invgp.Problem) -> None:
    assert problem.with_inference(max_runs=7).inference.max_runs == 7
    with pytest.raises(ConfigError, match=r"^max_runs: must be at least 1, was 0$"):
        problem.with_inference(max_runs=0)
    with pytest.raises(ConfigError, match=r"^max_run: unknown key; .*did you mean 'max_runs'\?$"):
        problem.with_inference(max_run=7)
    with pytest.raises(ConfigError, match=r"^realizations: must be at least 0, was -1$"):
        problem.with_output(realizations=-1)


def test_that_the_command_line_names_its_options() -> None:
    names = {"latents": "--latent", "seed": "--seed"}
    assert replace_arguments("latents: must be one of a", names) == "--latent: must be one of a"
    assert replace_arguments("exceed: left out by `latents`; see `invgp run`", names) == (
        "exceed: left out by --latent; see `invgp run`"
    )
    assert replace_arguments("the file: is not seed: or latents", names) == "the file: is not seed: or latents"


@pytest.mark.parametrize("name", ["plot", "report", "export", "compare", "calibrate"])
def test_that_options_are_the_arguments_of_the_function(name: str) -> None:
    command = app.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    options = {str(parameter.name) for parameter in command.params} - {"json", "quiet", "verbose", "check"}
    arguments = set(inspect.signature(getattr(api, name)).parameters)
    in_python = {"progress", "monitor", "drawn_from"}  # the command line displays progress unless --quiet
    assert options - {"config", "data"} == arguments - in_python - {"problem", "config", "data"}
    for parameter in command.params:
        given = inspect.signature(getattr(api, name)).parameters.get(str(parameter.name))
        if given is not None and isinstance(given.default, int) and not isinstance(given.default, bool):
            assert parameter.default == given.default


def test_that_errors_survive_a_worker_process() -> None:
    import pickle  # noqa: PLC0415

    for error in (ArgumentError("a: must"), ConfigError(["one", "two"])):
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(again, InvgpError)
        assert (type(again), again.sentences) == (type(error), error.sentences)
