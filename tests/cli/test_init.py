"""`invgp init`: projects that run as they stand, and a config for your own survey."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.command_line import Command
from helpers.scaffold_data import FILES, SCAFFOLDS
from invgp.scaffolds import KINDS
from invgp.scaffolds.column_roles import Header, parse_header

COLUMNS = "Station,x (m),y (m),elev_m,Zeit 1 (ms),Zeit 2 (ms),zeit_err_1,zeit_sd_2,rho_ohm_m,remark\n"
ROWS = "A,0,2,30,100,200,1,2,50,ok\nB,300,2,31,110,,1,,55,\nC,600,20,33,120,240,1,2,60,wet\n"


@pytest.mark.parametrize("kind", KINDS)
def test_that_a_project_is_written_completely_and_never_over_another(
    kind: str, invgp_here: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "project"
    result = invgp_here("init", kind, folder, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    written = {path.name: path for path in folder.iterdir()}
    assert {path.name for path in (SCAFFOLDS / f"{kind}-project").iterdir() if path.is_file()} == set(written)
    for path in written.values():
        assert str(path) in result.stdout
        assert bool(path.stat().st_mode & 0o100) == path.read_bytes().startswith(b"#!")
    written["README.md"].write_text("mine")
    for name in sorted(set(written) - {"README.md", "survey.toml"}):
        written[name].unlink()
    again = invgp_here("init", kind, folder, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == (
        f"invgp: DIRECTORY: must not contain files that would be overwritten, was {str(folder)!r}, which contains "
        "'README.md', 'survey.toml'; name another directory\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "survey.toml"]
    assert written["README.md"].read_text() == "mine"


@pytest.mark.parametrize("name", FILES)
def test_that_the_data_of_a_project_are_those_of_its_simulator(name: str) -> None:
    assert (SCAFFOLDS / name).read_text(encoding="utf-8") == FILES[name]()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["pets"],
            f"Error: KIND: must be {', '.join(KINDS)}, was 'pets'; did you mean 'pest'?",
        ),
        (
            ["line"],
            f"Error: KIND: must be {', '.join(KINDS)}, was 'line'; for a directory of that name: "
            "invgp init python line",
        ),
        (
            ["pest", "--from-data", "sites.csv"],
            "Error: --from-data: must go with the kind 'python', was 'pest'",
        ),
        (
            ["--from-data", "none.csv"],
            "invgp: --from-data: must be a file that can be read, was 'none.csv', which does not exist",
        ),
        (
            ["--from-data", "where.csv"],
            "invgp: --from-data: must have a column of observations besides those of coordinates, had 'x', 'y'",
        ),
        (["--from-data", "text.csv"], "invgp: --from-data: must have columns of numbers, had none"),
        (
            ["python", "where.csv"],
            "invgp: DIRECTORY: must be a directory, was 'where.csv', which is a file",
        ),
        (
            ["python", "/proc/project"],
            "invgp: the project could not be written to '/proc/project/survey.toml': No such file or directory",
        ),
    ],
)
def test_that_a_mistake_gives_a_sentence_and_writes_nothing(
    arguments: list[str], sentence: str, invgp_here: Command, tmp_path: Path
) -> None:
    (tmp_path / "sites.csv").write_text(COLUMNS + ROWS)
    (tmp_path / "where.csv").write_text("x,y\n1,2\n")
    (tmp_path / "text.csv").write_text("name\nA\n")
    before = sorted(tmp_path.iterdir())
    result = invgp_here("init", *arguments, cwd=tmp_path)
    assert result.returncode in (1, 2)
    assert result.stderr.splitlines()[-1] == sentence
    assert sorted(tmp_path.iterdir()) == before


def test_that_columns_units_and_ranges_of_a_csv_are_filled_in(invgp_here: Command, tmp_path: Path) -> None:
    (tmp_path / "sites.csv").write_text(COLUMNS + ROWS)
    result = invgp_here("init", "--from-data", "sites.csv", "north", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    text = (tmp_path / "north" / "survey.toml").read_text()
    assert '# columns that are not used: "Station", "remark"' in text
    assert "[survey.coordinates.x]   # 0 to 600" in text
    assert "[survey.observations.zeit]   # 100 to 240, 1 missing" in text
    config = tomllib.loads(text)
    assert config["survey"]["file"] == "../sites.csv"
    assert config["survey"]["coordinates"] == {
        "x": {"column": "x (m)", "unit": "m"},
        "y": {"column": "y (m)", "unit": "m"},
    }
    assert config["survey"]["covariates"] == {"elev": {"column": "elev_m", "unit": "m"}}
    assert config["survey"]["observations"] == {
        "zeit": {"columns": ["Zeit 1 (ms)", "Zeit 2 (ms)"], "unit": "ms", "dimension": "channel"},
        "rho": {"columns": ["rho_ohm_m"], "unit": "ohm m"},
    }
    assert config["dimensions"] == {"channel": [1, 2]}
    assert config["noise"]["std"] == {"zeit": ["zeit_err_1", "zeit_sd_2"], "rho": 2.8}
    assert config["latents"]["field"]["kernel"] == {"length_scale": 200}


def test_that_a_config_from_data_needs_only_the_simulator(invgp_here: Command, tmp_path: Path) -> None:
    (tmp_path / "sites.csv").write_text(COLUMNS + ROWS)
    invgp_here("init", "--from-data", "sites.csv", cwd=tmp_path)
    problem = invgp.load(tmp_path / "survey.toml")
    np.testing.assert_array_equal(problem.survey.Y[:, 0], [100, 110, 120])
    checked = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert checked.returncode == 3
    lines = (tmp_path / "survey.toml").read_text().splitlines()
    marked = [str(n) for n, line in enumerate(lines, start=1) if "EDIT" in line and n > 1]
    warning, error = checked.stderr.splitlines()
    assert warning == (
        f"invgp: warning: the configuration is still marked EDIT in lines {', '.join(marked[:-1])} and {marked[-1]}: "
        "check them"
    )
    assert error == (
        "invgp: the simulator failed at the prior mean, site 1: run site-1: NotImplementedError: write your simulator "
        "in simulator.py"
    )


def test_that_a_netcdf_file_is_read_too(invgp_here: Command, tmp_path: Path) -> None:
    xr.Dataset(
        {"gravity": ("station", [1.0, 2.0, 3.0], {"units": "mGal"}), "elevation": ("station", [5.0, 6.0, 7.0])},
        coords={
            "longitude": ("station", [140.0, 141.0, 142.0], {"units": "degrees_east"}),
            "latitude": ("station", [-30.0, -31.0, -30.5], {"units": "degrees_north"}),
            "station": ("station", ["a", "b", "c"]),
        },
    ).to_netcdf(tmp_path / "sites.nc")
    result = invgp_here("init", "--from-data", "sites.nc", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    survey = invgp.load(tmp_path / "survey.toml").survey
    assert [(c.name, c.unit) for c in survey.coordinates] == [
        ("longitude", "degrees_east"),
        ("latitude", "degrees_north"),
    ]
    assert [(o.name, o.unit) for o in survey.observations] == [("gravity", "mGal")]


def test_that_faults_of_the_data_are_reported_at_once(invgp_here: Command, tmp_path: Path) -> None:
    (tmp_path / "sites.csv").write_text("x,t_ms\n0,1\n0,2\n")
    result = invgp_here("init", "--from-data", "sites.csv", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stderr == (
        "invgp: warning: survey.coordinates: must differ from site to site, was [0.0] at sites 1 and 2; "
        "repeated measurements need one row with their mean, or further columns\n"
    )


@pytest.mark.parametrize(
    ("column", "header"),
    [
        ("x_m", Header("x_m", "x", None, "m")),
        ("time (ms)", Header("time (ms)", "time", None, "ms")),
        ("twt_1_s", Header("twt_1_s", "twt", 1, "s")),
        ("Rho 10 [ohm.m]", Header("Rho 10 [ohm.m]", "rho", 10, "ohm m")),
        ("v_km_s", Header("v_km_s", "v", None, "km s-1")),
        ("resistivity (Ωm)", Header("resistivity (Ωm)", "resistivity", None, "ohm m")),
        ("time (UTC)", Header("time (UTC)", "time", None, "")),
        ("m", Header("m", "m", None, "")),
        ("Länge", Header("Länge", "lange", None, "")),
        ("2nd", Header("2nd", "column_2nd", None, "")),
        ("t1", Header("t1", "t", 1, "")),
    ],
)
def test_that_a_header_is_taken_apart(column: str, header: Header) -> None:
    assert parse_header(column) == header


@pytest.mark.parametrize(
    ("header", "std", "unused"),
    [
        ("x_m,twt_ms,twt_err_ms", {"twt": ["twt_err_ms"]}, ""),
        ("x_m,twt_ms,twterr", {"twt": ["twterr"]}, ""),
        ("x_m,twt_ms,twt_ms_uncertainty", {"twt": ["twt_ms_uncertainty"]}, ""),
        ("x_m,gz (mGal),gz (mGal) error", {"gz": ["gz (mGal) error"]}, ""),
        ("x_m,twt_ms,sigma twt", {"twt": ["sigma twt"]}, ""),
        ("x_m,twt_ms,error", {"twt": ["error"]}, ""),
        ("x_m,twt_ms,stdev (ms)", {"twt": ["stdev (ms)"]}, ""),
        ("x_m,twt_ms,dtwt_ms", {"twt": ["dtwt_ms"]}, ""),
        ("x_m,twt_ms,delta_twt", {"twt": ["delta_twt"]}, ""),
        ("x_m,twt_ms,unc,sigma_twt", {"twt": ["sigma_twt"]}, '# columns that are not used: "unc"'),
        ("x_m,depth_m,pth_m", {"depth": 0.05, "pth": 0.1}, ""),
        ("x_m,twt_ms,twt_err_pct", {"twt": 0.05}, '# columns that are not used: "twt_err_pct"'),
    ],
)
def test_that_columns_of_errors_become_noise(header, std, unused, invgp_here: Command, tmp_path: Path) -> None:
    (tmp_path / "sites.csv").write_text(f"{header}\n0,1,2,3\n10,1,2,3\n".replace(",3", ",3" * (header.count(",") == 3)))
    assert invgp_here("init", "--from-data", "sites.csv", cwd=tmp_path).returncode == 0
    text = (tmp_path / "survey.toml").read_text()
    assert tomllib.loads(text)["noise"]["std"] == std
    assert unused in text
    assert "EPSG:4326" not in text, "the coordinates are in metres"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("0,3\n10,abc", "was 'abc' in line 3"),
        ('0,"3,5"\n10,', "was '3,5' in line 2; decimals are written with a point"),
    ],
)
def test_that_an_entry_that_is_no_number_is_named(
    rows: str, sentence: str, invgp_here: Command, tmp_path: Path
) -> None:
    (tmp_path / "sites.csv").write_text(f"x_m,v\n{rows}\n")
    result = invgp_here("init", "--from-data", "sites.csv", cwd=tmp_path)
    column = "column 'v' of sites.csv must hold numbers, or nothing where there is none"
    assert (result.returncode, result.stderr.strip()) == (2, f"invgp: --from-data: {column}, {sentence}")
    lines = [f"{line},{place}" for place, line in enumerate([*rows.splitlines(), "20,1"])]
    (tmp_path / "sites.csv").write_text("\n".join(["x_m,v,t_s", *lines]))
    result = invgp_here("init", "--from-data", "sites.csv", cwd=tmp_path)
    assert result.returncode == 0
    assert f"{column}, {sentence}; the column is not used" in result.stderr
    assert '# columns that are not used: "v"' in (tmp_path / "survey.toml").read_text()
