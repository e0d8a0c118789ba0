"""A simulator from a PEST control file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import chain
from pathlib import Path, PurePosixPath

from ..executables import Bounds, ExecutableModel
from ..flat_names import match_names
from ..foreign_case import CaseParameter, PestCase
from ..programs import InputFile, LocalFile
from ..protocol import AdapterError, Quantity
from ..quantities import check_quantities, did_you_mean
from ..templates import TemplateError
from .case_features import describe_features
from .command_line import split_command
from .control import Control, read_control
from .control_sections import SETTING
from .files import find_file, read_setting
from .instructions import InstructionFile, Instructions, load_instructions
from .pest_template import Parameter, PestTemplate, named_parameters

_log = logging.getLogger(__name__)


def pest_model(
    control: Path,
    inputs: tuple[Quantity, ...],
    outputs: tuple[Quantity, ...],
    *,
    files: tuple[LocalFile, ...] = (),
    timeout: float | None = None,
    threads: int = 1,
    environment: Mapping[str, str] | None = None,
    bounds: Mapping[str, Bounds] | None = None,
    partial: bool = False,
    keep: str = "failed",
) -> ExecutableModel:
    """Return a model of a PEST control file, with its template and instruction files and its model command line.

    Inputs are parameters and outputs are observations, by name and regardless of case: an input ``depth`` with label 1
    is the parameter ``depth[1]``, ``depth_1`` or ``depth1``; with label ``"hk"`` also ``hk``. Values are those of PEST:
    the model reads them times ``SCALE`` plus ``OFFSET``. A parameter that is not an input has its initial value,
    whether it is fixed or not. A tied parameter keeps its ratio to its parent. Bounds, weights, groups and prior
    information are ignored. Several model command lines are run one after the other. One with pipes or redirections is
    run by ``/bin/sh``, as by PEST.

    The model runs in a directory of its own. Files beside the control file that are named in the command line are
    copied there; all other files that the model reads must be in `files`.

    Parameters
    ----------
    control : Path
        The ``.pst`` file, of the older or the newer style; paths in it are relative to it.
    inputs, outputs : tuple of Quantity
    files, timeout, threads, environment, bounds, partial, keep
        As in `ExecutableModel`; files are relative to the control file.

    Returns
    -------
    ExecutableModel

    Raises
    ------
    AdapterError
        The files are invalid, or an input or output is not in them.
    """
    check_quantities("inputs", inputs)
    check_quantities("outputs", outputs)
    folder = control.absolute().parent
    case = read_control(control)
    model_files = {model_file for _, model_file in case.files}
    commands, scripts = zip(*(split_command(line, control, model_files) for line in case.commands), strict=True)
    parameters = _assign_parameters(case, inputs, control)
    templates, reader = _load_files(case, folder, parameters)
    _check_inputs_used(inputs, case, templates, control)
    match_names("outputs", outputs, case.observations or reader.names, f"an observation of {control}")
    reader.check(outputs)
    # A file in the command line may also be written by a template, or be left from an earlier run.
    named = {*(file.place for file in files), *(PurePosixPath(model_file) for _, model_file in case.files)}
    try:
        return ExecutableModel(
            command=commands[0],
            then=commands[1:],
            inputs=inputs,
            outputs=outputs,
            input_files=templates,
            output_files=(reader,),
            files=(*files, *(s for s in dict.fromkeys(chain.from_iterable(scripts)) if s.place not in named)),
            timeout=timeout,
            threads=threads,
            environment=environment or {},
            bounds=bounds or {},
            partial=partial,
            keep=keep,
            search_path=folder,
            name=control.stem,
            case=_describe_case(case, control, inputs, outputs, parameters),
        )
    except AdapterError as error:
        if error.setting.startswith(("command", "input_files", "output_files")):
            raise AdapterError(SETTING, f"{control}: {error.sentence}") from error
        raise


def _describe_case(
    case: Control,
    control: Path,
    inputs: tuple[Quantity, ...],
    outputs: tuple[Quantity, ...],
    parameters: Mapping[str, Parameter],
) -> PestCase:
    columns = match_names("inputs", inputs, case.parameters, "a parameter")
    observed = match_names("outputs", outputs, case.observations, "an observation") if case.observations else {}
    features = describe_features(case, adjusted=set(columns), observed=set(observed))
    wired = (
        CaseParameter(name, columns.get(own.tied_to or name), parameters[name].ratio, own.value)
        for name, own in case.parameters.items()
    )
    return PestCase(control, tuple(features), tuple(wired))


def _assign_parameters(case: Control, inputs: tuple[Quantity, ...], control: Path) -> dict[str, Parameter]:
    wired = match_names("inputs", inputs, case.parameters, f"a parameter of {control}")
    sources = {name: column.source for name, column in named_parameters(inputs).items()}
    left = []
    parameters: dict[str, Parameter] = {}
    for name, own in case.parameters.items():
        source, ratio = "", 1.0
        if name in wired:
            if own.transform == "tied":
                raise AdapterError("inputs", f"{name!r} is tied in {control}; it follows {own.tied_to!r}: name that")
            source = sources.get(name, name)
        elif own.tied_to in wired:
            parent = case.parameters[own.tied_to].value
            if parent == 0.0:
                raise AdapterError(SETTING, f"{control}: {name!r} is tied to {own.tied_to!r}, whose value is 0")
            source, ratio = sources.get(own.tied_to, own.tied_to), own.value / parent
        elif own.transform in ("none", "log"):
            left.append(name)
        parameters[name] = Parameter(own.value, source, ratio, own.scale, own.offset)
    if left:
        _log.info("parameters of %s that are no inputs keep their initial value: %s", control, ", ".join(left))
    return parameters


def _load_files(
    case: Control, folder: Path, parameters: Mapping[str, Parameter]
) -> tuple[tuple[InputFile, ...], InstructionFile]:
    """Read the templates and the instructions, which are distinguished by their first word."""
    templates: list[InputFile] = []
    instructions: list[tuple[Instructions, str | None]] = []
    delimiters = "".join(case.options.get("additional_ins_delimiters", "").split())
    for pest_file, model_file in case.files:
        path = find_file(folder, pest_file)
        text = read_setting(SETTING, path)
        if text[:3].lower() == "pif":
            instructions.append((load_instructions(SETTING, path, delimiters), model_file))
            continue
        try:
            template = PestTemplate(text, parameters)
        except TemplateError as error:
            raise AdapterError(SETTING, f"{path}, {error}") from error
        for name in template.names:
            if name not in parameters:
                raise AdapterError(SETTING, f"{path}: {name!r} is no parameter; {did_you_mean(name, parameters)}")
        templates.append(InputFile(template, model_file))
    if not templates or not instructions:
        raise AdapterError(SETTING, "must name at least one template file and one instruction file")
    return tuple(templates), InstructionFile(tuple(instructions))


def _check_inputs_used(
    inputs: tuple[Quantity, ...], case: Control, templates: tuple[InputFile, ...], control: Path
) -> None:
    """Raise `AdapterError` if an input is a parameter that is in no template."""
    used: set[str] = set()
    for file in templates:
        if isinstance(file.template, PestTemplate):
            used.update(file.template.sources)
    sources = {name: column.source for name, column in named_parameters(inputs).items()}
    for name in match_names("inputs", inputs, case.parameters, "a parameter"):
        if sources.get(name, name) not in used:
            raise AdapterError("inputs", f"{name!r} is a parameter of {control}, but in none of its templates")
