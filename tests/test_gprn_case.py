"""The regression network's case study, small."""

import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.io import savemat


def run(root, *arguments, check=True):
    command = [sys.executable, str(root / "case_studies" / "gprn" / "gprn.py"), *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True)


def test_that_the_network_fills_what_was_seldom_measured_better_than_independent_processes(root):
    said = run(root, "--surveys", "1", "--size", "80", "--inducing", "20").stdout
    network, independent = (float(line.split()[1]) for line in said.splitlines()[-2:])
    assert network < 0.7 * independent


def test_that_the_files_of_the_robot_arm_are_read(root, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 21))
    torque = 100.0 * (np.sin(X[:, :1]) * np.linspace(1.0, 2.0, 7) + 0.05 * rng.standard_normal((400, 7)))
    table = np.hstack([X, torque])
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": table[:300]})
    savemat(tmp_path / "sarcos_inv_test.mat", {"sarcos_inv_test": table[300:]})
    said = run(root, "--sarcos", tmp_path, "--inducing", "20", "--epochs", "30").stdout
    assert "joints 4 and 7 of 100 poses, 300 for training" in said
    error, nlpd = map(float, re.search(r"SSE ([\d.]+), NLPD ([-\d.]+)", said).groups())
    assert error < 1.0
    # On the scale of the torques, and after so few steps about as good as their mean and spread.
    known = np.mean(np.log(torque[:300, [3, 6]].std(axis=0))) + 0.5 * np.log(2 * np.pi * np.e)
    assert nlpd == pytest.approx(known, abs=0.5)


@pytest.mark.parametrize("name", ["sarcos_inv.mat", "sarcos_inv_test.mat"])
def test_that_a_missing_file_of_the_robot_arm_is_a_sentence(root, tmp_path, name):
    if name == "sarcos_inv_test.mat":
        savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": np.zeros((2, 28))})
    outcome = run(root, "--sarcos", tmp_path, check=False)
    assert outcome.returncode == 2
    assert outcome.stderr.strip() == f"gprn.py: --sarcos must name the folder of {name}; there is none in '{tmp_path}'."
