"""Direct data: values of the latents at some places, with their noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from invgp.adapters import Quantity
from invgp.config.build_noise import check_noise_std
from invgp.config.build_survey import columns, describe_size
from invgp.config.survey_tables import Table, read_table
from invgp.config.toml_document import LARGEST
from invgp.core.kernels.averages import NODES
from invgp.errors import ConfigError, Mistakes, build_each
from invgp.formatting import count_noun, join_names, suggest
from invgp.problem import Column, DirectModel, Floats, Latent, Noise, Observation, Problem, SimulatorVariable, Survey
from invgp.problem.expressions import DerivedExpression, ExpressionLatent, parse_quantity
from invgp.settings.configuration import Config, DirectSection, DirectValueSection, PlaceSection
from invgp.settings.values import percentage

LONGEST_PER_NODE = 0.625  # length of an interval, in length-scales per node: an error of an average below 1%


@dataclass(frozen=True)
class DirectData:
    """The direct data of one table: a survey with a model of its own.

    Attributes
    ----------
    name : str
    survey : Survey
        Places and values.
    noise : Noise
    model : DirectModel
    """

    name: str
    survey: Survey
    noise: Noise
    model: DirectModel

    def add_to(self, problem: Problem) -> Problem:
        """Return the joint problem of these data and a problem."""
        own = replace(
            problem,
            survey=self.survey,
            noise=self.noise,
            forward=self.model,
            inputs=tuple(SimulatorVariable(q.name) for q in self.model.inputs),
            outputs=tuple(SimulatorVariable(q.name) for q in self.model.outputs),
            sources=(),
        )
        return problem.join({self.name: own}, direct=[self.name])


def build_direct(
    config: Config, coordinates: Sequence[Column], latents: Sequence[Latent], directory: Path
) -> tuple[DirectData, ...]:
    """Build the direct data of a configuration.

    Parameters
    ----------
    config : Config
    coordinates : sequence of Column
        Coordinates of the latents: of the survey, or of the grid of a field model.
    latents : sequence of Latent
    directory : Path
        Directory of the configuration.
    """

    def build(item: tuple[str, DirectSection]) -> DirectData:
        return _build_group(*item, config, coordinates, latents, directory)

    return build_each(build, config.direct.items())


def _build_group(
    name: str,
    section: DirectSection,
    config: Config,
    coordinates: Sequence[Column],
    latents: Sequence[Latent],
    directory: Path,
) -> DirectData:
    key = f"direct.{name}"
    defaults = {c: s.column or c for c, s in _coordinate_sections(config).items()}
    known = [column.name for column in coordinates]
    wrong = [
        f"{key}.coordinates.{c}: must be a coordinate{suggest(c, known)}" for c in section.coordinates if c not in known
    ]
    if wrong:
        raise ConfigError(wrong)
    table = None
    if section.file is not None:
        first = section.coordinates.get(known[0], PlaceSection(at=defaults.get(known[0])))
        given = first.at if first.at is not None else first.start
        table = read_table(directory / section.file, given if isinstance(given, str) else None, f"{key}.file")
    if not section.coordinates and table is None and _concerns_scalars(section, latents, key):
        places = [(c.values[:1], c.values[:1]) for c in coordinates]  # a scalar is the same everywhere
    else:
        places = _places(section, table, coordinates, defaults, key)
    count = max(len(low) for low, _ in places)
    for c, (low, _) in zip(coordinates, places, strict=True):
        if len(low) not in (1, count):
            raise ConfigError(
                f"{key}.coordinates.{c.name}: must be one number, or {count}: as many as the other coordinates have, "
                f"was {len(low)}"
            )
    X = np.stack([np.broadcast_to(0.5 * (low + high), count) for low, high in places], axis=-1)
    extents = np.stack([np.broadcast_to(0.5 * (high - low), count) for low, high in places], axis=-1)
    values = build_each(
        lambda item: _build_value(item[0], item[1], f"{key}.values.{item[0]}", latents, table, count),
        section.values.items(),
    )
    _check_links(extents, values, latents, key)
    _check_lengths(extents, values, latents, coordinates, key)
    if config.grid is not None:
        _check_field_model(values, key)
    used = {latent for value in values for latent in value.expression.latents}
    model = DirectModel(
        name,
        tuple(latent for latent in known_latents(latents) if latent.name in used),
        tuple(Quantity(v.observation.name, v.observation.unit, v.observation.labels) for v in values),
        tuple(value.expression.text for value in values),
    )
    survey = Survey(
        tuple(replace(c, values=X[:, d].copy()) for d, c in enumerate(coordinates)),
        tuple(value.observation for value in values),
        extents=extents if np.any(extents) else None,
    )
    return DirectData(name, survey, Noise("gaussian", {v.observation.name: v.std for v in values}), model)


def _concerns_scalars(section: DirectSection, latents: Sequence[Latent], key: str) -> bool:
    """Whether all values are functions of scalars only."""
    known, scalars = known_latents(latents), {latent.name for latent in latents if latent.is_scalar}
    return all(
        scalars.issuperset(parse_quantity(n, v.quantity, v.unit or "", known, f"{key}.values.{n}.quantity").latents)
        for n, v in section.values.items()
    )


def _places(
    section: DirectSection,
    table: Table | None,
    coordinates: Sequence[Column],
    defaults: Mapping[str, str],
    key: str,
) -> list[tuple[Floats, Floats]]:
    """Return start and end of the interval of each coordinate, (K,) each."""
    mistakes = Mistakes()
    ends = [
        mistakes.collect(
            lambda c=c: _interval(section, table, c, defaults.get(c.name, c.name), f"{key}.coordinates.{c.name}")  # type: ignore[misc]
        )
        for c in coordinates
    ]
    mistakes.raise_all()
    return [end for end in ends if end is not None]


def known_latents(latents: Sequence[Latent]) -> list[ExpressionLatent]:
    """Return latents as expressions use them."""
    return [
        ExpressionLatent(one.name, one.unit, one.dimension, one.labels, one.link.name == "identity") for one in latents
    ]


def _coordinate_sections(config: Config) -> dict[str, Any]:
    return dict((config.survey if config.grid is None else config.grid).coordinates)


def _interval(
    section: DirectSection, table: Table | None, column: Column, default: str, key: str
) -> tuple[Floats, Floats]:
    """Return start and end of the interval of a coordinate, (K,) each; they are equal for points."""
    place = section.coordinates.get(column.name)
    if place is None:
        if table is None:
            raise ConfigError(f"{key}: is missing; without a file it must be {PlaceSection.described}")
        place = PlaceSection(at=default)
    given = [part for part in ("at", "start", "stop") if getattr(place, part) is not None]
    if given not in (["at"], ["start", "stop"]):
        was = (
            f"{join_names(given, 'and')} alone"
            if given in (["start"], ["stop"])
            else join_names(given, "and") or "empty"
        )
        raise ConfigError(f"{key}: must have either 'at', or 'start' and 'stop', was {was}")

    def read(part: str) -> Floats:
        return _numbers(getattr(place, part), table, column.unit, f"{key}.{part}")

    if given == ["at"]:
        at = read("at")
        return at, at
    low, high = np.broadcast_arrays(read("start"), read("stop"))
    wrong = np.flatnonzero(high < low)
    if wrong.size:
        n = wrong[0]
        raise ConfigError(f"{key}.stop: must be at least start = {low[n]:g}, was {high[n]:g} at place {n + 1}")
    return low, high


def _numbers(value: object, table: Table | None, unit: str, key: str) -> Floats:
    """Return numbers (K,), given in the configuration or by a column of the file."""
    if isinstance(value, str):
        if table is None:
            raise ConfigError(f"{key}: must be a number or a list of numbers without a file, was {value!r}")
        found = table.columns([value], unit, key)
        if found.shape[1] != 1:
            raise ConfigError(f"{key}: must be one number per place, was {found.shape[1]} in {value!r}")
        numbers = found[:, 0]
    else:
        numbers = np.atleast_1d(np.asarray(value, dtype=np.float64))
    bad = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if bad.size:
        was = "missing" if np.isnan(numbers[bad[0]]) else describe_size(numbers[bad[0]])
        raise ConfigError(f"{key}: must be a number at every place, was {was} at place {bad[0] + 1}")
    return numbers


@dataclass(frozen=True)
class _Value:
    """A measured value at all places, with the standard deviation of its noise (K, L) and its expression."""

    observation: Observation
    std: Floats
    expression: DerivedExpression


def _build_value(
    name: str, section: DirectValueSection, key: str, latents: Sequence[Latent], table: Table | None, count: int
) -> _Value:
    known = known_latents(latents)
    expression = parse_quantity(name, section.quantity, section.unit or "", known, f"{key}.quantity")
    labels = next(
        (one.labels for one in latents if one.dimension is not None and one.dimension == expression.dimension), None
    )
    size = 1 if labels is None else len(labels)
    given = section.value
    if given is None:
        if table is None:
            raise ConfigError(f"{key}.value: is missing; without a file it must be the measured value")
        given = name
    values = _table_of(given, table, expression.unit, (count, size), f"{key}.value")
    large = np.argwhere(np.abs(values) > LARGEST)
    if large.size:
        place, column = large[0]
        was = describe_size(values[place, column])
        raise ConfigError(f"{key}.value: must be finite numbers, was {was} at place {place + 1}")
    if np.isnan(values).all():
        raise ConfigError(f"{key}.value: must hold a number at one place at least, was empty at every place")
    share = percentage(section.std)
    if share is not None:
        std = share * np.abs(values)
    else:
        std = _table_of(section.std, table, expression.unit, (count, size), f"{key}.std", spread=True)
    check_noise_std(values, std, f"{key}.std", datum="value", place="place")
    observation = Observation(
        name, expression.unit, values, expression.dimension, labels, section.long_name, section.standard_name
    )
    return _Value(observation, std, expression)


def _table_of(
    value: Any, table: Table | None, unit: str, shape: tuple[int, int], key: str, *, spread: bool = False
) -> Floats:
    """Return numbers (K, L), given in the configuration or by columns of the file.

    A list has one number for each label or, without labels, for each place.
    """
    count, size = shape
    items = value if isinstance(value, list) else [value]
    if isinstance(items[0], str):
        if table is None:
            raise ConfigError(f"{key}: must be a number or a list of numbers without a file, was {items[0]!r}")
        found = table.columns(items, unit, key, spread=spread)
        if found.shape[1] != size:
            which = "it has no labels" if size == 1 else "one for each label of the quantity"
            raise ConfigError(f"{key}: must be {columns(size)} ({which}), was {found.shape[1]}")
        if len(found) != count:
            raise ConfigError(f"{key}: must have {count_noun(count, 'row')}, as the coordinates, had {len(found)}")
        return found
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except ValueError:
        raise ConfigError(f"{key}: must be lists of the same length") from None
    if numbers.ndim == 1 and size == 1 and len(numbers) == count:
        numbers = numbers[:, None]
    if numbers.ndim == 1 and (size == 1 or len(numbers) != size):
        wanted = f"one number, or a list of {count}: one for each place"
        if size > 1:
            wanted = f"one number, or a list of {size}: one for each label of the quantity"
        raise ConfigError(f"{key}: must be {wanted}, was a list of {len(numbers)}")
    if numbers.ndim == 2 and numbers.shape not in ((count, size), (1, size)):
        raise ConfigError(
            f"{key}: must be {count_noun(count, 'list')} (one for each place) of {size}, was {len(numbers)} of "
            f"{numbers.shape[1]}"
        )
    return np.broadcast_to(numbers, (count, size)).copy()


def _check_field_model(values: Sequence[_Value], key: str) -> None:
    """Raise `ConfigError` unless the values are linear functions of the Gaussian processes."""
    for value in values:
        if not value.expression.linear:
            raise ConfigError(
                f"{key}.values.{value.observation.name}.quantity: must be a linear function of latents with link = "
                f"'identity' with forward.kind = 'field', was {value.expression.text!r}; make the logarithm of a "
                "positive quantity the latent, and let the forward model compute its exponential"
            )


def _check_lengths(
    extents: Floats, values: Sequence[_Value], latents: Sequence[Latent], coordinates: Sequence[Column], key: str
) -> None:
    """Raise `ConfigError` if an interval is too long for the quadrature of averages."""
    used = {latent for value in values for latent in value.expression.latents}
    nodes = NODES[int(np.count_nonzero(extents, axis=1).max())]
    for latent in (latent for latent in latents if latent.name in used):
        lengths = 2.0 * extents / latent.correlation_length(extents.shape[1])
        place, d = (int(i) for i in np.unravel_index(int(np.argmax(lengths)), lengths.shape))
        if lengths[place, d] > LONGEST_PER_NODE * nodes:
            raise ConfigError(
                f"{key}.coordinates.{coordinates[d].name}: must be an interval of at most "
                f"{LONGEST_PER_NODE * nodes:g} length-scales of {latent.name!r}, was {lengths[place, d]:.3g} at place "
                f"{place + 1}; give shorter intervals"
            )


def _check_links(extents: Floats, values: Sequence[_Value], latents: Sequence[Latent], key: str) -> None:
    """Raise `ConfigError` if an average over an interval is one of a latent that is not the process itself."""
    if not np.any(extents):
        return
    links = {latent.name: latent.link.name for latent in latents}
    white = [latent.name for latent in latents if "white.variance" in latent.kernel.qualified_names]
    for value in values:
        name = next((one for one in value.expression.latents if one in white), None)
        if name is not None:
            raise ConfigError(
                f"{key}.values.{value.observation.name}.quantity: must have latents without a white kernel for an "
                f"average over an interval, was {value.expression.text!r}; the kernel of {name!r} has a white part"
            )
        name = next((one for one in value.expression.latents if links[one] != "identity"), None)
        if name is not None:
            raise ConfigError(
                f"{key}.values.{value.observation.name}.quantity: must have latents with link = 'identity' for an "
                f"average over an interval, was {value.expression.text!r}; {name!r} has link = {links[name]!r}"
            )
        if not value.expression.linear:
            raise ConfigError(
                f"{key}.values.{value.observation.name}.quantity: must be a linear function of the latents for an "
                f"average over an interval, was {value.expression.text!r}"
            )
