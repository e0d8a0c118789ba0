"""Configuration and survey files to a `Problem`: one survey, or several as sources of a joint inversion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from invgp.config.build_direct import DirectData, build_direct
from invgp.config.build_earlier import add_earlier_posterior
from invgp.config.build_kernels import check_zones
from invgp.config.build_latents import (
    build_discrepancies,
    build_latents,
    check_correlation_matrix,
    check_prior_scales,
)
from invgp.config.build_noise import build_noise, check_noise_names
from invgp.config.build_prior_maps import MapContext, check_maps_cover
from invgp.config.build_simulator import Places, build_coarse_model, build_model, build_wiring, names_of_inputs
from invgp.config.build_survey import build_grid, build_survey
from invgp.config.inference_checks import check_inference, check_reach, localisation
from invgp.config.survey_tables import Table, read_table
from invgp.config.variable_names import check_names
from invgp.errors import ConfigError, Mistakes, build_each
from invgp.formatting import join_names
from invgp.problem import InferenceSettings, Observation, OutputSettings, Problem
from invgp.settings.configuration import Config, SourceSection

if TYPE_CHECKING:
    import xarray as xr


def build_problem(config: Config, directory: Path, text: str, data: Path | None) -> Problem:
    """Build the problem of a configuration.

    Parameters
    ----------
    config : Config
    directory : Path
        Directory of the configuration, to which relative paths refer.
    text : str
        Text of the configuration.
    data : Path or None
        Survey file, if it is not that of the configuration.
    """
    file, key = (data, "data") if data is not None else (directory / config.survey.file, "survey.file")

    def read() -> tuple[Table, str]:
        return read_table(file, first_coordinate_column(config), key), file_digest(file)

    mistakes = Mistakes()
    table = mistakes.collect(read)
    problem = assemble_problem(config, table[0] if table else None, directory, mistakes)
    digest = joint_digest([table[1] if table else "", *further_digests(config, directory)])
    return replace(problem, survey=replace(problem.survey, file=str(file), digest=digest), config_text=text)


def further_digests(config: Config, directory: Path) -> list[str]:
    """Return the digests of the files with further data: of other sources, and direct data."""
    files = [section.survey.file for section in config.sources.values()]
    files += [section.file for section in config.direct.values() if section.file is not None]
    files += [config.prior] if config.prior is not None else []
    return [file_digest(directory / file) for file in files]


def joint_digest(digests: Sequence[str]) -> str:
    """Return the digest of several files: of a single one, its own."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 digest of a file, for provenance."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def first_coordinate_column(config: Config) -> str:
    """Return the column of the first coordinate; without coordinates, of the first observation."""
    for name, section in config.survey.coordinates.items():
        return section.column or name
    return next(iter(config.survey.observations.values())).columns[0]


