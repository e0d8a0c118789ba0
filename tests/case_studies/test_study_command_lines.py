"""The scripts of the case studies: a mistake in their arguments is a sentence and exit code 2, not a traceback."""

import runpy
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr


@pytest.fixture
def script(root, monkeypatch):
    """Runs a script in this process; several have modules of the same name, so none is kept."""
    studies = {name: m for name, m in sys.modules.items() if "/case_studies/" in (getattr(m, "__file__", None) or "")}
    for name in studies:
        monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)

    def run(name, *arguments):
        path = root / "case_studies" / name
        monkeypatch.syspath_prepend(path.parent)
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        runpy.run_path(str(path), run_name="__main__")

    yield run
    for name in set(sys.modules) - before:
        if "/case_studies/" in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def complaint(script, capsys):
    """The last line that a script says before it ends with exit code 2."""

    def run(name, *arguments):
        with pytest.raises(SystemExit) as ended:
            script(name, *arguments)
        assert ended.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    return run


@pytest.mark.parametrize(
    ("name", "option", "least", "values"),
    [
        ("flights/flights.py", "--epochs", 1, ["new_york", "--epochs", "0"]),
        ("flights/flights.py", "--count", 40, ["new_york", "--count", "-5"]),
        ("flights/flights.py", "--count", 40, ["generated", "--count", "8"]),
        ("flights/flights.py", "--subsets", 2, ["generated", "--subsets", "0"]),
        ("flights/flights.py", "--sets", 1, ["new_york", "--sets", "0"]),
        ("gprn/gprn.py", "--inducing", 1, ["--inducing", "0"]),
        ("gprn/gprn.py", "--size", 2, ["--size", "1"]),
        ("gprn/gprn.py", "--surveys", 1, ["--surveys", "0"]),
        ("cox_process/posteriors.py", "--chains", 2, ["--chains", "0"]),
        ("cox_process/posteriors.py", "--draws", 6, ["--draws", "few"]),
        ("em_survey/scaling.py", "--soundings", 1, ["--soundings", "0"]),
        ("em_survey/make_survey.py", "--seed", 0, ["--seed", "-1"]),
        ("gmt_valley/make_survey.py", "--profiles", 1, ["--profiles", "0"]),
        ("otway/make_survey.py", "--sites", 1, ["--sites", "0"]),
        ("otway/accuracy.py", "--effective", 1, ["--effective", "0"]),
        ("field_coverage.py", "--surveys", 1, ["profile.toml", "--surveys", "0"]),
        ("compare_smoothers.py", "--runs", 8, ["profile.toml", "--runs", "100", "4"]),
    ],
)
def test_that_a_number_below_its_limit_is_reported_in_one_sentence(name, option, least, values, complaint):
    printed = complaint(name, *values)
    script = name.split("/")[-1]
    assert (
        printed == f"{script}: error: argument {option}: must be a whole number of at least {least}, was {values[-1]!r}"
    )


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        (
            "flights/flights.py",
            ["generated", "--count", "80", "--subsets"],
            "--inducing must be at most 70, the rows of a set for training, was 100",
        ),
        (
            "flights/flights.py",
            ["generated", "--count", "800"],
            "--subsets must be at most 700, the rows of a set for training, was 1,000",
        ),
        (
            "flights/flights.py",
            ["new_york", "--sets", "6"],
            "--count and --sets must end within the 327,346 flights that there are, was 360,000",
        ),
        (
            "gprn/gprn.py",
            ["--size", "30", "--inducing", "31"],
            "--inducing must be at most 30, the size of a survey, was 31",
        ),
        ("otway/make_survey.py", ["--sites", "114"], "--sites must be at most 113, was 114"),
        ("otway/accuracy.py", ["--start", "nan"], "argument --start: must be a number above 0, was 'nan'"),
        ("tomography/figure.py", [], "the following arguments are required: name"),
        ("aquifer/make_survey.py", [], "the following arguments are required: program"),
    ],
)
def test_that_a_number_above_its_limit_or_none_is_reported_in_one_sentence(name, arguments, sentence, complaint):
    script = name.split("/")[-1]
    assert complaint(name, *arguments) == f"{script}: error: {sentence}"


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("em_survey/accuracy.py", ["{}/none.nc"], "the posterior '{}/none.nc' cannot be read: no such file"),
        ("gmt_valley/accuracy.py", ["{}/notes"], "the posterior '{}/notes' cannot be read: it is not a netCDF file"),
        (
            "gmt_valley/accuracy.py",
            ["{}/other.nc"],
            "the posterior '{}/other.nc' must have 'thickness', but is one of ",
        ),
        (
            "em_survey/accuracy.py",
            ["{}/other.nc", "--truth", "{}/none.csv"],
            "the file '{}/none.csv' cannot be used: No such file or directory",
        ),
        (
            "em_survey/accuracy.py",
            ["{}/other.nc", "--truth", "{}/notes"],
            "'{}/notes' must have a column 'resistivity_1_ohm_m', but has 'notes'",
        ),
        (
            "em_survey/accuracy.py",
            ["{}/other.nc", "--truth", "{}/short.csv"],
            "'{}/short.csv' must have a row for each of the 3 sites, but has 1",
        ),
        ("em_survey/make_survey.py", ["--output", "{}/notes/a.csv"], "the file '{}/notes' cannot be used: File exists"),
        ("otway/accuracy.py", ["--data", "{}/none.csv"], "--data: must be a file that can be read, was '{}/none.csv'"),
        ("field_coverage.py", ["{}/none.toml"], "the config '{}/none.toml' cannot be read: No such file or directory"),
        ("compare_smoothers.py", ["{}/none.toml"], "the config '{}/none.toml' cannot be read: No such file"),
        (
            "gprn/gprn.py",
            ["--sarcos", "{}"],
            "'{}/sarcos_inv.mat' must be a MATLAB file with the table 'sarcos_inv': ",
        ),
    ],
)
def test_that_a_file_that_is_missing_or_wrong_is_reported_in_one_sentence(
    name, arguments, sentence, complaint, tmp_path
):
    for file, text in {
        "notes": "notes\nof a walk\n",
        "sarcos_inv.mat": "notes of a walk, and not a table" * 10,
        "short.csv": "resistivity_1_ohm_m,resistivity_2_ohm_m\n1.0,2.0\n",
    }.items():
        (tmp_path / file).write_text(text)
    values = ("site", "layer"), np.ones((3, 2)), {"units": "ohm m"}
    other = xr.Dataset(
        {"resistivity": values, "resistivity_std": values},
        {
            "site": [1, 2, 3],
            "x": ("site", [0.0, 1.0, 2.0], {"units": "m"}),
            "layer_label": ("layer", ["top", "bottom"]),
        },
        {"invgp_latents": "resistivity", "invgp_coordinates": "x", "invgp_map": "points"},
    )
    other.to_netcdf(tmp_path / "other.nc")
    printed = complaint(name, *(argument.format(tmp_path) for argument in arguments))
    assert printed.startswith(f"{name.split('/')[-1]}: {sentence.format(tmp_path)}")


