"""Several data sets in a configuration: what is read, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.config_files import WriteSurvey
from invgp.config import load
from invgp.errors import ConfigError

SOURCE = """
[sources.logs.survey]
file = "logs.csv"

[sources.logs.survey.coordinates.easting]
column = "e"
unit = "m"

[sources.logs.survey.coordinates.northing]
column = "n"
unit = "m"

[sources.logs.survey.observations.speed]
columns = ["v"]
unit = "m s-1"

[sources.logs.forward]
adapter = "callable"
function = "logs:speed"
inputs = ["velocity"]
outputs = ["speed"]

[sources.logs.noise]
std.speed = 50
"""


def write_config(write_survey: WriteSurvey, text: str) -> Path:
    config = write_survey()
    (config.parent / "logs.csv").write_text("e,n,v\n500010,6000020,2010\n500900,6000950,1990\n")
    (config.parent / "logs.py").write_text("def speed(velocity):\n    return velocity\n")
    config.write_text(config.read_text() + text)
    return config


def test_that_a_source_has_its_own_survey_simulator_and_noise(write_survey: WriteSurvey) -> None:
    problem = load(
        write_config(
            write_survey,
            SOURCE.replace("[sources.logs.noise]", "[sources.logs]\nruns_per_site = 7\n[sources.logs.noise]"),
        )
    )
    survey, logs = problem.parts
    assert logs.problem.survey.Y.tolist() == [[2010.0], [1990.0]]
    assert logs.problem.inference.runs_per_site == 7
    assert survey.problem.inference.runs_per_site == problem.inference.runs_per_site != 7
    assert [variable.name for variable in logs.problem.inputs] == ["velocity"]
    assert not logs.direct


def test_that_each_latent_must_be_the_input_of_one_simulator(write_survey: WriteSurvey) -> None:
    config = write_config(write_survey, SOURCE)
    edited = config.read_text().replace(
        'inputs = ["depth", "velocity", "elevation"]', 'inputs = ["depth", "elevation"]'
    )
    config.write_text(edited)
    (config.parent / "simulator.py").write_text("def times(depth, elevation):\n    return depth\n")
    assert [variable.name for variable in load(config).inputs] == ["depth", "elevation"]
    config.write_text(edited.replace('inputs = ["velocity"]', 'inputs = ["depth"]'))
    with pytest.raises(ConfigError, match=r"forward\.inputs: must name 'velocity'"):
        load(config)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("logs.csv", "log.csv", "sources.logs.survey.file: must be a file that can be read"),
        ('["v"]', '["w"]', "sources.logs.survey.observations.speed.columns: must be a column of logs.csv"),
        ("std.speed = 50", "std.speed = 0", "sources.logs.noise.std.speed: must be a positive number"),
        ("std.speed = 50", "std.spead = 50", "sources.logs.noise.std.spead: must have the name of an observation"),
        ('["velocity"]', '["speedy"]', "sources.logs.forward.inputs: must name a latent"),
        ('"e"\nunit = "m"', '"e"\nunit = "km"', "coordinates.easting.unit: must be that of [survey], 'm', was 'km'"),
        ("coordinates.northing]", "coordinates.north]", "sources.logs.survey.coordinates: must be those of [survey]"),
        ("sources.logs", "sources.survey", "sources.survey: must have another name"),
        ("observations.speed]", "observations.time]", "sources.logs.survey.observations.time: must have the unit"),
        ('adapter = "callable"', 'adapter = "callable"\nkind = "field"', "forward.kind: must be 'site' if"),
    ],
)  # fmt: skip
def test_that_a_mistake_is_one_sentence(write_survey: WriteSurvey, old: str, new: str, sentence: str) -> None:
    assert old in SOURCE
    text = SOURCE.replace(old, new)
    if "observations.time" in text:
        text = text.replace('outputs = ["speed"]', 'outputs = ["time"]').replace("std.speed", "std.time")
    with pytest.raises(ConfigError) as error:
        load(write_config(write_survey, text))
    assert sentence in str(error.value)
    assert len(error.value.sentences) == 1
