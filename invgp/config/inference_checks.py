"""Checks of the inference settings against the rest of the configuration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from invgp.config.build_kernels import broadcast_length_scales
from invgp.errors import ConfigError
from invgp.formatting import format_value, join_names
from invgp.problem import FEWEST_FIELD_RUNS, Floats, Grid, InferenceSettings, Latent, Survey, fewest_samples
from invgp.settings.configuration import Config
from invgp.units import IDENTITY, conversion

OF_EMULATOR = ("runs_per_site", "emulator_error")
# Keys of [inference] that only site models use, with the value that means the same as leaving them out.
OF_SITE_MODELS = {
    "estimator": "auto",
    "emulator": False,
    "runs_per_site": None,
    "emulator_error": None,
    "inducing": None,
    "learn_inducing": False,
    "batch": None,
    "samples": None,
    "max_evaluations": None,
}


def check_inference(config: Config, settings: InferenceSettings, latents: Sequence[Latent]) -> None:
    """Raise `ConfigError` with a sentence for each key that does not fit the others."""
    wrong = [
        *_check_samples(settings, latents),
        *_check_estimator(config),
        *_check_ignored_keys(config),
        *_check_combinations(config),
    ]
    wrong += _check_field_model(config) if config.forward.kind == "field" else _check_site_model(config)
    if wrong:
        raise ConfigError(wrong)


def _check_samples(settings: InferenceSettings, latents: Sequence[Latent]) -> list[str]:
    processes = sum(latent.size for latent in latents)
    fewest = fewest_samples(settings, processes)
    if settings.samples is None or settings.samples >= fewest:
        return []
    many = f"{processes} latent process{'es' if processes > 1 else ''}"
    return [f"inference.samples: must be at least {fewest} for {many}, was {settings.samples}"]


def _check_estimator(config: Config) -> list[str]:
    kind, estimator = config.noise.kind, config.inference.estimator
    if estimator not in ("linearisation", "hermite") or kind == "gaussian":
        return []
    return [f"inference.estimator: must be 'auto' or 'score' for {kind} noise, was {estimator!r}"]


def _check_ignored_keys(config: Config) -> list[str]:
    """Return messages about keys that would have no effect."""
    section, given = config.inference, config.inference.model_fields_set
    ignored = []
    if section.posterior == "full gaussian":
        keys = [f"latents.{name}.learn" for name, latent in config.latents.items() if latent.learn.model_fields_set]
        keys += _learnt_noise(config)
        discrepancies = config.noise.discrepancy.items()
        keys += [f"noise.discrepancy.{name}.learn" for name, one in discrepancies if one.learn.model_fields_set]
        keys += ["inference.learn_inducing"] if section.learn_inducing else []
        ignored += [f"{key}: must be left out with inference.posterior = 'full gaussian', was given" for key in keys]
    if not section.emulator and section.posterior == "sampled" and "posterior" in given:
        ignored.append("inference.emulator: must be true with inference.posterior = 'sampled', was false")
    elif not section.emulator:
        ignored += [
            f"inference.{key}: must be left out with inference.emulator = false, was given"
            for key in OF_EMULATOR
            if key in given
        ]
    return ignored


def _check_combinations(config: Config) -> list[str]:
    section, noise = config.inference, config.noise
    wrong = []
    if section.learn_inducing and section.inducing is None:
        wrong.append(
            "inference.learn_inducing: must be false without inference.inducing (every site is then an inducing "
            "point), was true"
        )
    for key in _learnt_noise(config):
        if section.batch is not None:
            wrong.append(f"{key}: must be left out with inference.batch, was given")
        if section.estimator == "score":
            wrong.append(f"{key}: must be left out with inference.estimator = 'score', was given")
    if "degrees" in noise.model_fields_set and noise.kind != "student-t":
        wrong.append(f"noise.degrees: must be left out with noise.kind = {noise.kind!r}, was given")
    return wrong


def _check_site_model(config: Config) -> list[str]:
    """Return messages about keys that only field models use."""
    given = config.inference.model_fields_set
    keys = [f"inference.{key}" for key in ("kept_variance", "localisation", "max_coarse_runs") if key in given]
    keys += ["noise.correlation_length"] if config.noise.correlation_length else []
    keys += ["noise.covariance"] if config.noise.covariance is not None else []
    return [f"{key}: must be left out unless forward.kind = 'field', was given" for key in keys]


def _check_field_model(config: Config) -> list[str]:
    """Return messages about settings that field models do not have."""
    section, given = config.inference, config.inference.model_fields_set
    wrong = []
    if section.posterior == "full gaussian":
        wrong.append(
            "inference.posterior: must be 'sampled' or 'coupled gaussian' with forward.kind = 'field', "
            f"was {section.posterior!r}"
        )
    if config.noise.kind == "laplace":
        wrong.append("noise.kind: must be 'gaussian' or 'student-t' with forward.kind = 'field', was 'laplace'")
    if section.max_runs is not None and section.max_runs < FEWEST_FIELD_RUNS:
        wrong.append(
            f"inference.max_runs: must be at least {FEWEST_FIELD_RUNS} with forward.kind = 'field', "
            f"was {section.max_runs}"
        )
    wrong += _check_field_discrepancy(config)
    wrong += _check_coarse_model(config)
    if config.direct or config.prior is not None:
        keys = [f"latents.{name}.learn" for name, latent in config.latents.items() if latent.learn.model_fields_set]
        keys += _learnt_noise(config)
        keys += ["inference.localisation"] if section.localisation is not None else []
        wrong += [f"{key}: must be left out in a field model with [direct] or a prior file, was given" for key in keys]
    keys = [
        f"inference.{key}" for key, none in OF_SITE_MODELS.items() if key in given and getattr(section, key) != none
    ]
    return wrong + [f"{key}: must be left out with forward.kind = 'field', was given" for key in keys]


def _check_coarse_model(config: Config) -> list[str]:
    """Return messages about settings that a field model with a coarse model does not have."""
    inference = config.inference
    fine = {"forward": config.forward} | {f"sources.{name}.forward": s.forward for name, s in config.sources.items()}
    given = [key for key, section in fine.items() if section.coarse is not None]
    if not given:
        key = "inference.max_coarse_runs"
        return [f"{key}: must be left out without [forward.coarse], was given"] if inference.max_coarse_runs else []
    wrong = [
        f"{key}.coarse: must be given for every simulator of the inversion or for none, was left out"
        for key in fine
        if key not in given
    ]
    if inference.localisation is not None:
        wrong.append("inference.localisation: must be left out with [forward.coarse], was given")
    if inference.max_coarse_runs is not None and inference.max_coarse_runs < FEWEST_FIELD_RUNS:
        wrong.append(
            f"inference.max_coarse_runs: must be at least {FEWEST_FIELD_RUNS}, was {inference.max_coarse_runs}"
        )
    sections = [(key, section) for key, section in fine.items()]
    sections += [(f"{key}.coarse", section.coarse) for key, section in fine.items() if section.coarse is not None]
    wrong += [
        f"{key}.{setting}: must be false with [forward.coarse], was true"
        for key, section in sections
        for setting in ("jacobian", "partial")
        if getattr(section, setting, False)
    ]
    return wrong


def _check_field_discrepancy(config: Config) -> list[str]:
    """Return messages about keys that a field model with a discrepancy does not have."""
    noise = config.noise
    if not noise.discrepancy:
        return []
    keys = [
        f"noise.discrepancy.{name}.learn"
        for name, section in noise.discrepancy.items()
        if section.learn.model_fields_set
    ]
    wrong = [f"{key}: must be left out with forward.kind = 'field', was given" for key in keys]
    if noise.kind != "gaussian":
        wrong.append(
            "noise.discrepancy: must be left out with forward.kind = 'field' unless noise.kind is 'gaussian', was given"
        )
    learnt = _learnt_noise(config)
    return wrong + [f"{key}: must be left out in a field model with noise.discrepancy, was given" for key in learnt]


def _learnt_noise(config: Config) -> list[str]:
    """Return the keys by which the noise has an unknown factor."""
    keys = ["noise.learn"] if config.noise.learn else []
    return keys + (["noise.scale_degrees"] if config.noise.scale_degrees is not None else [])


def check_reach(config: Config, reach: Floats, survey: Survey, grid: Grid) -> None:
    """Raise `ConfigError` unless every site with data has a node within the localisation distance."""
    from scipy.spatial import cKDTree  # noqa: PLC0415 - few configs wait for SciPy

    sites = {column.name: column.values for column in survey.coordinates}
    places = np.stack([sites[column.name] for column in grid.coordinates], axis=-1) / reach
    away = np.where(np.isnan(survey.Y).all(axis=1), 0.0, cKDTree(grid.X / reach).query(places)[0])
    farthest = int(np.argmax(away))
    if away[farthest] >= 1.0:
        raise ConfigError(
            "inference.localisation: must reach a node of the grid from every site that has data, was "
            f"{format_value(config.inference.localisation)}, and from site {farthest + 1} the nearest node is "
            f"{away[farthest]:.3g} times as far"
        )


def localisation(config: Config) -> Floats | None:
    """Return the localisation distance along each coordinate of the grid, (D,); None without localisation."""
    key, value = "inference.localisation", config.inference.localisation
    if value is None or config.grid is None:
        return None
    ends, sites = config.grid.coordinates, config.survey.coordinates
    lacking = [name for name in ends if name not in sites]
    if lacking:
        raise ConfigError(
            f"{key}: must be left out unless the survey has the coordinates of the grid ({join_names(list(ends))}): it "
            f"has no {join_names(lacking, 'or')}"
        )
    if config.noise.correlation_length or config.noise.discrepancy or config.noise.covariance is not None:
        raise ConfigError(f"{key}: must be left out with noise that joins sites, was {format_value(value)}")
    for name, coordinate in ends.items():
        if conversion(sites[name].unit, coordinate.unit) != IDENTITY:
            raise ConfigError(
                f"grid.coordinates.{name}.unit: must be that of the survey, {sites[name].unit!r}, with {key}, was "
                f"{coordinate.unit!r}"
            )
    return broadcast_length_scales(value, [coordinate.unit for coordinate in ends.values()], key)
