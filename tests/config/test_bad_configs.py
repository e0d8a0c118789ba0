"""Every mistake gives one sentence: which key, what it must be, what it was, what would be valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.config_files import WriteSurvey
from helpers.config_mistakes import sentence_of
from invgp.config import load
from invgp.errors import ConfigError


def test_that_each_of_several_mistakes_gives_one_error_message(write_survey: WriteSurvey) -> None:
    path = write_survey({"title =": "titel =", "samples = 16": "samples = 0", "mean = 2000": 'mean = "fast"'})
    with pytest.raises(ConfigError) as caught:
        load(path)
    keys = [sentence.partition(":")[0] for sentence in caught.value.sentences]
    assert keys == ["titel", "latents.velocity.mean", "inference.samples"]


def test_that_each_of_several_mistakes_across_tables_gives_one_error_message(write_survey: WriteSurvey) -> None:
    path = write_survey(
        {
            'crs = "EPSG:28354"': 'crs = "EPSG:1"',
            "mean = [200, 500]": "mean = [200, 500, 600]",
            "length_scale = [1000, 2000]": "length_scale = [1000]",
            "simulator:times": "simulator:tims",
            "std.time = 0.05": "std.time = 0.05\nstd.tim = 1",
            'file = "results/posterior.nc"': 'file = "posterior.txt"',
        },
        {"elev": "height", "0.20": "fast", "0,100,14": "0,0,14"},
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert [sentence.partition(":")[0] for sentence in caught.value.sentences] == [
        "noise.std.tim",
        "survey.crs",
        "survey.covariates.elevation.column",
        "survey.coordinates",
        "survey.observations.time.columns",
        "latents.depth.mean",
        "latents.velocity.kernel.length_scale",
        "forward.function",
        "output.file",
    ]


def test_that_mistakes_of_one_key_do_not_hide_those_of_its_neighbours(write_survey: WriteSurvey) -> None:
    path = write_survey({"timeout = 10": "time_out = 10\nthreads = 0"}, executable=True)
    with pytest.raises(ConfigError) as caught:
        load(path)
    keys = [sentence.partition(":")[0] for sentence in caught.value.sentences]
    assert keys == ["forward.time_out", "forward.threads"]


def test_that_bad_toml_names_its_line(write_survey: WriteSurvey) -> None:
    path = write_survey({"samples = 16": "samples = "})
    assert sentence_of(path) == "the config '<here>/survey.toml' is not TOML: Invalid value (at line 50, column 11)"


def test_that_the_reason_why_a_config_cannot_be_read_is_reported(tmp_path: Path) -> None:
    assert sentence_of(tmp_path / "none.toml") == (
        "the config '<here>/none.toml' cannot be read: No such file or directory"
    )
    (tmp_path / "folder.toml").mkdir()
    assert sentence_of(tmp_path / "folder.toml") == "the config '<here>/folder.toml' cannot be read: Is a directory"
    (tmp_path / "latin.toml").write_bytes('title = "Übersicht"'.encode("latin-1"))
    assert sentence_of(tmp_path / "latin.toml") == (
        "the config '<here>/latin.toml' cannot be read: it is not UTF-8 text"
    )


def test_that_the_required_keys_of_an_empty_config_are_reported(tmp_path: Path) -> None:
    (tmp_path / "survey.toml").touch()
    sentences = sentence_of(tmp_path / "survey.toml").split("\n")
    assert [s.partition(":")[0] for s in sentences] == ["survey", "latents", "forward", "noise"]
