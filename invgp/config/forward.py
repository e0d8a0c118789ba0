"""The simulator, and the wires between its names and units and the survey's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from invgp.adapters import (
    AdapterError,
    BatchedModel,
    CallableModel,
    ForwardModel,
    PersistentModel,
    Quantity,
    UmbridgeModel,
)
from invgp.config.programs import build_dakota, build_executable, build_pest, settings_of
from invgp.config.schema import Config
from invgp.config.sentences import one_line, path_of, suggestion
from invgp.config.simulators import (
    AnySimulator,
    CallableSection,
    DakotaSection,
    ExecutableSection,
    InputSection,
    OutputSection,
    PestSection,
    UmbridgeSection,
)
from invgp.errors import ConfigError
from invgp.problem import Grid, Labels, Latent, Observation, Survey, Wire
from invgp.units import conversion

Wires = tuple[Wire, ...]
Quantities = tuple[Quantity, ...]
Sources = dict[str, tuple[str, Labels | None]]

# Of these, the keys of the config are the settings of the adapter.
_MODELS: dict[str, Callable[..., ForwardModel]] = {
    "callable": CallableModel,
    "persistent": PersistentModel,
    "batched": BatchedModel,
    "umbridge": UmbridgeModel,
}


def build_forward(
    config: Config, survey: Survey, latents: Sequence[Latent], grid: Grid | None, directory: Path
) -> tuple[ForwardModel, Wires, Wires]:
    """The simulator, the wires into it and the wires out of it."""
    section = config.forward
    known = _sources(survey, latents)
    inputs = [_input(i, item, known) for i, item in enumerate(section.inputs)]
    outputs = [_output(i, item, survey.observations) for i, item in enumerate(section.outputs)]
    inward, outward = tuple(wire for _, wire in inputs), tuple(wire for _, wire in outputs)
    _check_each_once("latents", "forward.inputs", [v.name for v in latents], inward)
    _check_each_once("survey.observations", "forward.outputs", [o.name for o in survey.observations], outward)
    quantities_in, quantities_out = tuple(q for q, _ in inputs), tuple(q for q, _ in outputs)
    if grid is not None:
        sizes = {latent.name: grid.size for latent in latents}
        pairs = zip(quantities_in, inward, strict=True)
        quantities_in = tuple(_everywhere(q, sizes.get(wire.name, survey.size)) for q, wire in pairs)
        quantities_out = tuple(_at_all_sites(q, survey.size) for q in quantities_out)
    model = _model(section, quantities_in, quantities_out, directory)
    return model, inward, outward


def _sources(survey: Survey, latents: Sequence[Latent]) -> Sources:
    """What can go into the simulator: name -> (unit, labels)."""
    sources: Sources = {latent.name: (latent.unit, latent.labels) for latent in latents}
    for column in (*survey.covariates, *survey.coordinates):
        sources[column.name] = (column.unit, None)
    return sources


def _input(index: int, section: InputSection, known: Sources) -> tuple[Quantity, Wire]:
    source = section.source or section.name
    key = path_of("forward", "inputs", index)
    if source not in known:
        raise ConfigError(
            f"{key}: must be a latent, a covariate or a coordinate, was {source!r}{suggestion(source, list(known))}"
        )
    unit, labels = known[source]
    own = section.unit or unit
    change = conversion(unit, own)
    if change is None:
        raise ConfigError(f"{key}.unit: must be a unit that {source!r} (in {unit!r}) can be converted to, was {own!r}")
    return Quantity(section.name, own, labels), Wire(source, change)


def _output(index: int, section: OutputSection, observations: Sequence[Observation]) -> tuple[Quantity, Wire]:
    name = section.observation or section.name
    key = path_of("forward", "outputs", index)
    known = {o.name: o for o in observations}
    if name not in known:
        raise ConfigError(f"{key}: must be an observation of the survey, was {name!r}{suggestion(name, list(known))}")
    unit = known[name].unit
    own = section.unit or unit
    change = conversion(own, unit)
    if change is None:
        raise ConfigError(
            f"{key}.unit: must be a unit that can be converted to that of {name!r} ({unit!r}), was {own!r}"
        )
    return Quantity(section.name, own, known[name].labels), Wire(name, change)


def _everywhere(quantity: Quantity, size: int) -> Quantity:
    """The quantity at so many places, numbered from 1: all places of the first label, then of the next."""
    numbers = range(1, size + 1)
    if quantity.labels is None:
        return Quantity(quantity.name, quantity.unit, tuple(numbers))
    labels = tuple(f"{label},{n}" for label in quantity.labels for n in numbers)
    return Quantity(quantity.name, quantity.unit, labels)


def _at_all_sites(quantity: Quantity, sites: int) -> Quantity:
    """The quantity at all sites, numbered from 1: all labels of the first site, then of the next."""
    numbers = range(1, sites + 1)
    if quantity.labels is None:
        return Quantity(quantity.name, quantity.unit, tuple(numbers))
    labels = tuple(f"{label},{n}" for n in numbers for label in quantity.labels)
    return Quantity(quantity.name, quantity.unit, labels)


def _check_each_once(owner: str, key: str, names: Sequence[str], wires: Wires) -> None:
    used = [wire.name for wire in wires]
    for name in names:
        if used.count(name) != 1:
            was = f"named {used.count(name)} times" if name in used else "not named"
            raise ConfigError(f"{key}: must name {name!r} of [{owner}] once, was {was}")


def _model(section: AnySimulator, inputs: Quantities, outputs: Quantities, directory: Path) -> ForwardModel:
    try:
        if isinstance(section, PestSection):
            return build_pest(section, inputs, outputs, directory)
        if isinstance(section, DakotaSection):
            return build_dakota(section, inputs, outputs, directory)
        if isinstance(section, ExecutableSection):
            return build_executable(section, inputs, outputs, directory)
        settings = settings_of(section, "adapter", "kind", "inputs", "outputs")
        if isinstance(section, CallableSection) and section.kind == "field" and not section.vectorised:
            settings["rows"] = 1  # a run is long: each may have a worker of its own
        if not isinstance(section, UmbridgeSection):
            settings["search_path"] = directory
        return _MODELS[section.adapter](inputs=inputs, outputs=outputs, **settings)
    except AdapterError as error:
        # What importing a function raised may come in several lines.
        raise ConfigError(f"forward.{error.setting}: {one_line(error.sentence)}") from error