def test_that_a_config_without_a_grid_is_reported_in_one_sentence(otway, complaint):
    config = otway / "otway.toml"
    sentence = f"the config {str(config)!r} must be of a field model, with a grid, but it has none."
    assert complaint("field_coverage.py", config) == f"field_coverage.py: {sentence}"


def test_that_a_shell_sees_the_sentence_and_the_exit_code(root, tmp_path):
    command = [sys.executable, str(root / "case_studies" / "em_survey" / "accuracy.py"), str(tmp_path / "none.nc")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    sentence = f"accuracy.py: the posterior '{tmp_path}/none.nc' cannot be read: no such file.\n"
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (2, "", sentence)


@pytest.mark.parametrize(("name", "size"), [("em_survey", "--soundings"), ("otway", "--sites")])
def test_that_an_interrupted_maker_leaves_no_survey_without_its_truth(name, size, script, tmp_path, monkeypatch):
    savetxt, written = np.savetxt, []

    def interrupt_after_writing(path, *arguments, **options):
        if written:
            raise KeyboardInterrupt
        savetxt(path, *arguments, **options)
        written.append(path.name)

    monkeypatch.setattr(np, "savetxt", interrupt_after_writing)
    with pytest.raises(KeyboardInterrupt):
        script(f"{name}/make_survey.py", size, "5", "--output", tmp_path / "line.csv")
    assert [path.name for path in tmp_path.iterdir()] == written == ["line_truth.csv"]
