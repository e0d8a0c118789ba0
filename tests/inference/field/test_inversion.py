"""Field models, from the config to the file and its figures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from threadpoolctl import threadpool_info, threadpool_limits

import invgp
from helpers.local_averages import POSITIONS, exact_moments, windows
from helpers.missing_outputs import Lacking
from invgp import netcdf
from invgp.errors import ConfigError, RunsFailedError
from invgp.execution.simulator import Simulator
from invgp.inference.invert import WORTH_THREADS
from invgp.plots import plot
from invgp.progress import SilentMonitor


def test_that_a_linear_field_has_its_exact_posterior_in_the_file(
    load_problem: Callable[..., invgp.Problem], tmp_path: Path
) -> None:
    problem = load_problem({"kept_variance = 0.999": "kept_variance = 0.999999"})
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_runs"] < 60
    mean, std = exact_moments(problem)
    np.testing.assert_allclose(posterior["depth"], mean, atol=0.01)
    np.testing.assert_allclose(posterior["depth_std"], std, rtol=0.02)
    np.testing.assert_allclose(posterior["depth_information"], 1.0 - std**2 / 16.0, atol=0.01)
    assert float(posterior["depth_few_runs_std"].max()) < 0.01
    assert posterior["depth"].dims == ("node",)
    assert posterior["average_predicted"].dims == ("site",)
    np.testing.assert_allclose(posterior["average_predicted"], windows(problem.grid.X[:, 0]) @ mean, atol=0.1)
    assert np.isnan(posterior["average_observed"][4])
    np.testing.assert_array_equal(posterior["position"], problem.grid.X[:, 0])
    np.testing.assert_array_equal(posterior["site_position"], POSITIONS)
    file = netcdf.write(posterior, tmp_path / "posterior.nc")
    with xr.open_dataset(file) as read:
        figures = plot(read.load(), tmp_path / "posterior.png")
    assert all(figure.stat().st_size > 10_000 for figure in figures)


def test_that_draws_have_the_posterior_s_spread(load_problem: Callable[..., invgp.Problem]) -> None:
    problem = load_problem()
    posterior = invgp.invert(problem.with_output(realizations=400))
    ratio = posterior["depth_sample"].std("realization") / posterior["depth_std"]
    assert 0.9 < float(ratio.median()) < 1.1


def test_that_few_runs_give_a_wider_posterior_with_a_note(load_problem: Callable[..., invgp.Problem]) -> None:
    problem = load_problem({"seed = 3": "seed = 3\nmax_runs = 9", "length_scale = 12": "length_scale = 5"})
    posterior = invgp.invert(problem)
    assert posterior.attrs["invgp_runs"] == 9
    assert posterior.attrs["invgp_converged"] == "no"
    assert float(posterior["depth_few_runs_std"].median()) > 0.1
    assert "more runs would narrow the posterior" in posterior.attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_the_result_depends_neither_on_workers_nor_on_being_stopped(
    load_problem: Callable[..., invgp.Problem], tmp_path: Path
) -> None:
    problem = load_problem({"seed = 3": "seed = 3\nmax_runs = 30"})
    alone = invgp.invert(problem, ledger=tmp_path / "runs.sqlite")
    for again in (invgp.invert(problem, workers=2), invgp.invert(problem, ledger=tmp_path / "runs.sqlite")):
        np.testing.assert_array_equal(again["depth"], alone["depth"])
        np.testing.assert_array_equal(again["depth_sample"], alone["depth_sample"])
    assert again.attrs["invgp_runs_from_ledger"] == alone.attrs["invgp_runs"]


@pytest.mark.parametrize(
    "change",
    [
        {"std.average = 0.5": "std.average = 0.3"},
        {"length_scale = 12": "length_scale = 14"},
        {"mean = 20": "mean = 22", "seed = 3": "seed = 4"},
        {"length_scale = 12 }": "length_scale = 12 }\nlearn = { std = true }"},
    ],
    ids=["noise", "length-scale", "mean", "learnt"],
)
def test_that_runs_of_earlier_inversions_are_reused(
    load_problem: Callable[..., invgp.Problem], tmp_path: Path, change: dict[str, str]
) -> None:
    """A change of prior or noise asks for a batch of runs, and ends where it would have ended without them."""
    ledger, fine = tmp_path / "runs.sqlite", {"kept_variance = 0.999": "kept_variance = 0.999999"}
    first = invgp.invert(load_problem(fine), ledger=ledger)
    problem = load_problem(fine | change)
    alone, known = invgp.invert(problem), invgp.invert(problem, ledger=ledger)
    assert known.attrs["invgp_converged"] == "yes"
    assert known.attrs["invgp_runs"] < alone.attrs["invgp_runs"]
    off = (known["depth"] - alone["depth"]) / alone["depth_std"]
    np.testing.assert_allclose(off, 0.0, atol=0.1)
    np.testing.assert_allclose(known["depth_std"] / alone["depth_std"], 1.0, atol=0.05)
    assert first.attrs["invgp_runs"] >= known.attrs["invgp_runs"]
    again = invgp.invert(problem, ledger=ledger)
    xr.testing.assert_equal(again["depth_std"], known["depth_std"])
    assert again.attrs["invgp_runs_from_ledger"] == known.attrs["invgp_runs"]


def test_that_failed_runs_are_left_out(load_problem: Callable[..., invgp.Problem]) -> None:
    problem = load_problem(
        {"averages:averages": "averages:half_fail", "seed = 3": "seed = 3\nmax_failed_share = 0.8\nmax_runs = 90"}
    )
    posterior = invgp.invert(problem)
    mean, std = exact_moments(problem)
    assert 0 < posterior.attrs["invgp_runs_failed"] < 90
    np.testing.assert_allclose(posterior["depth"][10:], mean[10:], atol=float(std.max()))


def test_that_a_simulator_that_always_fails_is_reported(load_problem: Callable[..., invgp.Problem]) -> None:
    with pytest.raises(RunsFailedError, match="never"):
        invgp.invert(load_problem({"averages:averages": "averages:always_fails"}))


def test_that_nodes_may_come_from_a_file(load_problem: Callable[..., invgp.Problem], folder: Path) -> None:
    regular = load_problem()
    rows = "\n".join(str(x) for x in regular.grid.X[:, 0])
    (folder / "nodes.csv").write_text(f"x\n{rows}\n", encoding="utf-8")
    lines = '[grid.coordinates.position]\nunit = "m"\nstart = 0\nstop = 98\nstep = 2'
    problem = load_problem({lines: '[grid]\nfile = "nodes.csv"\n[grid.coordinates.position]\nunit = "m"\ncolumn = "x"'})
    np.testing.assert_array_equal(problem.grid.X, regular.grid.X)
    assert problem.grid.shape == ()
    assert regular.grid.shape == (50,)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('kind = "field"\n', "", "grid: must be left out unless forward.kind = 'field'"),
        ("step = 2\n", "", "grid.coordinates.position.step: is missing"),
        ("stop = 98", "stop = -1", "grid.coordinates.position.stop: must be at least start = 0, was -1"),
        ("step = 2", 'step = 2\ncolumn = "x"', "grid.coordinates.position.column: must be left out without grid.file"),
        (
            "std.average = 0.5",
            'covariance = "n.csv"\nlearn.average = true',
            "noise.learn: must be left out with noise.c",
        ),
        ("seed = 3", "inducing = 4", "inference.inducing: must be left out with forward.kind = 'field'"),
        ("std.average", 'kind = "laplace"\nstd.average', "noise.kind: must be 'gaussian' or 'student-t'"),
        ("seed = 3", "max_runs = 3", "inference.max_runs: must be at least 8 with forward.kind = 'field', was 3"),
        ("step = 2", "step = 1e-6", "grid.coordinates: must make at most 1,000,000 nodes"),
    ],
)
def test_that_a_mistake_is_reported_in_one_sentence(
    load_problem: Callable[..., invgp.Problem], old: str, new: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        invgp.invert(load_problem({old: new}))
    assert sentence in str(caught.value)


PROGRAM = """
import sys

