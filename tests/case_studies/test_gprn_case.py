"""The regression network's case study, small."""

import importlib
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.io import savemat


def run(root, *arguments, check=True):
    command = [sys.executable, str(root / "case_studies" / "gprn" / "gprn.py"), *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True)


def test_that_the_network_predicts_sparse_outputs_better_than_independent_processes(root):
    printed = run(root, "--surveys", "1", "--size", "80", "--inducing", "20").stdout
    network, independent = (float(line.split()[1]) for line in printed.splitlines()[-2:])
    assert network < 0.7 * independent


def test_that_the_files_of_the_robot_arm_are_read(root, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 21))
    torque = 100.0 * (np.sin(X[:, :1]) * np.linspace(1.0, 2.0, 7) + 0.05 * rng.standard_normal((400, 7)))
    table = np.hstack([X, torque])
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": table[:300]})
    savemat(tmp_path / "sarcos_inv_test.mat", {"sarcos_inv_test": table[300:]})
    printed = run(root, "--sarcos", tmp_path, "--inducing", "20", "--epochs", "30").stdout
    assert "joints 4 and 7 of 100 poses, 300 for training" in printed
    error, nlpd = map(float, re.search(r"SSE ([\d.]+), NLPD ([-\d.]+)", printed).groups())
    assert error < 1.0
    # On the scale of the torques, and after so few steps about as good as their mean and spread, or better.
    known = np.mean(np.log(torque[:300, [3, 6]].std(axis=0))) + 0.5 * np.log(2 * np.pi * np.e)
    noise = np.log(5.0) + 0.5 * np.log(2 * np.pi * np.e)  # no prediction is better, except by chance
    assert noise - 0.3 < nlpd < known + 0.5


@pytest.mark.parametrize("name", ["sarcos_inv.mat", "sarcos_inv_test.mat"])
def test_that_a_missing_file_of_the_robot_arm_is_reported_in_one_sentence(root, tmp_path, name):
    if name == "sarcos_inv_test.mat":
        savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": np.zeros((2, 28))})
    outcome = run(root, "--sarcos", tmp_path, check=False)
    assert outcome.returncode == 2
    assert outcome.stderr.strip() == f"gprn.py: --sarcos must name the folder of {name}; there is none in '{tmp_path}'."


@pytest.fixture
def study(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "case_studies" / "gprn")
    return importlib.import_module("gprn")


@pytest.mark.parametrize(
    ("surveys", "ours", "spread", "reference"),
    [(2, (0.2, -0.6), (0.1 * 2**0.5, 0.0), (0.6, -0.2)), (1, (0.1, -0.6), (0.0, 0.0), (0.5, -0.1))],
)
def test_that_rows_have_means_and_the_spread_of_a_sample(study, capsys, surveys, ours, spread, reference):
    network = [study.Score(0.1, -0.6, 0.9), study.Score(0.3, -0.6, 0.8)]
    independent = [study.Score(0.5, -0.1, 0.9), study.Score(0.7, -0.3, 0.8)]
    found = {study.NETWORK: network[:surveys], study.INDEPENDENT: independent[:surveys]}
    entry = study.entry(found)
    assert entry["experiment"] == "sarcos"
    assert [row["setting"] for row in entry["rows"]] == [f"{surveys} surveys"] * 2
    for key, wanted in {"ours": ours, "spread": spread, "reference": reference}.items():
        np.testing.assert_allclose([row[key] for row in entry["rows"]], wanted, atol=1e-12)
    study.print_table(found)
    assert f"{ours[0]:.3f} ± {spread[0]:.3f} " in capsys.readouterr().out
