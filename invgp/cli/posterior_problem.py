"""The problem that a posterior file solves, from its config and its survey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invgp.cli.console import print_warning
from invgp.cli.options import refuse_field
from invgp.config import load
from invgp.config.toml_document import read_text
from invgp.errors import ConfigError

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Latent, Problem

LEVELS = 4  # directories from the posterior upwards, and from its survey, where its config is looked for


def found_config(path: Path, posterior: xr.Dataset) -> Path:
    """The config with the text that the posterior was made from, beside or above the posterior or its survey."""
    text = posterior.attrs.get("invgp_config", "")
    homes = [Path(start).absolute() for start in (path, posterior.attrs.get("invgp_survey", "")) if str(start)]
    for directory in (parent for home in homes for parent in list(home.parents)[:LEVELS]):
        for candidate in sorted(directory.glob("*.toml")) if text else ():
            if _text(candidate) == text:
                return candidate
    raise ConfigError(
        f"the config that {str(path)!r} was made from was not found beside or above it: name it with --config"
    )


def _text(path: Path) -> str | None:
    try:
        return read_text(path)
    except ConfigError:
        return None


def same_problem(posterior: xr.Dataset, config: Path, data: Path | None) -> Problem:
    """The problem that the posterior solves, with the noise that it found."""
    problem, wanted = load(config, data=data), posterior.attrs["invgp_survey_digest"]
    refuse_field(problem, "compare")
    made_from = Path(posterior.attrs["invgp_survey"])
    if data is None and problem.survey.digest != wanted and made_from.is_file():  # as of `invgp run --data`
        problem = load(config, data=made_from)
    if problem.survey.digest != wanted:
        raise ConfigError(
            f"the survey {problem.survey.file!r} is not that of the posterior, which was {str(made_from)!r}: "
            "name the same file with --data"
        )
    names = posterior.attrs["invgp_latents"].split()
    if "site" not in posterior.dims or any(f"{name}_prior" not in posterior for name in names):
        raise ConfigError("POSTERIOR: must be a file that `invgp run` wrote, was a map, or one without a posterior")
    shapes = {latent.name: latent.size for latent in problem.latents}
    if {name: _labels(posterior, name) for name in names} != shapes:
        raise ConfigError(f"the config {str(config)!r} has other latents than the posterior")
    for latent in problem.latents:
        given = posterior[f"{latent.name}_prior"].isel(site=0).values
        if not latent.learn and not np.allclose(given, latent.mean, rtol=1e-6):
            raise ConfigError(f"the config {str(config)!r} has another prior of {latent.name!r} than the posterior")
    if problem.config_text != posterior.attrs["invgp_config"]:
        print_warning(f"the posterior was made from another config than {config}")
    if problem.forward.digest != posterior.attrs["invgp_simulator_digest"]:
        print_warning("the simulator has changed since the posterior was made")
    noise = {
        o.name: posterior[f"{o.name}_noise_std"].values.reshape(o.values.shape) for o in problem.survey.observations
    }
    latents = tuple(_as_learnt(latent, posterior[latent.name].attrs) for latent in problem.latents)
    return replace(problem, latents=latents, noise=replace(problem.noise, std=noise, learn={}))


def _as_learnt(latent: Latent, attributes: Mapping[str, Any]) -> Latent:
    """The latent with the prior that the posterior found, held fixed."""
    if not latent.learn:
        return latent
    process_mean, _ = latent.link.prior_to_process(latent.mean, latent.std)
    mean, std = latent.link.process_to_prior(process_mean, np.atleast_1d(attributes["process_std"]))
    return replace(latent, mean=mean, std=std, length_scale=np.atleast_1d(attributes["length_scale"]), learn={})


def _labels(posterior: xr.Dataset, name: str) -> int:
    return int(posterior[name].size // posterior.sizes["site"])
