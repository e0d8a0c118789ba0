"""Project for a PEST case: a configuration with priors, data and noise of its control file."""

from __future__ import annotations

import math
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from invgp.adapters import AdapterError
from invgp.adapters.foreign_case import PestCase
from invgp.adapters.pest.case_features import count_things, describe_features, list_names
from invgp.adapters.pest.control import Control, read_control
from invgp.adapters.pest.control_sections import ControlSections, split_words
from invgp.adapters.pest.files import convert_path, find_file, read_setting
from invgp.adapters.pest.instructions import InstructionError, Instructions
from invgp.adapters.pest.matrices import NamedCovariance, read_covariance
from invgp.adapters.pest.pest_template import PestTemplate
from invgp.adapters.pest.pilot_points import Point, find_coordinates, read_coordinates
from invgp.adapters.pest.prior_information import PriorEquation
from invgp.adapters.templates import TemplateError
from invgp.errors import ConfigError
from invgp.scaffolds.pest_config_text import (
    CaseConfig,
    Group,
    config_lines,
    points_name,
    points_table,
    quote_csv,
    read_points_table,
)
from invgp.scaffolds.pest_groups import ParameterGroups
from invgp.scaffolds.pest_model_files import model_files
from invgp.scaffolds.pest_noise import noise_covariance, select_data
from invgp.scaffolds.pest_priors import ParameterPrior, join_priors, parameter_priors

_COMPARED = ("survey", "dimensions", "grid", "latents", "direct", "noise")  # sections that --from-pest writes
_FOREIGN = "bounds, weights and prior information"
_FOREIGN_FATE = (
    "not used: prior, noise and data are those of this configuration, which `invgp init --from-pest` did not write"
)


@dataclass
class PestProject:
    """The files of a project, and what became of each feature of the control file.

    Attributes
    ----------
    contents : dict of str to bytes
        The files by name.
    notes : list of tuple of str
        Each feature that concerns prior, noise or data, and what became of it.
    features : list of tuple of str
        All features and what became of them.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    features: list[tuple[str, str]] = field(default_factory=list)


def project_from_pest(control: Path, directory: Path, coordinates: Path | None = None) -> PestProject:
    """Return the files of a project for a PEST case.

    Parameters
    ----------
    control : Path
        The control file.
    directory : Path
        Directory of the project.
    coordinates : Path, optional
        Table of the coordinates of parameters.

    Raises
    ------
    ConfigError
        The case is invalid, or nothing can be inferred.
    """
    try:
        points = {} if coordinates is None else read_coordinates("coordinates", coordinates)
        return _Builder(control, directory, points).build()
    except AdapterError as error:
        option = "--coordinates" if error.setting == "coordinates" else "--from-pest"
        raise ConfigError(f"{option}: {error.sentence}") from error


def describe_case(case: PestCase, config: Path) -> list[tuple[str, str]]:
    """Return each feature of the control file of a model, and what became of it in a configuration.

    Parameters
    ----------
    case : PestCase
        The case of the model in the configuration.
    config : Path
        The configuration. What differs from the one that `project_from_pest` writes is named.
    """
    actual = tomllib.loads(config.read_text(encoding="utf-8"))
    try:
        written = read_points_table(config.parent / points_name(case.control))
        project = _Builder(case.control, config.parent, written).build()
    except AdapterError as error:
        return [*case.features, (_FOREIGN, f"{_FOREIGN_FATE}: {error.sentence}")]
    expected = tomllib.loads(project.contents["survey.toml"].decode())
    if not set(expected["latents"]) <= set(actual.get("latents", {})):
        return [*case.features, (_FOREIGN, _FOREIGN_FATE)]
    edited = [key for section in _COMPARED for key in _differences(section, expected, actual)]
    edited += [
        name
        for name, content in project.contents.items()
        if name != "survey.toml" and not _has_content(config.parent / name, content)
    ]
    found = merge_notes(case.features, project.notes)
    if edited:
        about = (
            "differs from what `invgp init --from-pest` writes, to which these lines refer; the configuration is used"
        )
        found.append((f"edited configuration ({list_names(edited)})", about))
    return found


def merge_notes(features: Iterable[tuple[str, str]], notes: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return features and notes; a note about a feature replaces what was said about it."""
    noted = {feature for feature, _ in notes}
    return [*((feature, fate) for feature, fate in features if feature not in noted), *notes]


