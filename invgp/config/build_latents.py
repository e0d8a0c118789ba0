"""Latents and their priors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from invgp.bounded_links import TruncatedNormal, Uniform
from invgp.config.build_kernels import build_kernel
from invgp.config.build_prior_maps import MapContext, has_maps, with_maps
from invgp.config.variable_names import DISCREPANCY, labels_of, per_label
from invgp.core.kernels import Kernel, Scalar
from invgp.errors import ConfigError, Mistakes, build_each
from invgp.formatting import format_value, join_names, suggest
from invgp.links import LINKS, Link
from invgp.problem import SMALLEST_EIGENVALUE, WEAK_FACTOR, Floats, Grid, Labels, Latent, Observation, Problem, Survey
from invgp.settings.configuration import Config, DiscrepancySection, LatentSection
from invgp.settings.values import percentage

LARGEST_SCALE = 1e6
"""Largest prior standard deviation at a point, divided by `std`. A linear kernel far from its centre exceeds it."""


def build_latents(
    config: Config, units: Mapping[str, str], context: MapContext | None, directory: Path
) -> tuple[Latent, ...]:
    """Build the latents of a configuration.

    Parameters
    ----------
    config : Config
    units : mapping of str to str
        Unit of each coordinate.
    context : MapContext or None
        Points of the latents, for maps; None if the survey or the grid cannot be used, which is another mistake.
    directory : Path
        Directory of the configuration.
    """
    latents = build_each(lambda name: _build_latent(config, name, units, context, directory), config.latents)
    build_each(lambda latent: _check_correlations(latent, latents), latents)
    return latents


def _build_latent(
    config: Config, name: str, units: Mapping[str, str], context: MapContext | None, directory: Path
) -> Latent:
    section = config.latents[name]
    key = f"latents.{name}"
    labels = labels_of(config, section.dimension, key)
    mistakes = Mistakes()
    prior = mistakes.collect(lambda: _prior_moments(section, labels, key))
    kernel = mistakes.collect(lambda: _build_kernel(section, units, key, directory))
    mistakes.raise_all()
    if prior is None or kernel is None:
        raise ConfigError(f"{key}: cannot be used")
    mean, std, link = prior
    latent = Latent(
        name=name,
        unit=section.unit,
        mean=mean,
        std=std,
        kernel=kernel,
        link=link,
        dimension=section.dimension,
        labels=labels,
        long_name=section.long_name,
        standard_name=section.standard_name,
        positive=section.positive,
        label_correlation=_label_correlation(section.label_correlation, labels, key),
        correlated_with=dict(section.correlated_with),
        learn=learning_factors(section.learn.model_dump(exclude_none=True)),
    )
    if context is not None:
        latent = with_maps(latent, section, context, key)
    if config.grid is not None and latent.learn and latent.maps is not None and latent.maps.scale is not None:
        raise ConfigError(f"{key}.learn: must be left out in a field model whose prior std varies with position")
    _check_learning(latent, key)
    return latent


def build_discrepancies(config: Config, survey: Survey, directory: Path) -> tuple[Latent, ...]:
    """Build what the simulator cannot explain of each observation, along the coordinates of the survey.

    `check_noise_names` reports names that are not those of observations.
    """
    units = {c.name: c.unit for c in survey.coordinates}
    if config.noise.discrepancy and not units:
        raise ConfigError("noise.discrepancy: must be left out unless the survey has coordinates, was given")
    by_name = {o.name: o for o in survey.observations}
    names = [name for name in config.noise.discrepancy if name in by_name]
    sections = config.noise.discrepancy
    return build_each(lambda name: _build_discrepancy(sections[name], by_name[name], units, directory), names)


def _build_discrepancy(
    section: DiscrepancySection, observation: Observation, units: Mapping[str, str], directory: Path
) -> Latent:
    key, labels = f"noise.discrepancy.{observation.name}", observation.labels
    latent = Latent(
        name=observation.name + DISCREPANCY,
        unit=observation.unit,
        mean=np.zeros(observation.values.shape[1]),
        std=per_label(section.std, labels, f"{key}.std"),
        kernel=build_kernel(section.kernel, units, f"{key}.kernel", directory),
        dimension=observation.dimension,
        labels=labels,
        long_name=f"discrepancy of {observation.long_name or observation.name}",
        label_correlation=_label_correlation(section.label_correlation, labels, key),
        learn=learning_factors(section.learn.model_dump(exclude_none=True)),
        discrepancy_of=observation.name,
    )
    _check_learning(latent, key)
    return latent


def _build_kernel(section: LatentSection, units: Mapping[str, str], key: str, directory: Path) -> Kernel:
    return Scalar() if section.kernel is None else build_kernel(section.kernel, units, f"{key}.kernel", directory)


def _label_correlation(given: float | list[list[float]] | None, labels: Labels | None, key: str) -> Floats | None:
    """Return the prior correlation (L, L) between labels; None if they are independent."""
    count = 1 if labels is None else len(labels)
    if given is None:
        return None
    if labels is None:
        raise ConfigError(f"{key}.label_correlation: must be left out without a dimension, was {format_value(given)}")
    if isinstance(given, list):
        found = np.asarray(given, dtype=np.float64)
        if len(found) != count:
            raise ConfigError(f"{key}.label_correlation: must be a matrix of {count} labels, was one of {len(found)}")
    else:
        found = np.power(float(given), np.abs(np.subtract.outer(np.arange(count), np.arange(count))))
    if np.linalg.eigvalsh(found)[0] <= SMALLEST_EIGENVALUE:
        raise ConfigError(
            f"{key}.label_correlation: must be positive definite, was not: some of its correlations contradict others"
        )
    return found


def _check_correlations(latent: Latent, latents: tuple[Latent, ...]) -> None:
    """Raise `ConfigError` unless a latent can be correlated with others, and its labels with each other."""
    key, known = f"latents.{latent.name}.correlated_with", {other.name: other for other in latents}
    kernels = {json.dumps(kernel.describe()) for kernel in latent.kernels}
    if latent.label_correlation is not None and len(kernels) > 1:
        raise ConfigError(
            f"latents.{latent.name}.label_correlation: must be left out if the maps of std differ from label to label"
        )
    for name in latent.correlated_with:
        if name not in known or name == latent.name:
            others = [other for other in known if other != latent.name]
            raise ConfigError(
                f"{key}: must be other latents, {join_names(others)}, had {name!r}{suggest(name, others)}"
            )
        other = known[name]
        if latent.name in other.correlated_with:
            raise ConfigError(f"{key}.{name}: must be given once, was given in latents.{name} too")
        both = (latent, other)
        own, theirs = (np.eye(o.size) if o.label_correlation is None else o.label_correlation for o in both)
        if other.labels != latent.labels or not np.array_equal(own, theirs):
            raise ConfigError(f"{key}.{name}: must have the same labels and label_correlation as {latent.name!r}")
        if kernels != {json.dumps(kernel.describe()) for kernel in other.kernels} or len(kernels) > 1:
            raise ConfigError(
                f"{key}.{name}: must have the kernel of {latent.name!r}, {latent.kernel}, was {other.kernel}"
            )
        learnt = [one.name for one in (latent, other) if one.learn]
        if learnt:
            raise ConfigError(
                f"latents.{learnt[0]}.learn: must be left out for latents that are correlated with others"
            )


def check_correlation_matrix(problem: Problem) -> None:
    """Raise `ConfigError` unless the prior correlations of all latents are possible together."""
    correlation = problem.prior_correlation
    if correlation is not None and np.linalg.eigvalsh(correlation)[0] <= SMALLEST_EIGENVALUE:
        names = [latent.name for latent in problem.latents if latent.correlated_with]
        raise ConfigError(
            f"latents.{names[0]}.correlated_with: the correlations of all latents must be positive definite, were not: "
            "some contradict others"
        )


def check_prior_scales(latents: tuple[Latent, ...], survey: Survey, grid: Grid | None) -> None:
    """Raise `ConfigError` if a kernel is not defined, or has too large a variance, at some site or node."""
    build_each(lambda latent: _check_prior_scale(latent, survey, grid), latents)


def _check_prior_scale(latent: Latent, survey: Survey, grid: Grid | None) -> None:
    points = "sites" if grid is None else "nodes"
    key = f"noise.discrepancy.{latent.discrepancy_of}" if latent.discrepancy_of else f"latents.{latent.name}"
    try:
        latent.kernel.check_inputs(survey.X if grid is None else grid.X)
    except ValueError as error:
        raise ConfigError(f"{key}.kernel: must be defined at all {points}: {error}") from error
    kernel, X = (survey.kernel_at_sites(latent.kernel), survey.locations) if grid is None else (latent.kernel, grid.X)
    with np.errstate(over="ignore", invalid="ignore"):
        largest = float(np.sqrt(np.max(kernel.diagonal(X))))
    if not largest <= LARGEST_SCALE:
        raise ConfigError(
            f"{key}.kernel: must have a standard deviation of at most {LARGEST_SCALE:g} times std at "
            f"all {points}, was {largest:.3g} times std; linear parts need a larger length_scale or a closer centre"
        )


def _check_learning(latent: Latent, key: str) -> None:
    """Raise `ConfigError` if the kernel does not have a parameter that is to be learnt."""
    for name in latent.learn:
        if latent.learnt_parameters(name).shape[1] < (2 if name == "share" else 1):
            kernel = "a sum" if name == "share" else f"one with a {name}"
            raise ConfigError(
                f"{key}.learn.{name}: must be left out unless the kernel is {kernel}, was {latent.kernel.formula!r}"
            )


def _prior_moments(section: LatentSection, labels: Labels | None, key: str) -> tuple[Floats, Floats, Link]:
    """Return the prior mean and standard deviation, (L,) each, and the link."""
    if has_maps(section):  # `with_maps` replaces the numbers
        size = 1 if labels is None else len(labels)
        return np.arange(1.0, size + 1.0), np.ones(size), LINKS[section.link]
    lower, upper = (
        per_label(end if bound is None else bound, labels, f"{key}.{name}")
        for name, bound, end in (("lower", section.lower, -np.inf), ("upper", section.upper, np.inf))
    )
    if not np.all(lower < upper):
        bounds = format_value(section.lower), format_value(section.upper)
        raise ConfigError(f"{key}.upper: must be above lower = {bounds[0]}, was {bounds[1]}")
    if section.link == "uniform":
        link = Uniform(lower, upper)
        return *link.process_to_prior(lower, upper), link
    mean = per_label(section.mean, labels, f"{key}.mean")
    _check_link(section, mean, key)
    share = percentage(section.std)
    of = np.diff(mean, prepend=0.0) if section.link == "increasing" else mean
    std = per_label(section.std, labels, f"{key}.std") if share is None else share * np.abs(of)
    if not np.all(std > 0):
        raise ConfigError(
            f"{key}.std: must be a number in {section.unit!r} where a mean is zero, "
            f"was {section.std} of {format_value(section.mean)}"
        )
    if section.link == "truncated normal":
        return mean, std, TruncatedNormal(mean, std, lower, upper)
    return mean, std, LINKS[section.link]


def _check_link(section: LatentSection, mean: Floats, key: str) -> None:
    """Raise `ConfigError` if the mean, (L,), is not valid for the link."""
    if section.link == "log" and not np.all(mean > 0):
        raise ConfigError(f"{key}.mean: must be positive with link = 'log', was {format_value(section.mean)}")
    if section.link != "increasing":
        return
    if section.dimension is None:
        raise ConfigError(
            f"{key}.dimension: is missing; with link = 'increasing' it must be a key of [dimensions], along whose "
            "labels the latent grows"
        )
    if not np.all(np.diff(mean, prepend=0.0) > 0):
        raise ConfigError(
            f"{key}.mean: must be positive and grow from label to label with link = 'increasing', "
            f"was {format_value(section.mean)}"
        )


def learning_factors(learn: Mapping[str, object]) -> dict[str, float]:
    """Return the factor of the prior of each learnt parameter."""
    return {name: WEAK_FACTOR if value is True else float(value) for name, value in learn.items()}  # type: ignore[arg-type]
