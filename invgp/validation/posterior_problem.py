"""The problem of a posterior file, from its configuration and its survey."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invgp.config import load
from invgp.config.toml_document import read_text
from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import join_names
from invgp.posterior.contents import field_names
from invgp.posterior.coordinates import coordinate_order
from invgp.posterior.gaussian_processes import kernel_from_attributes

if TYPE_CHECKING:
    import xarray as xr

from invgp.problem import Floats, Latent, Problem

LEVELS = 4  # directories to search for the configuration: those of the posterior and of its survey, and their parents
logger = logging.getLogger("invgp")


def find_config(path: Path, posterior: xr.Dataset) -> Path:
    """Find the configuration of a posterior by its text, beside or above the posterior or its survey.

    Parameters
    ----------
    path : Path
        File of the posterior.
    posterior : xarray.Dataset
    """
    text = posterior.attrs.get("invgp_config", "")
    homes = [Path(start).absolute() for start in (path, posterior.attrs.get("invgp_survey", "")) if str(start)]
    for directory in (parent for home in homes for parent in list(home.parents)[:LEVELS]):
        for candidate in sorted(directory.glob("*.toml")) if text else ():
            if _text(candidate) == text:
                return candidate
    raise ArgumentError(f"config: must be given, because the config of {str(path)!r} was not found beside or above it")


def _text(path: Path) -> str | None:
    try:
        return read_text(path)
    except ConfigError:
        return None


def load_problem_of(posterior: xr.Dataset, config: Path, data: Path | None) -> Problem:
    """Load the problem of a posterior, with the prior and the noise that the inversion learnt.

    Parameters
    ----------
    posterior : xarray.Dataset
    config : Path
    data : Path or None
        Survey file, if it is not that of the configuration.

    Raises
    ------
    ConfigError
        The configuration or the survey is not that of the posterior.
    """
    problem, wanted = load(config, data=data), posterior.attrs["invgp_survey_digest"]
    made_from = Path(posterior.attrs["invgp_survey"])
    if data is None and problem.survey.digest != wanted and made_from.is_file():  # as of `invgp run --data`
        problem = load(config, data=made_from)
    if problem.survey.digest != wanted:
        raise ArgumentError(
            f"data: must be the survey of the posterior, which was {str(made_from)!r}, was {problem.survey.file!r}"
        )
    problem = problem.without(*posterior.attrs.get("invgp_without", "").split())
    if problem.config_text != posterior.attrs["invgp_config"]:
        logger.warning("the posterior was made from another config than %s", config)
    return check_problem_of(posterior, problem)


def check_problem_of(posterior: xr.Dataset, problem: Problem) -> Problem:
    """Check that a problem is that of a posterior; return it with the prior and the noise that were learnt.

    Parameters
    ----------
    posterior : Dataset
    problem : Problem

    Returns
    -------
    Problem

    Raises
    ------
    ConfigError
        The latents or their priors differ from those of the posterior.
    """
    names = posterior.attrs["invgp_latents"].split()
    point = "site" if problem.grid is None else "node"
    if "site" not in posterior.dims or any(f"{name}_prior" not in posterior for name in names):
        raise ArgumentError("posterior: must be a file that `invgp run` wrote, was a map")
    fields = field_names(posterior)
    if any(point not in posterior[name].dims for name in fields):
        raise ArgumentError("config: must be that of the posterior; one is a field model, the other is a site model")
    shapes = {latent.name: latent.size for latent in problem.latents}
    if {name: posterior[name].size // (posterior.sizes[point] if name in fields else 1) for name in names} != shapes:
        raise ArgumentError(
            f"config: must have the latents of the posterior, {join_names(names)}, had {join_names(shapes)}"
        )
    for latent in problem.latents:
        given = posterior[f"{latent.name}_prior"].isel({point: 0}, missing_dims="ignore").values
        if not latent.learn and not np.allclose(given, _first_prior_mean(problem, latent), rtol=1e-6):
            raise ArgumentError(f"config: must have the prior of the posterior, had another one for {latent.name!r}")
    if problem.forward.digest != posterior.attrs["invgp_simulator_digest"]:
        logger.warning("the simulator has changed since the posterior was made")
    noise = {
        o.name: posterior[f"{o.name}_noise_std"].values.reshape(o.values.shape) for o in problem.survey.observations
    }
    order = coordinate_order(problem)
    latents = tuple(_with_learnt_prior(latent, posterior[latent.name].attrs, order) for latent in problem.latents)
    return replace(problem, latents=latents, noise=replace(problem.noise.fixed, std=noise))


def _first_prior_mean(problem: Problem, latent: Latent) -> Floats:
    """Return the prior mean (L,) of a latent at the first site or node, in its unit."""
    if latent.maps is not None:
        return problem.physical_prior_mean[0, problem.latent_slices[latent.name]]
    mean, std = latent.link.prior_to_process(latent.mean, latent.std)
    return latent.link.moments(mean, std[:, None] ** 2 * np.eye(latent.size))[0]


def _with_learnt_prior(latent: Latent, attributes: Mapping[str, Any], order: list[int]) -> Latent:
    """Return the latent with the prior that was learnt, as a fixed prior; `order` is that of scales in a file."""
    if not latent.learn:
        return latent
    process_mean, _ = latent.link.prior_to_process(latent.mean, latent.std)
    mean, std = latent.link.process_to_prior(process_mean, np.atleast_1d(attributes["process_std"]))
    kernel = kernel_from_attributes(attributes).permute(np.argsort(order).tolist())
    return replace(latent, mean=mean, std=std, kernel=kernel, learn={})
