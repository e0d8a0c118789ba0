"""Regression of the airline kind, small: a black-box likelihood beside sparse regression that knows its own."""

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest

from invgp.core.backend import select_backend
from invgp.core.kernels import SquaredExponential


@pytest.fixture(scope="module")
def folder(root):
    return root / "case_studies" / "flights"


@pytest.fixture
def module(folder, monkeypatch):
    """A module of the case study by its name."""
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module


def table(folder, *arguments):
    command = [sys.executable, str(folder / "flights.py"), *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line[:34].strip(): [float(n) for n in line[34:].split()] for line in printed.splitlines()[-6:-1]}


def test_that_sparse_regression_with_all_inputs_is_the_exact_process(module):
    rng, backend = np.random.default_rng(0), select_backend("cpu")
    kernel = SquaredExponential(backend.asarray(1.5), backend.asarray(np.array([1.0, 2.0])))
    X, X_test, y = rng.standard_normal((30, 2)), rng.standard_normal((7, 2)), rng.standard_normal(30)
    mean, variance = module("baselines").sparse_regression(X, y, X_test, X, kernel, 0.5)
    gain = np.linalg.solve(kernel(X, X) + 0.25 * np.eye(30), kernel(X, X_test))
    np.testing.assert_allclose(mean, gain.T @ y, atol=1e-3)
    np.testing.assert_allclose(variance, 1.5 - np.sum(gain * kernel(X, X_test), axis=0), atol=1e-3)


def test_that_the_black_box_reaches_the_closed_form_and_beats_linear_regression(folder, tmp_path):
    arguments = ["--count", "16000", "--inducing", "60", "--epochs", "4", "--subsets", "60", "--output", str(tmp_path)]
    found = table(folder, "generated", *arguments)
    ours, known = found["black box, stochastic"], found["likelihood known, closed form"]
    assert ours[0] == pytest.approx(known[0], rel=0.002)
    assert ours[1] == pytest.approx(known[1], abs=0.002)
    assert (tmp_path / "flights_generated.png").stat().st_size > 10_000
    assert found["the function itself"][0] < ours[0] < found["linear"][0]


def test_that_flights_from_new_york_are_sorted_and_split_by_time(module):
    split = module("data").new_york(4000)
    assert split.X.shape == (3500, 8)
    assert split.X_test.shape == (500, 8)
    assert np.all(np.isfinite(split.X))
    assert split.X_test[:, 6].min() >= split.X[:, 6].max()  # days of January: the test comes after
    np.testing.assert_allclose([split.y.mean(), split.y.std()], [0.0, 1.0], atol=1e-9)


def test_that_sets_of_flights_begin_one_after_the_other(module):
    whole, later = (module("data").new_york(count, offset) for count, offset in ((4000, 0), (3000, 1000)))
    y, y_later = (part.scale * np.concatenate([part.y, part.y_test]) for part in (whole, later))
    np.testing.assert_allclose(np.diff(y[1000:]), np.diff(y_later), atol=1e-9)


def test_that_the_sets_end_within_the_flights_that_there_are(module):
    data = module("data")
    whole = data.new_york()
    assert len(whole.y) + len(whole.y_test) == data.FLIGHTS


RMSE = {"ours": (1.0, 2.0, 3.0, 4.0, 5.0), "theirs": (1.5, 2.0, 2.0, 4.0, 5.0)}  # differences -0.5, 0, 1, 0, 0
NLPD = {"ours": (1.0, 1.0, 1.0, 1.0, 1.0), "theirs": (0.0, 2.0, 0.0, 2.0, 1.0)}  # differences 1, -1, 1, -1, 0
# Sums of squares about their means are 1.2 and 4: over four, and over five for the error of the mean.
ERRORS = np.sqrt([1.2 / 4 / 5, 4.0 / 4 / 5])


def of_sets(score, who):
    """Five sets, whose tests have two flights each."""
    pairs = enumerate(zip(RMSE[who], NLPD[who], strict=True))
    return [score(np.array([rmse, -rmse]), np.full(2, -nlpd), 10.0 + i) for i, (rmse, nlpd) in pairs]


def of_parts(score, who):
    """One set, whose test has those of the five one after the other."""
    return [score(np.repeat(RMSE[who], 2), -np.repeat(NLPD[who], 2), 12.0)]


