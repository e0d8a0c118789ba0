"""Config and survey file -> Problem. What spans several keys is checked on the way."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from invgp.config.build_grid import build_grid
from invgp.config.build_latents import build_latents
from invgp.config.build_noise import build_noise, check_noise_names
from invgp.config.build_simulator import Places, build_model, build_wiring
from invgp.config.build_survey import build_survey
from invgp.config.inference_checks import check_inference, check_reach, localisation
from invgp.config.mistakes import Mistakes
from invgp.config.survey_tables import Table, read_table
from invgp.config.variable_names import check_names
from invgp.errors import ConfigError
from invgp.problem import InferenceSettings, OutputSettings, Problem
from invgp.settings.configuration import Config


def build(config: Config, directory: Path, text: str, data: Path | None) -> Problem:
    """The problem that a config describes.

    Parameters
    ----------
    directory : what relative paths are relative to.
    text : the config as read.
    data : a survey file to use instead of the config's.
    """
    file, key = (data, "--data") if data is not None else (directory / config.survey.file, "survey.file")

    def read() -> tuple[Table, str]:
        return read_table(file, position_of(config), key), digest_of(file)

    mistakes = Mistakes()
    table = mistakes.of(read)
    problem = assembled(config, table[0] if table else None, directory, mistakes)
    digest = table[1] if table else ""
    return replace(problem, survey=replace(problem.survey, file=str(file), digest=digest), config_text=text)


def digest_of(file: Path) -> str:
    """Of the survey file, for provenance."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def position_of(config: Config) -> str:
    """The column of the first coordinate."""
    name, section = next(iter(config.survey.coordinates.items()))
    return section.column or name


def assembled(config: Config, table: Table | None, directory: Path, mistakes: Mistakes) -> Problem:
    """The problem that a config and a table describe; raise all `mistakes` if there are any, with those made before."""
    mistakes.of(lambda: check_names(config))
    mistakes.of(lambda: check_noise_names(config))
    survey = None if table is None else mistakes.of(lambda: build_survey(config, table))
    noise = (
        None if table is None or survey is None else mistakes.of(lambda: build_noise(config, survey, table, directory))
    )
    positions = (config.survey if config.grid is None else config.grid).coordinates
    latents = mistakes.of(lambda: build_latents(config, [c.unit for c in positions.values()]))
    grid = mistakes.of(lambda: build_grid(config, directory))
    places = None if grid is None or survey is None else Places(grid.size, survey.size)
    wiring = mistakes.of(lambda: build_wiring(config))
    forward = None
    if wiring is not None and (places is not None or config.forward.kind == "site"):
        forward = mistakes.of(lambda: build_model(config, wiring, places, directory))
    inference = mistakes.of(lambda: _inference_settings(config, directory))
    if inference is not None and latents is not None:
        mistakes.of(lambda: check_inference(config, inference, latents))
    reach = None if inference is None else inference.localisation
    if reach is not None and survey is not None and grid is not None:
        mistakes.of(lambda: check_reach(config, reach, survey, grid))
    output = mistakes.of(lambda: _output_settings(config, directory))
    mistakes.tell()
    # Nothing is missing here: whatever could not be made has left a sentence. The types cannot know that.
    if survey is None or noise is None or latents is None or inference is None or output is None:
        raise ConfigError("the config cannot be used")
    if wiring is None or forward is None:
        raise ConfigError("forward: cannot be used")
    wires = wiring.inward, wiring.outward
    return Problem(config.title, survey, latents, noise, forward, *wires, inference, output, grid=grid)


def _inference_settings(config: Config, directory: Path) -> InferenceSettings:
    """Return the settings with an absolute scheduler file and one localisation per coordinate."""
    settings = config.inference
    scheduler = settings.scheduler
    if scheduler is not None and settings.backend != "dask":
        raise ConfigError(
            f"inference.scheduler: must be left out with inference.backend = {settings.backend!r}, was {scheduler!r}"
        )
    if scheduler is not None and scheduler.endswith(".json"):
        scheduler = str(directory / scheduler)
    return settings.model_copy(update={"scheduler": scheduler, "localisation": localisation(config)})


def _output_settings(config: Config, directory: Path) -> OutputSettings:
    """Return the settings with the path of the output file relative to the directory of the configuration."""
    settings = config.output
    if settings.file.suffix != ".nc":
        raise ConfigError(f"output.file: must end in .nc, was {str(settings.file)!r}")
    return settings.model_copy(update={"file": directory / settings.file})
