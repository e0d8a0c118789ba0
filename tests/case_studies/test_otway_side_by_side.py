"""The Otway case study's table and figure: posteriors beside chains, on a few sites."""

import json
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from matplotlib.image import imread


@pytest.fixture
def short_line(otway, tmp_path):
    """The case study with its synthetic line cut to eight sites."""
    folder = tmp_path / "case_studies" / "otway"
    shutil.copytree(otway, folder)
    (folder / "results.json").unlink()
    for name in ("command_line.py", "recording.py"):
        (tmp_path / "case_studies" / name).symlink_to(otway.parent / name)
    for name in ("synthetic", "synthetic_truth"):
        path = folder / "data" / f"{name}.csv"
        pd.read_csv(path).iloc[:8].to_csv(path, index=False)
    return folder


def accuracy(folder, effective, *arguments):
    sampling = ["--chains", "32", "--effective", str(effective)]
    command = [sys.executable, str(folder / "accuracy.py"), *sampling, "--record", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_that_posteriors_and_chains_are_in_table_figure_and_results(short_line):
    printed = accuracy(short_line, 200)
    numbers = {
        name: [float(n.rstrip("%").replace(",", "")) for n in re.findall(r"[\d.,]+%?", printed.split(name)[1])[:4]]
        for name in ("draws, emulator", "draws, C program", "coupled, emulator", "independent fields (paper)")
    }
    assert numbers["draws, C program"] == pytest.approx(numbers["draws, emulator"], rel=1e-3)
    assert numbers["draws, emulator"][3] == pytest.approx(numbers["coupled, emulator"][3], abs=0.5)
    runs, error, ratio, elbo = numbers["draws, emulator"]
    runs_of_paper, _, ratio_of_paper, elbo_of_paper = numbers["independent fields (paper)"]
    assert runs < 40  # few sites share the runs that the emulator needs
    assert runs_of_paper < 20
    assert error < 0.15
    assert 0.9 < ratio < 1.1
    assert ratio_of_paper < 0.8
    assert elbo > elbo_of_paper
    assert (short_line / "results" / "otway_side_by_side.png").stat().st_size > 10_000
    (entry,) = json.loads((short_line / "results.json").read_text())
    assert entry["experiment"] == "otway_synthetic"
    bars = [row for row in entry["rows"] if "reference" in row]
    assert [row["reference"] for row in bars] == [0.05, 0.03, 10, 0.05, 0.03, 10, 0.05, 0.03, 300]
    kept = [
        f"at most {row['reference']:g}: {'held' if row['ours'] <= row['reference'] else 'NOT HELD'}" for row in bars
    ]
    assert re.findall(r"at most .*HELD|at most .*held", printed) == kept


def test_that_published_posteriors_are_drawn_where_they_are_given(short_line, tmp_path):
    truth = pd.read_csv(short_line / "data" / "synthetic_truth.csv").set_index("position_m")
    table = pd.concat([truth.add_prefix("mean_"), (0.05 * truth).add_prefix("std_")], axis=1)
    for name in ("savigp", "mcmc"):
        table.to_csv(tmp_path / f"published_{name}.csv")
    accuracy(short_line, 20, "--data", short_line / "data" / "synthetic.csv", "--published", tmp_path)
    height, width, _ = imread(short_line / "results" / "paper_prior_side_by_side.png").shape
    assert height > width  # four rows of panels, not two
