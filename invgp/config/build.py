"""Config and survey file -> Problem. What spans several keys is checked here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pyproj import CRS
from pyproj.exceptions import CRSError

from invgp.adapters import AdapterError, CallableModel, ExecutableModel, ForwardModel, InputFile, OutputFile, Quantity
from invgp.config import schema
from invgp.config.sentences import listed, path_of, shown, suggestion
from invgp.config.tables import Table, read_table
from invgp.core.estimators import fewest_samples
from invgp.errors import ConfigError
from invgp.links import LINKS
from invgp.problem import (
    Column,
    Floats,
    InferenceSettings,
    Labels,
    Latent,
    Noise,
    Observation,
    OutputSettings,
    Problem,
    Survey,
    Wire,
)
from invgp.units import conversion


def build(config: schema.Config, directory: Path, text: str, data: Path | None) -> Problem:
    """The problem that a config describes.

    Parameters
    ----------
    directory : what relative paths are relative to.
    text : the config as read.
    data : a survey file to use instead of the config's.
    """
    _no_name_twice(config)
    table = read_table(data or directory / config.survey.file, "survey.file")
    survey = _survey(config, table)
    latents = tuple(_latent(config, name, len(survey.coordinates)) for name in config.latents)
    known = _sources(survey, latents)
    inputs = [_input(i, section, known) for i, section in enumerate(config.forward.inputs)]
    outputs = [_output(i, section, survey) for i, section in enumerate(config.forward.outputs)]
    _all_used("latents", "forward.inputs", [v.name for v in latents], [wire.name for _, wire in inputs])
    _all_used("survey.observations", "forward.outputs", list(config.survey.observations), [w.name for _, w in outputs])
    processes = sum(latent.size for latent in latents)
    if config.inference.samples < fewest_samples(processes):
        raise ConfigError(
            f"inference.samples: must be at least {fewest_samples(processes)} for {processes} latent processes, "
            f"was {config.inference.samples}"
        )
    return Problem(
        title=config.title,
        survey=survey,
        latents=latents,
        noise=_noise(config, survey, table),
        forward=_forward(config.forward, [q for q, _ in inputs], [q for q, _ in outputs], directory),
        inputs=tuple(wire for _, wire in inputs),
        outputs=tuple(wire for _, wire in outputs),
        inference=InferenceSettings(**config.inference.model_dump()),
        output=OutputSettings(
            file=directory / config.output.file,
            quantiles=tuple(sorted(config.output.quantiles)),
            realizations=config.output.realizations,
        ),
        config_text=text,
    )


RESERVED = ("site", "quantile", "realization", "iteration", "elbo", "crs")


def _no_name_twice(config: schema.Config) -> None:
    """Every name becomes a variable of one dataset."""
    owners: dict[str, str] = dict.fromkeys(RESERVED, "a name that every posterior file uses")
    named = [
        *(("survey.coordinates", n) for n in config.survey.coordinates),
        *(("survey.observations", n) for n in config.survey.observations),
        *(("survey.covariates", n) for n in config.survey.covariates),
        *(("latents", n) for n in config.latents),
        *(("dimensions", n) for n in config.dimensions),
    ]
    for owner, name in named:
        if name in owners:
            raise ConfigError(f"{owner}.{name}: must have a name of its own, was also {owners[name]}")
        owners[name] = f"{owner}.{name}"
    for name, labels in config.dimensions.items():
        if not labels or len(set(labels)) < len(labels):
            raise ConfigError(f"dimensions.{name}: must be labels that all differ, was {shown(labels)}")


def _labels(config: schema.Config, dimension: str | None, key: str) -> Labels | None:
    if dimension is None:
        return None
    if dimension not in config.dimensions:
        raise ConfigError(
            f"{key}.dimension: must be a key of [dimensions], was {dimension!r}"
            + suggestion(dimension, list(config.dimensions))
        )
    return tuple(config.dimensions[dimension])  # type: ignore[return-value]


def _per_label(value: object, labels: Labels | None, key: str) -> Floats:
    """A number, or one for each label, as (L,)."""
    count = 1 if labels is None else len(labels)
    if isinstance(value, list) and (labels is None or len(value) != count):
        wanted = "one number (it has no dimension)" if labels is None else f"one number, or {count}: one for each label"
        raise ConfigError(f"{key}: must be {wanted}, was {len(value)} numbers")
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)).copy()


def _survey(config: schema.Config, table: Table) -> Survey:
    section = config.survey
    if section.crs is not None:
        try:
            CRS.from_user_input(section.crs)
        except CRSError:
            raise ConfigError(
                f"survey.crs: must be a coordinate reference system that PROJ knows, such as 'EPSG:28354', "
                f"was {section.crs!r}"
            ) from None
    coordinates = tuple(
        _column(table, name, column, f"survey.coordinates.{name}") for name, column in section.coordinates.items()
    )
    covariates = tuple(
        _column(table, name, column, f"survey.covariates.{name}") for name, column in section.covariates.items()
    )
    _no_site_twice(coordinates)
    observations = tuple(_observation(config, table, name) for name in section.observations)
    return Survey(coordinates, observations, covariates, section.crs)


def _column(table: Table, name: str, section: schema.ColumnSection, key: str) -> Column:
    column = section.column or name
    values = table.columns([column], section.unit, f"{key}.column")
    if values.shape[1] != 1:
        raise ConfigError(f"{key}.column: must be one number a site, was {values.shape[1]} a site in {column!r}")
    if not np.all(np.isfinite(values)):
        site = int(np.flatnonzero(~np.isfinite(values[:, 0]))[0]) + 1
        raise ConfigError(f"{key}.column: must be a number at every site, was missing in {column!r} at site {site}")
    return Column(name, section.unit, values[:, 0], section.long_name, section.standard_name)


def _no_site_twice(coordinates: Sequence[Column]) -> None:
    positions = np.stack([c.values for c in coordinates], axis=-1)
    _, first, count = np.unique(positions, axis=0, return_index=True, return_counts=True)
    if np.any(count > 1):
        repeated = int(first[np.flatnonzero(count > 1)[0]])
        others = np.flatnonzero(np.all(positions == positions[repeated], axis=-1))
        raise ConfigError(
            f"survey.coordinates: must differ from site to site, were {shown(positions[repeated].tolist())} "
            f"at sites {listed(int(i) + 1 for i in others[:5])}"
        )


def _observation(config: schema.Config, table: Table, name: str) -> Observation:
    section = config.survey.observations[name]
    key = f"survey.observations.{name}"
    labels = _labels(config, section.dimension, key)
    values = table.columns(section.columns, section.unit, f"{key}.columns")
    wanted = 1 if labels is None else len(labels)
    if values.shape[1] != wanted:
        what = "without a dimension" if labels is None else f"one for each label of {section.dimension!r}"
        raise ConfigError(f"{key}.columns: must be {wanted} ({what}), was {values.shape[1]}")
    if np.any(np.isinf(values)):
        raise ConfigError(f"{key}.columns: must be finite numbers, or empty where nothing was measured, was infinite")
    if np.all(np.isnan(values)):
        raise ConfigError(f"{key}.columns: must hold a number at one site at least, was empty at every site")
    return Observation(
        name, section.unit, values, section.dimension, labels, section.long_name, section.standard_name
    )


def _latent(config: schema.Config, name: str, dimensions: int) -> Latent:
    section = config.latents[name]
    key = f"latents.{name}"
    labels = _labels(config, section.dimension, key)
    mean = _per_label(section.mean, labels, f"{key}.mean")
    share = schema.percentage(section.std)
    std = _per_label(section.std, labels, f"{key}.std") if share is None else share * np.abs(mean)
    if not np.all(std > 0):
        raise ConfigError(f"{key}.std: must be a number where the mean is zero, was {section.std!r} of a mean of 0")
    if section.link == "log" and not np.all(mean > 0):
        raise ConfigError(f"{key}.mean: must be positive with link = 'log', was {shown(section.mean)}")
    scales = np.asarray(section.kernel.length_scale, dtype=np.float64)
    if scales.ndim and len(scales) != dimensions:
        raise ConfigError(
            f"{key}.kernel.length_scale: must be one number, or {dimensions}: one for each coordinate, "
            f"was {len(scales)} numbers"
        )
    return Latent(
        name=name,
        unit=section.unit,
        mean=mean,
        std=std,
        kernel=section.kernel.kind,
        length_scale=np.broadcast_to(scales, (dimensions,)).copy(),
        link=LINKS[section.link],
        dimension=section.dimension,
        labels=labels,
        long_name=section.long_name,
        standard_name=section.standard_name,
        positive=section.positive,
    )


def _sources(survey: Survey, latents: Sequence[Latent]) -> dict[str, tuple[str, Labels | None]]:
    """What can go into the simulator: name -> (unit, labels)."""
    sources: dict[str, tuple[str, Labels | None]] = {v.name: (v.unit, v.labels) for v in latents}
    for column in (*survey.covariates, *survey.coordinates):
        sources[column.name] = (column.unit, None)
    return sources


def _input(
    index: int, section: schema.InputSection, known: dict[str, tuple[str, Labels | None]]
) -> tuple[Quantity, Wire]:
    source = section.source or section.name
    key = path_of("forward", "inputs", index)
    if source not in known:
        raise ConfigError(f"{key}: must be a latent, a covariate or a coordinate, was {source!r}{suggestion(source, list(known))}")
    unit, labels = known[source]
    own = section.unit or unit
    change = conversion(unit, own)
    if change is None:
        raise ConfigError(f"{key}.unit: must be a unit that {source!r} (in {unit!r}) can be converted to, was {own!r}")
    return Quantity(section.name, own, labels), Wire(source, change)


def _output(index: int, section: schema.OutputSection, survey: Survey) -> tuple[Quantity, Wire]:
    name = section.observation or section.name
    key = path_of("forward", "outputs", index)
    observations = {o.name: o for o in survey.observations}
    if name not in observations:
        raise ConfigError(f"{key}: must be an observation of the survey, was {name!r}{suggestion(name, list(observations))}")
    observation = observations[name]
    own = section.unit or observation.unit
    change = conversion(own, observation.unit)
    if change is None:
        raise ConfigError(
            f"{key}.unit: must be a unit that can be converted to that of {name!r} ({observation.unit!r}), was {own!r}"
        )
    return Quantity(section.name, own, observation.labels), Wire(name, change)


def _all_used(owner: str, key: str, names: Sequence[str], used: Sequence[str]) -> None:
    for name in names:
        if used.count(name) != 1:
            was = "named nowhere" if name not in used else f"named {used.count(name)} times"
            raise ConfigError(f"{key}: must name {name!r} of [{owner}] once, was {was}")


def _noise(config: schema.Config, survey: Survey, table: Table) -> Noise:
    given = config.noise.std
    names = [o.name for o in survey.observations]
    for name in given:
        if name not in names:
            raise ConfigError(f"noise.std.{name}: must be named like an observation, was {name!r}{suggestion(name, names)}")
    std = {}
    for observation in survey.observations:
        key = f"noise.std.{observation.name}"
        if observation.name not in given:
            raise ConfigError(
                f"{key}: is missing; it must be the standard deviation of the noise in {observation.unit!r}"
            )
        spread = _noise_spread(given[observation.name], observation, table, key)
        wrong = ~np.isnan(observation.values) & ~(spread > 0)
        if np.any(wrong):
            site = int(np.argwhere(wrong)[0][0]) + 1
            raise ConfigError(f"{key}: must be positive wherever there is an observation, was not at site {site}")
        std[observation.name] = spread
    return Noise(config.noise.kind, std)


def _noise_spread(value: object, observation: Observation, table: Table, key: str) -> Floats:
    share = schema.percentage(value)
    if share is not None:
        return share * np.abs(observation.values)
    columns = [value] if isinstance(value, str) else value
    if isinstance(columns, list) and isinstance(columns[0], str):
        spread = table.columns(columns, observation.unit, key)
        if spread.shape != observation.values.shape:
            raise ConfigError(f"{key}: must be {observation.values.shape[1]} columns, was {spread.shape[1]}")
        return spread
    return np.broadcast_to(_per_label(value, observation.labels, key), observation.values.shape).copy()


def _forward(
    section: schema.CallableSection | schema.ExecutableSection,
    inputs: Sequence[Quantity],
    outputs: Sequence[Quantity],
    directory: Path,
) -> ForwardModel:
    try:
        if isinstance(section, schema.CallableSection):
            return CallableModel(
                function=section.function,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                vectorised=section.vectorised,
                search_path=directory,
            )
        return ExecutableModel(
            command=tuple(section.command),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            input_files=tuple(InputFile(directory / f.template, f.path) for f in section.input_files),
            output_files=tuple(
                OutputFile(f.path, None if f.outputs is None else tuple(f.outputs), f.skip_lines)
                for f in section.output_files
            ),
            timeout=section.timeout,
            threads=section.threads,
            environment=section.environment,
            search_path=directory,
        )
    except AdapterError as error:
        raise ConfigError(f"forward.{error.setting}: {error.sentence}") from error
