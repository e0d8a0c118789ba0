"""A problem from Python: the same problem as from TOML, and the same sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Required, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import invgp
from helpers.config_files import SITES, WriteSurvey
from invgp.adapters import CallableModel, Quantity
from invgp.config import typed_keys as keys
from invgp.core.kernels import Kernel
from invgp.errors import ConfigError
from invgp.problem import Noise
from invgp.settings import InferenceSettings, OutputSettings
from invgp.settings import configuration as schema
from invgp.settings.section import Section

FRAME = pd.DataFrame(
    {
        "easting": [0, 100, 0],
        "northing": [0, 0, 100],
        "elev": [10.0, 12.0, 14.0],
        "t1": [0.20, 0.21, 0.22],
        "t2": [0.50, np.nan, 0.52],
    }
)


def times(depth: Any, velocity: Any, elevation: Any) -> Any:
    return 2.0 * (depth + elevation[:, None]) / velocity[:, None]


def arguments(**changes: Any) -> dict[str, Any]:
    """Those of the config of the fixtures."""
    given: dict[str, Any] = {
        "data": FRAME,
        "title": "A short line",
        "crs": "EPSG:28354",
        "dimensions": {"layer": [1, 2]},
        "coordinates": {"easting": "m", "northing": {"unit": "m"}},
        "observations": {"time": {"columns": ("t1", "t2"), "dimension": "layer", "unit": "s"}},
        "covariates": {"elevation": {"column": "elev", "unit": "m"}},
        "latents": {
            "depth": {
                "unit": "m",
                "dimension": "layer",
                "mean": np.array([200, 500]),
                "std": "15%",
                "kernel": {"kind": "matern 5/2", "length_scale": 1000},
            },
            "velocity": {
                "unit": "m s-1",
                "mean": np.float64(2000),
                "std": 200,
                "kernel": {"length_scale": [1000, 2000]},
                "link": "log",
            },
        },
        "forward": times,
        "noise": {"time": 0.05},
        "inference": {"samples": 16},
    }
    return given | changes


def numbers(problem: invgp.Problem) -> list[np.ndarray]:
    """All that an inversion looks at."""
    rows = problem.to_simulator(np.broadcast_to([200.0, 500.0, 2000.0], (1, 3, 3)))
    return [problem.survey.X, problem.survey.Y, problem.noise_std, *problem.prior_moments(), rows]


def test_that_the_problem_is_that_of_the_config(write_survey: WriteSurvey) -> None:
    ours, theirs = invgp.define(**arguments()), invgp.load(write_survey())
    for mine, other in zip(numbers(ours), numbers(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert ours.inference == theirs.inference
    assert ours.inputs == theirs.inputs
    assert (ours.survey.file, ours.survey.digest, ours.config_text) == ("", "", "")


DATASET = xr.Dataset(
    {
        "northing": ("site", [0.0, 0.0, 0.1], {"units": "km"}),
        "elev": ("site", [10.0, 12.0, 14.0]),
        "t": (("site", "layer"), FRAME[["t1", "t2"]].to_numpy()),
    },
    coords={"easting": ("site", [0.0, 100.0, 0.0])},
)
OF_DATASET = {"observations": {"time": {"columns": ["t"], "dimension": "layer", "unit": "s"}}}


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (FRAME.to_dict(orient="list"), {}),
        (FRAME.convert_dtypes(), {}),
        (FRAME.astype({"t2": object}).where(FRAME.notna(), None), {}),
        ({name: np.ma.masked_invalid(FRAME[name]) for name in FRAME}, {}),
        (DATASET, OF_DATASET),
    ],
    ids=["lists", "nullable pandas", "objects", "masked arrays", "dataset"],
)
def test_that_data_come_in_many_forms(data: Any, changes: dict[str, Any]) -> None:
    for mine, other in zip(
        numbers(invgp.define(**arguments(data=data, **changes))), numbers(invgp.define(**arguments())), strict=True
    ):
        np.testing.assert_allclose(mine, other)


def test_that_a_file_keeps_its_provenance(tmp_path: Path) -> None:
    (tmp_path / "sites.csv").write_text(SITES)
    survey = invgp.define(**arguments(data=tmp_path / "sites.csv")).survey
    assert survey.file == str(tmp_path / "sites.csv")
    assert len(survey.digest) == 64


def test_that_a_simulator_comes_in_many_forms(write_survey: WriteSurvey) -> None:
    model = CallableModel(
        times,
        (Quantity("depth", "km", (1, 2)), Quantity("velocity", "m s-1"), Quantity("elevation", "m")),
        (Quantity("time", "ms", (1, 2)),),
    )
    program = write_survey(executable=True).parent / "simulator.sh"
    wired = ["depth", "velocity", "elevation"]
    for forward in (
        {"function": times},
        {"function": times, "vectorised": False, "inputs": wired},
        model,
        {"adapter": "executable", "command": [str(program), "{depth[1]} {depth[2]} {velocity} {elevation}"],
         "inputs": wired, "outputs": ["time"]},
    ):  # fmt: skip
        problem = invgp.define(**arguments(forward=forward))
        assert [wire.name for wire in problem.inputs] == wired
    of_model = invgp.define(**arguments(forward=model))
    assert of_model.forward is model
    assert of_model.inputs[0].conversion.factor == pytest.approx(1e-3)
    assert of_model.outputs[0].conversion.factor == pytest.approx(1e-3)


def test_that_a_function_gets_the_arguments_of_its_signature() -> None:
    def of_all(**values: Any) -> Any:
        return times(**values)

    def with_default(depth: Any, velocity: Any, elevation: Any, scale: float = 1.0) -> Any:
        return scale * times(depth, velocity, elevation)

    for function in (of_all, with_default):
        problem = invgp.define(**arguments(forward=function))
        assert [wire.name for wire in problem.inputs] == ["depth", "velocity", "elevation"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"data": FRAME.rename(columns={"elev": "elve"})},
            "survey.covariates.elevation.column: must be a column of the data, which have no column 'elev'; valid: "
            "'easting', 'northing', 'elve', 't1' and 't2'; did you mean 'elve'?",
        ),
        (
            {"data": FRAME.assign(t1=["a", 1, 2])},
            "survey.observations.time.columns: column 't1' of the data must hold numbers, or NaN where there is none, "
            "had 'a'",
        ),
        (
            {"data": FRAME.to_dict(orient="list") | {"t1": np.array(["2026-01-01"] * 3, dtype="datetime64[D]")}},
            "survey.observations.time.columns: column 't1' of the data must hold numbers, or NaN where there is none, "
            "had '2026-01-01'",
        ),
        (
            {"data": FRAME.to_dict(orient="list") | {"t1": [1.0]}},
            "survey.observations.time.columns: column 't1' of the data must have shape (3,), had (1,)",
        ),
        ({"data": FRAME.iloc[:0]}, "data: must have a row for each site, had none"),
        (
            {"data": 5},
            "data: must be a DataFrame, an xarray.Dataset, a mapping of columns or a path, was 5",
        ),
        (
            {"data": "none.csv"},
            "data: must be a file that can be read, was 'none.csv', which does not exist",
        ),
        (
            {"coordinates": {"easting": "metrs", "northing": "m"}},
            "survey.coordinates.easting.unit: must be a unit that UDUNITS knows, such as 'm', 'm s-1', 'ohm m' or '1', "
            "was 'metrs'",
        ),
        (
            {"noise": {"tim": 0.05}},
            "noise.std.tim: must have the name of an observation; valid: 'time'; did you mean 'time'?",
        ),
        (
            {"forward": lambda depth, speed: depth},
            "forward.inputs[1]: must be a latent, a covariate or a coordinate, was 'speed'; valid: 'depth', "
            "'velocity', 'elevation', 'easting' and 'northing'",
        ),
        ({"forward": 5}, "forward: must be a function, a ForwardModel, or a table of the keys of [forward], was 5"),
        (
            {"forward": CallableModel(lambda depth, velocity: depth, (Quantity("depth", "m"), Quantity("velocity",
             "m s-1")), (Quantity("time", "s", (1, 2)),))},
            "forward.inputs: 'depth' must have 2 numbers, like the variable of the problem, had 1",
        ),
        ({"inference": {"sample": 16}}, "inference.sample: unknown key; valid: "),
    ],
)  # fmt: skip
def test_that_a_mistake_gives_the_error_message_of_the_config(
    changes: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        invgp.define(**arguments(**changes))
    reported = str(caught.value)
    assert reported == sentence if not sentence.endswith("valid: ") else reported.startswith(sentence)


def test_that_inconsistent_correlations_are_reported_for_every_definition_of_the_noise() -> None:
    with pytest.raises(ConfigError, match=r"^noise\.correlation\.time: must be positive definite, was not"):
        Noise("gaussian", {"time": np.ones((3, 2))}, {"time": np.ones((2, 2))})


@pytest.mark.parametrize(
    ("typed", "section"),
    [
        (keys.ColumnKeys, schema.ColumnSection),
        (keys.ObservationKeys, schema.ObservationSection),
        (keys.KernelKeys, schema.KernelSection),
        (keys.LearnKeys, schema.LearnSection),
        (keys.AxisKeys, schema.AxisSection),
        (keys.LatentKeys, schema.LatentSection),
        (keys.NoiseKeys, schema.NoiseSection),
        (keys.InferenceKeys, InferenceSettings),
        (keys.OutputKeys, OutputSettings),
    ],
)
def test_that_editors_complete_the_keys_of_the_config(typed: type, section: type[Section]) -> None:
    fields, names = section.model_fields, {"Kernel": Kernel}  # the module imports it for type checkers only
    assert set(get_type_hints(typed, localns=names)) == set(fields)
    required = {name for name, field in fields.items() if field.is_required()}
    hints = get_type_hints(typed, localns=names, include_extras=True)
    marked = {name for name, hint in hints.items() if get_origin(hint) is Required}
    assert marked == required - {"columns"}  # by default an observation has the column of its own name
    for name, hint in get_type_hints(typed, localns=names).items():
        choices = set(get_args(fields[name].annotation)) if get_origin(fields[name].annotation) is Literal else set()
        assert choices == (set(get_args(hint)) if get_origin(hint) is Literal else set()), name


def test_that_a_problem_shows_itself() -> None:
    problem = invgp.define(**arguments(title="A <line>"))
    text, page = repr(problem), problem._repr_html_()
    assert text.startswith("A <line>: 3 sites, 5 observations, 3 latent processes, simulator 'times'\n")
    for word in ("easting", "elevation", "time", "depth", "200, 500", "30, 75", "matern 5/2", "m s-1", "log"):
        assert word in text
        assert word in page
    assert "A &lt;line&gt;" in page
    assert "<line>" not in page
