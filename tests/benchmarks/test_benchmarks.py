"""The benchmarks run, at sizes that take no time; how long anything takes is not tested."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.command_line import CONFIG, write_files

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def test_that_the_bound_is_compared_with_its_unavoidable_operations(benchmark, capsys):
    arguments = ["--sites", "200", "--dimensions", "9", "--inducing", "20", "--samples", "16"]
    ratios = benchmark("bound_and_gradient").main(arguments)
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios.values())
    printed = capsys.readouterr().out
    assert "N = 200, D = 9, M = 20, Q = 1, K = 1, S = 16" in printed
    assert printed.count("ratio") == 2


def test_that_growth_is_measured_in_every_number(benchmark, capsys):
    arguments = ["--N", "40", "--M", "5", "--D", "2", "--S", "16", "--repeats", "1"]
    exponents = benchmark("growth").main(arguments)
    assert list(exponents) == ["N", "M", "Q", "K", "S"]
    assert all(math.isfinite(exponent) for exponent in exponents.values())
    assert "in the paper" in capsys.readouterr().out


def test_that_complete_fits_are_compared_with_exact_ones(benchmark, capsys):
    ratios = benchmark("estimator_fits").main(["--share", "0.1", "--repeats", "1"])
    assert len(ratios) == 4
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios.values())
    dense = capsys.readouterr().out.splitlines()[1].split()
    # Dense, with Gaussian noise: the bound is the evidence, at kernels that are no worse.
    assert float(dense[-2]) > float(dense[-1]) - 0.05


@pytest.mark.slow
def test_that_two_components_have_the_higher_bound_where_there_are_two_modes(benchmark, tmp_path):
    record, names = tmp_path / "record.json", ["two modes, K = 1", "two modes, K = 2"]
    estimator = benchmark("estimator")
    table = estimator.main(["--without-gpflow", "--record", str(record), "--only", *names])
    assert [row[0] for row in table.rows] == names
    one, two = (float(row[3]) for row in table.rows)
    assert two == pytest.approx(one + math.log(2), abs=0.2)  # two equal modes that do not overlap
    assert float(table.rows[1][4]) > 0.0 > -100 > float(table.rows[0][4])
    assert [row[0] for row in estimator.recorded_rows(record)] == names
    assert "invgp" in estimator.recorded_versions(record)


def test_that_the_linear_algebra_of_a_field_is_compared_with_its_runs(benchmark, capsys):
    found = benchmark("field").main(["--nodes", "10", "--data", "30", "--runs", "30"])
    assert found["seconds"] > 0.0
    assert found["share"] == pytest.approx(found["seconds"] / 30)
    assert "bar 0.1" in capsys.readouterr().out


def test_that_posteriors_averaged_over_hyperparameters_are_those_of_closed_forms(benchmark, capsys):
    (row,) = benchmark("hyperparameters").main(["--only", "linear-weak", "--seeds", "1"])
    assert np.median(row.spread) == pytest.approx(1.0, abs=0.04)
    assert row.mean < 0.15
    assert row.mass == pytest.approx(0.95, abs=0.01)
    assert row.parameter_mean < 0.15
    np.testing.assert_allclose(row.parameter_spread, 1.0, atol=0.1)
    assert capsys.readouterr().out.count("linear-weak") == 1


def test_that_the_comparison_states_why_gpflow_cannot_be_installed(benchmark, tmp_path, monkeypatch):
    gpflow = benchmark("against_gpflow")
    monkeypatch.setattr(gpflow, "REQUIREMENTS", (str(tmp_path / "no_such_package"),))
    with pytest.raises(SystemExit, match="GPflow cannot be installed into"):
        gpflow.main(["--environment", str(tmp_path / "environment")])


def test_that_programs_are_measured_started_kept_and_batched(benchmark, capsys):
    ratios = benchmark("persistent").main(["--runs", "20", "--repeats", "1"])
    assert list(ratios) == ["executable", "persistent", "batched"]
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios.values())
    assert "20 runs of a C program" in capsys.readouterr().out


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_that_the_model_of_the_benchmarks_has_a_bound(benchmark, dense):
    workload = benchmark("workload")
    size = workload.Size(N=60, D=1 if dense else 12, M=60 if dense else 15, S=16)
    model = workload.problem(size)
    assert model.bound.dense is dense
    bounds = [model.evaluate(learn) for learn in ((), workload.POSTERIOR, workload.ALL_BLOCKS)]
    assert bounds == pytest.approx([bounds[0]] * 3)
    assert -size.N * 10 < bounds[0] < 0


def test_that_two_sides_are_timed_in_turns(benchmark, monkeypatch):
    gpflow = benchmark("against_gpflow")
    monkeypatch.setattr(gpflow, "PAUSE", 0.0)
    turns = []

    class Side:
        def evaluate(self, learn):
            turns.append("here")

        def seconds(self, learnt):
            turns.append("there")
            return 2.0

    here, there = gpflow.compare(Side(), Side(), "posterior", repeats=2)
    assert turns == ["here", "there"] * 3
    assert here < there == 2.0


def test_that_a_run_is_measured_with_and_without_a_ledger(benchmark, capsys):
    ratios = benchmark("ledger").main(["--runs", "5", "--rows", "50"])
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios.values())
    assert "5 runs, adapter and ledger: " in capsys.readouterr().out


def test_that_two_workers_are_measured_against_one(benchmark, capsys):
    ratios = benchmark("workers").main(["--runs", "4", "--repeats", "1", "--milliseconds", "1"])
    assert list(ratios) == ["loky", "threading", "dask"]
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios.values())
    assert "4 runs of 1 ms" in capsys.readouterr().out


def test_that_the_startup_time_is_compared_with_numpy(benchmark):
    found = benchmark("startup").measure_commands(times=1)
    assert all(0 < seconds < math.inf for seconds in found.values())


def test_that_a_map_is_measured_in_time_and_memory(benchmark, capsys):
    measured = benchmark("large_map").main(["--side", "20", "--sites", "10", "--draws", "2"])
    assert all(math.isfinite(number) and number > 0 for number in measured.values())
    assert "velocity, depth at 20 x 20 points; 2 draws (exact)" in capsys.readouterr().out


def test_that_one_small_run_is_traced_from_the_command_to_the_simulator():
    script = [sys.executable, HERE / "trace_run.py", "--files", "--stack"]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert "invgp/cli/run.py" in printed
    assert "adapters/callables.py" in printed
    files, depth = (int(line.rpartition(" ")[2]) for line in printed.splitlines()[-2:])
    # The path from the command to the file must not become much longer.
    assert 20 < files <= 145
    assert 5 < depth <= 30


def test_that_posteriors_of_many_shapes_are_measured_against_exact_ones(benchmark, capsys, tmp_path):
    options = ["--cache", str(tmp_path), "--posterior", "coupled gaussian", "--seeds", "1"]
    (row,) = benchmark("shapes").main(["--only", "square", *options])
    assert " agree (" in capsys.readouterr().out
    # A Gaussian has one of the two signs: it is too narrow, with too little of the exact mass.
    assert not row.right
    assert row.spread < 0.95
    assert row.mass < 0.94


def test_that_recorded_rows_replace_those_of_the_same_survey(benchmark, tmp_path):
    shapes, path = benchmark("shapes"), tmp_path / "rows.json"

    def row(problem, seed, error):
        measures = {"worst": 0.1, "spread": 1.0, "spread_5": 1.0, "spread_95": 1.0, "mass": 0.95, "runs": 5}
        return shapes.Row(problem, seed, error, **measures, seconds=1.0, converged=True, warnings=(), reference="agree")

    shapes.record([row("a", 1, 0.5), row("b", 1, 0.05)], path)
    shapes.record([row("a", 1, 0.01), row("a", 2, 0.02)], path)
    table = shapes.markdown(path).splitlines()[2:]
    assert [line.split("|")[1:4] for line in table] == [
        [" a ", " 1 ", " 0.01 "],
        [" b ", " 1 ", " 0.05 "],
        [" a ", " 2 ", " 0.02 "],
    ]


def test_that_the_exact_posterior_of_a_linear_problem_is_right_in_the_battery(benchmark, tmp_path):
    shapes, problems = benchmark("shapes"), benchmark("shape_problems")
    unknowns = {"a": problems.Unknown(1.0, 2.0)}
    case = problems.Case("linear", unknowns, lambda a: 3.0 * a, (0.5,), problems.SEPARATE, sites=5)
    survey = case.survey(1)
    first, second = shapes.references(survey, tmp_path)
    precision = 1.0 / 4.0 + 9.0 / 0.25
    mean = (1.0 / 4.0 + 3.0 * survey.data / 0.25) / precision
    for one in (first, second):
        assert one.mean == pytest.approx(mean, abs=1e-4)
        assert one.std == pytest.approx(precision**-0.5, rel=1e-3)
    row = shapes.measure(survey, tmp_path, {"posterior": "coupled gaussian"})
    assert row.right


def test_that_both_chains_of_the_battery_give_the_posterior_of_a_linear_line(benchmark):
    problems, references = benchmark("shape_problems"), benchmark("shape_references")
    unknowns = {"a": problems.Unknown(1.0, 2.0), "b": problems.Unknown(0.0, 1.0)}
    survey = problems.Case("linear", unknowns, lambda a, b: a + 2.0 * b, (0.5,), 0.3, sites=4).survey(1)
    prior = np.kron(np.diag([4.0, 1.0]), survey.case.correlation())
    design = np.kron([[1.0, 2.0]], np.eye(4))
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + 0.25 * np.eye(4))
    mean = np.repeat([1.0, 0.0], 4) + gain @ (survey.data[:, 0] - 1.0)
    std = np.sqrt(np.diag(prior - gain @ design @ prior))
    for sample, size in ((references.sequential, {"particles": 1000}), (references.parallel, {"chains": 40})):
        target = references.Target(survey)
        values = target.values(sample(target, np.random.default_rng(2), 1, **size)).swapaxes(1, 2).reshape(-1, 8)
        assert values.mean(axis=0) == pytest.approx(mean, abs=0.06 * std.max())
        assert values.std(axis=0) == pytest.approx(std, rel=0.05)


def test_that_forecasts_are_compared_with_runs(benchmark, capsys):
    rows = benchmark("forecasts").main(["--small"])
    printed = capsys.readouterr().out
    assert all(row.made <= row.used and row.ratio <= 2.0 for row in rows), printed
    assert len({row.problem for row in rows}) >= 4
    assert f"{len(rows)} of {len(rows)} forecasts are within a factor of two of the runs." in printed


def test_that_posteriors_of_the_battery_are_compared_with_chains(benchmark, capsys):
    arguments = ["product-10-separate", "--posterior", "coupled gaussian", "--chains", "16", "--effective", "20"]
    (found,) = benchmark("compare_shapes").main(arguments).values()
    assert {"a_error", "b_ratio", "b_inside"} <= set(found.data_vars)
    assert "product-10-separate, posterior 'coupled gaussian'" in capsys.readouterr().out


def test_that_the_table_of_the_gpu_compares_results(root):
    """On the stand-in for CuPy, in another process."""
    command = [sys.executable, str(root / "tests" / "benchmarks" / "gpu.py"), "--device", "stand-in"]
    command += ["--sites", "60", "--inducing", "12", "--repeats", "1"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split() for line in outcome.stdout.splitlines()[2:]]
    assert len(rows) == 5
    assert all(float(row[-2]) < 1e-12 for row in rows)


def test_that_the_rate_of_revisions_is_measured(benchmark, capsys, tmp_path):
    write_files(tmp_path, CONFIG)
    invgp.write(invgp.invert(invgp.load(tmp_path / "survey.toml")), tmp_path / "posterior.nc")
    rate = benchmark("revisions").main([str(tmp_path / "posterior.nc"), "--revisions", "3"])
    assert rate.revisions == rate.reliable == 3
    assert rate.processor > 0.0
    assert "3 revisions, 3 of them reliable" in capsys.readouterr().out


def test_that_the_promises_of_a_design_are_compared_with_inversions_with_the_new_data(benchmark, capsys):
    rows = benchmark("design_study").main(["--only", "linear", "--surveys", "1"])
    assert [row.candidate for row in rows] == ["value of b", "value of a", "new site", "better noise"]
    for row in rows:
        assert row.realised_error == 0.0
        assert row.promised == pytest.approx(row.realised, abs=max(0.1 * row.realised, 3.0 * row.promised_error))
    assert capsys.readouterr().out.count("linear") == 4
