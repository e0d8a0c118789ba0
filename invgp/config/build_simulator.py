"""Adapter of the simulator, and the connection of its inputs and outputs to the problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from invgp.adapters import (
    AdapterError,
    BatchedModel,
    CallableModel,
    ForwardModel,
    PersistentModel,
    Quantity,
    UmbridgeModel,
)
from invgp.config.build_programs import (
    Names,
    build_dakota,
    build_executable,
    build_pest,
    name_numbers,
    settings_of,
    text_column,
)
from invgp.config.survey_tables import Table
from invgp.config.variable_names import labels_of
from invgp.errors import ConfigError, Mistakes, build_each
from invgp.formatting import key_path, one_line, suggest
from invgp.problem import Labels, SimulatorVariable
from invgp.settings.configuration import Config, LatentSection, ObservationSection
from invgp.settings.simulators import (
    AnySimulator,
    CallableSection,
    DakotaSection,
    ExecutableSection,
    InputSection,
    OutputSection,
    PestSection,
    UmbridgeSection,
)
from invgp.units import conversion

Wires = tuple[SimulatorVariable, ...]
Quantities = tuple[Quantity, ...]
Ends = dict[str, tuple[str, Labels | None]]  # what a wire may lead from or to: its unit, its labels

# Of these, the keys of the config are the settings of the adapter.
_MODELS: dict[str, Callable[..., ForwardModel]] = {
    "callable": CallableModel,
    "persistent": PersistentModel,
    "batched": BatchedModel,
    "umbridge": UmbridgeModel,
}


class Wiring(NamedTuple):
    """Inputs and outputs of the simulator, each with the variable of the problem to which it is connected."""

    inputs: tuple[tuple[Quantity, SimulatorVariable], ...]
    outputs: tuple[tuple[Quantity, SimulatorVariable], ...]

    @property
    def inward(self) -> Wires:
        """Variables of the inputs."""
        return tuple(wire for _, wire in self.inputs)

    @property
    def outward(self) -> Wires:
        """Variables of the outputs."""
        return tuple(wire for _, wire in self.outputs)


class Places(NamedTuple):
    """Numbers of nodes and sites of a field model."""

    nodes: int
    sites: int


def build_wiring(config: Config) -> Wiring:
    """Build the connections of a simulator for one site."""
    section, mistakes = config.forward, Mistakes()
    latents = _units_and_labels("latents", config.latents, config)
    observations = _units_and_labels("survey.observations", config.survey.observations, config)
    columns: Ends = {name: (c.unit, None) for name, c in (config.survey.covariates | config.survey.coordinates).items()}
    elsewhere = {name for source in config.sources.values() for name in names_of_inputs(source.forward)}
    if config.prior is not None:  # its data may depend on latents that no simulator takes
        elsewhere |= set(config.latents)
    inputs = mistakes.collect(lambda: _build_inputs(section, latents, columns, elsewhere))
    outputs = mistakes.collect(lambda: _build_outputs(section, observations))
    mistakes.raise_all()
    if inputs is None or outputs is None:
        raise ConfigError("forward: cannot be used")
    return Wiring(inputs, outputs)


def names_of_inputs(section: AnySimulator) -> list[str]:
    """Return the latents and site columns that a simulator takes."""
    return [variable.source or variable.name for variable in section.inputs]


def build_model(
    config: Config, wiring: Wiring, places: Places | None, directory: Path, table: Table | None = None
) -> ForwardModel:
    """Build the adapter of the simulator.

    Parameters
    ----------
    config : Config
    wiring : Wiring
    places : Places or None
        Numbers of nodes and sites of a field model; None for a site model.
    directory : Path
        Directory of the configuration.
    table : Table, optional
        Survey table, for names in a column of it.
    """
    inputs, outputs = tuple(q for q, _ in wiring.inputs), tuple(q for q, _ in wiring.outputs)
    if places is not None:
        inputs = tuple(_of_field_model(q, w, config, places) for q, w in zip(inputs, wiring.inward, strict=True))
        outputs = tuple(_at_all_sites(q, places.sites) for q in outputs)

    def name_quantity(direction: str, index: int, quantity: Quantity, names: Names | None) -> Quantity:
        if names is None:
            return quantity
        key, nodes = key_path("forward", direction, index, "names"), direction == "inputs" and places is not None
        column = partial(text_column, config, names, key, nodes=nodes, table=table, directory=directory)
        return name_numbers(quantity, names, key, config.forward.adapter, column)

    sections = config.forward.inputs, config.forward.outputs
    inputs = build_each(lambda i: name_quantity("inputs", i, inputs[i], sections[0][i].names), range(len(inputs)))
    outputs = build_each(lambda i: name_quantity("outputs", i, outputs[i], sections[1][i].names), range(len(outputs)))
    return _build_adapter(config.forward, inputs, outputs, directory)


def build_coarse_model(
    config: Config, wiring: Wiring, places: Places | None, directory: Path, table: Table | None = None
) -> ForwardModel | None:
    """Build the adapter of the coarse model; None if there is none. The arguments are those of `build_model`."""
    section = config.forward.coarse
    if section is None:
        return None
    if places is None:
        raise ConfigError("forward.coarse: must be left out unless forward.kind = 'field', was given")
    own = config.model_copy(update={"forward": section})
    try:
        ends = build_wiring(own)
        model = build_model(own, ends, places, directory, table)
    except ConfigError as error:
        raise ConfigError([re.sub(r"^forward\b", "forward.coarse", text) for text in error.sentences]) from None
    wrong = [
        f"forward.coarse.{side}: must be those of [forward], in the same order and units, or left out"
        for side, ours, theirs in (
            ("inputs", wiring.inward, ends.inward),
            ("outputs", wiring.outward, ends.outward),
        )
        if ours != theirs
    ]
    if wrong:
        raise ConfigError(wrong)
    return model


def _units_and_labels(
    owner: str, sections: Mapping[str, LatentSection] | Mapping[str, ObservationSection], config: Config
) -> Ends:
    """Return the unit and the labels of each latent or observation."""

    def end(name: str) -> tuple[str, Labels | None]:
        section = sections[name]
        return section.unit, labels_of(config, section.dimension, f"{owner}.{name}")

    return dict(zip(sections, build_each(end, sections), strict=True))


def _build_inputs(
    section: AnySimulator, latents: Ends, columns: Ends, elsewhere: Collection[str]
) -> tuple[tuple[Quantity, SimulatorVariable], ...]:
    found = build_each(lambda item: _build_input(*item, latents | columns), enumerate(section.inputs))
    wires = [wire for _, wire in found]
    used = {wire.name for wire in wires}
    names = [name for name in latents if name in used or name not in elsewhere]
    _check_each_once("latents", "forward.inputs", names, wires)
    return found


def _build_outputs(section: AnySimulator, observations: Ends) -> tuple[tuple[Quantity, SimulatorVariable], ...]:
    found = build_each(lambda item: _build_output(*item, observations), enumerate(section.outputs))
    _check_each_once("survey.observations", "forward.outputs", list(observations), [wire for _, wire in found])
    return found


def _build_input(index: int, section: InputSection, known: Ends) -> tuple[Quantity, SimulatorVariable]:
    source = section.source or section.name
    key = key_path("forward", "inputs", index)
    if source not in known:
        raise ConfigError(
            f"{key}: must be a latent, a covariate or a coordinate, was {source!r}{suggest(source, list(known))}"
        )
    unit, labels = known[source]
    own = section.unit or unit
    change = conversion(unit, own)
    if change is None:
        raise ConfigError(f"{key}.unit: must be a unit that {source!r} (in {unit!r}) can be converted to, was {own!r}")
    return Quantity(section.name, own, labels), SimulatorVariable(source, change)


def _build_output(index: int, section: OutputSection, known: Ends) -> tuple[Quantity, SimulatorVariable]:
    name = section.observation or section.name
    key = key_path("forward", "outputs", index)
    if name not in known:
        raise ConfigError(f"{key}: must be an observation of the survey, was {name!r}{suggest(name, list(known))}")
    unit, labels = known[name]
    own = section.unit or unit
    change = conversion(own, unit)
    if change is None:
        raise ConfigError(
            f"{key}.unit: must be a unit that can be converted to that of {name!r} ({unit!r}), was {own!r}"
        )
    return Quantity(section.name, own, labels), SimulatorVariable(name, change)


def _of_field_model(quantity: Quantity, wire: SimulatorVariable, config: Config, places: Places) -> Quantity:
    """Return an input of a field model: a latent at all nodes, a scalar as it is, or a column at all sites."""
    if wire.name not in config.latents:
        return _at_all_nodes(quantity, places.sites)
    return quantity if config.latents[wire.name].domain == "scalar" else _at_all_nodes(quantity, places.nodes)


def _at_all_nodes(quantity: Quantity, size: int) -> Quantity:
    """Return the quantity at all nodes or sites, numbered from 1: all places of the first label, then of the next."""
    numbers = range(1, size + 1)
    if quantity.labels is None:
        return Quantity(quantity.name, quantity.unit, tuple(numbers))
    labels = tuple(f"{label},{n}" for label in quantity.labels for n in numbers)
    return Quantity(quantity.name, quantity.unit, labels)


def _at_all_sites(quantity: Quantity, sites: int) -> Quantity:
    """Return the quantity at all sites, numbered from 1: all labels of the first site, then of the next."""
    numbers = range(1, sites + 1)
    if quantity.labels is None:
        return Quantity(quantity.name, quantity.unit, tuple(numbers))
    labels = tuple(f"{label},{n}" for n in numbers for label in quantity.labels)
    return Quantity(quantity.name, quantity.unit, labels)


def _check_each_once(owner: str, key: str, names: Sequence[str], wires: Sequence[SimulatorVariable]) -> None:
    used = [wire.name for wire in wires]
    wrong = []
    for name in names:
        if used.count(name) != 1:
            was = f"named {used.count(name)} times" if name in used else "not named"
            wrong.append(f"{key}: must name {name!r} of [{owner}] once, was {was}")
    if wrong:
        raise ConfigError(wrong)


def _build_adapter(section: AnySimulator, inputs: Quantities, outputs: Quantities, directory: Path) -> ForwardModel:
    try:
        if isinstance(section, PestSection):
            return build_pest(section, inputs, outputs, directory)
        if isinstance(section, DakotaSection):
            return build_dakota(section, inputs, outputs, directory)
        if isinstance(section, ExecutableSection):
            return build_executable(section, inputs, outputs, directory)
        settings = settings_of(section, "adapter", "kind", "inputs", "outputs", "coarse")
        if isinstance(section, CallableSection) and section.kind == "field" and not section.vectorised:
            settings["rows"] = 1  # a run is long: each may have a worker of its own
        if isinstance(section, UmbridgeSection):
            settings["urls"] = tuple(_read_addresses(section.urls, directory))
        else:
            settings["search_path"] = directory
        return _MODELS[section.adapter](inputs=inputs, outputs=outputs, **settings)
    except AdapterError as error:
        # What importing a function raised may come in several lines.
        raise ConfigError(f"forward.{error.setting}: {one_line(error.sentence)}") from error


def _read_addresses(urls: Sequence[str], directory: Path) -> Iterator[str]:
    """Yield the addresses of servers; an entry that is no address names a file with one address per line."""
    for place, url in enumerate(urls):
        if "://" in url or not (directory / url).is_file():
            yield url
            continue
        try:
            lines = (directory / url).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"urls[{place}]", f"the file {url!r} cannot be read: {error}") from error
        found = [text for line in lines if (text := line.partition("#")[0].strip())]
        if not found:
            raise AdapterError(f"urls[{place}]", f"the file {url!r} must contain one address per line, but is empty")
        yield from found
