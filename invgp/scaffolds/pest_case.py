"""Project for a PEST case: a configuration with priors, data and noise of its control file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from invgp.adapters import AdapterError
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
from invgp.config.variable_names import RESERVED
from invgp.errors import ConfigError
from invgp.problem import Floats
from invgp.scaffolds.column_headers import identifier
from invgp.scaffolds.pest_config_text import OBSERVATION, CaseConfig, Group, config_lines, points_table, quote_csv
from invgp.scaffolds.pest_joint_prior import find_fault, join_priors
from invgp.scaffolds.pest_priors import ParameterPrior, parameter_priors

SPACINGS = 3.0  # length-scale over the distance between pilot points, if no covariance gives it
FEWEST_POINTS = 3  # of a field
INEQUALITIES = (
    "l_",
    "less_",
    "g_",
    "greater_",
    "<@",
    ">@",
)  # names of groups whose observations PEST++ takes as limits
_RESULTS = re.compile(
    r"\.(rec|rei|res|sen|seo|par|parb|jco|jcb|jac|jst|mtt|rst|rmr|rns|rnj|rnu|svd|cnd|fpr|ofr|log|rmx|drf|pfm|ptr|pest)"
    r"(\.\w+)?$|\.(\d+|base|phi|obs|par|pdc|infl|scen)\..*(csv|jcb|txt)$",
    re.IGNORECASE,
)


@dataclass
class PestProject:
    """The files of a project, and what became of each feature of the control file.

    Attributes
    ----------
    contents : dict of str to bytes
        The files by name.
    notes : list of tuple of str
        Each feature and what became of it.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)


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
        return _Builder(control, directory, coordinates).build()
    except AdapterError as error:
        option = "--coordinates" if error.setting == "coordinates" else "--from-pest"
        raise ConfigError(f"{option}: {error.sentence}") from error


