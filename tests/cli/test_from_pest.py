"""`invgp init --from-pest`: a PEST case becomes a project that runs without an edit; every feature has a fate."""

from __future__ import annotations

import csv
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from helpers import pest_cases
from helpers.command_line import Command
from invgp.adapters.pest.matrices import read_covariance
from invgp.errors import ConfigError
from invgp.scaffolds.pest_case import project_from_pest

OLDER = """pcf
* control data
restart estimation
 5 4 2 4 3
 1 1 double point 1 0 0
* parameter groups
 hk relative 0.01 0.0 switch 2.0 parabolic
* parameter data
 k1 log  factor 2.0 0.02 200.0 hk 1.0 0.0 1
 k2 log  factor 3.0 0.03 300.0 hk 1.0 0.0 1
 r  none factor 1.0 -3.0 5.0 rch 1.0 0.0 1
 s  none factor 2.0 0.0 4.0 rch 1.0 0.0 1
 z  none factor 2.0 0.0 4.0 rch 1.0 0.0 1
* observation groups
 heads
 less_flux
 regul_x
* observation data
 h1 1.0 4.0 heads
 h2 2.0 0.0 heads
 q  3.0 1.0 less_flux
 g  4.0 1.0 regul_x
* model command line
 true
* model input/output
 in.tpl in.txt
 out.ins out.txt
* prior information
 one 2.0 * log(k1) = 0.8 5.0 expert
 two 1.0 * r - 1.0 * s = 0.5 2.0 expert
 three 1.0 * log(k1) - 1.0 * log(k2) = 0.0 1.0 expert
 four 1.0 * log(k2) = 0.0 1.0 regul_x
++ ies_num_reals(50)
++ unheard_of(1)
"""


def write_older(folder: Path, control: str = OLDER) -> Path:
    files = {
        "case.pst": control,
        "in.tpl": "ptf ~\n~k1     ~ ~k2     ~ ~r      ~ ~s      ~\n",
        "out.ins": "pif @\nl1 !h1! !h2! !q! !g!\n",
        "mesh.dat": "1\n",
        "case.rec": "earlier results",
        "case.3.par.csv": "earlier results",
    }
    pest_cases.write_files(folder, files)
    return folder / "case.pst"


