"""`invgp init --from-pest`: a PEST case becomes a project that runs without an edit; every feature has a fate."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import invgp
from helpers import pest_cases
from helpers.command_line import Command
from invgp.adapters import AdapterError
from invgp.adapters.pest.matrices import read_covariance
from invgp.errors import ConfigError
from invgp.scaffolds.pest_case import PestProject, describe_case, project_from_pest

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
 s  none factor 2.0 0.0 4.0 rch 1.0 5.0 1
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
* odd section
 1 2 3
++ ies_num_reals(50)
++ unheard_of(1) noptmax(3) rlambda1(20)
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
    project = project_from_pest(write_older(tmp_path / "case"), tmp_path / "case")
    config = tomllib.loads(project.contents["survey.toml"].decode())
    assert config["dimensions"] == {"hk_name": ["k1", "k2"], "rch_name": ["r", "s"]}
    spread = np.log(1e4) / 4.0
    # The equation states that 2 log10(k1) is 0.8 with a standard deviation of 0.2.
    precision = spread**-2 + (2.0 / (0.2 * math.log(10.0))) ** 2
    centre = (math.log(2.0) / spread**2 + 2.0 / math.log(10.0) * 0.8 / 0.2**2) / precision
    hk = config["latents"]["hk"]
    assert hk["link"] == "log"
    # A second one states that log10(k1) and log10(k2) are equal, with a standard deviation of 1.
    covariance = np.diag([1.0 / precision, spread**2])
    row = np.array([1.0, -1.0]) / math.log(10.0)
    gain = covariance @ row / (row @ covariance @ row + 1.0)
    centres = np.array([centre, math.log(3.0)])
    centres -= gain * (row @ centres)
    covariance -= np.outer(gain, row @ covariance)
    variance = np.diag(covariance)
    mean = np.exp(centres + 0.5 * variance)
    np.testing.assert_allclose(hk["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(hk["std"], mean * np.sqrt(np.expm1(variance)), rtol=1e-12)
    rho = covariance[0, 1] / math.sqrt(variance[0] * variance[1])
    np.testing.assert_allclose(hk["label_correlation"], [[1.0, rho], [rho, 1.0]], rtol=1e-9)
    # An equation of two parameters is direct data, for which the prior must be normal.
    assert {key: config["latents"]["rch"][key] for key in ("mean", "std")} == {"mean": [1.0, 2.0], "std": [2.0, 1.0]}
    assert "link" not in config["latents"]["rch"]
    (value,) = config["direct"]["prior_information"]["values"].values()
    assert value == {"quantity": '1.0 * rch["r"] + -1.0 * rch["s"]', "value": 0.5, "std": 0.5}
    assert project.contents["case_observations.csv"].decode() == "name,value,std,group\nh1,1.0,0.25,heads\n"
    assert config["forward"]["files"] == ["mesh.dat"]


@pytest.mark.parametrize(("lower", "spans"), [("0.02", "4 orders"), ("0.2", "3 orders"), ("1.0", "")])
def test_that_a_wide_prior_is_marked(lower: str, spans: str, tmp_path: Path) -> None:
    text = OLDER.replace("0.02 200.0", f"{lower} 200.0").replace("0.03 300.0", "3.0 300.0")
    text = text.partition("* prior information")[0]
    config = project_from_pest(write_older(tmp_path, text), tmp_path).contents["survey.toml"].decode()
    assert ("# The prior spans" in config) == bool(spans)
    assert spans in config


@pytest.mark.parametrize("place", [".", "inversion", "projects/inversion"])
def test_that_runs_get_all_files_of_the_model_and_none_of_pest_or_of_the_project(place: str, tmp_path: Path) -> None:
    control = write_older(tmp_path / "case")
    for name in ("ref/k.dat", "tables/par.tpl", "__pycache__/model.pyc", "posterior.runs/r1", ".git/HEAD"):
        pest_cases.write_files(tmp_path / "case", {name: "1\n"})
    text = control.read_text().replace(" in.tpl in.txt", r" tables\par.tpl in.txt")
    control.write_text(text)
    (tmp_path / "case/tables/par.tpl").write_bytes((tmp_path / "case/in.tpl").read_bytes())
    project = tmp_path / "case" / place
    pest_cases.write_files(project, {"old_results.nc": "1"} if place != "." else {})
    config = tomllib.loads(project_from_pest(control, project).contents["survey.toml"].decode())
    assert config["forward"]["files"] == ["mesh.dat", "ref"]


def test_that_runs_get_no_files_of_other_projects(tmp_path: Path) -> None:
    case = tmp_path / "case"
    control = write_older(case)
    pest_cases.write_files(case, {"ref/k.dat": "1\n", "ref/trials/s.dat": "1\n"})
    for place in ("first", "ref/trials/second", "third", "."):
        config = project_from_pest(control, case / place).contents["survey.toml"].decode()
        nested: list[Any] = [{"source": name, "path": name} for name in ("ref/k.dat", "ref/trials/s.dat")]
        nested = ["ref"] if place == "first" else nested
        assert tomllib.loads(config)["forward"]["files"] == ["mesh.dat", *nested]
        pest_cases.write_files(case / place, {"survey.toml": config, "posterior.nc": "1", "case_points.csv": "1"})


def test_that_every_feature_of_the_file_has_a_fate(tmp_path: Path) -> None:
    notes = dict(project_from_pest(write_older(tmp_path), tmp_path).features)
    assert notes["4 parameters"] == "inputs of the model: k1, k2, r, s"
    assert notes["1 parameter in no template"] == "left out: z"
    assert notes["1 observation with weight 0"] == "left out: h2"
    assert "states a limit" in notes["observation 'q'"]
    assert "the prior stands in" in notes["observation 'g'"]
    assert "the prior stands in" in notes["prior information 'four'"]
    assert notes["2 equations of prior information"] == "part of the prior: one, three"
    assert notes["1 equation of prior information for several parameters"] == "direct data: two"
    assert notes["bounds of 'hk'"] == "do not limit the values: the prior is log-normal"
    assert notes["bounds of 'rch'"] == "do not limit the values: direct data need a normal prior"
    assert notes["prior standard deviations"] == "4 from bounds"
    assert notes["option ies_num_reals(50)"].startswith("not used: the number of runs adapts")
    assert notes["option unheard_of(1)"] == "not used: unknown to invgp"
    assert notes["option noptmax(3)"].startswith("not used: the inversion ends")
    assert notes["option rlambda1(20)"] == "not used: a setting of the search of PEST"
    assert notes["section '* odd section'"] == "not used: unknown to invgp"
    assert "section '* parameter groups'" in notes
    assert "PARCHGLIM" in notes["section '* control data'"]
    assert notes["1 parameter with SCALE or OFFSET"] == "the model reads value * SCALE + OFFSET: s"


def test_that_every_part_of_a_line_of_options_is_read_or_reported(tmp_path: Path) -> None:
    lines = (
        "++ies_num_reals 50\n++ ies_bad_phi 1e10  # a comment\n++parcov prior.cov\n++#++nothing(1)\n"
        "++ies_num_threads(4)left ies_no_noise (true) ++ies_reg_factor(0.1\n++Par_Sigma_Range(6)\n++da_type( )\n"
        "++PARCOV_FILENAME('prior.unc')\n++parameter_covariance(other.unc)\n"
    )
    control = write_older(
        tmp_path, OLDER.replace("pcf\n", "pcf\nstray words\n").replace("++ ies_num_reals(50)\n", lines)
    )
    (tmp_path / "prior.unc").write_text("START STANDARD_DEVIATION\n k2 0.25\nEND STANDARD_DEVIATION\n")
    first = control.read_text().splitlines().index("++ies_num_reals 50") + 1
    notes = dict(project_from_pest(control, tmp_path).features)
    form = "not used: an option must be written as name(value)"
    assert notes["line 2 (stray words)"] == "not used: it is in no section"
    assert notes[f"line {first} (++ies_num_reals 50)"] == form
    assert notes[f"line {first + 1} (++ies_bad_phi 1e10)"] == form
    assert notes[f"line {first + 2} (++parcov prior.cov)"] == form
    assert notes["option ies_num_threads(4)"] == notes["option ies_no_noise(true)"]
    assert notes[f"line {first + 4} (++left)"] == form
    assert notes[f"line {first + 4} (++ies_reg_factor(0.1)"] == form
    assert notes["option da_type"] == "not used: it has no value"
    assert notes["option parcov(prior.unc)"] == "part of the prior that `invgp init --from-pest` writes"
    assert notes[f"line {first + 8} (parameter_covariance(other.unc))"] == "not used: the option was given before"
    assert notes["prior standard deviations"] == "3 from bounds, 1 from parcov"
    assert notes["option par_sigma_range(6)"].startswith("part of the prior")
    assert not any("nothing" in feature or "comment" in feature for feature in notes)


def test_that_pilot_points_become_a_field_with_the_length_scale_of_the_covariance(tmp_path: Path) -> None:
    control = pest_cases.write_pilot_points(tmp_path)
    project = project_from_pest(control, tmp_path)
    config = tomllib.loads(project.contents["survey.toml"].decode())
    assert config["latents"]["hk"]["kernel"]["kind"] == "matern 3/2"
    assert config["latents"]["hk"]["kernel"]["length_scale"] == pytest.approx(pest_cases.LENGTH_SCALE, rel=0.02)
    rows = list(csv.DictReader(project.contents["pilots_points.csv"].decode().splitlines()))
    assert [(float(row["x"]), float(row["y"])) for row in rows] == [tuple(point) for point in pest_cases.POINTS]
    assert [row["hk"] for row in rows] == [f"ppt{i:02d}:hk" for i in range(len(rows))]


def test_that_pilot_points_with_an_exponential_covariance_get_an_exponential_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The covariance of an exponential variogram, which PEST utilities and pyEMU write by default.
    apart = np.hypot(*(pest_cases.POINTS[:, None] - pest_cases.POINTS[None]).transpose(2, 0, 1))
    mean, _ = pest_cases.pilot_prior()
    monkeypatch.setattr(pest_cases, "pilot_prior", lambda: (mean, 0.5 * np.exp(-apart / 450.0)))
    project = project_from_pest(pest_cases.write_pilot_points(tmp_path), tmp_path)
    kernel = tomllib.loads(project.contents["survey.toml"].decode())["latents"]["hk"]["kernel"]
    assert kernel["kind"] == "exponential"
    assert kernel["length_scale"] == pytest.approx(450.0, rel=0.02)
    assert "differ by up to 0.0" in dict(project.features)["covariances of 'hk' in parcov"]


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


def test_that_coordinates_in_names_of_pyemu_are_read(tmp_path: Path) -> None:
    names = {"k1": "k_x:0.00_y:-5.50", "k2": "k_x:10.00_y:-5.50", "r": "k_x:1e1_y:4.50_zone:1"}
    text = OLDER.partition("* prior information")[0].replace(" 3.0 0.03 300.0 hk", " 2.0 0.02 200.0 hk")
    text = text.replace(" r  none factor 1.0 -3.0 5.0 rch", " r  log factor 2.0 0.02 200.0 hk")
    control = write_older(tmp_path, text)
    for file in (control, tmp_path / "in.tpl"):
        renamed = file.read_text()
        for old, new in names.items():
            renamed = re.sub(rf"(?<=[ ~]){old} ", f"{new} ", renamed)
        file.write_text(renamed)
    project = project_from_pest(control, tmp_path)
    assert project.contents["case_points.csv"].decode().splitlines() == [
        "x,y,hk",
        *(
            f"{x},{y},{name}"
            for (x, y), name in zip([(0.0, -5.5), (10.0, -5.5), (10.0, 4.5)], names.values(), strict=True)
        ),
    ]


CORRELATED = """pcf
* control data
restart estimation
 4 1 3 0 1
 1 1 double point 1 0 0
