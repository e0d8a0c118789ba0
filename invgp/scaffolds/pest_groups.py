"""Parameters of a PEST case as latents: one for each group, numbers or a field, with prior correlations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from invgp.adapters.pest.control import Control
from invgp.adapters.pest.matrices import NamedCovariance
from invgp.adapters.pest.pilot_points import Point
from invgp.config.variable_names import OF_LATENTS, RESERVED
from invgp.core.kernels import STATIONARY
from invgp.problem import Floats
from invgp.scaffolds.column_roles import identifier
from invgp.scaffolds.pest_config_text import OBSERVATION, Group
from invgp.scaffolds.pest_priors import JointPrior, find_fault

FITTED_KERNELS = ("exponential", "matern 3/2", "matern 5/2", "squared exponential")
MOST_PAIRS = 20_000  # of points, to which a kernel is fitted
GUESSED_KERNEL = "matern 3/2"
SPACINGS = 3.0  # length-scale over the distance between pilot points, if no covariance gives it
FEWEST_POINTS = 3  # of a field
_OTHER_NAMES = {*RESERVED, OBSERVATION, "x", "y", "name"}

Notes = list[tuple[str, str]]


class ParameterGroups:
    """Forms the groups of a case.

    Parameters
    ----------
    case : Control
    joint : JointPrior
        Prior of the adjustable parameters.
    points : mapping of str to tuple of float
        Coordinates of those parameters that have some.
    covariance : NamedCovariance, optional
        Prior covariances of the case, to which the length-scale of a field is fitted.
    notes : list of tuple of str
        What became of coordinates and correlations is added to it.
    """

    def __init__(
        self,
        case: Control,
        joint: JointPrior,
        points: Mapping[str, Point],
        covariance: NamedCovariance | None,
        notes: Notes,
    ) -> None:
        self._case, self._joint, self._points = case, joint, points
        self._covariance, self._notes = covariance, notes

    def build(self) -> list[Group]:
        """Return the groups: one for each parameter group, apart for parameters with and without logarithm."""
        found: dict[tuple[str, bool], list[str]] = {}
        for name, prior in self._joint.priors.items():
            found.setdefault((self._case.parameters[name].group or "parameters", prior.log), []).append(name)
        mixed = {group for group, log in found if (group, not log) in found}
        groups: list[Group] = []
        taken = set(_OTHER_NAMES)
        for (group, log), members in found.items():
            name = identifier(group) + ("_log" if group in mixed and log else "")
            while not taken.isdisjoint(_variables(name)):
                name += "_parameters" if not _OTHER_NAMES.isdisjoint(_variables(name)) else "_2"
            taken.update(_variables(name))
            groups.append(self._as_field(Group(name, tuple(members), log)))
        return self._correlate(self._on_one_grid(groups))

    def _as_field(self, group: Group) -> Group:
        """Return a group with its points, if all of its parameters have coordinates and the same prior."""
        points = [self._points[name] for name in group.parameters if name in self._points]
        if len(points) < max(len(group.parameters), FEWEST_POINTS):
            if points:
                fewer = len(points) < len(group.parameters)
                why = "not all of them have coordinates" if fewer else f"a field needs {FEWEST_POINTS} points"
                self._note_coordinates(group, why)
            return group
        if len(set(points)) < len(points):
            self._note_coordinates(group, "several parameters at the same place")
            return group
        first = self._joint.priors[group.parameters[0]]
        for name in group.parameters:
            prior = self._joint.priors[name]
            if not (
                math.isclose(prior.centre, first.centre, abs_tol=1e-12) and math.isclose(prior.spread, first.spread)
            ):
                self._note_coordinates(group, f"the priors of {group.parameters[0]} and {name} differ")
                return group
        kernel, length_scale = self._kernel(group, points)
        return replace(group, points=tuple(points), kernel=kernel, length_scale=length_scale)

    def _on_one_grid(self, groups: list[Group]) -> list[Group]:
        """Keep the fields on the largest set of points, which becomes the grid."""
        grid = max((group.points for group in groups), key=len, default=())
        return [self._on_grid(group, grid) if group.points else group for group in groups]

    def _on_grid(self, group: Group, grid: tuple[Point, ...]) -> Group:
        """Return a field with its parameters in the order of the grid; as numbers, if it has other points."""
        if set(group.points) != set(grid):
            self._note_coordinates(group, "a problem has one grid, and another group has more points")
            return replace(group, points=(), length_scale=0.0)
        self._notes.append((f"{len(grid)} points of group {group.name!r}", "a field"))
        owner = dict(zip(group.points, group.parameters, strict=True))
        return replace(group, parameters=tuple(owner[point] for point in grid), points=grid)

    def _correlate(self, groups: list[Group]) -> list[Group]:
        """Add correlations to groups of numbers; those with correlations between them become one group."""
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
        for on_grid in (group for group in groups if group.points):
            for group in kept:
                if not group.points and self._are_correlated(on_grid, group):
                    self._note_unused(f"between {on_grid.name!r} and {group.name!r}", "one is a field")
        return [group if group.points else self._with_correlation(group) for group in kept]

    def _are_correlated(self, first: Group, second: Group) -> bool:
        matrix = self._joint.correlation((*first.parameters, *second.parameters))
        return bool(np.any(matrix[: len(first.parameters), len(first.parameters) :] != 0.0))

    def _with_correlation(self, group: Group) -> Group:
        matrix = self._joint.correlation(group.parameters)
        if np.array_equal(matrix, np.eye(len(matrix))):
            return group
        fault = find_fault(matrix)
        if fault:
            self._note_unused(f"of {group.name!r}", fault)
            return group
        self._notes.append((f"prior correlations of {group.name!r}", "its label_correlation"))
        return replace(group, correlation=tuple(tuple(row) for row in matrix.tolist()))

    def _kernel(self, group: Group, points: Sequence[Point]) -> tuple[str, float]:
        """Return the kernel and length-scale that fit the covariance file best, or a guess from the distances."""
        places = np.array(points)
        distances = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
        known = self._covariance
        if known is not None and set(group.parameters) <= set(known.names):
            order = [known.names.index(name) for name in group.parameters]
            block = known.matrix[np.ix_(order, order)]
            if np.any(block != np.diag(np.diag(block))):
                std = np.sqrt(np.diag(block))
                kernel, fitted, error = _fit_kernel(distances, block / np.outer(std, std))
                about = f"kernel {kernel!r}, length-scale {fitted:g}; its correlations differ by up to {error:.2f}"
                self._notes.append((f"covariances of {group.name!r} in parcov", about))
                return kernel, fitted
        apart = distances + np.where(np.eye(len(places), dtype=bool), np.inf, 0.0)
        guess = float(f"{SPACINGS * np.median(apart.min(axis=1)):.3g}")
        about = f"{guess:g}, {SPACINGS:g} times the distance between points: a guess"
        self._notes.append((f"length-scale of {group.name!r}", about))
        return GUESSED_KERNEL, guess

    def _note_coordinates(self, group: Group, why: str) -> None:
        about = f"not used, its parameters are independent numbers: {why}"
        self._notes.append((f"coordinates of group {group.name!r}", about))

    def _note_unused(self, which: str, why: str) -> None:
        self._notes.append((f"prior correlations {which}", f"not used, only the variances are: {why}"))


def _variables(name: str) -> set[str]:
    """Return the variables and dimensions of the posterior file that belong to a latent."""
    return {name, f"{name}_name", f"{name}_name_label", *(name + suffix for suffix in OF_LATENTS)}


def _fit_kernel(distances: Floats, correlations: Floats) -> tuple[str, float, float]:
    """Return the kernel and the length-scale that fit correlations best, and the largest difference.

    Parameters
    ----------
    distances, correlations : array, shape (n, n)
    """
    pairs = np.triu_indices(len(distances), 1)
    lags, wanted = distances[pairs], correlations[pairs]
    some = slice(None, None, math.ceil(len(lags) / MOST_PAIRS))

    def difference(kind: str, scale: float, chosen: slice = slice(None)) -> Floats:
        correlation = STATIONARY[kind]().correlation((lags[chosen] / scale) ** 2)
        return np.asarray(correlation - wanted[chosen])

    scales = np.geomspace(lags.min() / 10.0, lags.max() * 10.0, 400)
    kind, scale = min(
        ((kind, float(f"{scale:.3g}")) for kind in FITTED_KERNELS for scale in scales),
        key=lambda fit: float(np.sum(difference(fit[0], fit[1], some) ** 2)),
    )
    return kind, scale, float(np.max(np.abs(difference(kind, scale))))