def assemble_problem(
    config: Config, table: Table | None, directory: Path, mistakes: Mistakes, prior: xr.Dataset | None = None
) -> Problem:
    """Build the problem of a configuration and a table; raise all `mistakes`, including earlier ones.

    `prior` is an earlier posterior in memory, instead of the file of the configuration.
    """
    mistakes.collect(lambda: check_names(config))
    mistakes.collect(lambda: check_noise_names(config))
    survey = None if table is None else mistakes.collect(lambda: build_survey(config, table))
    noise = (
        None
        if table is None or survey is None
        else mistakes.collect(lambda: build_noise(config, survey, table, directory))
    )
    positions = (config.survey if config.grid is None else config.grid).coordinates
    grid = mistakes.collect(lambda: build_grid(config, directory))
    points = grid if config.grid is not None else survey
    context = None if points is None else MapContext.of(config, points.X, directory)
    units = {name: c.unit for name, c in positions.items()}
    latents = mistakes.collect(lambda: build_latents(config, units, context, directory))
    discrepancies = None if survey is None else mistakes.collect(lambda: build_discrepancies(config, survey, directory))
    if latents is not None and survey is not None and (grid is not None or config.forward.kind == "site"):
        mistakes.collect(lambda: check_prior_scales(latents, survey, grid))
        mistakes.collect(lambda: check_zones(latents, survey, grid))
    if discrepancies and survey is not None:
        mistakes.collect(lambda: check_prior_scales(discrepancies, survey, None))
    places = None if grid is None or survey is None else Places(grid.size, survey.size)
    wiring = mistakes.collect(lambda: build_wiring(config))
    forward = coarse = None
    if wiring is not None and (places is not None or config.forward.kind == "site"):
        forward = mistakes.collect(lambda: build_model(config, wiring, places, directory, table))
        coarse = mistakes.collect(lambda: build_coarse_model(config, wiring, places, directory, table))
    located = survey if config.forward.kind == "site" else grid
    direct = None
    if located is not None and latents is not None:
        direct = mistakes.collect(lambda: build_direct(config, located.coordinates, latents, directory))
    sources = mistakes.collect(lambda: build_sources(config, directory))
    inference = mistakes.collect(lambda: _inference_settings(config, directory))
    if inference is not None and latents is not None:
        mistakes.collect(lambda: check_inference(config, inference, latents))
    reach = None if inference is None else inference.localisation
    if reach is not None and survey is not None and grid is not None:
        mistakes.collect(lambda: check_reach(config, reach, survey, grid))
    output = mistakes.collect(lambda: _output_settings(config, directory))
    mistakes.raise_all()
    # For the type checker: a part that could not be built has raised above.
    if survey is None or noise is None or latents is None or inference is None or output is None:
        raise ConfigError("the config cannot be used")
    if wiring is None or forward is None:
        raise ConfigError("forward: cannot be used")
    wires = wiring.inward, wiring.outward
    added = discrepancies or ()
    if config.forward.kind == "field":
        noise, added = replace(noise, discrepancy={one.discrepancy_of: one for one in added}), ()
    problem = Problem(
        config.title,
        survey,
        (*latents, *added),
        noise,
        forward,
        *wires,
        inference,
        output,
        grid=grid,
        coarse=coarse,
    )
    earlier = prior if prior is not None or config.prior is None else directory / config.prior
    return _join_data(problem, sources or {}, direct or (), earlier)


def _join_data(
    problem: Problem, sources: Mapping[str, Problem], direct: Sequence[DirectData], earlier: xr.Dataset | Path | None
) -> Problem:
    """Return the joint problem of a problem, further sources, direct data and an earlier posterior."""
    if sources:
        check_shared_observations([("survey", problem), *sources.items()])
        problem = problem.join(sources)
    for data in direct:
        problem = data.add_to(problem)
    if earlier is not None:
        problem = add_earlier_posterior(problem, earlier)
    check_correlation_matrix(problem)
    check_maps_cover(problem)
    return problem


def _build_alone(config: Config, directory: Path) -> Problem:
    """Build the problem of a configuration with a single source."""
    mistakes = Mistakes()
    file = directory / config.survey.file
    table = mistakes.collect(lambda: read_table(file, first_coordinate_column(config), "survey.file"))
    return assemble_problem(config, table, directory, mistakes)


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


OF_SOURCES = ("survey", "forward", "noise")


def build_sources(config: Config, directory: Path) -> dict[str, Problem]:
    """Build the problem of each further source of a configuration, with the latents of all.

    Parameters
    ----------
    config : Config
    directory : Path
        Directory of the configuration.
    """
    names = list(config.sources)
    if not names:
        return {}
    _check_names(config)

    def build_one(name: str) -> Problem:
        section = config.sources[name]
        try:
            return _build_alone(_select_source(config, section), directory)
        except ConfigError as error:
            raise ConfigError([_prefix(name, sentence) for sentence in error.sentences]) from None

    return dict(zip(names, build_each(build_one, names), strict=True))


def _check_names(config: Config) -> None:
    """Raise `ConfigError` unless sources have names of their own, and a site model no field models."""
    wrong = [
        f"sources.{name}: must have another name: {'it is that of direct data' if name in config.direct else reserved}"
        for name, reserved in ((name, "'survey' are the data of [survey]") for name in config.sources)
        if name == "survey" or name in config.direct
    ]
    for name, section in config.sources.items():
        wrong += _check_coordinates(config, name, section)
        if section.forward.kind == "field" and config.forward.kind == "site":
            wrong.append(
                f"sources.{name}.forward.kind: must be 'site' if [forward] is a site model, was 'field'; describe the "
                "field model in [survey], [forward] and [noise], and the site model as a source"
            )
        if config.grid is not None:
            wrong += _check_field_source(config, name, section)
    if wrong:
        raise ConfigError(wrong)


