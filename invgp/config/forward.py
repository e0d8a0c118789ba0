"""The simulator, and the wires between its names and units and the survey's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from invgp.adapters import (
    AdapterError,
    CallableModel,
    ExecutableModel,
    ForwardModel,
    InputFile,
    OutputFile,
    Quantity,
)
from invgp.config.schema import CallableSection, Config, ExecutableSection, InputSection, OutputSection
from invgp.config.sentences import one_line, path_of, suggestion
from invgp.errors import ConfigError
from invgp.problem import Labels, Latent, Observation, Survey, Wire
from invgp.units import conversion

Wires = tuple[Wire, ...]
Sources = dict[str, tuple[str, Labels | None]]


def build_forward(
    config: Config, survey: Survey, latents: Sequence[Latent], directory: Path
) -> tuple[ForwardModel, Wires, Wires]:
    """The simulator, the wires into it and the wires out of it."""
    section = config.forward
    known = _sources(survey, latents)
    inputs = [_input(i, item, known) for i, item in enumerate(section.inputs)]
    outputs = [_output(i, item, survey.observations) for i, item in enumerate(section.outputs)]
    inward, outward = tuple(wire for _, wire in inputs), tuple(wire for _, wire in outputs)
    _check_each_once("latents", "forward.inputs", [v.name for v in latents], inward)
    _check_each_once("survey.observations", "forward.outputs", [o.name for o in survey.observations], outward)
    model = _model(section, tuple(q for q, _ in inputs), tuple(q for q, _ in outputs), directory)
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


def _check_each_once(owner: str, key: str, names: Sequence[str], wires: Wires) -> None:
    used = [wire.name for wire in wires]
    for name in names:
        if used.count(name) != 1:
            was = f"named {used.count(name)} times" if name in used else "not named"
            raise ConfigError(f"{key}: must name {name!r} of [{owner}] once, was {was}")


def _model(
    section: CallableSection | ExecutableSection,
    inputs: tuple[Quantity, ...],
    outputs: tuple[Quantity, ...],
    directory: Path,
) -> ForwardModel:
    try:
        if isinstance(section, CallableSection):
            return CallableModel(
                function=section.function,
                inputs=inputs,
                outputs=outputs,
                vectorised=section.vectorised,
                search_path=directory,
            )
        return ExecutableModel(
            command=tuple(section.command),
            inputs=inputs,
            outputs=outputs,
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
        # What importing a function raised may come in several lines.
        raise ConfigError(f"forward.{error.setting}: {one_line(error.sentence)}") from error
