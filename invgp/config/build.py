"""Config and survey file -> Problem. What spans several keys is checked on the way."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from invgp.config.forward import build_forward
from invgp.config.grid import build_grid
from invgp.config.latents import build_latents
from invgp.config.names import check_names
from invgp.config.schema import Config
from invgp.config.survey import build_noise, build_survey
from invgp.config.tables import Table, read_table
from invgp.errors import ConfigError
from invgp.problem import InferenceSettings, OutputSettings, Problem, fewest_samples


def build(config: Config, directory: Path, text: str, data: Path | None) -> Problem:
    """The problem that a config describes.

    Parameters
    ----------
    directory : what relative paths are relative to.
    text : the config as read.
    data : a survey file to use instead of the config's.
    """
    check_names(config)
    file, key = (data, "--data") if data is not None else (directory / config.survey.file, "survey.file")
    table = _table(config, file, key)
    survey = build_survey(config, table)
    noise = build_noise(config, survey, table)
    grid = build_grid(config, directory)
    latents = build_latents(config, [c.unit for c in (survey if grid is None else grid).coordinates])
    forward, inputs, outputs = build_forward(config, survey, latents, grid, directory)
    problem = Problem(
        title=config.title,
        survey=replace(survey, file=str(file), digest=hashlib.sha256(file.read_bytes()).hexdigest()),
        latents=latents,
        noise=noise,
        forward=forward,
        inputs=inputs,
        outputs=outputs,
        inference=InferenceSettings(**config.inference.model_dump()),
        output=_output(config, directory),
        config_text=text,
        grid=grid,
    )
    _check_inference(problem)
    return problem


def _check_inference(problem: Problem) -> None:
    """What the inference needs of the problem."""
    settings, processes = problem.inference, problem.latent_count
    if problem.grid is not None:
        _check_field(problem)
    fewest = fewest_samples(problem)
    if settings.samples is not None and settings.samples < fewest:
        raise ConfigError(
            f"inference.samples: must be at least {fewest} for {processes} latent "
            f"process{'es' if processes > 1 else ''}, was {settings.samples}"
        )
    if settings.estimator in ("linearisation", "hermite") and problem.noise.kind != "gaussian":
        raise ConfigError(
            f"inference.estimator: must be 'auto' or 'score' for {problem.noise.kind} noise, was {settings.estimator!r}"
        )
    of_coupled_only = [f"latents.{latent.name}.learn" for latent in problem.latents if latent.learn]
    of_coupled_only += ["noise.learn"] if problem.noise.learn else []
    of_coupled_only += ["inference.inducing"] if settings.inducing is not None else []
    of_coupled_only += ["inference.batch"] if settings.batch is not None else []
    if of_coupled_only and settings.posterior == "full gaussian":
        raise ConfigError(
            f"{of_coupled_only[0]}: must be left out with inference.posterior = 'full gaussian', was given"
        )
    if settings.learn_inducing and settings.inducing is None:
        raise ConfigError(
            "inference.learn_inducing: must be false without inference.inducing (every site is then an inducing "
            "point), was true"
        )
    if problem.noise.learn and settings.batch is not None:
        raise ConfigError("noise.learn: must be left out with inference.batch, was given")
    if problem.noise.learn and settings.estimator == "score":
        raise ConfigError("noise.learn: must be left out with inference.estimator = 'score', was given")


def _check_field(problem: Problem) -> None:
    """What the inference of a field model does not do."""
    settings = problem.inference
    if settings.posterior != "coupled gaussian":
        raise ConfigError(
            f"inference.posterior: must be 'coupled gaussian' with forward.kind = 'field', was {settings.posterior!r}"
        )
    if problem.noise.kind == "laplace":
        raise ConfigError("noise.kind: must be 'gaussian' or 'student-t' with forward.kind = 'field', was 'laplace'")
    given = [f"latents.{latent.name}.learn" for latent in problem.latents if latent.learn]
    given += ["noise.learn"] if problem.noise.learn else []
    given += ["inference.inducing"] if settings.inducing is not None else []
    given += ["inference.batch"] if settings.batch is not None else []
    given += ["inference.samples"] if settings.samples is not None else []
    if given:
        raise ConfigError(f"{given[0]}: must be left out with forward.kind = 'field', was given")


def _table(config: Config, file: Path, key: str) -> Table:
    name, section = next(iter(config.survey.coordinates.items()))
    return read_table(file, section.column or name, key)


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