@pytest.mark.parametrize(("made", "ours", "theirs"), [(of_sets, 3.0, 2.9), (of_parts, 11.0**0.5, 10.25**0.5)])
def test_that_the_spread_of_a_row_is_the_standard_error_of_the_mean_difference(module, made, ours, theirs):
    scores, data = module("scores"), module("data")
    split = data.Split(np.zeros((7, 8)), np.zeros(7), np.zeros((1, 8)), np.zeros(1), 1.0, "min")
    ways = {scores.OURS: made(scores.Score, "ours"), "linear": made(scores.Score, "theirs")}
    rmse, nlpd, seconds = scores.rows(split, ways)
    assert (rmse["measure"], nlpd["measure"]) == ("RMSE, min", "NLPD")
    assert all(row["setting"] == "7 for training" and row["source"] == "linear" for row in (rmse, nlpd))
    np.testing.assert_allclose([rmse["ours"], rmse["reference"], rmse["spread"]], [ours, theirs, ERRORS[0]])
    np.testing.assert_allclose([nlpd["ours"], nlpd["reference"], nlpd["spread"]], [1.0, 1.0, ERRORS[1]])
    assert seconds == {"measure": "CPU seconds", "setting": "7 for training", "ours": 12.0}


@pytest.fixture
def curves(module):
    """Of two sets: the bound goes with NLPD in both, with RMSE in one and against it in the other."""
    curve, down = module("curves").Curve, [5.0, 4.0, 3.0, 2.0, 1.0]
    return [curve([*rmse, 9.0], [*down, 9.0], [*down, 0.0]) for rmse in (down, down[::-1])]  # the last pass settles


def test_that_ranks_of_errors_and_bound_are_those_of_the_passes_that_learn(module, curves):
    rmse, nlpd = module("flights").loss_rows(curves)
    assert rmse["setting"] == nlpd["setting"] == "5 passes, 2 sets"
    np.testing.assert_allclose([rmse["ours"], rmse["spread"]], [0.0, 2.0**0.5], atol=1e-12)
    np.testing.assert_allclose([nlpd["ours"], nlpd["spread"]], [1.0, 0.0], atol=1e-12)
    assert all(row["reference"] == 0.8 and row["better"] == "higher" for row in (rmse, nlpd))


@pytest.fixture
def kept(module, tmp_path, monkeypatch):
    """What the study keeps of some rows and curves, in a folder of its own."""
    flights = module("flights")
    for name in ("HERE", "FIGURES"):
        monkeypatch.setattr(flights, name, tmp_path)
    monkeypatch.setattr(sys, "argv", ["flights.py", "new_york", "--subsets", "--record"])

    def keep(rows, curves):
        flights.keep("new_york", rows, curves, "min")
        return {entry["experiment"]: entry for entry in json.loads((tmp_path / "results.json").read_text())}

    return keep


def test_that_rows_curves_and_open_items_are_saved(kept, curves, tmp_path):
    found = kept([{"measure": "NLPD", "setting": "", "ours": 1.23456, "source": "linear"}], curves)
    assert list(found) == ["airline", "airline_loss"]
    assert found["airline"]["command"] == "bash case_studies/flights/run.sh new_york --subsets"
    assert found["airline"]["still_open"] == "exact processes on subsets of 1,000 and 2,000"
    assert found["airline"]["rows"][0]["ours"] == 1.235
    assert (
        "the standard error of the mean difference over the sets. The training sets overlap"
        in found["airline"]["remark"]
    )
    assert [row["ours"] for row in found["airline_loss"]["rows"]] == [0.0, 1.0]
    assert (tmp_path / "flights_loss_new_york.png").stat().st_size > 10_000


def test_that_one_set_has_no_ranks_and_available_baselines_are_not_listed_as_open(kept, curves):
    sources = [f"exact process, {size} of them" for size in ("1,000", "2,000")]
    found = kept([{"measure": "NLPD", "setting": "", "ours": 1.0, "source": source} for source in sources], curves[:1])
    assert list(found) == ["airline"]
    assert found["airline"]["still_open"] == ""
    assert found["airline"]["remark"].endswith("over 5 parts of the test set.")
    (again,) = kept([{"measure": "NLPD", "setting": "", "ours": 1.0, "source": sources[0]}], curves[:1]).values()
    assert again["still_open"] == "exact processes on subsets of 2,000"


def test_that_an_interruption_leaves_the_results_that_were_there(module, tmp_path, monkeypatch):
    flights = module("flights")
    flights.record(tmp_path, {"experiment": "airline", "rows": []})
    before = (tmp_path / "results.json").read_text()

    def raise_interrupt(part, path):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        flights.record(tmp_path, {"experiment": "airline", "rows": [{"ours": 1.0}]})
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert (tmp_path / "results.json").read_text() == before