* parameter data
 k  log  factor 2.0 0.02 200.0 hk 1.0 0.0 1
 s  log  factor 3.0 0.03 300.0 ss 1.0 0.0 1
 r  none factor 1.0 -3.0 5.0 rch 1.0 0.0 1
 q  none factor 1.0 -3.0 5.0 rch 1.0 0.0 1
* observation groups
 logs
* observation data
 log_k 0.9 5.0 logs
* model command line
 {python} model.py
* model input/output
 in.tpl in.txt
 out.ins out.txt
++ parcov(prior.cov)
"""
MODEL = (
    "import math\nk = float(open('in.txt').read().split()[0])\nopen('out.txt', 'w').write(f'{math.log10(k):.14f}')\n"
)
VARIANCES, RHO = (0.25, 0.16), 0.8  # of log10 k and log10 s


def write_correlated(folder: Path, covariance_of_r_and_q: float = 0.0) -> Path:
    between = RHO * math.sqrt(VARIANCES[0] * VARIANCES[1])
    rows = [(VARIANCES[0], between, 0, 0), (between, VARIANCES[1], 0, 0)]
    rows += [(0, 0, 4, covariance_of_r_and_q), (0, 0, covariance_of_r_and_q, 4)]
    matrix = "\n".join(" ".join(map(repr, row)) for row in rows)
    files = {
        "case.pst": CORRELATED.replace("{python}", sys.executable),
        "in.tpl": "ptf ~\n~k                  ~ ~s     ~ ~r      ~ ~q      ~\n",
        "out.ins": "pif @\nl1 !log_k!\n",
        "model.py": MODEL,
        "prior.cov": f"4 4 1\n{matrix}\n* row and column names\nk\ns\nr\nq\n",
    }
    pest_cases.write_files(folder, files)
    return folder / "case.pst"


@pytest.mark.slow
def test_that_a_covariance_between_numbers_acts_as_in_the_closed_form(tmp_path: Path) -> None:
    project = project_from_pest(write_correlated(tmp_path), tmp_path)
    for name, content in project.contents.items():
        (tmp_path / name).write_bytes(content)
    posterior = invgp.invert(invgp.load(tmp_path / "survey.toml"))
    (v_k, v_s), noise = VARIANCES, 0.2**2
    gain = np.array([v_k, RHO * math.sqrt(v_k * v_s)]) / (v_k + noise)
    mean = np.log10([2.0, 3.0]) + gain * (0.9 - math.log10(2.0))
    std = np.sqrt(np.array([v_k, v_s]) - gain**2 * (v_k + noise))
    medians = posterior["hk_and_ss_quantile"].sel(quantile=0.5)
    np.testing.assert_allclose(np.log10(medians), mean, atol=0.02 * std.min())
    spread = np.log(posterior["hk_and_ss_std"] ** 2 / posterior["hk_and_ss"] ** 2 + 1.0) ** 0.5 / math.log(10.0)
    np.testing.assert_allclose(spread, std, rtol=0.02)


def test_that_an_equation_updates_all_correlated_parameters(tmp_path: Path) -> None:
    control = write_correlated(tmp_path)
    text = control.read_text().replace(" 4 1 3 0 1\n", " 4 1 3 1 1\n")
    control.write_text(text.replace("++ parcov", "* prior information\n one 1.0 * log(k) = 0.9 5.0 expert\n++ parcov"))
    latent = tomllib.loads(project_from_pest(control, tmp_path).contents["survey.toml"].decode())["latents"][
        "hk_and_ss"
    ]
    (v_k, v_s), noise = VARIANCES, 0.2**2
    between = RHO * math.sqrt(v_k * v_s)
    gain = np.array([v_k, between]) / (v_k + noise)
    covariance = np.array([[v_k, between], [between, v_s]]) - np.outer(gain, gain) * (v_k + noise)
    variance = np.diag(covariance) * math.log(10.0) ** 2
    mean = 10 ** (np.log10([2.0, 3.0]) + gain * (0.9 - math.log10(2.0))) * np.exp(0.5 * variance)
    np.testing.assert_allclose(latent["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(latent["std"], mean * np.sqrt(np.expm1(variance)), rtol=1e-12)
    rho = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    np.testing.assert_allclose(latent["label_correlation"], [[1.0, rho], [rho, 1.0]], rtol=1e-9)


def test_that_covariances_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    project = project_from_pest(write_correlated(tmp_path, 5.0), tmp_path)
    why = dict(project.features)["prior correlations of 'rch'"]
    assert why == "not used, only the variances are: the matrix is not positive definite"
    control = write_correlated(tmp_path)
    control.write_text(control.read_text().replace(" s  log ", " s  none"))
    why = dict(project_from_pest(control, tmp_path).features)["prior correlations between 'hk' and 'ss'"]
    assert why == "not used, only the variances are: one has logarithms, the other not"


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
    ("text", "sentence"),
    [
        ("START STANDARD_DEVIATION\n a 1.0\n", "the block STANDARD_DEVIATION has no end"),
        ("a 1.0\n", "line 1: 'a 1.0' must be in a block"),
        ("START STANDARD_DEVIATION\n a\nEND STANDARD_DEVIATION\n", "must be a name and a value, was 'a'"),
        ("START STANDARD_DEVIATION\n a 1\n A 2\nEND STANDARD_DEVIATION\n", "a name comes twice"),
        ("START STANDARD_DEVIATION\n a 1\nEND COVARIANCE_MATRIX\n", "line 3: the block STANDARD_DEVIATION ends with"),
        ("START STANDARD_DEVIATION\n a inf\nEND STANDARD_DEVIATION\n", "not finite"),
        ("START PEST_CONTROL_FILE\n file x.pst\nEND PEST_CONTROL_FILE\n", "'PEST_CONTROL_FILE' cannot be read"),
        ("START COVARIANCE_MATRIX\n file a.cov\n list x\nEND COVARIANCE_MATRIX\n", "'list' cannot be read"),
        ("START COVARIANCE_MATRIX\n file a.cov\n first_parameter k\nEND COVARIANCE_MATRIX\n", "must be parameters"),
        ("START COVARIANCE_MATRIX\n file b.cov\nEND COVARIANCE_MATRIX\n", "b.cov: the names of rows and of columns"),
    ],
)
def test_that_an_uncertainty_file_that_cannot_be_read_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.cov").write_text("2 2 1\n 4.0 1.0\n 1.0 9.0\n* row and column names\na\nb\n")
    (tmp_path / "b.cov").write_text("2 2 2\n 4 1\n 1 9\n* row names\na\nb\n* column names\nb\na\n")
    (tmp_path / "all.unc").write_text(text)
    with pytest.raises(AdapterError, match=sentence):
        read_covariance("control", tmp_path / "all.unc", ("k", "a", "b"))


def test_that_rows_of_a_matrix_can_be_a_range_of_parameters(tmp_path: Path) -> None:
    (tmp_path / "a.cov").write_text("2 2 1\n 4.0 1.0\n 1.0 9.0\n* row and column names\np1\np2\n")
    block = "START COVARIANCE_MATRIX\n file a.cov\n first_parameter B\n last_parameter c\nEND COVARIANCE_MATRIX\n"
    (tmp_path / "all.unc").write_text(block)
    assert read_covariance("control", tmp_path / "all.unc", ("a", "b", "c", "d")).names == ("b", "c")


LINEAR = """pcf
* control data
restart regularisation
 2 3 1 1 3
 1 1 double point 1 0 0
