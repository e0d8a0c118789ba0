"""Further data sets of a joint inversion: each with its own survey, simulator and noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from invgp.config.build_simulator import names_of_inputs
from invgp.config.mistakes import build_each
from invgp.errors import ConfigError
from invgp.formatting import join_names
from invgp.problem import InferenceSettings, Observation, Problem
from invgp.settings.configuration import Config, SourceSection

# Builds the problem of a configuration in a directory.
Build = Callable[[Config, Path], Problem]
OF_SOURCES = ("survey", "forward", "noise")


def build_sources(config: Config, directory: Path, build: Build) -> dict[str, Problem]:
    """Build the problem of each further source of a configuration, with the latents of all.

    Parameters
    ----------
    config : Config
    directory : Path
        Directory of the configuration.
    build : callable
        Builds a problem with a single source.
    """
    names = list(config.sources)
    if not names:
        return {}
    _check_names(config)

    def build_one(name: str) -> Problem:
        section = config.sources[name]
        return _with_key(name, lambda: build(_select_source(config, section), directory))

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


def _with_key(name: str, make: Callable[[], Problem]) -> Problem:
    """Return the result of a function; its messages name the keys of the source."""
    try:
        return make()
    except ConfigError as error:
        raise ConfigError([_prefix(name, sentence) for sentence in error.sentences]) from None


def _prefix(name: str, sentence: str) -> str:
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