class _Builder:
    """Builds the project of a case."""

    def __init__(self, control: Path, directory: Path, coordinates: Path | None) -> None:
        self.control, self.directory, self.folder = control, directory, control.absolute().parent
        self.case: Control = read_control(control)
        self.project = PestProject()
        self.covariance = self._read_parcov()
        self.points = find_coordinates(self.case, self.folder)
        if coordinates is not None:
            self.points |= read_coordinates("coordinates", coordinates)
        self.written, self.read, self.external = self._names_in_files()
        variances = self.covariance.variances if self.covariance else {}
        priors = {n: p for n, p in parameter_priors(self.case, variances).items() if n in self.written}
        self.joint = join_priors(priors, self.covariance)
        for prior in self.priors.values():
            self.project.notes += [("remark", remark) for remark in prior.remarks]

    @property
    def priors(self) -> dict[str, ParameterPrior]:
        return self.joint.priors

    def build(self) -> PestProject:
        if not self.priors:
            raise AdapterError("control", f"{self.control} has no parameter that is adjustable and in a template")
        linear = self._apply_equations()
        groups = self._groups()
        data = self._data()
        if not data:
            raise AdapterError("control", f"{self.control} has no observation with a positive weight and a value")
        case = describe_features(self.case, adjusted=set(self.priors), observed={name for name, *_ in data})
        self.project.notes = [*case, *self.project.notes]
        stem, contents = self.control.stem, self.project.contents
        rows = [f"{quote_csv(name)},{value!r},{std!r},{quote_csv(group)}" for name, value, std, group in data]
        contents[f"{stem}_observations.csv"] = "\n".join(["name,value,std,group", *rows, ""]).encode()
        fields = [group for group in groups if group.points]
        if fields:
            contents[f"{stem}_points.csv"] = points_table(fields).encode()
        files, size = self._files()
        relative = os.path.relpath(self.control, self.directory)
        config = CaseConfig(relative, self.project.notes, groups, self.priors, linear, files, size)
        contents["survey.toml"] = ("\n".join(config_lines(config)) + "\n").encode()
        return self.project

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
        if "parcov" in self.case.options:
            own.add(find_file(self.folder, self.case.options["parcov"].strip("'\"")))
        missing = [n for n, p in self.case.parameters.items() if n not in written and p.transform in ("none", "log")]
        if missing:
            self.project.notes.append(
                (count_things(missing, "parameter", " in no template"), f"left out: {list_names(missing)}")
            )
        return written, read, own

    def _read_parcov(self) -> NamedCovariance | None:
        name = self.case.options.get("parcov", "").strip("'\"")
        if not name:
            return None
        try:
            found = read_covariance("control", find_file(self.folder, name))
        except AdapterError as error:
            self.project.notes.append((f"covariance file {name!r}", f"not used: {error.sentence}"))
            return None
        unknown = [n for n in found.names if n not in self.case.parameters]
        if unknown:
            self.project.notes.append(
                (count_things(unknown, "name", f" of {name!r}"), f"no parameters: {list_names(unknown)}")
            )
        return found

    def _apply_equations(self) -> list[PriorEquation]:
        """Condition the priors on equations of one parameter; return those that become direct data."""
        used, linear = list[str](), list[PriorEquation]()
        for equation in self.case.equations:
            fate = self._fate(equation)
            if fate:
                self.project.notes.append((f"prior information {equation.name!r}", f"not used: {fate}"))
            elif len(equation.terms) == 1:
                term = equation.terms[0]
                factor = term.factor / (math.log(10.0) if term.log else 1.0)
                self.joint = self.joint.condition(term.parameter, factor, equation.value, 1.0 / equation.weight)
                used.append(equation.name)
            else:
                linear.append(equation)
        if used:
            self.project.notes.append(
                (
                    count_things(used, "equation", " of prior information for one parameter"),
                    f"part of the prior: {list_names(used)}",
                )
            )
        if linear:
            names = [equation.name for equation in linear]
            self.project.notes.append(
                (
                    count_things(linear, "equation", " of prior information for several parameters"),
                    f"direct data: {list_names(names)}",
                )
            )
        return linear

    def _fate(self, equation: PriorEquation) -> str:
        """Return why an equation cannot be used; empty if it can."""
        if equation.group.startswith("regul"):
            return "regularisation, for which the prior stands in"
        if equation.weight <= 0.0:
            return "its weight is 0"
        fixed = [term.parameter for term in equation.terms if term.parameter not in self.priors]
        if fixed:
            return f"{fixed[0]!r} is not adjustable"
        logs = [(term.log, self.priors[term.parameter].log) for term in equation.terms]
        if len(logs) == 1:
            return "" if logs[0][0] == logs[0][1] else "it uses the logarithm of a parameter without it, or vice versa"
        if any(any(pair) for pair in logs) or any(term.parameter in self.points for term in equation.terms):
            return "it connects several parameters, of which some are log-transformed or have coordinates"
        return ""

    def _groups(self) -> list[Group]:
        found: dict[tuple[str, bool], list[str]] = {}
        for name, prior in self.priors.items():
            found.setdefault((self.case.parameters[name].group or "parameters", prior.log), []).append(name)
        mixed = {group for group, log in found if (group, not log) in found}
        groups: list[Group] = []
        taken = {*RESERVED, OBSERVATION, "x", "y", "name"}
        for (group, log), members in found.items():
            name = identifier(group) + ("_log" if group in mixed and log else "")
            while name in taken:
                name += "_parameters" if name in (*RESERVED, OBSERVATION, "x", "y", "name") else "_2"
            taken.add(name)
            groups.append(self._as_field(Group(name, tuple(members), log)))
        return self._on_one_grid(groups)

    def _as_field(self, group: Group) -> Group:
        """Return a group with its points, if all of its parameters have coordinates and the same prior."""
        points = [self.points[name] for name in group.parameters if name in self.points]
        if len(points) < max(len(group.parameters), FEWEST_POINTS):
            return group
        if len(set(points)) < len(points):
            self._remark(group, "several parameters at the same place")
            return group
        first = self.priors[group.parameters[0]]
        for name in group.parameters:
            prior = self.priors[name]
            if not (
                math.isclose(prior.centre, first.centre, abs_tol=1e-12) and math.isclose(prior.spread, first.spread)
            ):
                self._remark(group, f"the priors of {group.parameters[0]} and {name} differ")
                return group
        return Group(group.name, group.parameters, group.log, tuple(points), self._length_scale(group, points))

    def _remark(self, group: Group, why: str) -> None:
        self.project.notes.append(
            (f"coordinates of group {group.name!r}", f"not used, its parameters are independent numbers: {why}")
        )

    def _on_one_grid(self, groups: list[Group]) -> list[Group]:
        """Keep the fields on the largest set of points, which becomes the grid."""
        grid = max((group.points for group in groups), key=len, default=())
        kept = []
        for group in groups:
            if group.points and set(group.points) != set(grid):
                self._remark(group, "a problem has one grid, and another group has more points")
                group = Group(group.name, group.parameters, group.log)  # noqa: PLW2901 - replaced on purpose
            elif group.points:
                order = {point: place for place, point in enumerate(group.points)}
                names = tuple(group.parameters[order[point]] for point in grid)
                group = Group(group.name, names, group.log, grid, group.length_scale)  # noqa: PLW2901
                self.project.notes.append((f"{len(grid)} points of group {group.name!r}", "a field"))
            kept.append(group)
        return self._correlate(kept)

    def _correlate(self, groups: list[Group]) -> list[Group]:
        """Add correlations to groups of numbers; those with correlations between them become one group."""
        fields = [group for group in groups if group.points]
        kept: list[Group] = []
        for group in groups:
            apart = [] if group.points else [k for k in kept if not k.points and self._are_correlated(k, group)]
            same = [other for other in apart if other.log == group.log]
            for other in apart:
                if other.log != group.log:
                    self._note_unused(f"between {other.name!r} and {group.name!r}", "one has logarithms, the other not")
            for other in same:
                kept.remove(other)
            names = [*(other.name for other in same), group.name]
            members = tuple(n for other in (*same, group) for n in other.parameters)
            kept.append(replace(group, name="_and_".join(names), parameters=members) if same else group)
        for on_grid in fields:
            for group in kept:
                if not group.points and self._are_correlated(on_grid, group):
                    self._note_unused(f"between {on_grid.name!r} and {group.name!r}", "one is a field")
        return [group if group.points else self._with_correlation(group) for group in kept]

    def _are_correlated(self, first: Group, second: Group) -> bool:
        matrix = self.joint.correlation((*first.parameters, *second.parameters))
        return bool(np.any(matrix[: len(first.parameters), len(first.parameters) :] != 0.0))

    def _with_correlation(self, group: Group) -> Group:
        matrix = self.joint.correlation(group.parameters)
        if np.array_equal(matrix, np.eye(len(matrix))):
            return group
        fault = find_fault(matrix)
        if fault:
            self._note_unused(f"of {group.name!r}", fault)
            return group
        self.project.notes.append((f"covariances of {group.name!r} in parcov", "its label_correlation"))
        return replace(group, correlation=tuple(tuple(row) for row in matrix.tolist()))

    def _note_unused(self, which: str, why: str) -> None:
        self.project.notes.append((f"covariances {which} in parcov", f"not used, only the variances are: {why}"))

    def _length_scale(self, group: Group, points: Sequence[Point]) -> float:
        """Return the length-scale that fits the covariance file best, or some distances between neighbours."""
        places = np.array(points)
        distances = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
        apart = distances + np.where(np.eye(len(places), dtype=bool), np.inf, 0.0)
        guess = float(f"{SPACINGS * np.median(apart.min(axis=1)):.3g}")
        if self.covariance is not None and set(group.parameters) <= set(self.covariance.names):
            order = [self.covariance.names.index(name) for name in group.parameters]
            block = self.covariance.matrix[np.ix_(order, order)]
            if np.any(block != np.diag(np.diag(block))):
                std = np.sqrt(np.diag(block))
                fitted = _fit_length_scale(distances, block / np.outer(std, std))
                self.project.notes.append((f"covariances of {group.name!r} in parcov", f"length-scale {fitted:g}"))
                return fitted
        self.project.notes.append(
            (f"length-scale of {group.name!r}", f"{guess:g}, {SPACINGS:g} times the distance between points: a guess")
        )
        return guess

    def _data(self) -> list[tuple[str, float, float, str]]:
        """Return name, value, standard deviation and group of the observations that are used."""
        found: list[tuple[str, float, float, str]] = []
        for name, observation in self.case.observations.items():
            if observation.weight == 0.0:
                continue
            why = ""
            if name not in self.read:
                why = "no instruction reads it"
            elif not math.isfinite(observation.value) or observation.weight < 0.0:
                why = "it has no value, or a negative weight"
            elif observation.group.startswith("regul"):
                why = "regularisation, for which the prior stands in"
            elif observation.group.startswith(INEQUALITIES):
                why = f"group {observation.group!r} states a limit, for which there is no counterpart"
            if why:
                self.project.notes.append((f"observation {name!r}", f"left out: {why}"))
                continue
            std = observation.std if observation.std > 0.0 else 1.0 / observation.weight
            found.append((name, observation.value, std, observation.group))
        return found

    def _files(self) -> tuple[list[str], int]:
        """Return the files that each run needs, and their size: all but those of PEST itself, and results."""
        outputs = {(self.folder / convert_path(model_file)).resolve() for _, model_file in self.case.files}
        own = {path.resolve() for path in self.external} | outputs
        project = {
            (self.directory / name).resolve() for name in (*self.project.contents, "survey.toml", "posterior.nc")
        }
        found, size = [], 0
        for entry in sorted(self.folder.iterdir()):
            path = entry.resolve()
            skipped = entry.name.startswith((".", "posterior.")) or entry.suffix.lower() in (".pst", ".tpl", ".ins")
            result = entry.name.lower().startswith(self.control.stem.lower()) and _RESULTS.search(entry.name)
            inside = self.directory.resolve() in (path, *path.parents) and path != self.folder.resolve()
            if skipped or result or path in own or path in project or (inside and entry.is_dir()):
                continue
            found.append(entry.name)
            files = [f for f in entry.rglob("*") if f.is_file()] if entry.is_dir() else [entry]
            size += sum(file.stat().st_size for file in files)
        return found, size


def _fit_length_scale(distances: Floats, correlations: Floats) -> float:
    """Return the length-scale of a Matérn 3/2 kernel that is nearest to correlations (n, n) at distances (n, n)."""
    apart = distances > 0.0
    lags, wanted = distances[apart], correlations[apart]
    scales = np.geomspace(lags.min() / 10.0, lags.max() * 10.0, 400)
    errors = []
    for scale in scales:
        ratio = math.sqrt(3.0) * lags / scale
        errors.append(np.sum(((1.0 + ratio) * np.exp(-ratio) - wanted) ** 2))
    return float(f"{scales[int(np.argmin(errors))]:.3g}")