def _check_field_source(config: Config, name: str, section: SourceSection) -> list[str]:
    """Return messages about keys of a source of a field model."""
    wrong = []
    if section.runs_per_site is not None:
        wrong.append(f"sources.{name}.runs_per_site: must be left out with forward.kind = 'field', was given")
    if section.noise.kind != config.noise.kind:
        wrong.append(
            f"sources.{name}.noise.kind: must be that of [noise], {config.noise.kind!r}, with forward.kind = 'field', "
            f"was {section.noise.kind!r}"
        )
    given = {"noise": config.noise, f"sources.{name}.noise": section.noise}
    wrong += [
        f"{key}.covariance: must be left out with [sources], was given"
        for key, noise in given.items()
        if noise.covariance is not None
    ]
    return wrong


def _check_coordinates(config: Config, name: str, section: SourceSection) -> list[str]:
    wanted = {key: column.unit for key, column in config.survey.coordinates.items()}
    given = {key: column.unit for key, column in section.survey.coordinates.items()}
    key = f"sources.{name}.survey.coordinates"
    if list(wanted) != list(given):
        return [f"{key}: must be those of [survey], {join_names(wanted)}, in this order, was {join_names(given)}"]
    wrong = [
        f"{key}.{c}.unit: must be that of [survey], {wanted[c]!r}, was {given[c]!r}"
        for c in wanted
        if wanted[c] != given[c]
    ]
    if section.survey.crs not in (None, config.survey.crs):
        wrong.append(f"sources.{name}.survey.crs: must be that of [survey], or left out, was {section.survey.crs!r}")
    return wrong


def _select_source(config: Config, section: SourceSection) -> Config:
    """Return the configuration of one source alone."""
    inference, grid = config.inference, config.grid
    if section.forward.kind == "site" and config.forward.kind == "field":
        inference, grid = InferenceSettings(), None  # those of the field model hold
    if section.runs_per_site is not None:
        inference = inference.replace(runs_per_site=section.runs_per_site)
    named = set(names_of_inputs(section.forward))
    latents = {name: latent for name, latent in config.latents.items() if name in named}
    if not latents:
        raise ConfigError(f"forward.inputs: must name a latent, {join_names(config.latents, 'or')}, named none")
    changes = {
        "latents": latents,
        "survey": section.survey,
        "forward": section.forward,
        "noise": section.noise,
        "inference": inference,
        "grid": grid,
    }
    return config.model_copy(update={**changes, "sources": {}, "direct": {}, "prior": None})


def _prefix(name: str, sentence: str) -> str:
    """Return a message with the key of a source, if it names a key of a single survey."""
    start = sentence.split(":", maxsplit=1)[0].split(".", maxsplit=1)[0]
    return f"sources.{name}.{sentence}" if start in OF_SOURCES else sentence


def check_shared_observations(problems: Sequence[tuple[str, Problem]]) -> None:
    """Raise `ConfigError` if two sources have different observations of the same name, or noise that cannot be joined.

    Parameters
    ----------
    problems : sequence of (str, Problem)
        All sources with their names.
    """
    first: dict[str, tuple[str, Observation, Problem]] = {}
    wrong = []
    for name, problem in problems:
        for own in problem.survey.observations:
            source, other, theirs = first.setdefault(own.name, (name, own, problem))
            same = (own.unit, own.dimension, own.labels) == (other.unit, other.dimension, other.labels)
            noise = [
                (
                    p.noise.kind,
                    next((scale for scale in p.noise.scales if own.name in scale.observations), None),
                    p.noise.correlation.get(own.name) is None,
                    _describe_discrepancy(p, own.name),
                )
                for p in (problem, theirs)
            ]
            if not same or noise[0] != noise[1]:
                what = "unit and labels" if not same else "kind of noise, learning, correlation and discrepancy"
                wrong.append(
                    f"sources.{name}.survey.observations.{own.name}: must have the {what} of the observation of this "
                    f"name of {source!r}, or another name"
                )
    degrees = {p.noise.degrees for _, p in problems if p.noise.kind == "student-t"}
    if len(degrees) > 1:
        wrong.append("noise.degrees: must be the same in all sources with Student-t noise")
    if wrong:
        raise ConfigError(wrong)


def _describe_discrepancy(problem: Problem, observation: str) -> str:
    """Return a text that differs between different discrepancies of an observation; empty without one."""
    found = {one.discrepancy_of: one for one in (*problem.latents, *problem.noise.discrepancy.values())}
    if observation not in found:
        return ""
    one = found[observation]
    correlation = None if one.label_correlation is None else one.label_correlation.tolist()
    return json.dumps([one.std.tolist(), one.kernel.describe(), correlation, dict(one.learn)])
