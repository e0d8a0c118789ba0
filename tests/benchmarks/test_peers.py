"""The comparisons with other packages run, as far as those are here; how long anything takes is not tested."""

import importlib
import math
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def benchmark(monkeypatch):
    """A benchmark by its name."""
    monkeypatch.syspath_prepend(HERE)
    return importlib.import_module


def test_that_adapters_are_measured_beside_subprocess_and_the_real_umbridge(benchmark, capsys):
    found = benchmark("peers_adapters").main(["--environment", sys.prefix, "--runs", "3", "--repeats", "1"])
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in found.values())
    assert sum(name.startswith("UM-Bridge") for name in found) == 2
    assert "with invgp" in capsys.readouterr().out


def test_that_the_line_is_inverted_as_accurately_as_others_must(benchmark, capsys):
    found = benchmark("peers_otway").main(["--methods", "--sites", "8", "--draws", "400"])
    assert found["invgp"].reached
    assert "reached: as it comes" in capsys.readouterr().out


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
    timings = bound.main(["--repeats", "1", "--packages"])
    assert len(timings) == 4
    assert all(timing.seconds > 0 for timing in timings)
    assert capsys.readouterr().out.count("1.00") == 4
