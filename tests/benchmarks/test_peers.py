"""The comparisons with other packages run, as far as those are here; how long anything takes is not tested."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_that_adapters_are_compared_with_subprocess_and_the_original_umbridge(benchmark, capsys):
    table = benchmark("peers_adapters").main(["--environment", sys.prefix, "--runs", "3", "--repeats", "1"])
    assert all(math.isfinite(float(cell)) and float(cell) > 0 for _, *cells in table.rows for cell in cells)
    assert sum(way.startswith("UM-Bridge") for way, *_ in table.rows) == 2
    assert "with invgp" in capsys.readouterr().out


@pytest.mark.slow
def test_that_the_line_is_inverted_as_accurately_as_others_must(benchmark, capsys):
    table = benchmark("peers_otway").main(["--methods", "--sites", "8", "--effective", "400"])
    assert table.rows[0][0] == "invgp"
    assert table.rows[0][-2:] == ("reached", "default settings")
    assert not table.reading
    assert "the mean is within 0.1 standard deviations" in " ".join(capsys.readouterr().out.split())


def test_that_a_method_stops_where_it_is_accurate_enough(benchmark):
    otway = benchmark("peers_otway")
    stages = [
        otway.Attempt(f"{n} members", runs=n, seconds=n, error=error, ratio=ratio)
        for n, error, ratio in ((1, 0.5, 1.0), (2, 0.05, 0.5), (3, 0.05, 1.0), (4, 0.01, 1.0))
    ]
    assert otway.until_reached(stage for stage in stages).effort == "3 members"
    assert otway.until_reached(stage for stage in stages[:2]).effort == "2 members"
    assert not stages[1].reached


def test_that_the_bound_is_measured_at_every_size(benchmark, monkeypatch, capsys):
    bound = benchmark("peers_bound")
    monkeypatch.setattr(bound, "SIZES", (bound.Size(60, 1, 60, S=16), bound.Size(60, 2, 10, S=16)))
    monkeypatch.setattr(bound.against_gpflow, "PAUSE", 0.0)
    table = bound.main(["--repeats", "1", "--packages"])
    assert len(table.rows) == 4
    assert all(float(row[2]) > 0 for row in table.rows)
    assert "with invgp" in capsys.readouterr().out


def test_that_tables_show_missed_targets(benchmark):
    otway = benchmark("peers_otway")
    found = {
        "invgp": otway.Attempt("default settings", runs=3, seconds=2, error=0.05, ratio=1.0),
        "wide": otway.Attempt("100 members", runs=600, seconds=61, error=0.05, ratio=1.5),
        "there": otway.Attempt("200 members", runs=300, seconds=20, error=0.05, ratio=1.0),
    }
    table = otway.table(found, 60.0, 8, {"wide": "1.0"})
    assert [row[2] for row in table.rows] == ["1", "> 200", "100"]
    assert [row[4] for row in table.rows] == ["1.0", "> 30.5", "10.0"]
    (printed,) = table.reading
    assert printed.startswith(
        "wide did not reach the accuracy: after 100 members its standard deviations were 1.50 times"
    )


def test_that_ratios_of_bounds_are_invgp_divided_by_the_other_package(benchmark):
    bound = benchmark("peers_bound")
    size = bound.Size(60, 1, 60)
    timings = [bound.Timing(size, "all", name, seconds) for name, seconds in (("invgp", 0.1), ("GPflow", 0.4))]
    table = bound.table(timings, 1, {})
    assert table.rows == (("N = 60, D = 1, M = 60", "all", "0.1000", "0.4000", "0.25"),)
    assert table.reading == ("invgp takes 0.25 to 0.25 of the time of GPflow.",)


def test_that_what_a_failed_package_printed_is_shown(benchmark, tmp_path):
    against_gpflow, workload = benchmark("against_gpflow"), benchmark("workload")
    script = tmp_path / "side.py"
    script.write_text("import sys; sys.exit('no such package')")
    with (
        pytest.raises(SystemExit, match=r"exit code 1; it printed:\nno such package"),
        against_gpflow.side(Path(sys.executable), workload.Size(10, 1, 5), str(script)),
    ):
        pass


def test_that_a_trial_does_not_replace_the_record(benchmark, capsys):
    with pytest.raises(SystemExit, match="2"):
        benchmark("peers").main(["--small", "--record"])
    assert "--record with --small needs a FILE" in capsys.readouterr().err


def test_that_errors_are_measured_against_the_exact_posterior(benchmark, tmp_path, monkeypatch):
    curves = benchmark("peers_curves")
    monkeypatch.setattr(curves, "default_cache", lambda: tmp_path)
    trial = curves.site_trial(curves.ONE_SITE)
    exact = trial.exact
    assert max(curves.measure(trial, exact.mean(axis=0), exact.std(axis=0), exact).values()) == 0.0
    shifted = exact.mean(axis=0) + 0.3 * exact.std(axis=0)
    found = curves.measure(trial, shifted, 2.0 * exact.std(axis=0), exact[:, :, ::-1])
    assert found["mean"] == pytest.approx(0.3)
    assert found["spread"] == pytest.approx(np.log(2.0))
    np.testing.assert_allclose(
        curves.taper(np.array([0.0, 1.0, 2.0, 3.0]), 1.0), [1.0, 5.0 / 24.0, 0.0, 0.0], atol=1e-12
    )


def test_that_a_method_of_another_package_runs_the_simulator_of_the_comparison(benchmark, tmp_path, monkeypatch):
    curves = benchmark("peers_curves")
    monkeypatch.setattr(curves, "default_cache", lambda: tmp_path)
    monkeypatch.setattr(curves.environments, "environment", lambda *_: sys.executable)  # it has this package
    rows, version = curves.run_peer(curves.site_trial(curves.ONE_SITE), "ES-MDA")
    assert [row["runs"] for row in rows] == [48, 100, 200, 400, 800, 1600, 3200]
    assert rows[-1]["mean"] < 0.3
    assert version
