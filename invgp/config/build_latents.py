"""Latents and their priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from invgp.config.mistakes import Mistakes, build_each
from invgp.config.variable_names import labels_of, per_label
from invgp.errors import ConfigError
from invgp.formatting import format_value, join_names
from invgp.links import LINKS
from invgp.problem import WEAK_FACTOR, Floats, Labels, Latent
from invgp.settings.configuration import Config, LatentSection
from invgp.settings.values import percentage
from invgp.units import IDENTITY, conversion


def build_latents(config: Config, units: Sequence[str]) -> tuple[Latent, ...]:
    """Build the latents of a configuration, for coordinates in the given units."""
    return build_each(lambda name: _build_latent(config, name, units), config.latents)


def _build_latent(config: Config, name: str, units: Sequence[str]) -> Latent:
    section = config.latents[name]
    key = f"latents.{name}"
    labels = labels_of(config, section.dimension, key)
    mistakes = Mistakes()
    prior = mistakes.collect(lambda: _prior_moments(section, labels, key))
    scales = mistakes.collect(
        lambda: broadcast_length_scales(section.kernel.length_scale, units, f"{key}.kernel.length_scale")
    )
    mistakes.raise_all()
    if prior is None or scales is None:
        raise ConfigError(f"{key}: cannot be used")
    mean, std = prior
    return Latent(
        name=name,
        unit=section.unit,
        mean=mean,
        std=std,
        kernel=section.kernel.kind,
        length_scale=scales,
        link=LINKS[section.link],
        dimension=section.dimension,
        labels=labels,
        long_name=section.long_name,
        standard_name=section.standard_name,
        positive=section.positive,
        learn=learning_factors(section.learn.model_dump(exclude_none=True)),
    )


def _prior_moments(section: LatentSection, labels: Labels | None, key: str) -> tuple[Floats, Floats]:
    """Return the prior mean and standard deviation, (L,) each."""
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
    return mean, std


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


def broadcast_length_scales(value: object, units: Sequence[str], key: str) -> Floats:
    """Return one length-scale per coordinate, (D,), from a number or a list."""
    scales = np.asarray(value, dtype=np.float64)
    dimensions = len(units)
    if not scales.ndim and any(conversion(unit, units[0]) != IDENTITY for unit in units):
        raise ConfigError(
            f"{key}: must be a list of {dimensions}, one for each coordinate, since their units differ "
            f"({join_names(units)}), was {format_value(value)}"
        )
    if scales.ndim and len(scales) != dimensions:
        wanted = f"one number, or a list of {dimensions}: one for each coordinate"
        raise ConfigError(f"{key}: must be {wanted}, was a list of {len(scales)}")
    return np.broadcast_to(scales, (dimensions,)).copy()
