"""Config and survey file -> Problem. What spans several keys is checked on the way."""

from __future__ import annotations

from pathlib import Path

from invgp.config.forward import build_forward
from invgp.config.latents import build_latents
from invgp.config.names import check_names
from invgp.config.schema import Config
from invgp.config.survey import build_noise, build_survey
from invgp.config.tables import Table, read_table
from invgp.errors import ConfigError
from invgp.problem import InferenceSettings, OutputSettings, Problem


def build(config: Config, directory: Path, text: str, data: Path | None) -> Problem:
    """The problem that a config describes.

    Parameters
    ----------
    directory : what relative paths are relative to.
    text : the config as read.
    data : a survey file to use instead of the config's.
    """
    check_names(config)
    table = _table(config, directory, data)
    survey = build_survey(config, table)
    noise = build_noise(config, survey, table)
    latents = build_latents(config, len(survey.coordinates))
    forward, inputs, outputs = build_forward(config, survey, latents, directory)
    return Problem(
        title=config.title,
        survey=survey,
        latents=latents,
        noise=noise,
        forward=forward,
        inputs=inputs,
        outputs=outputs,
        inference=InferenceSettings(**config.inference.model_dump()),
        output=_output(config, directory),
        config_text=text,
    )


def _table(config: Config, directory: Path, data: Path | None) -> Table:
    name, section = next(iter(config.survey.coordinates.items()))
    position = section.column or name
    if data is not None:
        return read_table(data, position, "--data")
    return read_table(directory / config.survey.file, position, "survey.file")


def _output(config: Config, directory: Path) -> OutputSettings:
    section = config.output
    if not section.file.endswith(".nc"):
        raise ConfigError(f"output.file: must end in .nc, was {section.file!r}")
    return OutputSettings(
        file=directory / section.file,
        quantiles=tuple(sorted(section.quantiles)),
        realizations=section.realizations,
    )
