"""Config and survey file -> Problem. What spans several keys is checked on the way."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from invgp.config.forward import Places, build_model, build_wiring
from invgp.config.gathering import Mistakes
from invgp.config.grid import build_grid
from invgp.config.inference import check_inference, check_reach, localisation
from invgp.config.latents import build_latents
from invgp.config.names import check_names
from invgp.config.noise import build_noise, check_noise_names
from invgp.config.schema import Config
from invgp.config.survey import build_survey
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
    inference = mistakes.of(lambda: _inference(config, directory))
    if inference is not None and latents is not None:
        mistakes.of(lambda: check_inference(config, inference, latents))
    reach = None if inference is None else inference.localisation
    if reach is not None and survey is not None and grid is not None:
        mistakes.of(lambda: check_reach(config, reach, survey, grid))
    output = mistakes.of(lambda: _output(config, directory))
    mistakes.tell()
    # Nothing is missing here: whatever could not be made has left a sentence. The types cannot know that.
    if survey is None or noise is None or latents is None or inference is None or output is None:
        raise ConfigError("the config cannot be used")
    if wiring is None or forward is None:
        raise ConfigError("forward: cannot be used")
    wires = wiring.inward, wiring.outward
    return Problem(config.title, survey, latents, noise, forward, *wires, inference, output, grid=grid)


def _inference(config: Config, directory: Path) -> InferenceSettings:
    section = config.inference
    scheduler = section.scheduler
    if scheduler is not None and section.backend != "dask":
        raise ConfigError(
            f"inference.scheduler: must be left out with inference.backend = {section.backend!r}, was {scheduler!r}"
        )
    if scheduler is not None and scheduler.endswith(".json"):
        scheduler = str(directory / scheduler)
    given = section.model_dump(exclude={"scheduler", "localisation"})
    return InferenceSettings(**given, scheduler=scheduler, localisation=localisation(config))


def _output(config: Config, directory: Path) -> OutputSettings:
    section = config.output
    if not section.file.endswith(".nc"):
        raise ConfigError(f"output.file: must end in .nc, was {section.file!r}")
    return OutputSettings(
        file=directory / section.file,
        quantiles=tuple(sorted(section.quantiles)),
        realizations=section.realizations,
        ledger=section.ledger,
    )
