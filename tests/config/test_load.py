"""What a sound config and a sound survey become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from helpers.config_files import CALLABLE, CONFIG, SITES, WriteSurvey
from invgp.adapters import UmbridgeModel
from invgp.config import load
from invgp.errors import ConfigError

NAMES = ("easting", "northing")


def test_that_a_config_becomes_a_problem(write_survey: WriteSurvey) -> None:
    path = write_survey()
    problem = load(path)
    assert problem.title == "A short line"
    assert problem.config_text == CONFIG
    assert problem.survey.crs == "EPSG:28354"
    np.testing.assert_array_equal(problem.survey.X, [[0, 0], [100, 0], [0, 100]])
    np.testing.assert_array_equal(problem.survey.Y, [[0.2, 0.5], [0.21, np.nan], [0.22, 0.52]])
    np.testing.assert_array_equal(problem.noise_std, np.full((3, 2), 0.05))
    depth, velocity = problem.latents
    np.testing.assert_allclose(depth.std, [30, 75], rtol=1e-15)
    assert (depth.labels, depth.kernel.kind, depth.link.name) == ((1, 2), "matern 5/2", "identity")
    assert (velocity.labels, velocity.kernel.kind, velocity.link.name) == (None, "squared exponential", "log")
    assert problem.output.file == path.parent / "results/posterior.nc"
    assert problem.inference.samples == 16


def test_that_defaults_are_those_of_the_problem(write_survey: WriteSurvey) -> None:
    problem = load(write_survey({"[inference]\nsamples = 16\n": "", '[output]\nfile = "results/posterior.nc"\n': ""}))
    assert problem.inference == type(problem.inference)()
    assert problem.output.quantiles == type(problem.output)().quantiles
    assert problem.output.realizations == type(problem.output)().realizations
    assert problem.output.file.name == "posterior.nc"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_that_byte_order_marks_and_line_ends_do_not_matter(
    encoding: str, newline: str, write_survey: WriteSurvey
) -> None:
    path = write_survey()
    path.write_text(CONFIG, encoding=encoding, newline=newline)
    (path.parent / "sites.csv").write_text(SITES, encoding=encoding, newline=newline)
    np.testing.assert_array_equal(load(path).survey.Y, [[0.2, 0.5], [0.21, np.nan], [0.22, 0.52]])


def test_that_blank_lines_spaces_and_quotes_do_not_matter(write_survey: WriteSurvey) -> None:
    path = write_survey(sites={"easting,northing": ' easting , "northing"', "100,0,12": '\n "100", 0, 12'})
    np.testing.assert_array_equal(load(path).survey.X, [[0, 0], [100, 0], [0, 100]])


def test_that_paths_are_relative_to_the_config(
    write_survey: WriteSurvey, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_survey(executable=True)
    monkeypatch.chdir(path.parent.parent)
    from_above = load(Path(path.parent.name) / path.name)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    from_elsewhere = load(path)
    assert from_above.forward.digest == from_elsewhere.forward.digest
    assert from_above.output.file == from_elsewhere.output.file == path.parent / "results/posterior.nc"


def test_that_other_data_are_relative_to_the_working_directory(
    write_survey: WriteSurvey, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_survey()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "line.csv").write_text(SITES.replace("0.20", "0.30"))
    monkeypatch.chdir(elsewhere)
    assert load(path, data="line.csv").survey.Y[0, 0] == 0.30


def netcdf_survey(path: Path) -> None:
    xr.Dataset(
        {
            "northing": ("station", [0.0, 0.0, 0.1], {"units": "km"}),
            "elev": ("station", np.array([10, 12, 14], dtype=np.int16)),  # no unit: the config's
            # The sites need not come first.
            "t": (("layer", "station"), [[200.0, 210.0, 220.0], [500.0, np.nan, 520.0]], {"units": "ms"}),
            "s": (("station", "layer"), [[10.0, 20.0], [10.0, np.nan], [30.0, 40.0]], {"units": "ms"}),
        },
        coords={"easting": ("station", [0.0, 100.0, 0.0], {"units": "m"}), "layer": [1, 2]},
    ).to_netcdf(path, encoding={"t": {"_FillValue": -999.0}})


def test_that_a_netcdf_survey_with_2d_variables_and_other_units_is_the_same(write_survey: WriteSurvey) -> None:
    columns = load(write_survey({"std.time = 0.05": 'std.time = ["s1", "s2"]'}))
    path = write_survey({"sites.csv": "sites.nc", '["t1", "t2"]': '["t"]', "std.time = 0.05": 'std.time = "s"'})
    netcdf_survey(path.parent / "sites.nc")
    variables = load(path)
    np.testing.assert_allclose(variables.survey.X, columns.survey.X, rtol=1e-14)
    np.testing.assert_allclose(variables.survey.Y, columns.survey.Y, rtol=1e-14)
    np.testing.assert_allclose(variables.noise_std, columns.noise_std, rtol=1e-14)
    np.testing.assert_array_equal(variables.survey.covariates[0].values, [10, 12, 14])


def test_that_the_zero_of_a_unit_shifts_observations_and_not_their_noise(write_survey: WriteSurvey) -> None:
    path = write_survey(
        {
            "sites.csv": "sites.nc",
            'columns = ["t1", "t2"]\ndimension = "layer"\nunit = "s"': 'columns = ["t"]\nunit = "K"',
            "std.time = 0.05": 'std.time = "s"',
        }
    )
    netcdf_survey(path.parent / "sites.nc")
    with xr.open_dataset(path.parent / "sites.nc") as dataset:
        celsius = {
            "t": ("station", [0.0, 10.0, 20.0], {"units": "degC"}),
            "s": ("station", [1.0, 2.0, 3.0], {"units": "degC"}),
        }
        changed = dataset.drop_vars(["t", "s"]).load().assign(celsius)
    changed.to_netcdf(path.parent / "sites.nc")
    problem = load(path)
    np.testing.assert_allclose(problem.survey.Y[:, 0], [273.15, 283.15, 293.15])
    np.testing.assert_allclose(problem.noise_std[:, 0], [1, 2, 3])


@pytest.mark.parametrize(
    ("std", "expected"),
    [
        ('"15%"', [30, 75]),
        ('" 15 % "', [30, 75]),
        ('"1.5e1%"', [30, 75]),
        ("30", [30, 30]),
        ("30.5", [30.5, 30.5]),
        ("[30, 40]", [30, 40]),
    ],
)
def test_that_a_spread_is_a_number_a_list_or_a_percentage(
    std: str, expected: list[float], write_survey: WriteSurvey
) -> None:
    latent = load(write_survey({'std = "15%"': f"std = {std}"})).latents[0]
    np.testing.assert_allclose(latent.std, expected, rtol=1e-15)


def test_that_a_percentage_of_a_negative_mean_is_positive(write_survey: WriteSurvey) -> None:
    latent = load(write_survey({"mean = [200, 500]": "mean = -200"})).latents[0]
    np.testing.assert_allclose(latent.mean, [-200, -200])
    np.testing.assert_allclose(latent.std, [30, 30])


@pytest.mark.parametrize(
    ("std", "expected"),
    [
        ("0.05", [[0.05, 0.05]] * 3),
        ("[0.05, 0.1]", [[0.05, 0.1]] * 3),
        ('"10%"', [[0.02, 0.05], [0.021, np.nan], [0.022, 0.052]]),
        ('["s1", "s2"]', [[0.01, 0.02], [0.01, np.nan], [0.03, 0.04]]),
        ('["s1", "s1"]', [[0.01, 0.01], [0.01, 0.01], [0.03, 0.03]]),
    ],
)
def test_that_noise_is_numbers_a_percentage_or_columns(
    std: str, expected: list[list[float]], write_survey: WriteSurvey
) -> None:
    problem = load(write_survey({"std.time = 0.05": f"std.time = {std}"}))
    np.testing.assert_allclose(problem.noise_std, expected, rtol=1e-15)


def test_that_noise_is_gaussian_and_independent_by_default(write_survey: WriteSurvey) -> None:
    plain = load(write_survey()).noise
    assert (plain.kind, plain.correlation, plain.degrees, plain.learn) == ("gaussian", {}, 4.0, {})
    heavy = load(write_survey({"[noise]": '[noise]\nkind = "student-t"\ndegrees = 3'})).noise
    assert (heavy.kind, heavy.degrees) == ("student-t", 3.0)
    assert load(write_survey({"[noise]": '[noise]\nkind = "laplace"'})).noise.kind == "laplace"


def test_that_the_correlation_of_noise_is_a_matrix_by_observation(write_survey: WriteSurvey) -> None:
    noise = load(write_survey({"[noise]": "[noise]\ncorrelation.time = [[1, -0.5], [-0.5, 1.0]]"})).noise
    assert noise.correlation.keys() == {"time"}
    np.testing.assert_array_equal(noise.correlation["time"], [[1, -0.5], [-0.5, 1]])


def test_that_what_is_learnt_has_a_factor(write_survey: WriteSurvey) -> None:
    edits = {
        'link = "log"': 'link = "log"\nlearn = { length_scale = true, std = 2 }',
        "[noise]": "[noise]\nlearn.time = 1.5",
    }
    problem = load(write_survey(edits))
    depth, velocity = problem.latents
    assert (depth.learn, velocity.learn) == ({}, {"length_scale": 10.0, "std": 2.0})
    assert problem.noise.learn == {"time": 1.5}
    assert load(write_survey({"[noise]": "[noise]\nlearn.time = true"})).noise.learn == {"time": 10.0}


@pytest.mark.parametrize(
    ("std", "expected"), [('"15%"', [30, 45]), ("40", [40, 40]), ("[20, 40]", [20, 40])], ids=["share", "one", "each"]
)
def test_that_the_spread_of_an_increasing_latent_is_that_of_its_increments(
    std: str, expected: list[float], write_survey: WriteSurvey
) -> None:
    depth = load(write_survey({'std = "15%"': f'std = {std}\nlink = "increasing"'})).latents[0]
    assert depth.link.name == "increasing"
    np.testing.assert_array_equal(depth.mean, [200, 500])
    np.testing.assert_allclose(depth.std, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("posterior", '"full gaussian"', "full gaussian"),
        ("estimator", '"score"', "score"),
        ("estimator", '"linearisation"', "linearisation"),
        ("estimator", '"hermite"', "hermite"),
        ("emulator", "false", False),
        ("runs_per_site", "4", 4),
        ("runs_per_site", "0.5", 0.5),
        ("emulator_error", "0.1", 0.1),
        ("max_runs", "1000", 1000),
        ("batch", "2", 2),
        ("inducing", "2", 2),
        ("inducing", "2\nlearn_inducing = true", 2),
    ],
)
def test_that_the_inference_is_as_configured(key: str, text: str, value: object, write_survey: WriteSurvey) -> None:
    inference = load(write_survey({"samples = 16": f"samples = 16\n{key} = {text}"})).inference
    assert getattr(inference, key) == value
    assert inference.learn_inducing == ("learn_inducing" in text)


@pytest.mark.parametrize(("kind", "estimator"), [("laplace", "score"), ("student-t", "auto"), ("gaussian", "score")])
def test_that_the_score_estimator_accepts_noise_of_any_kind(
    kind: str, estimator: str, write_survey: WriteSurvey
) -> None:
    edits = {"[noise]": f'[noise]\nkind = "{kind}"', "samples = 16": f'samples = 16\nestimator = "{estimator}"'}
    assert load(write_survey(edits)).inference.estimator == estimator


def test_that_units_of_the_simulator_do_not_change_the_problem(write_survey: WriteSurvey) -> None:
    """Latents in km and times in ms, for a simulator in m and s, are the problem in m and s."""
    plain = load(write_survey())
    in_km = load(
        write_survey(
            {
                '[latents.depth]\nunit = "m"': '[latents.depth]\nunit = "km"',
                "mean = [200, 500]": "mean = [0.2, 0.5]",
                '"depth",': '{ name = "depth", unit = "m" },',
                'dimension = "layer"\nunit = "s"': 'dimension = "layer"\nunit = "ms"',
                '["time"]': '[{ name = "time", unit = "s" }]',
                "std.time = 0.05": "std.time = 50",
            },
            {"0.20,0.50": "200,500", "0.21": "210", "0.22,0.52": "220,520"},
        )
    )
    values = np.random.default_rng(1).uniform(1, 2, (4, 3, 3))
    rows = plain.to_simulator(values)
    scaled = values * [1e-3, 1e-3, 1]
    np.testing.assert_allclose(in_km.to_simulator(scaled), rows, rtol=1e-14)
    times = np.random.default_rng(2).uniform(1, 2, (12, 2))
    np.testing.assert_allclose(in_km.from_simulator(times, 4), 1e3 * plain.from_simulator(times, 4), rtol=1e-14)
    np.testing.assert_allclose(in_km.survey.Y, 1e3 * plain.survey.Y, rtol=1e-14)
    np.testing.assert_allclose(in_km.noise_std, 1e3 * plain.noise_std, rtol=1e-14)
    np.testing.assert_allclose(in_km.latents[0].std, 1e-3 * plain.latents[0].std, rtol=1e-14)
    assert [q.unit for q in in_km.forward.inputs] == [q.unit for q in plain.forward.inputs]


def test_that_covariates_and_coordinates_are_inputs_by_site(write_survey: WriteSurvey) -> None:
    inputs = '"elevation", { name = "x", source = "easting", unit = "km" }]'
    path = write_survey({'"elevation"]': inputs})
    (path.parent / "simulator.py").write_text("def times(depth, velocity, elevation, x): ...\n")
    problem = load(path)
    assert [q.name for q in problem.forward.inputs] == ["depth", "velocity", "elevation", "x"]
    rows = problem.to_simulator(np.zeros((2, 3, 3)))
    np.testing.assert_array_equal(rows[:, 3], [10, 12, 14] * 2)
    np.testing.assert_allclose(rows[:, 4], [0, 0.1, 0] * 2)


def test_that_the_simulator_may_have_its_own_names_and_order(write_survey: WriteSurvey) -> None:
    inputs = '["elevation", { name = "v", source = "velocity" }, { name = "z", source = "depth" }]'
    path = write_survey(
        {
            '["depth", "velocity", "elevation"]': inputs,
            '["time"]': '[{ name = "twt", observation = "time" }]',
        }
    )
    (path.parent / "simulator.py").write_text("def times(v, z, elevation): ...\n")
    problem = load(path)
    rows = problem.to_simulator(np.broadcast_to(np.array([200.0, 500.0, 2000.0]), (1, 3, 3)))
    np.testing.assert_array_equal(rows[0], [10, 2000, 200, 500])
    assert [q.name for q in problem.forward.outputs] == ["twt"]


def test_that_length_scales_are_one_or_one_a_coordinate(write_survey: WriteSurvey) -> None:
    depth, velocity = load(write_survey()).latents
    np.testing.assert_array_equal(depth.kernel.length_scale, [1000, 1000])
    np.testing.assert_array_equal(velocity.kernel.length_scale, [1000, 2000])


def test_that_coordinates_in_several_units_have_a_length_scale_each(write_survey: WriteSurvey) -> None:
    kilometres = {'northing]\nunit = "m"': 'northing]\nunit = "km"', "length_scale = 1000": "length_scale = [1000, 1]"}
    np.testing.assert_array_equal(load(write_survey(kilometres)).latents[0].kernel.length_scale, [1000, 1])
    synonym = {'northing]\nunit = "m"': 'northing]\nunit = "metre"'}
    np.testing.assert_array_equal(load(write_survey(synonym)).latents[0].kernel.length_scale, [1000, 1000])


@pytest.mark.parametrize(
    ("crs", "units"),
    [
        ("EPSG:4326", ("degrees_east", "degrees_north")),
        ("EPSG:4326", ("radian", "radian")),
        ("EPSG:28354", ("m", "m")),
        ("EPSG:2229", ("US_survey_foot", "US_survey_foot")),
        ("EPSG:4978", ("s", "s")),  # neither geographic nor projected
    ],
)
def test_that_a_crs_must_match_its_coordinates(crs: str, units: tuple[str, str], write_survey: WriteSurvey) -> None:
    edits = {f'{name}]\nunit = "m"': f'{name}]\nunit = "{unit}"' for name, unit in zip(NAMES, units, strict=True)}
    assert load(write_survey({"EPSG:28354": crs, **edits})).survey.crs == crs


def test_that_a_survey_of_another_ending_is_read_as_csv(write_survey: WriteSurvey) -> None:
    path = write_survey({"sites.csv": "sites.xyz"})
    (path.parent / "sites.csv").rename(path.parent / "sites.xyz")
    assert load(path).survey.size == 3


def test_that_labels_may_be_text(write_survey: WriteSurvey) -> None:
    problem = load(write_survey({"layer = [1, 2]": 'layer = ["sand", "clay"]'}))
    assert problem.latents[0].labels == ("sand", "clay")


def test_that_a_program_runs_as_configured(write_survey: WriteSurvey) -> None:
    problem = load(write_survey(executable=True))
    assert [q.unit for q in problem.forward.outputs] == ["s"]
    assert problem.forward.name == "simulator.sh"


@pytest.mark.parametrize(
    ("table", "rows"), [('adapter = "persistent"', 64), ('adapter = "batched"\nrows = 30\ninput_file = "in.csv"', 30)]
)
def test_that_a_program_for_many_rows_runs_as_configured(table: str, rows: int, write_survey: WriteSurvey) -> None:
    command = 'command = ["./simulator.sh"]\nthreads = 2\nenvironment = { A = "1" }\ntimeout = 5\n'
    inputs = 'inputs = ["depth", "velocity", "elevation"]\n'
    forward: Any = load(write_survey({CALLABLE: f"{table}\n{command}{inputs}"})).forward
    assert (forward.name, forward.rows_per_task) == ("simulator.sh", rows)
    assert (forward.threads, forward.environment, forward.timeout) == (2, {"A": "1"}, 5.0)
    assert [q.name for q in forward.inputs] == ["depth", "velocity", "elevation"]


def test_that_servers_are_not_contacted_before_they_are_needed(write_survey: WriteSurvey) -> None:
    """The address is one of those that are kept for documentation: nothing answers there."""
    path = write_survey(
        {
            'adapter = "callable"\nfunction = "simulator:times"': 'adapter = "umbridge"\nmodel = "times"\n'
            'urls = ["http://192.0.2.1:4242"]\nconfig = { level = 2 }\nversion = "1.3"\ntimeout = 5\nconnections = 2'
        }
    )
    model = load(path).forward
    assert isinstance(model, UmbridgeModel)
    assert (model.name, model.config, model.version) == ("times", {"level": 2}, "1.3")
    assert (model.timeout, model.retries, model.connections) == (5, 3, 2)
    assert [(q.name, q.size) for q in model.inputs] == [("depth", 2), ("velocity", 1), ("elevation", 1)]


@pytest.mark.parametrize("urls", ['"servers.txt"', '["servers.txt"]', '["http://a:1", "servers.txt"]'])
def test_that_the_addresses_of_servers_may_be_in_a_file(urls: str, write_survey: WriteSurvey) -> None:
    python = 'adapter = "callable"\nfunction = "simulator:times"'
    path = write_survey({python: f'adapter = "umbridge"\nmodel = "times"\nurls = {urls}'})
    (path.parent / "servers.txt").write_text("# node 1\nhttp://node1:4242\n\nhttp://node2:4243  # slower\n")
    addresses: Any = load(path).forward
    assert addresses.urls[-2:] == ("http://node1:4242", "http://node2:4243")
    assert len(addresses.urls) == (3 if "http" in urls else 2)
    (path.parent / "servers.txt").write_text("# none yet\n")
    with pytest.raises(ConfigError, match=r"the file .servers.txt. must contain one address per line, but is empty"):
        load(path)
    (path.parent / "servers.txt").write_text("node1:4242\n")
    with pytest.raises(ConfigError, match=r"urls\[\d\]: must be like 'http://localhost:4242', but 'node1:4242' is no"):
        load(path)
    (path.parent / "servers.txt").unlink()
    with pytest.raises(ConfigError, match=r"urls\[\d\]: must be like .*, but 'servers.txt' is no address"):
        load(path)


def test_that_a_latent_may_be_named_like_an_adapter(write_survey: WriteSurvey) -> None:
    edits = {"[latents.velocity]": "[latents.callable]", '"velocity"': '"callable"', "mean = 2000": 'mean = "fast"'}
    with pytest.raises(Exception, match=r"^latents\.callable\.mean: must be a finite number"):
        load(write_survey(edits))