def _differences(key: str, expected: Any, actual: Any) -> Iterator[str]:
    """Yield the keys, such as ``latents.k.std``, at or below `key` whose values in two tables differ."""
    name = key.rpartition(".")[2]
    old, new = expected.get(name, {}), actual.get(name, {})
    if isinstance(old, dict) and isinstance(new, dict):
        for inner in [*old, *(inner for inner in new if inner not in old)]:
            yield from _differences(f"{key}.{inner}", old, new)
    elif old != new:
        yield key


def _has_content(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


class _Builder:
    """Builds the project of a case."""

    def __init__(self, control: Path, directory: Path, coordinates: Mapping[str, Point]) -> None:
        self.control, self.directory, self.folder = control, directory, control.absolute().parent
        self.case: Control = read_control(control)
        self.project = PestProject()
        self.covariance = self._read_parcov()
        self.points = find_coordinates(self.case, self.folder) | dict(coordinates)
        self.written, self.read, self.external = self._names_in_files()
        variances = self.covariance.variances if self.covariance else {}
        priors = {n: p for n, p in parameter_priors(self.case, variances).items() if n in self.written}
        self.joint = join_priors(priors, self.covariance)
        sources = Counter(prior.source for prior in self.priors.values())
        self._note("prior standard deviations", ", ".join(f"{n} from {source}" for source, n in sources.items()))
        for prior in self.priors.values():
            self.project.notes += [("remark", remark) for remark in prior.remarks]

    @property
    def priors(self) -> dict[str, ParameterPrior]:
        return self.joint.priors

    def build(self) -> PestProject:
        if not self.priors:
            raise AdapterError("control", f"{self.control} has no parameter that is adjustable and in a template")
        linear = self._apply_equations()
        groups = ParameterGroups(self.case, self.joint, self.points, self.covariance, self.project.notes).build()
        groups = self._limit_values(groups, linear)
        data = select_data(self.case, self.read, self.project.notes)
        if not data:
            raise AdapterError("control", f"{self.control} has no observation with a positive weight and a value")
        case = describe_features(self.case, adjusted=set(self.priors), observed={datum.name for datum in data})
        noise = noise_covariance(self.case, self.folder, data, self.project.notes)
        self.project.features = merge_notes(case, self.project.notes)
        stem, contents = self.control.stem, self.project.contents
        rows = [f"{quote_csv(d.name)},{d.value!r},{d.std!r},{quote_csv(d.group)}" for d in data]
        contents[f"{stem}_observations.csv"] = "\n".join(["name,value,std,group", *rows, ""]).encode()
        if noise is not None:
            lines = (",".join(map(repr, row)) for row in noise.tolist())
            contents[f"{stem}_noise.csv"] = ("\n".join(lines) + "\n").encode()
        fields = [group for group in groups if group.points]
        if fields:
            contents[points_name(self.control)] = points_table(fields).encode()
        files, size = self._files()
        relative = os.path.relpath(self.control, self.directory)
        config = CaseConfig(
            relative, self.project.features, groups, self.priors, linear, files, size, noise is not None
        )
        contents["survey.toml"] = ("\n".join(config_lines(config)) + "\n").encode()
        return self.project

    def _note(self, feature: str, outcome: str) -> None:
        self.project.notes.append((feature, outcome))

    def _names_in_files(self) -> tuple[set[str], set[str], set[Path]]:
        """Return the parameters in templates, the observations in instructions, and the files of PEST itself."""
        written, read = set[str](), set[str]()
        own = {self.control.absolute()}
        for pest_file, _ in self.case.files:
            path = find_file(self.folder, pest_file)
            own.add(path)
            text = read_setting("control", path)
            try:
                if text[:3].lower() == "pif":
                    read.update(Instructions(text).names)
                else:
                    written.update(PestTemplate(text).names)
            except (InstructionError, TemplateError) as error:
                raise AdapterError("control", f"{path}, {error}") from error
        sections = ControlSections(self.control)
        for name in sections.names:
            for _, line in sections.lines(f"{name} external"):
                own.add(find_file(self.folder, split_words(line)[0]))
        matrices = [self.case.options.get(name, "") for name in ("parcov", "obscov")]
        for name in filter(None, [*matrices, *self.case.observation_groups.values()]):
            own.add(find_file(self.folder, name))
        missing = [n for n, p in self.case.parameters.items() if n not in written and p.transform in ("none", "log")]
        if missing:
            self._note(count_things(missing, "parameter", " in no template"), f"left out: {list_names(missing)}")
        return written, read, own

    def _read_parcov(self) -> NamedCovariance | None:
        name = self.case.options.get("parcov", "")
        if not name:
            return None
        path = find_file(self.folder, name)
        if not path.is_file():
            raise AdapterError("control", f"{self.control}: there is no file {path}, which the option parcov names")
        try:
            found = read_covariance("control", path, tuple(self.case.parameters))
        except AdapterError as error:
            self._note(f"option parcov({name})", f"not used: {error.sentence}")
            return None
        unknown = [n for n in found.names if n not in self.case.parameters]
        if unknown:
            self._note(count_things(unknown, "name", f" of {name!r}"), f"no parameters: {list_names(unknown)}")
        return found

    def _apply_equations(self) -> list[PriorEquation]:
        """Condition the priors on equations; return those that become direct data."""
        used, linear = list[str](), list[PriorEquation]()
        for equation in self.case.equations:
            reason = self._why_unused(equation)
            if reason:
                self._note(f"prior information {equation.name!r}", f"not used: {reason}")
                continue
            factors = equation.factors
            if len(factors) > 1 and not equation.log:
                linear.append(equation)
                continue
            unit = math.log(10.0) if equation.log else 1.0  # PEST means logarithms to base 10
            factors = {name: factor / unit for name, factor in factors.items()}
            self.joint = self.joint.condition(factors, equation.value, 1.0 / equation.weight)
            used.append(equation.name)
        what = " of prior information"
        if used:
            self._note(count_things(used, "equation", what), f"part of the prior: {list_names(used)}")
        if linear:
            names = list_names([equation.name for equation in linear])
            self._note(count_things(linear, "equation", f"{what} for several parameters"), f"direct data: {names}")
        return linear

    def _why_unused(self, equation: PriorEquation) -> str:
        """Return why an equation cannot be used; empty if it can."""
        if equation.group.startswith("regul"):
            return "regularisation, for which the prior stands in"
        if equation.weight <= 0.0:
            return "its weight is not positive"
        fixed = [name for name in equation.factors if name not in self.priors]
        if fixed:
            return f"{fixed[0]!r} is not adjustable"
        return self._why_not_normal(equation)

    def _why_not_normal(self, equation: PriorEquation) -> str:
        """Return why an equation is not one of the normal variables of a prior; empty if it is."""
        if any(term.log != self.priors[term.parameter].log for term in equation.terms):
            return "it uses the logarithm of a parameter without it, or vice versa"
        if len({term.log for term in equation.terms}) > 1:
            return "it connects log-transformed parameters with others"
        if len(equation.factors) > 1 and any(name in self.points for name in equation.factors):
            return "it connects several parameters that have coordinates"
        return ""

    def _limit_values(self, groups: list[Group], linear: list[PriorEquation]) -> list[Group]:
        """Return the groups, and note which bounds limit the values of the parameters."""
        in_equations = {name for equation in linear for name in equation.factors}
        limited, kept = list[str](), list[Group]()
        for group in groups:
            bounded = [name for name in group.parameters if self.priors[name].is_bounded]
            if not bounded:
                why = "none"
            elif group.log:
                why = "the prior is log-normal"
            elif group.points:
                why = "it is a field"
            elif not in_equations.isdisjoint(group.parameters):
                why = "direct data need a normal prior"
            elif len(bounded) < len(group.parameters):
                why = "not all parameters of the group have bounds"
            else:
                why = ""
                limited.append(group.name)
            if why and bounded:
                self._note(f"bounds of {group.name!r}", f"do not limit the values: {why}")
            kept.append(replace(group, bounded=not why))
        if limited:
            self._note(f"bounds of {list_names([repr(name) for name in limited])}", "limit the values")
        return kept

    def _files(self) -> tuple[list[str], int]:
        """Return the files that each run needs, and their size: all but those of PEST itself, and results."""
        outputs = {(self.folder / convert_path(model_file)).resolve() for _, model_file in self.case.files}
        own = {path.resolve() for path in self.external} | outputs
        project = {
            (self.directory / name).resolve() for name in (*self.project.contents, "survey.toml", "posterior.nc")
        }
        found = list(model_files(self.control.absolute(), self.directory, own | project))
        files = [file for entry in found for file in (entry.rglob("*") if entry.is_dir() else [entry])]
        size = sum(file.stat().st_size for file in files if file.is_file())
        return [entry.relative_to(self.folder).as_posix() for entry in found], size