def test_that_priors_data_and_noise_are_those_of_the_control_file(tmp_path: Path) -> None:
    project = project_from_pest(write_older(tmp_path), tmp_path)
    config = tomllib.loads(project.contents["survey.toml"].decode())
    assert config["dimensions"] == {"hk_name": ["k1", "k2"], "rch_name": ["r", "s"]}
    spread = np.log(1e4) / 4.0
    # The equation states that 2 log10(k1) is 0.8 with a standard deviation of 0.2.
    precision = spread**-2 + (2.0 / (0.2 * math.log(10.0))) ** 2
    centre = (math.log(2.0) / spread**2 + 2.0 / math.log(10.0) * 0.8 / 0.2**2) / precision
    hk = config["latents"]["hk"]
    assert hk["link"] == "log"
    variance = np.array([1.0 / precision, spread**2])
    mean = np.exp(np.array([centre, math.log(3.0)]) + 0.5 * variance)
    np.testing.assert_allclose(hk["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(hk["std"], mean * np.sqrt(np.expm1(variance)), rtol=1e-12)
    # An equation of two parameters is direct data, for which the prior must be normal.
    assert {key: config["latents"]["rch"][key] for key in ("mean", "std")} == {"mean": [1.0, 2.0], "std": [2.0, 1.0]}
    assert "link" not in config["latents"]["rch"]
    (value,) = config["direct"]["prior_information"]["values"].values()
    assert value == {"quantity": '1.0 * rch["r"] + -1.0 * rch["s"]', "value": 0.5, "std": 0.5}
    assert project.contents["case_observations.csv"].decode() == "name,value,std,group\nh1,1.0,0.25,heads\n"
    assert config["forward"]["files"] == ["mesh.dat"]


def test_that_every_feature_of_the_file_has_a_fate(tmp_path: Path) -> None:
    notes = dict(project_from_pest(write_older(tmp_path), tmp_path).notes)
    assert notes["4 parameters"] == "inputs of the model: k1, k2, r, s"
    assert notes["1 parameter in no template"] == "left out: z"
    assert notes["1 observation with weight 0"] == "left out: h2"
    assert "states a limit" in notes["observation 'q'"]
    assert "the prior stands in" in notes["observation 'g'"]
    assert "the prior stands in" in notes["prior information 'four'"]
    assert "log-transformed" in notes["prior information 'three'"]
    assert notes["1 equation of prior information for one parameter"] == "part of the prior: one"
    assert notes["1 equation of prior information for several parameters"] == "direct data: two"
    assert notes["option ies_num_reals(50)"].startswith("not used: the number of runs adapts")
    assert notes["option unheard_of(1)"].startswith("not used")
    assert "section '* parameter groups'" in notes


def test_that_pilot_points_become_a_field_with_the_length_scale_of_the_covariance(tmp_path: Path) -> None:
    control = pest_cases.write_pilot_points(tmp_path)
    project = project_from_pest(control, tmp_path)
    config = tomllib.loads(project.contents["survey.toml"].decode())
    assert config["latents"]["hk"]["kernel"]["kind"] == "matern 3/2"
    assert config["latents"]["hk"]["kernel"]["length_scale"] == pytest.approx(pest_cases.LENGTH_SCALE, rel=0.02)
    rows = list(csv.DictReader(project.contents["pilots_points.csv"].decode().splitlines()))
    assert [(float(row["x"]), float(row["y"])) for row in rows] == [tuple(point) for point in pest_cases.POINTS]
    assert [row["hk"] for row in rows] == [f"ppt{i:02d}:hk" for i in range(len(rows))]


def test_that_coordinates_may_come_from_a_table(tmp_path: Path) -> None:
    control = write_older(
        tmp_path, OLDER.replace(" 3.0 0.03 300.0 hk", " 2.0 0.02 200.0 hk").replace(" one 2.0", " one 0.0")
    )
    text = control.read_text().replace(" r  none factor 1.0 -3.0 5.0 rch", " r  log factor 2.0 0.02 200.0 hk")
    control.write_text(text.replace(" one 0.0 * log(k1) = 0.8 5.0", " one 1.0 * log(k1) = 0.8 0.0"))
    (tmp_path / "where.csv").write_text("name,x,y\nk1,0,0\nk2,10,0\nr,0,10\n")
    config = tomllib.loads(
        project_from_pest(control, tmp_path, tmp_path / "where.csv").contents["survey.toml"].decode()
    )
    assert config["grid"]["file"] == "case_points.csv"
    assert config["latents"]["hk"]["kernel"]["length_scale"] == 30.0
    with pytest.raises(ConfigError, match=r"--coordinates: .* must have the columns name, x and y"):
        project_from_pest(control, tmp_path, tmp_path / "mesh.dat")


def test_that_matrices_and_uncertainty_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.cov").write_text("2 2 1\n 4.0 1.0\n 1.0 9.0\n* row and column names\nA\nb\n")
    (tmp_path / "d.cov").write_text("2 2 -1\n 4.0 9.0\n* row and column names\nc\nd\n")
    (tmp_path / "all.unc").write_text(
        "# text\nSTART COVARIANCE_MATRIX\n file 'a.cov'\n variance_multiplier 2.0\nEND COVARIANCE_MATRIX\n"
        "START STANDARD_DEVIATION\n std_multiplier 3.0\n e 2.0\nEND STANDARD_DEVIATION\n"
    )
    found = read_covariance("control", tmp_path / "all.unc")
    assert found.names == ("a", "b", "e")
    np.testing.assert_array_equal(found.matrix, [[8.0, 2.0, 0.0], [2.0, 18.0, 0.0], [0.0, 0.0, 36.0]])
    assert not found.is_diagonal
    assert read_covariance("control", tmp_path / "d.cov").variances == {"c": 4.0, "d": 9.0}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("* observation data\n h1 1.0 4.0", "* observation data\n h1 1.0 0.0", "no observation with a positive weight"),
        ("pcf\n", "pcx\n", "--from-pest: .* is no control file"),
        ("in.tpl in.txt", "no.tpl in.txt", "--from-pest: there is no file .*no.tpl"),
    ],
)
def test_that_a_case_without_use_is_reported(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        project_from_pest(write_older(tmp_path, OLDER.replace(old, new)), tmp_path)


@pytest.mark.slow
def test_that_a_case_runs_to_its_posterior_and_back_to_pest(invgp_here: Command, tmp_path: Path) -> None:
    control = pest_cases.write_tables(tmp_path)
    made = invgp_here("init", "--from-pest", control.name, cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert "option additional_ins_delimiters(|): used" in made.stdout
    for arguments in (["run", "survey.toml"], ["export", "posterior.nc", "--format", "pest"]):
        done = invgp_here(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "posterior.ensemble.csv").read_text().splitlines()))
    assert list(rows[0]) == ["real_name", "a", "b", "r"]
    for name, (mean, std) in pest_cases.tables_reference(control, 20_000).moments.items():
        draws = np.array([float(row[name]) for row in rows])
        draws = np.log10(draws) if name == "r" else draws
        # The file has 200 draws, so that their mean has an error of 0.07 standard deviations.
        assert abs(draws.mean() - mean) < 0.3 * std
        assert 0.8 < draws.std() / std < 1.2