* parameter data
 r none factor 1.0 -3.0 5.0 other 1.0 0.0 1
 s none factor 2.0 0.0 4.0 other 1.0 0.0 1
* observation groups
 sums   0.5  sums.cov
 single
 expert
* observation data
 sum 4.0 1.0 sums
 difference -0.4 1.0 sums
 first 1.5 2.0 single
* model command line
 {python} model.py
* model input/output
 in.tpl in.txt
 out.ins out.txt
* prior information
 both 2.0 * r - 1.0 * s = 0.5 2.0 expert
"""
LINEAR_MODEL = (
    "r, s = map(float, open('in.txt').read().split())\n"
    "open('out.txt', 'w').write(f'{r + s:.14f} {r - s:.14f} {r:.14f}')\n"
)


def write_linear(folder: Path, matrix: str) -> Path:
    files = {
        "case.pst": LINEAR.replace("{python}", sys.executable),
        "in.tpl": "ptf ~\n~r                  ~ ~s                 ~\n",
        "out.ins": "pif @\nl1 !sum! !difference! !first!\n",
        "model.py": LINEAR_MODEL,
        "sums.cov": matrix,
    }
    pest_cases.write_files(folder, files)
    return folder / "case.pst"


@pytest.mark.slow
def test_that_equations_of_numbers_and_correlated_noise_act_as_in_the_closed_form(tmp_path: Path) -> None:
    # A matrix of a group as PEST reads it, without names.
    project = project_from_pest(write_linear(tmp_path, "0.25 0.1\n0.1 0.16\n"), tmp_path)
    for name, content in project.contents.items():
        (tmp_path / name).write_bytes(content)
    posterior = invgp.invert(invgp.load(tmp_path / "survey.toml"))
    A = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0], [2.0, -1.0]])
    noise = np.zeros((4, 4))
    noise[:2, :2] = [[0.25, 0.1], [0.1, 0.16]]
    noise[2, 2], noise[3, 3] = 0.25, 0.25
    prior_precision = np.diag([1.0 / 4.0, 1.0])
    precision = prior_precision + A.T @ np.linalg.solve(noise, A)
    data = np.array([4.0, -0.4, 1.5, 0.5])
    mean = np.linalg.solve(precision, prior_precision @ [1.0, 2.0] + A.T @ np.linalg.solve(noise, data))
    std = np.sqrt(np.diag(np.linalg.inv(precision)))
    # `other` is the name of a variable of every posterior file.
    np.testing.assert_allclose(posterior["other_parameters"], mean, atol=1e-3 * std.min())
    np.testing.assert_allclose(posterior["other_parameters_std"], std, rtol=1e-3)


def test_that_means_and_standard_deviations_of_tables_are_used_as_by_pestpp(tmp_path: Path) -> None:
    control = pest_cases.write_tables(tmp_path)
    control.write_text(control.read_text().replace("parcov prior.unc\n", ""))
    (tmp_path / "par.csv").write_text(
        "name,transform,value,upper_bound,lower_bound,group,mean,standard_deviation,zone\n"
        "a,none,8.0,16.0,-2.0,level,0.0,3.0,1\nb,none,1.0,3.0,-1.0,level,7.0,-2.0,1\nr,log,0.3,3.0,0.03,rate,,0.2,2\n"
    )
    project = project_from_pest(control, tmp_path)
    latents = tomllib.loads(project.contents["survey.toml"].decode())["latents"]
    assert latents["level"]["mean"] == [0.0, 1.0]
    assert latents["level"]["std"] == [3.0, 1.0]
    assert "median 0.3" in project.contents["survey.toml"].decode()
    spread = 0.2 * math.log(10.0)
    assert latents["rate"]["mean"] == pytest.approx(0.3 * math.exp(0.5 * spread**2), rel=1e-12)
    remarks = " ".join(text for feature, text in project.features if feature == "remark")
    assert "the mean 7 of b is outside its bounds" in remarks
    assert "the standard_deviation -2 of b is not positive" in remarks
    notes = dict(project.features)
    assert notes["columns of parameters: zone"] == "not used"
    assert notes["prior standard deviations"] == "2 from the column standard_deviation, 1 from bounds"
    assert notes["bounds of 'level'"] == "limit the values"


@pytest.mark.parametrize(
    ("matrix", "why"),
    [
        ("1.0 2.0\n2.0 1.0\n", "not used, the weights are: a matrix is not positive definite"),
        ("1.0 x\n2.0 1.0\n", "not used: .*sums.cov: the matrix: 'x' is not a number"),
        ("1.0\n", "not used: .*sums.cov: line 1: must be the numbers of rows and columns"),
    ],
)
def test_that_noise_covariances_that_cannot_be_used_are_named(matrix: str, why: str, tmp_path: Path) -> None:
    project = project_from_pest(write_linear(tmp_path, matrix), tmp_path)
    assert "case_noise.csv" not in project.contents
    assert any(re.match(why, outcome) for _, outcome in project.features)


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


def write_project(control: Path, folder: Path) -> PestProject:
    project = project_from_pest(control, folder)
    for name, content in project.contents.items():
        (folder / name).write_bytes(content)
    return project


def test_that_check_reports_each_feature_in_the_words_of_init(invgp_here: Command, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    control = pest_cases.write_tables(folder)
    assert invgp_here("init", "--from-pest", control.name, ".", "--json", cwd=folder).returncode == 0
    made = write_project(control, folder).features
    done = invgp_here("check", "survey.toml", "--no-pilot", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    features = json.loads(done.stdout)["features"]
    assert [(entry["feature"], entry["fate"]) for entry in features] == made
    assert ("prior standard deviations", "3 from parcov") in made


def test_that_edits_of_the_configuration_are_named_beside_the_features(tmp_path: Path) -> None:
    control = pest_cases.write_pilot_points(tmp_path)
    config = tmp_path / "survey.toml"
    made = write_project(control, tmp_path).features
    case = invgp.load(config).forward.case

    def described(old: str, new: str) -> list[tuple[str, str]]:
        text = config.read_text()
        assert old in text
        config.write_text(text.replace(old, new))
        try:
            return describe_case(case, config)
        finally:
            config.write_text(text)

    assert described("# timeout", "timeout") == made
    edited = described('kind = "matern 3/2"', 'kind = "exponential"')
    assert edited[:-1] == made
    assert edited[-1][0] == "edited configuration (latents.hk.kernel.kind)"
    (tmp_path / "pilots_observations.csv").write_text("name,value,std,group\n")
    ((feature, _),) = [pair for pair in described("std.observation", "std.other") if "edited" in pair[0]]
    assert feature == "edited configuration (noise.std.observation, noise.std.other, pilots_observations.csv)"
    *features, (feature, fate) = described("[latents.hk]", "[latents.conductivity]")
    assert (feature, features) == ("bounds, weights and prior information", list(case.features))
    assert "did not write" in fate


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


def test_that_a_covariance_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    control = write_older(tmp_path)
    control.write_text(control.read_text() + "++parcov(nowhere.cov)\n")
    with pytest.raises(ConfigError, match=r"there is no file .*nowhere.cov, which the option parcov names"):
        project_from_pest(control, tmp_path)


def test_that_what_is_not_used_of_covariances_is_stated_once(tmp_path: Path) -> None:
    control = write_older(tmp_path)
    control.write_text(control.read_text() + "++parcov(prior.jcb)\n")
    (tmp_path / "prior.jcb").write_bytes(b"\0")
    notes = dict(project_from_pest(control, tmp_path).features)
    assert "is no complete binary matrix: it ends too early" in notes["option parcov(prior.jcb)"]
    control.write_text(control.read_text().replace("prior.jcb", "prior.cov"))
    (tmp_path / "prior.cov").write_text("2 2 1\n1 0\n0 -1\n* row and column names\nk1\nr\n")
    project = project_from_pest(control, tmp_path)
    assert ("remark", "the variance -1 of r in parcov is not positive and is not used") in project.features
    assert "prior.cov" not in tomllib.loads(project.contents["survey.toml"].decode())["forward"]["files"]