depth = [float(line) for line in open("layer.txt")]
sums = [10 * sum(depth[i : i + 10]) for i in range(0, 50, 4)]
while len(sums) < 14:
    sums.append(100 * depth[len(sums)])
print("station value", file=open("table.txt", "w"))
with open("table.txt", "a") as table:
    for n, value in enumerate(sums):
        print(n + 1, value, file=table)
"""


@pytest.mark.slow
def test_that_a_program_takes_a_whole_layer_and_gives_a_whole_table(
    load_problem: Callable[..., invgp.Problem], folder: Path
) -> None:
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "layer.tpl").write_text("{depth[*]:.12g}\n", encoding="utf-8")
    problem = load_problem(
        {
            'adapter = "callable"\nfunction = "averages:averages"\nvectorised = false\n': (
                f'adapter = "executable"\ncommand = ["{sys.executable}", "{folder / "program.py"}"]\ntimeout = 60\n'
                'input_files = [{ template = "layer.tpl", path = "layer.txt" }]\n'
                'output_files = [{ path = "table.txt", format = "table", column = 2, skip_lines = 1 }]\n'
            ),
            'inputs = ["depth", "position"]': 'inputs = ["depth"]',
            "seed = 3": "seed = 3\nmax_runs = 12",
        }
    )
    f = np.linspace(10.0, 30.0, 50)[None, :, None]
    outputs, valid, _ = Simulator(problem, folder / "runs").run_fields(f, "try")
    assert valid.all()
    assert outputs.shape == (1, 14, 1)
    np.testing.assert_allclose(outputs[0, 2, 0], 0.1 * f[0, 8:18, 0].sum(), rtol=1e-10)
    assert invgp.invert(problem)["depth"].shape == (50,)


def test_that_a_field_is_described_in_python() -> None:
    nodes = np.arange(0.0, 99.0, 2.0)
    data = {"position": POSITIONS, "average": windows(nodes) @ (20.0 + np.sin(nodes / 10.0))}

    def averages(depth: np.ndarray) -> np.ndarray:
        return np.asarray(depth @ windows(nodes).T)

    problem = invgp.define(
        data,
        coordinates={"position": "m"},
        observations={"average": "m"},
        latents={"depth": {"unit": "m", "mean": 20.0, "std": 4.0, "kernel": {"length_scale": 12.0}}},
        grid={"position": {"unit": "m", "start": 0, "stop": 98, "step": 2}},
        forward=averages,
        noise={"average": 0.5},
        inference={"kept_variance": 0.999, "max_runs": 30},
    )
    posterior = invgp.invert(problem)
    assert posterior["depth"].dims == ("node",)
    assert float(posterior["average_chi_square"]) < 1.5


class Threads(SilentMonitor):
    """Notes how many threads BLAS has when a batch of runs has been taken in."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def report_bound(self, elbo: float, *, accepted: bool) -> None:
        self.seen |= {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_that_the_linear_algebra_uses_one_thread_for_any_number_of_data() -> None:
    nodes, many = np.arange(0.0, 99.0, 2.0), np.linspace(0.0, 98.0, WORTH_THREADS)
    problem = invgp.define(
        {"position": many, "average": 20.0 + np.sin(many / 10.0)},
        coordinates={"position": "m"},
        observations={"average": "m"},
        latents={"depth": {"unit": "m", "mean": 20.0, "std": 4.0, "kernel": {"length_scale": 12.0}}},
        grid={"position": {"unit": "m", "start": 0, "stop": 98, "step": 2}},
        forward=lambda depth: np.stack([np.interp(many, nodes, row) for row in np.atleast_2d(depth)]),
        noise={"average": 0.5},
        inference={"max_runs": 12},
    )
    monitor = Threads()
    with threadpool_limits(2):
        invgp.invert(problem, monitor=monitor)
    assert monitor.seen == {1}


def half_lack_every_third(number: np.ndarray) -> np.ndarray:
    return (number[:, None] < 0.5) & (np.arange(len(POSITIONS)) % 3 == 0)


def most_lack_the_first(number: np.ndarray) -> np.ndarray:
    return (number[:, None] < 0.8) & (np.arange(len(POSITIONS)) == 0)


@pytest.mark.parametrize("length", [None, 15])
def test_that_the_posterior_is_exact_if_outputs_are_missing_in_half_of_the_runs(
    load_problem: Callable[..., invgp.Problem], length: int | None
) -> None:
    correlated = "" if length is None else f"\ncorrelation_length.average = {length}"
    problem = load_problem(
        {
            "std.average = 0.5": "std.average = 0.5" + correlated,
            "kept_variance = 0.999": "kept_variance = 0.9999999",
        }
    )
    problem = replace(problem, forward=Lacking(problem.forward, half_lack_every_third))
    posterior = invgp.invert(problem)
    apart = np.abs(POSITIONS[:, None] - POSITIONS)
    noise = 0.25 * (np.eye(len(apart)) if length is None else np.exp(-apart / length))
    mean, std = exact_moments(problem, noise)
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_runs_failed"] == 0
    np.testing.assert_allclose((posterior["depth"] - mean) / std, 0.0, atol=0.1)
    np.testing.assert_allclose(posterior["depth_std"] / std, 1.02, atol=0.03)
    np.testing.assert_allclose(posterior["average_predicted"], windows(problem.grid.X[:, 0]) @ mean, atol=0.15)


def test_that_an_output_of_few_runs_contributes_little_information(load_problem: Callable[..., invgp.Problem]) -> None:
    """The posterior lies between those with and without its datum."""
    problem = load_problem({"kept_variance = 0.999": "kept_variance = 0.9999999\nmax_runs = 60"})
    posterior = invgp.invert(replace(problem, forward=Lacking(problem.forward, most_lack_the_first)))
    assert "gave only some of their outputs" in posterior.attrs["invgp_diagnostics"]
    observed = problem.survey.observations[0]
    values = np.where(np.arange(len(POSITIONS)) == 0, np.nan, observed.values.T).T
    fewer = replace(problem, survey=replace(problem.survey, observations=(replace(observed, values=values),)))
    (mean, least), (_, most) = exact_moments(problem), exact_moments(fewer)
    assert np.all(posterior["depth_std"] > 0.97 * least)
    assert np.all(posterior["depth_std"] < 1.05 * most)
    np.testing.assert_allclose((posterior["depth"] - mean)[15:] / least[15:], 0.0, atol=0.1)
    assert float(posterior["depth_few_runs_std"][0]) > 3.0 * float(posterior["depth_few_runs_std"][25])
